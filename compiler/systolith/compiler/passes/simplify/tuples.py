"""Tuples: elements of tuples that are made in the same computation are used directly; constants are arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from systolith.compiler.hlo.ir import Instruction, Literal, Module
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.passes.rewrite import Rewriter, rewrite


@dataclass(frozen=True)
class SimplifyTuples:
    """Use the elements of a tuple made here directly, and a tuple instead of one of all its elements."""

    def run(self, module: Module) -> bool:
        return rewrite(module, _simpler, ("get-tuple-element", "tuple"))


@dataclass(frozen=True)
class SplitTupleConstants:
    """Replace each constant of tuple shape by a tuple of constants of array shape."""

    def run(self, module: Module) -> bool:
        changed = False
        while rewrite(module, _split):  # one level of tuples in tuples at a time
            changed = True
        return changed


@dataclass(frozen=True)
class ExpandBarriers:
    """Replace `opt-barrier` by its operand."""

    def run(self, module: Module) -> bool:
        return rewrite(module, lambda r, i: i.operands[0] if i.opcode == "opt-barrier" else None, ("opt-barrier",))


def _split(r: Rewriter, i: Instruction) -> Instruction | None:
    if i.opcode != "constant" or not i.shape.is_tuple:
        return None
    shapes = i.shape.elements
    values = i.literal if isinstance(i.literal, tuple) else map(_left_out, shapes)
    parts = [r.literal(value, shape) for value, shape in zip(values, shapes, strict=True)]
    return r.emit("tuple", *parts, shape=i.shape, name=i.name)


def _left_out(shape: Shape) -> Literal | None:
    """An element of a constant whose values the text leaves out: an array has none either, a single one is zero."""
    return None if shape.is_tuple or shape.rank else np.zeros((), shape.dtype.stored)


def _simpler(r: Rewriter, i: Instruction) -> Instruction | None:
    if i.opcode == "get-tuple-element" and i.operands[0].opcode == "tuple":
        return i.operands[0].operands[i.integer("index")]
    if i.opcode == "tuple" and i.operands and all(o.opcode == "get-tuple-element" for o in i.operands):
        whole = i.operands[0].operands[0]
        same = all(o.operands[0] is whole and o.integer("index") == k for k, o in enumerate(i.operands))
        return whole if same and len(i.operands) == len(whole.shape.elements) else None
    return None
