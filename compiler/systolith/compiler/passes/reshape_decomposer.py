"""Reshapes that move bytes as a copy, a reshape that moves none, and a copy."""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.passes.rewrite import Rewriter, rewrite


@dataclass(frozen=True)
class DecomposeReshapes:
    """Make every reshape one of row-major arrays, whose bytes it leaves in place, with copies around it."""

    def run(self, module: Module) -> bool:
        return rewrite(module, _decomposed)


def _decomposed(r: Rewriter, i: Instruction) -> Instruction | None:
    if i.opcode != "reshape" or i.shape.is_dynamic or i.operands[0].shape.is_dynamic:
        return None
    (x,) = i.operands
    before, after = (array(s.dtype, s.dims) for s in (x.shape, i.shape))
    if _same_order(x.shape, before) and _same_order(i.shape, after):
        return None
    if not _same_order(x.shape, before):
        x = r.emit("copy", x, shape=before)
    if _same_order(i.shape, after):
        return r.emit("reshape", x, shape=i.shape)
    return r.emit("copy", r.emit("reshape", x, shape=after), shape=i.shape)


def _same_order(a: Shape, b: Shape) -> bool:
    """Whether two layouts order the dimensions that have more than one place alike."""
    orders = ([d for d in s.minor_to_major if s.dims[d] != 1] for s in (a, b))
    return next(orders) == next(orders)
