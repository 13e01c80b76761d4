"""Scatters that add to zeros, and whose result is added to a product: they add to the product.

The gradient of an embedding that is also the last layer's matrix is such a sum. The zeros would be stored, and read
with what the scatter leaves of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.values.reduction import plain_operation
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.compiler.passes.simplify.algebraic_arithmetic import splat
from systolith.isa.dtypes import F32, S32, U32

MOVEMENT = ("reshape", "transpose", "copy", "bitcast")
"""Operations through which a product is seen."""


@dataclass(frozen=True)
class MergeScatterSums:
    """Write `scatter(0, i, u) + p`, where `p` is a product, as `scatter(p, i, u)`.

    Products are sums from 0 on, and so never -0, to which adding 0 would make a difference.
    """

    def run(self, module: Module) -> bool:
        return rewrite(module, lambda r, i: _merged(r, i) if i.opcode == "add" else None, opcodes=("scatter",))


def _merged(r: Rewriter, i: Instruction) -> Instruction | None:
    if i.shape.dtype not in (F32, S32, U32):
        return None
    for scatter, other in (i.operands, i.operands[::-1]):
        if scatter.opcode != "scatter" or r.uses[scatter] > 1 or not _is_product(other):
            continue
        x, indices, updates = scatter.operands
        zeros = splat(x)
        if zeros is None or zeros != 0 or plain_operation(scatter.computation()) != "add":
            continue
        return r.like(scatter, [other, indices, updates], i.shape)
    return None


def _is_product(i: Instruction) -> bool:
    while i.opcode in MOVEMENT:
        (i,) = i.operands
    return i.opcode in ("dot", "convolution")
