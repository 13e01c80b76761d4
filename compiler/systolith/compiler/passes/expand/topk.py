"""The k first elements of a sort, without sorting the others.

Blocks of k elements are sorted; then, of each two blocks, the better k go on, until one block is left.  Of long lines
only k groups of neighbours take part: those with the best of their elements before those of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array, tuple_of
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.expand.comparators import has_order, has_sign, ordered, unordered
from systolith.compiler.passes.expand.sort_blocks import in_batches, power
from systolith.compiler.passes.expand.sort_network import (
    Arrays,
    Columns,
    Network,
    cut,
    exchanged,
    extreme,
    lexicographic,
    padded,
)
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import S32, DType

TOP_K = "TopK"
"""Target of the custom call that is the same as the operation."""

GROUP = 128
"""Neighbours that take part together: a row of lanes, one window of a gather."""

LONG = 4
"""A line is long if it has so many times the elements of k groups."""


@dataclass(frozen=True)
class DecomposeTopK:
    """Expand `topk`, and custom calls of `TopK`, to networks that leave out what is not among the k."""

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        changed = False
        while rewrite(module, lambda r, i: _expanded(r, callees, i) if is_topk(i) else None):
            callees.place()
            changed = True
        return changed


def is_topk(i: Instruction) -> bool:
    """Whether it gives the largest or smallest elements along the last dimension, and their indices."""
    return i.opcode == "topk" or (i.opcode == "custom-call" and i.attributes.get("custom_call_target") == TOP_K)


def _expanded(r: Rewriter, callees: Callees, i: Instruction) -> Instruction | None:
    (x,) = i.operands
    values, indices = i.shape.elements
    if x.shape.is_dynamic or not x.shape.rank or not (x.shape.dtype.is_integer or has_order(x.shape.dtype)):
        return None
    k = values.dims[-1]
    direction = "GT" if i.opcode == "custom-call" or i.flag("largest", True) else "LT"
    if not values.size:
        found = [r.full(0, s) for s in (values, indices)]
    elif x.dims[-1] >= LONG * GROUP * k and x.shape.dtype.bits <= 32:
        found = _of_groups(r, callees, x, k, direction)
    elif parts := in_batches(r, callees, i, x.shape.rank - 1, lambda *_: None):
        found = parts
    else:
        found = _first(r, x, k, direction)
    return r.emit("tuple", *found, shape=i.shape)


def _of_groups(r: Rewriter, callees: Callees, x: Instruction, k: int, direction: str) -> list[Instruction]:
    """By the best of each group of neighbours: first the groups, then the elements of these."""
    dtype, n, rows = x.shape.dtype, x.dims[-1], prod(x.dims[:-1])
    groups = -(-n // GROUP)
    lines = padded(r, r.reshaped(x, (rows, n)), _last(dtype, direction), groups * GROUP - n, 1)
    key = _key(r, r.reshaped(lines, (rows, groups, GROUP)))
    init = r.constant(extreme(key.shape.dtype, direction), key.shape.dtype)
    reducer = callees.reducer("maximum" if direction == "GT" else "minimum", key.shape.dtype)
    best = r.emit("reduce", key, init, shape=array(key.shape.dtype, (rows, groups)), dimensions=(2,), to_apply=reducer)
    shapes = tuple_of([array(best.shape.dtype, (rows, k)), array(S32, (rows, k))])
    found = r.emit("topk", best, shape=shapes, k=k, largest=direction == "GT")
    chosen = r.emit("get-tuple-element", found, index=1)
    row = r.emit("iota", shape=chosen.shape, iota_dimension=0)
    at = r.emit("add", chosen, r.emit("multiply", row, r.full(groups, row.shape)))
    taken = r.emit(
        "gather",
        r.reshaped(lines, (rows * groups, GROUP)),
        r.reshaped(at, (rows * k, 1)),
        shape=array(dtype, (rows * k, GROUP)),
        offset_dims=(1,),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1, GROUP),
    )
    all_of = array(S32, (rows, k, GROUP))
    first = r.emit(
        "broadcast", r.emit("multiply", chosen, r.full(GROUP, chosen.shape)), shape=all_of, dimensions=(0, 1)
    )
    place = r.emit("add", first, r.emit("iota", shape=all_of, iota_dimension=2))
    elements = r.reshaped(taken, (rows, k * GROUP))
    done = _first(r, elements, k, direction, r.reshaped(place, (rows, k * GROUP)))
    return [r.reshaped(y, (*x.dims[:-1], k)) for y in done]


def _key(r: Rewriter, x: Instruction) -> Instruction:
    return ordered(r, x) if x.shape.dtype.is_float else x


def _last(dtype: DType, direction: str) -> object:
    """What comes last of all: of floats with a sign that with all bits set but perhaps the sign."""
    if not dtype.is_float:
        return extreme(dtype, direction)
    if has_sign(dtype):
        bits = (1 << dtype.bits) - 1 if direction == "GT" else (1 << (dtype.bits - 1)) - 1
    else:
        bits = 0 if direction == "GT" else (1 << dtype.bits) - 1
    return np.array([bits], f"u{dtype.size}").view(dtype.stored)[0]


def _first(r: Rewriter, x: Instruction, k: int, direction: str, place: Instruction | None = None) -> list[Instruction]:
    """By a network; `place`: the index of each element, if it is not where it stands."""
    columns = Columns(r, x.dims, x.shape.rank - 1)
    n, block = x.dims[-1], power(k)
    more = max(power(n), block) - n
    key = _key(r, x)
    key = columns.brought(padded(r, key, extreme(key.shape.dtype, direction), more, columns.dim))
    if place is None:
        place = r.emit("iota", shape=array(S32, key.dims), iota_dimension=0)
    else:
        place = columns.brought(padded(r, place, extreme(S32, "LT"), more, columns.dim))
    key, place = (columns.returned(cut(r, y, k)) for y in Network(r, _Best(direction)).first([key, place], block))
    return [unordered(r, key, x.shape.dtype) if x.shape.dtype.is_float else key, place]


@dataclass(frozen=True)
class _Best:
    """Integers by value, and those that are equal by their places."""

    direction: str

    def exchange(self, r: Rewriter, a: Arrays, b: Arrays) -> tuple[Arrays, Arrays]:
        """Of each pair, the element that comes first, and the other."""
        earlier = r.emit("compare", b[1], a[1], direction="LT")
        return exchanged(r, lexicographic(r, self.direction, b[0], a[0], earlier), a, b)
