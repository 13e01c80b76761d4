"""Scatters of many updates into few elements, as reductions.

A kernel in serial mode takes `UPDATE` cycles for each update, since the next one may be of the same element.  Where
there are few elements, each can take all updates of its index at once instead, as many as lanes hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from systolith.compiler.hlo.attributes import PadDim
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.hlo.values.reduction import neutral_element, plain_operation
from systolith.compiler.passes.expand.scatters import is_simple
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import F32, PRED, S32, U32

LONG = 512
"""Updates that are worth filling lanes with."""

UPDATE, LANES, REGISTER, VECTOR = 9, 128, 1024, 2.2
"""Cycles of an update in serial mode; lanes, elements of a vector register, and cycles in which so many indices are
compared, updates chosen and combined: those of `tpu_v3`, whatever the chip, as a pass does not know it."""

GAIN = 2
"""How many times fewer cycles the reduction has to need."""


@dataclass(frozen=True)
class ReduceSmallScatters:
    """Write scatters by one associative operation of 32-bit numbers, into few elements, as reductions."""

    def run(self, module: Module) -> bool:
        return rewrite(module, lambda r, i: _reduced(r, i) if i.opcode == "scatter" else None)


def _reduced(r: Rewriter, i: Instruction) -> Instruction | None:
    if i.shape.is_tuple or i.shape.dtype not in (F32, S32, U32) or not is_simple(i):
        return None
    x, indices, updates = i.operands
    opcode = plain_operation(i.computation())
    (many,), (outer, elements, inner) = indices.dims, x.dims
    if opcode is None or updates.shape.rank != x.shape.rank or many < LONG:
        return None
    if GAIN * VECTOR * x.shape.size > UPDATE * REGISTER:
        return None
    lanes = LANES * max(1, REGISTER // (LANES * x.shape.size))
    parts = -(-many // lanes)
    indices = _divided(r, indices, 0, -1, lanes)
    updates = r.transposed(_divided(r, updates, 1, 0, lanes), (1, 0, 3, 2))
    dims = (parts, outer, inner, elements, lanes)
    index = r.emit("broadcast", indices, shape=array(S32, dims), dimensions=(0, 4))
    place = r.emit("iota", shape=array(S32, dims), iota_dimension=3)
    here = r.emit("compare", place, index, shape=array(PRED, dims), direction="EQ")
    given = r.emit("broadcast", updates, shape=array(i.shape.dtype, dims), dimensions=(0, 1, 2, 4))
    neutral = r.constant(neutral_element(opcode, i.shape.dtype), i.shape.dtype)
    made = r.emit("select", here, given, r.spread(neutral, given.shape))
    for d in (0, 3):  # all parts first: each lane holds some of the updates
        shape = array(i.shape.dtype, made.dims[:d] + made.dims[d + 1 :])
        made = r.emit("reduce", made, neutral, shape=shape, dimensions=(d,), to_apply=i.computation())
    return r.emit(opcode, x, r.transposed(made, (0, 2, 1)), shape=i.shape, name=i.name)


def _divided(r: Rewriter, x: Instruction, d: int, fill: int, size: int) -> Instruction:
    """A dimension as two, of parts of this size and of what is in a part; the last one is filled up."""
    more = -x.dims[d] % size
    if more:
        padding = tuple(PadDim(0, more * (n == d)) for n in range(len(x.dims)))
        x = r.emit("pad", x, r.constant(fill, x.shape.dtype), padding=padding)
    return r.reshaped(x, (*x.dims[:d], x.dims[d] // size, size, *x.dims[d + 1 :]))
