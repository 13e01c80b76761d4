"""`scaled-dot` as `dot`: both sides in f32, multiplied by their scales.

Source: XLA's `scaled_dot_rewriter`; the values are those of `hlo/values/ragged.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.expand.ragged_dots import DOT, product
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import F32


@dataclass(frozen=True)
class RewriteScaledDots:
    """Write `scaled-dot` as a `dot` of products, in full precision."""

    def run(self, module: Module) -> bool:
        return rewrite(module, lambda r, i: _expanded(r, i) if i.opcode == "scaled-dot" else None)


def _expanded(r: Rewriter, i: Instruction) -> Instruction | None:
    if any(o.shape.is_dynamic or o.shape.dtype.bits > F32.bits for o in i.operands):
        return None
    lhs, rhs = (_scaled(r, x, scale) for x, scale in zip(i.operands[:2], i.operands[2:], strict=True))
    made = product(r, i, (lhs, rhs), array(F32, i.dims), [i.ints(name, ()) for name in DOT])
    made.attributes["operand_precision"] = ("highest", "highest")
    return r.converted(made, i.shape.dtype)


def _scaled(r: Rewriter, x: Instruction, scale: Instruction) -> Instruction:
    """An array times its scales, each of which holds for a block of elements; a scalar stands for none."""
    wide = r.converted(x, F32)
    if not scale.shape.rank and x.shape.rank:
        return wide
    split = [n for have, want in zip(scale.dims, x.dims, strict=True) for n in (have, want // have)]
    places = tuple(range(0, len(split), 2))
    spread = r.emit("broadcast", r.converted(scale, F32), shape=array(F32, split), dimensions=places)
    return r.emit("multiply", wide, r.reshaped(spread, x.dims))
