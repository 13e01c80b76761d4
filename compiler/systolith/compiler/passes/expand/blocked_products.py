"""Dots whose products of elements would take too much memory all at once: in a loop over parts of the sums."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from systolith.compiler.hlo.attributes import PadDim
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.counted_loop import State, counted_loop
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import S32

MOST = 1 << 17
"""Products of elements at a time."""

ENOUGH = 1 << 11
"""Elements of a result from which on one product of each is enough to do at a time."""


def in_blocks(
    callees: Callees, r: Rewriter, dot: Instruction, expanded: Callable[[Rewriter, Instruction], Instruction]
) -> Instruction:
    """A dot as a sum, in order, of dots of parts; as it is if it is small.

    Args:
        callees: has the loop's computations placed.
        r: makes instructions.
        dot: the dot.
        expanded: what is to stand for one.
    """
    dtype = dot.shape.dtype
    sides = [(dot.ints(f"{side}_batch_dims", ()), dot.ints(f"{side}_contracting_dims", ())) for side in ("lhs", "rhs")]
    length = prod(dot.operands[0].dims[d] for d in sides[0][1])
    part = 1 if dot.shape.size >= ENOUGH else MOST // max(dot.shape.size, 1)
    if length <= max(part, 1):
        return expanded(r, dot)
    trips = -(-length // part)
    x, y = (
        _in_order(r, r.converted(o, dtype), *dims, (0, trips * part - length))
        for o, dims in zip(dot.operands, sides, strict=True)
    )
    batch, rows, columns = x.dims[0], x.dims[1], y.dims[1]
    shape = array(dtype, (batch, rows, columns))

    def step(inside: Rewriter, count: Instruction, state: State) -> list[Instruction]:
        total, *given = state
        zero = inside.constant(0, S32)
        start = inside.emit("multiply", count, inside.constant(part, S32))
        cut = [
            inside.emit("dynamic-slice", o, zero, zero, start, dynamic_slice_sizes=(*o.dims[:2], part)) for o in given
        ]
        return [inside.emit("add", total, _product(inside, *cut)), *given]

    def _product(inside: Rewriter, a: Instruction, b: Instruction) -> Instruction:
        if part == 1:
            spread = [
                inside.emit("broadcast", inside.reshaped(o, o.dims[:2]), shape=shape, dimensions=(0, d))
                for o, d in ((a, 1), (b, 2))
            ]
            return inside.emit("multiply", *spread)
        small = inside.emit(
            "dot",
            a,
            b,
            shape=shape,
            lhs_batch_dims=(0,),
            rhs_batch_dims=(0,),
            lhs_contracting_dims=(2,),
            rhs_contracting_dims=(2,),
        )
        made = expanded(inside, small)
        inside.made.remove(small)
        return made

    total, *_ = counted_loop(r, callees, trips, [r.full(0, shape), x, y], step, Rewriter, "dot")
    return r.reshaped(total, dot.dims)


def _in_order(
    r: Rewriter, x: Instruction, batch: tuple[int, ...], summed: tuple[int, ...], edge: tuple[int, int]
) -> Instruction:
    """An operand with one dimension of each kind: batch, free, summed, the last one with zeros at its end."""
    free = [d for d in range(len(x.dims)) if d not in (*batch, *summed)]
    sizes = [prod(x.dims[d] for d in dims) for dims in (batch, free, summed)]
    made = r.reshaped(r.transposed(x, (*batch, *free, *summed)), sizes)
    if not any(edge):
        return made
    padding = (PadDim(0, 0), PadDim(0, 0), PadDim(*edge))
    return r.emit("pad", made, r.constant(0, x.shape.dtype), padding=padding)
