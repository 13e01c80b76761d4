"""Copies by the cross-lane unit between arrays of the same dims in VMEM.

The unit takes up to a row of lanes at once along whichever dimension is contiguous on each side.  Where no dimension
that is contiguous on one side is long, two copies by way of a matrix take fewer cycles: a few values that are
neighbours are to lie apart, or the other way round (`_Apart`), or neighbours are to lie in reverse, or only every
second of them is copied (`_Across`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Protocol

from systolith.compiler.tile.arrays import dense, nesting
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array, Buf, Ref, TileOp
from systolith.compiler.tile.patterns import Loop, merged, stream
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space
from systolith.isa.pattern import MAX_LOOPS, Pattern
from systolith.isa.program import Origin
from systolith.isa.timing import shuffle_cost

Copy = tuple[Ref, Ref]
"""Source and destination of an instruction."""

WORTH = 3
"""Two copies are tried where one takes so many times the cycles of full rows."""

Steps = tuple[tuple[int, int], ...]
"""Loops, the outermost first: how often, and by how many elements."""


def shuffle(ctx: TileBuilder, src: Array, dst: Array, origin: Origin, across: bool = True) -> None:
    """Append a copy between arrays of the same dims in VMEM; `across`: by a matrix with another dimension innermost, if
    that takes fewer cycles.
    """
    way = _way(ctx.chip, src, dst, across)
    between = ctx.vmem(f"{dst.buf.name}.rows", way.between) if way.between else dst.buf
    for one, other in way.copies(between):
        ctx.append(TileOp("xlu.shuffle", {"src": one, "dst": other}, origin))


def shuffle_cycles(chip: Chip, src: Array, dst: Array, across: bool = True) -> int:
    """Cycles of the cross-lane unit for what `shuffle` appends."""
    return _cycles(chip, _way(chip, src, dst, across))


def _cycles(chip: Chip, way: Way) -> int:
    patterns = ((one.pattern, other.pattern) for one, other in way.copies(Buf("", Space.VMEM, 1)))
    return sum(shuffle_cost(one, other, chip).occupancy for one, other in patterns)


def _way(chip: Chip, src: Array, dst: Array, across: bool) -> Way:
    """The copy of the fewest cycles."""
    one, other = _merged(src, dst, range(len(src.dims)))
    ways: list[Way] = [*_straight(one, other), *_apart(chip, one, other)]
    if across:
        ways += _across(chip, one, other)
    return min(ways, key=lambda way: _cycles(chip, way))


def _merged(src: Array, dst: Array, order: Sequence[int]) -> tuple[Array, Array]:
    """Both with a dimension for each loop of a copy that goes through dimensions in an order."""
    loops = merged(order, src.dims, (src.strides, dst.strides))
    return _looped(src, loops), _looped(dst, loops)


def _looped(array: Array, loops: list[Loop]) -> Array:
    """An array with a dimension for each loop."""
    strides = tuple(array.strides[p.dim] * p.step if p.step else 0 for p in loops)
    return replace(array, dims=tuple(p.count for p in loops), strides=strides, origin=(0,) * len(loops))


class Way(Protocol):
    """One copy, or several."""

    @property
    def between(self) -> int:
        """Bytes of memory that the copies pass through."""

    def copies(self, between: Buf) -> Iterator[Copy]:
        """All of them; `between`: that memory."""


@dataclass(frozen=True)
class _Straight:
    """One copy; dimensions of which neighbours of `forward` lie in reverse run backwards."""

    src: Array
    dst: Array
    forward: Array
    between = 0

    def copies(self, between: Buf) -> Iterator[Copy]:
        back = [s == -self.forward.dtype.size for s in self.forward.strides]
        loops = [Loop(d, -1 if back[d] else 1, n) for d, n in enumerate(self.src.dims)]
        last = {d: n - 1 for d, n in enumerate(self.src.dims) if back[d]}
        yield stream(self.src, loops, last), stream(self.dst, loops, last)


def _straight(src: Array, dst: Array) -> list[_Straight]:
    back = -dst.dtype.size in dst.strides
    return [_Straight(src, dst, forward) for forward in ((src, dst) if back else (src,))]


@dataclass(frozen=True)
class _Across:
    """Two copies by way of a matrix in which another dimension is innermost than on either side.

    Attributes:
        src, dst: as for `shuffle`.
        near: the dimension along which neighbours in the source lie.
        step: elements of the source from one of these to the next; those between are copied to the matrix, too.
        inner: the dimension of the matrix's rows.
        outer: the array whose other dimensions are nested as those of the matrix.
    """

    chip: Chip
    src: Array
    dst: Array
    near: int
    step: int
    inner: int
    outer: Array

    @property
    def _dims(self) -> tuple[int, ...]:
        """Of the matrix."""
        return tuple((n - 1) * self.step + 1 if d == self.near else n for d, n in enumerate(self.src.dims))

    @property
    def between(self) -> int:
        return prod(self._dims) * self.src.dtype.size

    def copies(self, between: Buf) -> Iterator[Copy]:
        order = [*(d for d in nesting(self.outer.strides) if d != self.inner), self.inner]
        steps = dense([self._dims[d] for d in order], self.src.dtype.size)
        strides = tuple(steps[order.index(d)] for d in range(len(order)))
        matrix = Array(between, self.src.dtype, self._dims, strides, (0,) * len(order))
        read = replace(self.src, dims=self._dims, strides=self._stepped(self.src.strides, 1, self.step))
        taken = replace(matrix, dims=self.src.dims, strides=self._stepped(strides, self.step, 1))
        for one, other in ((read, matrix), (taken, self.dst)):
            yield from min(_straight(*_merged(one, other, order)), key=lambda way: _cycles(self.chip, way)).copies(
                between
            )

    def _stepped(self, strides: tuple[int, ...], times: int, by: int) -> tuple[int, ...]:
        return tuple(s * times // by if d == self.near else s for d, s in enumerate(strides))


@dataclass(frozen=True)
class _Both:
    """The copies of two parts."""

    first: Way
    rest: Way

    @property
    def between(self) -> int:
        return max(self.first.between, self.rest.between)

    def copies(self, between: Buf) -> Iterator[Copy]:
        yield from self.first.copies(between)
        yield from self.rest.copies(between)


def _across(chip: Chip, src: Array, dst: Array) -> Iterator[Way]:
    """The ways by a matrix with another dimension innermost, where one copy takes long."""
    lanes, size = chip.vpu.lanes, src.dtype.size
    one = min(_cycles(chip, way) for way in _straight(src, dst))
    if one <= WORTH * (-(-prod(src.dims) // lanes) + chip.xlu.latency):
        return
    steps = [(abs(s) // size, d) for d, (s, n) in enumerate(zip(src.strides, src.dims, strict=True)) if n > 1 and s]
    step, near = min(steps, default=(0, 0))
    if not 1 <= step <= lanes // 2:
        return
    for inner, n in enumerate(src.dims):
        if n > 1 and inner != near:
            yield from (_Across(chip, src, dst, near, step, inner, outer) for outer in (src, dst))
    n = src.dims[near]
    if n >= 2 * lanes and len(src.dims) < MAX_LOOPS:
        rest = n % lanes
        rows = [_rows(a, near, n // lanes, lanes) for a in (src, dst)]
        first = _Across(chip, rows[0], rows[1], near + 1, step, near, rows[0])
        if rest:
            ends = [_cut(a, near, n - rest, rest) for a in (src, dst)]
            yield _Both(first, min(_straight(ends[0], ends[1]), key=lambda way: _cycles(chip, way)))
        else:
            yield first


def _rows(array: Array, d: int, rows: int, length: int) -> Array:
    """An array's first indices of a dimension as two dimensions: rows of a length."""

    def two(v: tuple[int, ...], *new: int) -> tuple[int, ...]:
        return (*v[:d], *new, *v[d + 1 :])

    stride = array.strides[d]
    strides = two(array.strides, stride * length, stride)
    return replace(array, dims=two(array.dims, rows, length), strides=strides, origin=two(array.origin, 0, 0))


def _cut(array: Array, d: int, first: int, count: int) -> Array:
    """Some indices of a dimension."""
    dims = (*array.dims[:d], count, *array.dims[d + 1 :])
    return replace(array, dims=dims, offset=array.offset + first * array.strides[d])


@dataclass(frozen=True)
class _Apart:
    """Copies between n x k values in their order, k of them neighbours, and k x n, by way of a matrix.

    Attributes:
        src, dst: as for `shuffle`.
        n, k: sizes.
        lanes: elements of a row of the matrix: values that are `steps` x k apart.
        joins: whether the destination is the side where k values are neighbours.
    """

    src: Array
    dst: Array
    n: int
    k: int
    lanes: int
    joins: bool

    @property
    def steps(self) -> int:
        return self.n // self.lanes

    @property
    def between(self) -> int:
        """Bytes of the matrix."""
        return self.steps * self.k * self.lanes * self.src.dtype.size

    def copies(self, between: Buf) -> Iterator[Copy]:
        """All of them; `between`: the matrix."""
        n, k, steps, lanes = self.n, self.k, self.steps, self.lanes
        together, apart = (self.dst, self.src) if self.joins else (self.src, self.dst)
        matrix = Array(between, self.src.dtype, (), (), ())
        done = steps * lanes
        pairs = [
            (
                _ref(together, ((lanes, steps * k), (steps * k, 1))),
                _ref(matrix, ((lanes, 1), (steps * k, lanes))),
            ),
            (
                _ref(matrix, ((k, lanes), (steps, k * lanes), (lanes, 1))),
                _ref(apart, ((k, n), (steps, 1), (lanes, steps))),
            ),
        ]
        if done < n:
            rest = _ref(together, ((n - done, k), (k, 1)), done * k), _ref(apart, ((n - done, 1), (k, n)), done)
            pairs.append(rest)
        yield from ((b, a) for a, b in (*pairs[1::-1], *pairs[2:])) if self.joins else pairs


def _ref(array: Array, steps: Steps, first: int = 0) -> Ref:
    """A stream through an array's memory, from an element on."""
    size = array.dtype.size
    counts, strides = (tuple(each) for each in zip(*steps, strict=True))
    pattern = Pattern(array.dtype, counts, tuple(s * size for s in strides))
    return Ref(array.buf, pattern, array.offset + first * size, array.dynamic)


def _apart(chip: Chip, src: Array, dst: Array) -> Iterator[_Apart]:
    """The ways by a matrix, if one side is k x n where the other is n x k."""
    if len(src.dims) != 2:
        return
    size = src.dtype.size
    sides = [tuple(s // size for s in a.strides) for a in (src, dst)]
    for outer, inner in ((0, 1), (1, 0)):
        n, k = src.dims[outer], src.dims[inner]
        wanted = [tuple(v[d] for d in (outer, inner)) for v in sides]
        for joins, both in ((False, [(k, 1), (1, n)]), (True, [(1, n), (k, 1)])):
            if wanted == both and k < n:
                lanes = chip.vpu.lanes
                while lanes > 1:
                    if n >= lanes * lanes // 2:
                        yield _Apart(src, dst, n, k, lanes, joins)
                    lanes //= 2
