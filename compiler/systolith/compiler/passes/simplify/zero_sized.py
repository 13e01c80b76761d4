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
            if not _is_empty(i.shape) or i.opcode in _KEPT or i.opcode.endswith(("-start", "-update")):
                return None
            return None if effects.of(i) else _constant(r, i.shape)

        return rewrite(module, empty)


def _is_empty(shape: Shape) -> bool:
    if shape.is_array:
        return 0 in shape.dims and not shape.is_dynamic
    leaves = list(shape.leaves())
    return bool(leaves) and all(s.is_array and not s.is_dynamic and s.size == 0 for s in leaves)


def _constant(r: Rewriter, shape: Shape) -> Instruction:
    """The one value of a shape without elements."""
    if shape.is_tuple:
        return r.emit("tuple", *(_constant(r, s) for s in shape.elements), shape=shape)
    made = r.constant(np.empty(shape.dims), shape.dtype)
    made.shape = shape
    return made
