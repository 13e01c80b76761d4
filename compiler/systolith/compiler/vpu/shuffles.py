"""Copies by the cross-lane unit between arrays of the same dims in VMEM.

The unit takes up to a row of lanes at once along whichever dimension is contiguous on each side.  Where no dimension
that is contiguous on one side is long, two copies by way of a matrix may take fewer cycles (`_Across`): neighbours are
to lie in reverse, or only every second of them is copied.
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
from systolith.isa.pattern import MAX_LOOPS
from systolith.isa.program import Origin
from systolith.isa.timing import shuffle_cost

Copy = tuple[Ref, Ref]
"""Source and destination of an instruction."""

WORTH = 3
"""Two copies are tried where one takes so many times the cycles of full rows."""


def shuffle(ctx: TileBuilder, src: Array, dst: Array, origin: Origin, across: bool = True) -> None:
    """Append a copy between arrays of the same dims in VMEM.

    Args:
        ctx: where it goes.
        src, dst: the arrays.
        origin: what it belongs to.
        across: by a matrix with another dimension innermost, if that takes fewer cycles.
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
    ways: list[Way] = [*_straight(one, other)]
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
    """One copy; dimensions of which neighbours of `forward` lie in reverse run backwards.

    Both sides go through the elements in one order, each by as few loops as it can: neighbours along a few short
    dimensions of one side are a row of lanes there, whatever the other side makes of them.
    """

    src: Array
    dst: Array
    forward: Array
    order: tuple[int, ...]
    between = 0

    def copies(self, between: Buf) -> Iterator[Copy]:
        dims = self.src.dims
        back = [s == -self.forward.dtype.size for s in self.forward.strides]
        signs = [-1 if b else 1 for b in back]
        last = {d: n - 1 for d, n in enumerate(dims) if back[d]}

        def side(array: Array) -> Ref:
            steps = [s * sign for s, sign in zip(array.strides, signs, strict=True)]
            loops = [replace(p, step=signs[p.dim] * p.step) for p in merged(self.order, dims, (steps,))]
            return stream(array, loops, last)

        yield side(self.src), side(self.dst)


def _straight(src: Array, dst: Array) -> list[_Straight]:
    back = -dst.dtype.size in dst.strides
    orders = dict.fromkeys((tuple(range(len(src.dims))), *(tuple(nesting(a.strides)) for a in (src, dst))))
    return [_Straight(src, dst, forward, order) for forward in ((src, dst) if back else (src,)) for order in orders]


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
