"""Short rows that are reduced: the kept dimension as two, so that one copy of the cross-lane unit fills the lanes.

Of n rows of k elements the kernel wants a vector of elements of different rows.  As [l, n / l, k] the array is a matrix
of l long rows; turned, l elements of it, each of another row, lie together for every place in them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.ops.expression import Load, Node, topological
from systolith.compiler.ops.reduction import Reduction, scratch_leaf
from systolith.compiler.tile.ir import Array
from systolith.isa.chip import Chip
from systolith.isa.dtypes import DType
from systolith.isa.instruction import Space


def short_rows(chip: Chip, dims: Sequence[int], reduced: Collection[int], dtype: DType) -> bool:
    """Whether a reduction of a space is one of rows shorter than a vector, and of vectors of them.

    The cross-lane unit turns them in less time than it reduces as many. It reads rows of a whole vector where they lie,
    but only of 32 bits.
    """
    kept = [d for d in range(len(dims)) if d not in reduced]
    if not kept or not reduced or max(kept) > min(reduced):
        return False
    full = prod(dims[d] for d in kept) >= chip.vpu.lanes * chip.vpu.sublanes
    longest = chip.vpu.lanes if dtype.bits < 32 else chip.vpu.lanes - 1
    return full and prod(dims[d] for d in reduced) <= longest


@dataclass(frozen=True)
class Split:
    """A reduction, and where its operands and results lie, with a kept dimension as two.

    Attributes:
        r: the reduction.
        arrays: of its leaves.
        results: of its results.
        place: the first of the two among its dimensions.
    """

    r: Reduction
    arrays: Mapping[Instruction, Array]
    results: Sequence[Array]
    place: int


def split_rows(r: Reduction, arrays: Mapping[Instruction, Array], results: Sequence[Array], lanes: int) -> Split | None:
    """With the last kept dimension as two, of which the first fills lanes; None: it has no such divisor, or is not read
    in order.
    """
    kept = [d for d in r.kept if r.dims[d] > 1]
    if not kept or r.sides or kept[-1] > min(r.reduced, default=0):
        return None
    d = kept[-1]
    first = next((m for m in range(lanes, lanes // 2, -1) if r.dims[d] % m == 0), 0)
    if not first or r.dims[d] == first:
        return None
    inner = r.dims[d] // first
    made = r.split(d, inner)
    swap: dict[int, Node] = {}
    found = dict(arrays)
    for load in (n for n in topological(made.inputs) if isinstance(n, Load)):
        two = _split_load(load, arrays[load.leaf], d, made.dims)
        if two is not None:
            other, array = two
            swap[id(load)] = r.graph.node(other)
            found[other.leaf] = array
        elif arrays[load.leaf].buf.space is Space.HBM and _depends(load, d):
            return None
    at = r.kept.index(d)
    halves = [_halves(a, at, first, inner) for a in results]
    inputs = tuple(r.graph.substitute(made.inputs, swap))
    return Split(replace(made, inputs=inputs), found, halves, d)


def _depends(load: Load, d: int) -> bool:
    return any({d, d + 1} & e.depends for e in (*load.map.dims, *(b.expr for b in load.map.bounds)))


def _split_load(load: Load, array: Array, d: int, dims: Sequence[int]) -> tuple[Load, Array] | None:
    """A load of an array with the dimension as two that it reads along `d` and the next; None: there is none."""
    along = [k for k, e in enumerate(load.map.dims) if {d, d + 1} & e.depends]
    if len(along) != 1 or not load.map.total:
        return None
    (k,) = along
    expr, rank = load.map.dims[k], load.map.rank
    if list(expr.terms) != [(d, dims[d + 1]), (d + 1, 1)]:
        return None
    start = replace(array, offset=array.offset + (expr.const - array.origin[k]) * array.strides[k])
    halves = _halves(start, k, dims[d], dims[d + 1])
    unit = [replace(expr, coefs=tuple(int(n == e) for n in range(rank)), const=0) for e in (d, d + 1)]
    index = replace(load.map, dims=(*load.map.dims[:k], *unit, *load.map.dims[k + 1 :]))
    leaf = scratch_leaf(load.leaf.name, load.leaf.shape.dtype, halves.dims)
    return replace(load, leaf=leaf, map=index), halves


def _halves(array: Array, k: int, first: int, inner: int) -> Array:
    """An array with a dimension as two."""

    def two(v: tuple[int, ...], *new: int) -> tuple[int, ...]:
        return (*v[:k], *new, *v[k + 1 :])

    stride = array.strides[k]
    return replace(
        array,
        dims=two(array.dims, first, inner),
        strides=two(array.strides, stride * inner, stride),
        origin=two(array.origin, 0, 0),
    )
