"""`scaled-dot` as `dot`: both sides in f32, multiplied by their scales; in f64 if an operand has 64 bits.

Source: XLA's `scaled_dot_rewriter`; the values are those of `hlo/values/ragged.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.expand.ragged_dots import DOT, product
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import DTYPES, F32, DType, Kind

F64 = DTYPES["f64"]


@dataclass(frozen=True)
class RewriteScaledDots:
    """Write `scaled-dot` as a `dot` of products, in full precision."""

    def run(self, module: Module) -> bool:
        return rewrite(module, lambda r, i: _expanded(r, i) if i.opcode == "scaled-dot" else None)


def _expanded(r: Rewriter, i: Instruction) -> Instruction | None:
    if any(o.shape.is_dynamic or o.shape.dtype.kind is Kind.COMPLEX for o in i.operands):
        return None
    dtype = F64 if any(o.shape.dtype.bits > F32.bits for o in i.operands) else F32
    lhs, rhs = (_scaled(r, x, scale, dtype) for x, scale in zip(i.operands[:2], i.operands[2:], strict=True))
    made = product(r, i, (lhs, rhs), array(dtype, i.dims), [i.ints(name, ()) for name in DOT])
    made.attributes["operand_precision"] = ("highest", "highest")
    return r.converted(made, i.shape.dtype)


def _scaled(r: Rewriter, x: Instruction, scale: Instruction, dtype: DType) -> Instruction:
    """An array times its scales, each of which holds for a block of elements; a scalar stands for none."""
    wide = r.converted(x, dtype)
    if not scale.shape.rank and x.shape.rank:
        return wide
    split = [n for have, want in zip(scale.dims, x.dims, strict=True) for n in (have, want // have)]
    places = tuple(range(0, len(split), 2))
    spread = r.emit("broadcast", r.converted(scale, dtype), shape=array(dtype, split), dimensions=places)
    return r.emit("multiply", wide, r.reshaped(spread, x.dims))
