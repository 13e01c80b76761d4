"""The k first elements of a sort, without sorting the others.

Blocks of k elements are sorted; then, of each two blocks, the better k go on, until one block is left.  Of long lines
only k groups take part, those whose best elements are before those of the others: whatever is before an element of
another group is the best of k groups at least.  The elements of a group lie far apart, so that those of many groups are
compared side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, prod

import numpy as np

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import array, tuple_of
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.expand.comparators import has_order, has_sign, ordered, unordered
from systolith.compiler.passes.expand.sort_blocks import AT_ONCE, in_batches, power
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
from systolith.isa.dtypes import PRED, S32, U8, DType

TOP_K = "TopK"
"""Target of the custom call that is the same as the operation."""

LONG = 512
"""A line is long if it has so many times k elements."""

LESS = 64
"""So is one whose groups fill vectors, if it has so many times k elements."""

LANES = 128
"""Groups that fill a vector."""

BYTES = 8
"""Of an element of a network: a key and its place."""

SHARE = 1 / 8
"""Of the elements of lines in groups, those that are compared in networks, at most."""


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
    dtype = x.shape.dtype
    if x.shape.is_dynamic or not x.shape.rank or not (dtype is PRED or dtype.is_integer or has_order(dtype)):
        return None
    if x.shape.dtype is PRED:
        x = r.converted(x, U8)
    k = values.dims[-1]
    direction = "GT" if i.opcode == "custom-call" or i.flag("largest", True) else "LT"
    if not values.size:
        found = [r.full(0, s) for s in (values, indices)]
    elif (groups := _groups(x, k)) is not None:
        many = x.shape.size // x.dims[-1] * groups.most * BYTES > 4 * AT_ONCE
        parts = in_batches(r, callees, i, x.shape.rank - 1, lambda *_: None, SHARE) if many else None
        found = parts or _of_groups(r, callees, x, groups, direction)
    elif parts := in_batches(r, callees, i, x.shape.rank - 1, lambda *_: None):
        found = parts
    else:
        found = _first(r, x, k, direction)
    found = [r.converted(found[0], values.dtype), found[1]]
    return r.emit("tuple", *found, shape=i.shape)


@dataclass(frozen=True)
class _Groups:
    """Groups of the elements of a long line.

    Attributes:
        k: how many of the first elements are wanted.
        count, size: how many groups, and how many elements each has.
    """

    k: int
    count: int
    size: int

    @property
    def most(self) -> int:
        """Elements that are compared at once."""
        return max(self.count, self.size * self.k)


def _groups(x: Instruction, k: int) -> _Groups | None:
    """The groups of each line; None: it is not long."""
    n = x.dims[-1]
    if n < min(LONG, LESS) * k or x.shape.dtype.bits > 32:
        return None
    size = power(isqrt(n // k)) // 2
    made = _Groups(k, -(-n // size), size)
    return made if n >= LONG * k or made.count >= LANES else None


def _of_groups(r: Rewriter, callees: Callees, x: Instruction, of: _Groups, direction: str) -> list[Instruction]:
    """By the best of each group: first the groups, then the elements of k of these.

    There are about four groups for each such element: the groups are there already, the elements are gathered.  All
    that is compared lies in columns, one for each line.
    """
    n, rows, k, size, groups = x.dims[-1], prod(x.dims[:-1]), of.k, of.size, of.count
    lines = padded(r, r.reshaped(x, (rows, n)), _last(x.shape.dtype, direction), groups * size - n, 1)
    best, turn = _best_of_each(r, callees, _key(r, r.reshaped(lines, (rows, size, groups))), direction)
    number = r.emit("iota", shape=turn.shape, iota_dimension=1)
    place = r.emit("add", r.emit("multiply", turn, r.full(groups, turn.shape)), number)
    columns = Columns(r, best.dims, 1)
    _, first = _best(r, columns.brought(best), columns.brought(place), k, direction)
    all_of = array(S32, (size, k, rows))
    chosen = r.emit("remainder", first, r.full(groups, first.shape))
    chosen = r.emit("broadcast", chosen, shape=all_of, dimensions=(1, 2))

    def counted(d: int, each: int) -> Instruction:
        return r.emit("multiply", r.emit("iota", shape=all_of, iota_dimension=d), r.full(each, all_of))

    place = r.emit("add", chosen, counted(0, groups))
    taken = r.emit(
        "gather",
        r.reshaped(lines, (rows * size * groups,)),
        r.reshaped(r.emit("add", place, counted(2, size * groups)), (rows * size * k, 1)),
        shape=array(x.shape.dtype, (rows * size * k,)),
        offset_dims=(),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1,),
    )
    key = _key(r, r.reshaped(taken, (size * k, rows)))
    key, place = _best(r, key, r.reshaped(place, (size * k, rows)), k, direction)
    done = [_value(r, columns.returned(key), x.shape.dtype), columns.returned(place)]
    return [r.reshaped(y, (*x.dims[:-1], k)) for y in done]


def _best_of_each(r: Rewriter, callees: Callees, key: Instruction, direction: str) -> tuple[Instruction, Instruction]:
    """Of each group, which lie along dimension 1, the best integer, and the first place where it is."""
    element, shape = array(key.shape.dtype), array(key.shape.dtype, (key.dims[0], key.dims[2]))
    a, i, b, j = (
        Instruction(name, "parameter", s, number=number)
        for number, (name, s) in enumerate(zip("aibj", (element, array(S32), element, array(S32)), strict=True))
    )
    within = Rewriter(Computation(callees.name("best"), [a, i, b, j]))
    earlier = within.emit("compare", j, i, direction="LT")
    better = lexicographic(within, direction, b, a, earlier)
    root = within.emit("tuple", within.emit("select", better, b, a), within.emit("select", better, j, i))
    within.computation.instructions, within.computation.root = [a, i, b, j, *within.made], root
    made = r.emit(
        "reduce",
        key,
        r.emit("iota", shape=array(S32, key.dims), iota_dimension=1),
        r.constant(extreme(key.shape.dtype, direction), key.shape.dtype),
        r.constant(extreme(S32, "LT"), S32),
        shape=tuple_of([shape, array(S32, shape.dims)]),
        dimensions=(1,),
        to_apply=callees.add(within.computation),
    )
    return r.emit("get-tuple-element", made, index=0), r.emit("get-tuple-element", made, index=1)


def _key(r: Rewriter, x: Instruction) -> Instruction:
    return ordered(r, x) if x.shape.dtype.is_float else x


def _last(dtype: DType, direction: str) -> object:
    """The value that comes last of all: of floats with a sign that with all bits set but perhaps the sign."""
    if not dtype.is_float:
        return extreme(dtype, direction)
    if has_sign(dtype):
        bits = (1 << dtype.bits) - 1 if direction == "GT" else (1 << (dtype.bits - 1)) - 1
    else:
        bits = 0 if direction == "GT" else (1 << dtype.bits) - 1
    return np.array([bits], f"u{dtype.size}").view(dtype.stored)[0]


def _value(r: Rewriter, key: Instruction, dtype: DType) -> Instruction:
    return unordered(r, key, dtype) if dtype.is_float else key


def _first(r: Rewriter, x: Instruction, k: int, direction: str) -> list[Instruction]:
    """By a network."""
    columns = Columns(r, x.dims, x.shape.rank - 1)
    key = columns.brought(_key(r, x))
    place = r.emit("iota", shape=array(S32, key.dims), iota_dimension=0)
    key, place = (columns.returned(y) for y in _best(r, key, place, k, direction))
    return [_value(r, key, x.shape.dtype), place]


def _best(r: Rewriter, key: Instruction, place: Instruction, k: int, direction: str) -> list[Instruction]:
    """The first k of the columns of integers and their places, in order."""
    block = power(k)
    more = max(power(key.dims[0]), block) - key.dims[0]
    key = padded(r, key, extreme(key.shape.dtype, direction), more, 0)
    place = padded(r, place, extreme(S32, "LT"), more, 0)
    return [cut(r, y, k) for y in Network(r, _Best(direction)).first([key, place], block)]


@dataclass(frozen=True)
class _Best:
    """Integers by value, and those that are equal by their places."""

    direction: str

    def exchange(self, r: Rewriter, a: Arrays, b: Arrays) -> tuple[Arrays, Arrays]:
        """Of each pair, the element that comes first, and the other."""
        earlier = r.emit("compare", b[1], a[1], direction="LT")
        return exchanged(r, lexicographic(r, self.direction, b[0], a[0], earlier), a, b)
