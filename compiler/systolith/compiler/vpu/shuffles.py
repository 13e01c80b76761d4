"""Copies by the cross-lane unit between arrays of the same dims in VMEM.

The unit takes up to a row of lanes at once along whichever dimension is contiguous on each side.  Where a few values
that are neighbours are to lie apart, or the other way round, no dimension that is contiguous on one side is long; two
copies by way of a matrix whose rows are as long as a row of lanes take fewer cycles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array, Buf, Ref, TileOp
from systolith.compiler.tile.patterns import Loop, merged, stream
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space
from systolith.isa.pattern import Pattern
from systolith.isa.program import Origin
from systolith.isa.timing import shuffle_cost

Copy = tuple[Ref, Ref]
"""Source and destination of an instruction."""

Steps = tuple[tuple[int, int], ...]
"""Loops, the outermost first: how often, and by how many elements."""


def shuffle(ctx: TileBuilder, src: Array, dst: Array, origin: Origin) -> None:
    """Append a copy between arrays of the same dims in VMEM."""
    way = _way(ctx.chip, src, dst)
    between = ctx.vmem(f"{dst.buf.name}.rows", way.between) if way.between else dst.buf
    for one, other in way.copies(between):
        ctx.append(TileOp("xlu.shuffle", {"src": one, "dst": other}, origin))


def shuffle_cycles(chip: Chip, src: Array, dst: Array) -> int:
    """Cycles of the cross-lane unit for what `shuffle` appends."""
    return _cycles(chip, _way(chip, src, dst))


def _cycles(chip: Chip, way: _Straight | _Apart) -> int:
    patterns = ((one.pattern, other.pattern) for one, other in way.copies(Buf("", Space.VMEM, 1)))
    return sum(shuffle_cost(one, other, chip).occupancy for one, other in patterns)


def _way(chip: Chip, src: Array, dst: Array) -> _Straight | _Apart:
    """The copy of the fewest cycles."""
    loops = merged(range(len(src.dims)), src.dims, (src.strides, dst.strides))
    ways: list[_Straight | _Apart] = [_Straight(src, dst, loops), *_apart(chip, src, dst, loops)]
    return min(ways, key=lambda way: _cycles(chip, way))


@dataclass(frozen=True)
class _Straight:
    """One copy."""

    src: Array
    dst: Array
    loops: list[Loop]
    between = 0

    def copies(self, between: Buf) -> Iterator[Copy]:
        yield stream(self.src, self.loops), stream(self.dst, self.loops)


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


def _apart(chip: Chip, src: Array, dst: Array, loops: list[Loop]) -> Iterator[_Apart]:
    """The ways by a matrix, if one side is k x n where the other is n x k."""
    if len(loops) != 2:
        return
    counts, size = [p.count for p in loops], src.dtype.size
    sides = [tuple(a.strides[p.dim] // size for p in loops) for a in (src, dst)]
    for outer, inner in ((0, 1), (1, 0)):
        n, k = counts[outer], counts[inner]
        wanted = [tuple(v[d] for d in (outer, inner)) for v in sides]
        for joins, both in ((False, [(k, 1), (1, n)]), (True, [(1, n), (k, 1)])):
            if wanted == both and k < n:
                lanes = chip.vpu.lanes
                while lanes > 1:
                    if n >= lanes * lanes // 2:
                        yield _Apart(src, dst, n, k, lanes, joins)
                    lanes //= 2
