"""Dots of integers wider than the matrix units take become a product and a sum on the vector unit.

dot(a, b) = reduce-add over the contracted dimensions of broadcast(a) * broadcast(b): the broadcasts fold into index
maps and the product into the reduction, so that nothing of the larger shape is stored.  Integer sums wrap in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import DType


@dataclass(frozen=True)
class ExpandIntegerDots:
    """Expand dots with an operand of an integer type of more than `widest` bits.

    Attributes:
        widest: bits that the matrix units multiply.
    """

    widest: int = 8

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        changed = rewrite(module, lambda r, i: self._expanded(callees, r, i))
        callees.place()
        return changed

    def _expanded(self, callees: Callees, r: Rewriter, i: Instruction) -> Instruction | None:
        wide = i.opcode == "dot" and any(self._too_wide(o.shape.dtype) for o in i.operands)
        return _expand(callees, r, i) if wide and not any(o.shape.is_dynamic for o in i.operands) else None

    def _too_wide(self, dtype: DType) -> bool:
        return dtype.is_integer and dtype.bits > self.widest


def _expand(callees: Callees, r: Rewriter, dot: Instruction) -> Instruction:
    """Over the space of batch, free left, free right and contracted dimensions, in this order."""
    lhs, rhs = dot.operands
    (lb, lc), (rb, rc) = (
        (dot.ints(f"{side}_batch_dims", ()), dot.ints(f"{side}_contracting_dims", ())) for side in ("lhs", "rhs")
    )
    left_free = [d for d in range(len(lhs.dims)) if d not in (*lb, *lc)]
    right_free = [d for d in range(len(rhs.dims)) if d not in (*rb, *rc)]
    kept = len(lb) + len(left_free) + len(right_free)
    sizes = (*dot.dims, *(lhs.dims[d] for d in lc))
    summed = tuple(range(kept, len(sizes)))
    left_places = _places(len(lhs.dims), (lb, range(len(lb))), (left_free, range(len(lb), kept)), (lc, summed))
    first_right = len(lb) + len(left_free)
    right_places = _places(len(rhs.dims), (rb, range(len(rb))), (right_free, range(first_right, kept)), (rc, summed))
    dtype = dot.shape.dtype
    sides = [_spread(r, operand, dtype, sizes, places) for operand, places in ((lhs, left_places), (rhs, right_places))]
    product = r.emit("multiply", *sides, shape=sides[0].shape)
    zero = r.constant(0, dtype)
    adder = callees.reducer("add", dtype)
    return r.emit("reduce", product, zero, shape=dot.shape, name=dot.name, dimensions=summed, to_apply=adder)


def _places(rank: int, *pairs: tuple[Sequence[int], Sequence[int]]) -> tuple[int, ...]:
    """For each dimension of an operand, the one of the product that it becomes."""
    places = [0] * rank
    for dims, targets in pairs:
        for d, target in zip(dims, targets, strict=False):
            places[d] = target
    return tuple(places)


def _spread(
    r: Rewriter, operand: Instruction, dtype: DType, sizes: tuple[int, ...], places: tuple[int, ...]
) -> Instruction:
    """An operand, converted and transposed into order, broadcast over the product's space."""
    if operand.shape.dtype != dtype:
        operand = r.emit("convert", operand, shape=array(dtype, operand.dims))
    order = tuple(sorted(range(len(places)), key=places.__getitem__))
    if order != tuple(range(len(order))):
        operand = r.emit("transpose", operand, dimensions=order)
    return r.emit("broadcast", operand, shape=array(dtype, sizes), dimensions=tuple(sorted(places)))
