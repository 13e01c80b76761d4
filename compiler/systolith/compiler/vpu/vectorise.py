"""The vectoriser: which loops of a group's box go to lanes, sublanes and the loop nest of a VPU instruction.

Streams are described per dimension of the box (`Access`); neighbouring dimensions merge where every stream allows it;
then each way of choosing a lane and a sublane dimension is priced by the closed form of `vpu.run` and the cheapest is
taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from math import prod

from systolith.compiler.tile.ir import Ref
from systolith.compiler.tile.patterns import AxisCoord, Loop, pattern, runs
from systolith.isa.chip import Chip
from systolith.isa.chip_schema import Vpu
from systolith.isa.dtypes import DType
from systolith.isa.kernel import MAX_NEST
from systolith.isa.pattern import MAX_COORDS, Pattern
from systolith.isa.timing import nest_cycles

LaneOrder = tuple[tuple[int, ...], ...]
"""See `Nest.order`."""


@dataclass(frozen=True)
class Access:
    """A stream before loops are chosen.

    Attributes:
        dtype: element type in memory.
        strides: bytes, one a dimension of the box.
        coords: bounds and quotients.
        fill: register image where there is no element.
        memory: false for streams that are there only for their coordinates.
        masked: whether elements beyond the box, in the last vector of a dimension, must be outside.
        partial: it holds partial results of reduced dimensions, all of whose elements count.
    """

    dtype: DType
    strides: tuple[int, ...]
    coords: tuple[AxisCoord, ...] = ()
    fill: int = 0
    memory: bool = True
    masked: bool = True
    partial: bool = False


@dataclass(frozen=True)
class Nest:
    """A choice of loops.

    Attributes:
        dims: sizes of the (merged) dimensions.
        outer: nest loops, outermost first; reduced ones last.
        sublane, lane: the vector's loops.
        inner: how many of `outer` are reduced dimensions (the inner loop of a kernel that carries).
        cycles: estimate.
        reduced: dimensions that are reduced.
    """

    dims: tuple[int, ...]
    outer: tuple[Loop, ...]
    sublane: Loop
    lane: Loop
    inner: int
    cycles: int
    reduced: frozenset[int] = frozenset()
    _patterns: dict[Access, Pattern] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (*self.outer, self.sublane, self.lane)

    @property
    def tails(self) -> tuple[int, ...]:
        """Dimensions whose loops reach beyond their size."""
        return tuple(d for d, n in enumerate(self.dims) if self._reach(d) > n)

    @property
    def order(self) -> LaneOrder:
        """In which order elements of reduced dimensions are combined: the same order gives the same bits.

        Loops over them run from the outermost; what their lanes and sublanes hold is combined afterwards.
        """
        reduced = sorted(self.reduced)
        if self.lane.dim not in reduced:
            return ()
        sizes = tuple(self.dims[d] for d in reduced)
        vector = tuple((reduced.index(p.dim), p.step, p.count) for p in (self.sublane, self.lane) if p.dim in reduced)
        return (sizes, *vector)

    def masked(self, access: Access) -> list[int]:
        """Dimensions whose tails a stream has to leave out."""
        return [d for d in self.tails if access.masked and not (access.partial and d in self.reduced)]

    def _reach(self, d: int) -> int:
        return 1 + sum(p.step * (p.count - 1) for p in self.loops if p.dim == d)

    def pattern(self, access: Access) -> Pattern:
        """The address generator's program of a stream."""
        found = self._patterns.get(access)
        if found is None:
            found = self._patterns[access] = self._pattern(access)
        return found

    def coordinates(self, access: Access, shift: int) -> Ref:
        """A stream without an array, whose only coordinate begins `shift` further on: the stream's offset, which loops
        may move.
        """
        pattern = self.pattern(access)
        if len(pattern.coords) != 1:
            return Ref(None, pattern)
        (coord,) = pattern.coords
        return Ref(None, replace(pattern, coords=(replace(coord, offset=0),)), coord.offset + shift)

    def _pattern(self, access: Access) -> Pattern:
        coords = list(access.coords)
        for d in self.masked(access):
            unit = tuple(int(k == d) for k in range(len(self.dims)))
            coords.append(AxisCoord(unit, 0, 0, self.dims[d]))
        first = len(self.outer) - self.inner  # partial results are stored once the inner loops are over
        still = range(first, len(self.outer)) if access.partial else ()
        loops = [replace(p, step=0) if k in still else p for k, p in enumerate(self.loops)]
        return pattern(access.dtype, loops, access.strides, coords, access.fill)


@dataclass(frozen=True)
class Work:
    """A vectorisation problem.

    Attributes:
        dims: sizes of the box.
        accesses: streams.
        reduced: dimensions that are summed up (or the like) in carried registers.
        interval: initiation interval of the kernel without access conflicts, in cycles.
        latency: length of an iteration and of prologue and epilogue, in cycles.
        lanes_reduced: whether a reduced dimension goes to the lanes (else the lanes are kept ones).
        ragged: the bound, before dimensions merged, of a dimension whose last part is not full (see `split`).
    """

    dims: tuple[int, ...]
    accesses: tuple[Access, ...]
    reduced: frozenset[int] = frozenset()
    interval: int = 1
    latency: int = 8
    lanes_reduced: bool = False
    ragged: AxisCoord | None = None


@lru_cache(maxsize=4096)
def merge(work: Work) -> Work:
    """Drop dimensions of size 1 and merge neighbours that all streams step through alike; a kept one always remains."""
    live = [d for d, n in enumerate(work.dims) if n != 1]
    vectors = [v for a in work.accesses for v in (a.strides, *(c.coefs for c in a.coords))]
    alike = [list(dims) for _, dims in groupby(live, lambda d: d in work.reduced)]
    groups = [run for dims in alike for run in runs(dims, work.dims, vectors)]
    last: list[int | None] = [g[-1] for g in groups]
    dims = [prod(work.dims[d] for d in g) for g in groups]
    reduced = frozenset(k for k, g in enumerate(groups) if g[0] in work.reduced)
    if len(reduced) == len(dims):  # lanes of kept dimensions need one
        last.append(None)
        dims.append(1)
    return replace(work, dims=tuple(dims), accesses=tuple(_picked(a, last) for a in work.accesses), reduced=reduced)


def _picked(a: Access, dims: list[int | None]) -> Access:
    def pick(v: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(0 if d is None else v[d] for d in dims)

    return replace(a, strides=pick(a.strides), coords=tuple(c._replace(coefs=pick(c.coefs)) for c in a.coords))


def apart(work: Work, rows: int, stride: int) -> Work | None:
    """Merged work in which indices of the last reduced dimension that differ modulo `rows` are kept apart.

    That dimension becomes one that is reduced and, inside of it, one of `rows` that is kept; not merged yet.

    Args:
        work: merged.
        rows: how many.
        stride: bytes between them in partial results.

    Returns:
        None: in the flattened index over all reduced dimensions these are not the indices that differ so.
    """
    if not work.reduced:  # of size 1, and gone
        one = tuple(_picked(a, [None, *range(len(work.dims))]) for a in work.accesses)
        return apart(replace(work, dims=(1, *work.dims), accesses=one, reduced=frozenset({0})), rows, stride)
    d = max(work.reduced)
    if work.dims[d] % rows and len(work.reduced) > 1:
        return None
    found = split(work, d, rows)
    own = (replace(a, strides=(*a.strides[:d], 0, stride, *a.strides[d + 2 :])) for a in found.accesses)
    return replace(found, accesses=tuple(o if o.partial else a for o, a in zip(own, found.accesses, strict=True)))


def split(work: Work, d: int, rows: int) -> Work:
    """Work with a dimension as two, the inner one of `rows` indices; that is not reduced."""
    n = work.dims[d]
    dims = (*work.dims[:d], -(-n // rows), rows, *work.dims[d + 1 :])

    def two(v: tuple[int, ...]) -> tuple[int, ...]:
        return (*v[:d], v[d] * rows, *v[d:])

    inner = [prod(work.dims[k:]) for k in range(d + 1, len(work.dims) + 1)]
    inside = AxisCoord((*(0,) * d, inner[0] * rows, *inner), 0, 0, n * inner[0]) if n % rows else None

    def access(a: Access) -> Access:
        masks = (inside,) if inside and a.masked and not a.partial else ()
        return replace(a, strides=two(a.strides), coords=(*(c._replace(coefs=two(c.coefs)) for c in a.coords), *masks))

    reduced = frozenset(k if k <= d else k + 1 for k in work.reduced)
    return replace(work, dims=dims, accesses=tuple(access(a) for a in work.accesses), reduced=reduced, ragged=inside)


def choose(chip: Chip, work: Work, order: LaneOrder | None = None) -> Nest | None:
    """The cheapest loops for merged work, of an order if one is given; None if no choice fits the pattern's loops and
    coordinates.
    """
    return _choose(chip.vpu, work, order)


@lru_cache(maxsize=4096)
def _choose(vpu: Vpu, work: Work, order: LaneOrder | None) -> Nest | None:
    best: Nest | None = None
    for nest in _choices(vpu, work):
        if order is not None and nest.order != order:
            continue
        if len(nest.outer) > MAX_NEST or _coords_needed(nest, work) > MAX_COORDS:
            continue
        if best is None or nest.cycles < best.cycles:
            best = nest
    return best


def _coords_needed(nest: Nest, work: Work) -> int:
    return max((len(a.coords) + len(nest.masked(a)) for a in work.accesses), default=0)


def _choices(vpu: Vpu, work: Work) -> Iterator[Nest]:
    for lane in range(len(work.dims)):
        if work.reduced and (lane in work.reduced) != work.lanes_reduced:
            continue
        for sublane in range(len(work.dims)):
            # The cross-lane unit reduces rows: sublanes are reduced only together with the lanes.
            if sublane in work.reduced and not work.lanes_reduced:
                continue
            yield _nest(vpu, work, lane, sublane)


def _nest(vpu: Vpu, work: Work, lane: int, sublane: int) -> Nest:
    n = work.dims[lane]
    rows = _ceil(n, vpu.lanes)
    width = _ceil(n, rows)
    outer: dict[int, Loop] = {d: Loop(d, 1, m) for d, m in enumerate(work.dims)}
    outer[lane] = Loop(lane, width, rows)
    lanes = Loop(lane, 1, width)
    m = outer[sublane].count
    groups = _ceil(m, vpu.sublanes)
    height = _ceil(m, groups)
    step = outer[sublane].step
    sublanes = Loop(sublane, step, height)
    outer[sublane] = Loop(sublane, step * height, groups)
    kept = [p for d, p in outer.items() if p.count > 1 and d not in work.reduced]
    inner = [p for d, p in outer.items() if p.count > 1 and d in work.reduced]
    loops = (*kept, *inner) or (Loop(lane, width * rows, 1),)
    nest = Nest(work.dims, loops, sublanes, lanes, len(inner), 0, work.reduced)
    return replace(nest, cycles=_cycles(vpu, work, nest))


def _cycles(vpu: Vpu, work: Work, nest: Nest) -> int:
    stalls = sum(access_cycles(vpu, a, nest) - 1 for a in work.accesses if a.memory)
    interval = work.interval + stalls
    kept = prod(p.count for p in nest.outer[: len(nest.outer) - nest.inner])
    inner = prod(p.count for p in nest.outer[len(nest.outer) - nest.inner :])
    if not work.reduced:
        return nest_cycles(1, kept * inner, interval, work.latency + stalls)
    return nest_cycles(kept, inner, interval, 2 * work.latency + stalls)


def access_cycles(vpu: Vpu, a: Access, nest: Nest) -> int:
    """Cycles of one vector access: see the closed form of a row in docs/isa.md."""
    stride = a.strides[nest.lane.dim]
    segments = 1 if stride in (0, a.dtype.size) or nest.lane.count == 1 else nest.lane.count
    return _ceil(segments * nest.sublane.count, vpu.sublanes)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
