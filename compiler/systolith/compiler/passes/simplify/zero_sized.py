"""Values without elements are constants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.passes.effects import Effects
from systolith.compiler.passes.rewrite import Rewriter, rewrite

_KEPT = frozenset({"parameter", "constant", "tuple"})


@dataclass(frozen=True)
class EliminateZeroSized:
    """Replace what gives an array without elements, or a tuple of such, by constants.

    The rules of `Simplify` say what an operation makes of operands without elements.
    """

    def run(self, module: Module) -> bool:
        effects = Effects()

        def empty(r: Rewriter, i: Instruction) -> Instruction | None:
            known = i.opcode not in _KEPT and not i.opcode.endswith(("-start", "-update")) and not effects.of(i)
            return _constant(r, i.shape) if known and _is_empty(i.shape) else None

        return rewrite(module, empty)


def _is_empty(shape: Shape) -> bool:
    leaves = list(shape.leaves())
    return bool(leaves) and all(s.is_array and not s.is_dynamic and s.size == 0 for s in leaves)


def _constant(r: Rewriter, shape: Shape) -> Instruction:
    """The one value of a shape without elements."""
    if shape.is_tuple:
        return r.emit("tuple", *(_constant(r, s) for s in shape.elements), shape=shape)
    made = r.constant(np.empty(shape.dims), shape.dtype)
    made.shape = shape
    return made
