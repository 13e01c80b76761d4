"""Index maps: which element of a leaf a point of an iteration space reads.

HLO's data movement (broadcast, reshape, transpose, slice, pad, reverse) is never executed where it can be composed into
such a map, because an address generator evaluates the map for free (`systolith.isa.pattern`).  Contractions and windows
read their operands through the same maps.

A leaf index is affine in the iteration indices, except where interior padding divides: then it is affine in *quotients*
c / div of affine functions c that must be multiples of div.  A map also has bounds; a point outside any of them, or
with a remainder, reads no element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, product
from math import inf, prod
from operator import add, mul, sub
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systolith.compiler.hlo.attributes import PadDim, SliceDim, WindowDim

Interval = tuple[int, int]
"""Smallest and largest value, both included."""


@dataclass(frozen=True)
class Box:
    """A box of an index space: first index and size of each dimension."""

    origin: tuple[int, ...]
    dims: tuple[int, ...]

    @classmethod
    def whole(cls, dims: Sequence[int]) -> Box:
        return cls((0,) * len(dims), tuple(dims))

    @classmethod
    def product(cls, *boxes: Box) -> Box:
        """The Cartesian product: the dimensions of all, in order."""
        return cls(tuple(chain(*[b.origin for b in boxes])), tuple(chain(*[b.dims for b in boxes])))

    @classmethod
    def hull(cls, boxes: Sequence[Box]) -> Box:
        """The smallest box that holds all."""
        if len(boxes) == 1:
            return boxes[0]
        origin = tuple(map(min, zip(*[b.origin for b in boxes], strict=True)))
        ends = map(max, zip(*[map(add, b.origin, b.dims) for b in boxes], strict=True))
        return cls(origin, tuple(map(sub, ends, origin)))

    @property
    def elements(self) -> int:
        """Number of points."""
        return prod(self.dims)

    def intervals(self) -> list[Interval]:
        """First and last index of each dimension."""
        return [(o, o + n - 1) for o, n in zip(self.origin, self.dims, strict=True)]

    def narrowed(self, dim: int, lo: int, hi: int) -> Box:
        """The part with lo <= index < hi along a dimension."""
        origin, dims = list(self.origin), list(self.dims)
        first, end = max(lo, origin[dim]), min(hi, origin[dim] + dims[dim])
        origin[dim], dims[dim] = first, max(0, end - first)
        return Box(tuple(origin), tuple(dims))

    def tiles(self, sizes: Sequence[int]) -> Iterator[Box]:
        """Boxes of these sizes that cover it, row-major; the last ones along each dimension are cut off."""
        ends = tuple(map(add, self.origin, self.dims))
        for first in product(*map(range, self.origin, ends, sizes)):
            yield Box(first, tuple([min(s, e - f) for s, e, f in zip(sizes, ends, first, strict=True)]))

    def meets(self, other: Box) -> bool:
        """Whether the boxes have an index in common."""
        pairs = zip(self.origin, self.dims, other.origin, other.dims, strict=True)
        return all(max(p, q) < min(p + n, q + m) for p, n, q, m in pairs)


@dataclass(frozen=True)
class Expr:
    """coefs . i + const + sum of scale * quotient."""

    coefs: tuple[int, ...]
    const: int = 0
    quotients: tuple[tuple[Quotient, int], ...] = ()

    @property
    def is_affine(self) -> bool:
        return not self.quotients

    @property
    def terms(self) -> Sequence[tuple[int, int]]:
        """(index, coefficient) where that is not 0."""
        return _terms(self.coefs)

    @property
    def depends(self) -> set[int]:
        """The indices that it depends on, dividends of quotients included."""
        return {d for d, _ in self.terms}.union(*(q.dividend.depends for q, _ in self.quotients))

    def scaled(self, factor: int, const: int = 0) -> Expr:
        """This times `factor`, plus `const`."""
        if factor == 0:
            return Expr((0,) * len(self.coefs), const)
        scaled = tuple((q, s * factor) for q, s in self.quotients)
        return Expr(tuple(c * factor for c in self.coefs), self.const * factor + const, scaled)

    def plus(self, other: Expr) -> Expr:
        terms: dict[Quotient, int] = dict(self.quotients)
        for q, s in other.quotients:
            terms[q] = terms.get(q, 0) + s
        coefs = tuple(a + b for a, b in zip(self.coefs, other.coefs, strict=True))
        return Expr(coefs, self.const + other.const, tuple((q, s) for q, s in terms.items() if s))

    def shifted(self, origin: tuple[int, ...]) -> Expr:
        """The same function of indices relative to `origin`."""
        if not self.quotients:
            return Expr(self.coefs, self.const + _dot(self.coefs, origin))
        moved = tuple((q.shifted(origin), s) for q, s in self.quotients)
        return Expr(self.coefs, self.const + _dot(self.coefs, origin), moved)

    def picked(self, dims: Sequence[int]) -> Expr:
        """The same function of some of the indices, the others being 0."""
        quotients = tuple((q.picked(dims), s) for q, s in self.quotients)
        return Expr(tuple(self.coefs[d] for d in dims), self.const, quotients)

    def split(self, d: int, inner: int) -> Expr:
        """The same function where index `d` is two, the second of `inner` values."""
        quotients = tuple((q.split(d, inner), s) for q, s in self.quotients)
        return Expr((*self.coefs[:d], self.coefs[d] * inner, *self.coefs[d:]), self.const, quotients)

    def interval(self, box: Box) -> Interval:
        """Bounds of its value over a box, exact if it is affine; lo > hi: a quotient never divides, so it has none."""
        origin, dims = box.origin, box.dims
        lo = hi = self.const
        for d, c in self.terms:
            first, last = c * origin[d], c * (origin[d] + dims[d] - 1)
            lo, hi = (lo + first, hi + last) if c > 0 else (lo + last, hi + first)
        for q, s in self.quotients:
            least, most = q.interval(box)
            lo, hi = (lo + s * least, hi + s * most) if s > 0 else (lo + s * most, hi + s * least)
        return lo, hi

    def values(self, box: Box) -> tuple[NDArray[Any], NDArray[Any]]:
        """Its values at the points of a box, and whether every quotient divides there; arrays of as many dimensions as
        the box has, of size 1 along those on which it does not depend.
        """
        value, shape = np.array(self.const), [1] * len(box.dims)
        for d, c in self.terms:
            value = np.add.outer(value, c * np.arange(box.origin[d], box.origin[d] + box.dims[d]))
            shape[d] = box.dims[d]
        value, divides = value.reshape(shape), np.array(True).reshape([1] * len(shape))
        for q, s in self.quotients:
            quotient, rest = np.divmod(q.dividend.values(box)[0], q.div)
            value, divides = value + s * quotient, divides & (rest == 0)
        return value, divides


@dataclass(frozen=True)
class Quotient:
    """An affine expression / div, defined only where div divides."""

    dividend: Expr
    div: int

    def interval(self, box: Box) -> Interval:
        """Bounds of its value over a box; lo > hi: it never divides."""
        lo, hi = self.dividend.interval(box)
        return -(-lo // self.div), hi // self.div

    def shifted(self, origin: tuple[int, ...]) -> Quotient:
        return Quotient(self.dividend.shifted(origin), self.div)

    def picked(self, dims: Sequence[int]) -> Quotient:
        return Quotient(self.dividend.picked(dims), self.div)

    def split(self, d: int, inner: int) -> Quotient:
        return Quotient(self.dividend.split(d, inner), self.div)


@dataclass(frozen=True)
class Bound:
    """lo <= expr < hi; expr is affine, or const + scale * one quotient."""

    expr: Expr
    lo: int
    hi: int

    def holds(self, box: Box) -> bool:
        """Whether every point of the box is inside (remainders not regarded)."""
        lo, hi = self.expr.interval(box)
        return self.lo <= lo and hi < self.hi

    def fails(self, box: Box) -> bool:
        """Whether no point of the box is inside."""
        lo, hi = self.expr.interval(box)
        return hi < self.lo or lo >= self.hi

    def shifted(self, origin: tuple[int, ...]) -> Bound:
        return Bound(self.expr.shifted(origin), self.lo, self.hi)

    def picked(self, dims: Sequence[int]) -> Bound:
        return Bound(self.expr.picked(dims), self.lo, self.hi)

    def split(self, d: int, inner: int) -> Bound:
        return Bound(self.expr.split(d, inner), self.lo, self.hi)


@dataclass(frozen=True)
class IndexMap:
    """From a point of the iteration space to an element of a leaf.

    Attributes:
        rank: dimensions of the iteration space.
        dims: for each dimension of the leaf, the index.
        bounds: where there is an element at all.
    """

    rank: int
    dims: tuple[Expr, ...]
    bounds: tuple[Bound, ...] = ()

    @classmethod
    def identity(cls, rank: int) -> IndexMap:
        return cls(rank, tuple(Expr(_unit(rank, d)) for d in range(rank)))

    @property
    def total(self) -> bool:
        """Whether every point reads an element."""
        return not self.bounds and all(e.is_affine for e in self.dims)

    def quotients(self) -> list[Quotient]:
        """Every quotient of the dimensions, each once."""
        return list(dict.fromkeys(q for e in self.dims for q, _ in e.quotients))

    def nowhere(self, box: Box) -> bool:
        """Whether no point of a box reads an element."""
        intervals = [q.interval(box) for q in self.quotients()]
        return any(b.fails(box) for b in self.bounds) or any(lo > hi for lo, hi in intervals)

    def shifted(self, origin: tuple[int, ...]) -> IndexMap:
        """The same map of indices relative to `origin`."""
        return IndexMap(
            self.rank, tuple(e.shifted(origin) for e in self.dims), tuple(b.shifted(origin) for b in self.bounds)
        )

    def picked(self, dims: Sequence[int]) -> IndexMap:
        """The same map of some of the indices, the others being 0."""
        return IndexMap(len(dims), tuple(e.picked(dims) for e in self.dims), tuple(b.picked(dims) for b in self.bounds))

    def split(self, d: int, inner: int) -> IndexMap:
        """The same map where index `d` is two, the second of `inner` values."""
        extents = self.extents and (*self.extents[:d], self.extents[d] // inner, inner, *self.extents[d + 1 :])
        dims = tuple(e.split(d, inner) for e in self.dims)
        return IndexMap(self.rank + 1, dims, tuple(b.split(d, inner) for b in self.bounds), extents)

    def within(self, box: Box) -> IndexMap:
        """The map over a box, of indices relative to its origin, without the bounds that hold all over it.

        A bound of a quotient stays: it tells how far the quotient reaches where its division has a remainder.
        """
        kept = tuple([b.shifted(box.origin) for b in self.bounds if not (b.expr.is_affine and b.holds(box))])
        return IndexMap(self.rank, tuple([e.shifted(box.origin) for e in self.dims]), kept)

    def footprint(self, box: Box, leaf: Sequence[int]) -> Box:
        """The smallest box of the leaf that holds all that a box of the iteration space reads (empty: dims 0)."""
        intervals = [e.interval(box) for e in self.dims]
        ends = [(max(lo, 0), min(hi, n - 1)) for (lo, hi), n in zip(intervals, leaf, strict=True)]
        if any(lo > hi for lo, hi in ends) or self.nowhere(box):
            return Box((0,) * len(leaf), (0,) * len(leaf))
        return Box(tuple([lo for lo, _ in ends]), tuple([hi - lo + 1 for lo, hi in ends]))

    def reach(self, box: Box, leaf: Sequence[int]) -> Box:
        """The same, but never empty: of one index in a dimension of which nothing is read."""
        origin, dims = [], []
        for e, n in zip(self.dims, leaf, strict=True):
            lo, hi = e.interval(box)
            first = min(max(lo, 0), n - 1)
            origin.append(first)
            dims.append(max(1, min(hi, n - 1) - first + 1))
        return Box(tuple(origin), tuple(dims))

    def inside(self, box: Box) -> int:
        """How many points of a box read an element."""
        if self.total or not box.elements:
            return box.elements
        tests: list[tuple[Expr, float, float]] = []
        tests += [(b.expr, b.lo, b.hi) for b in self.bounds if b.expr.quotients or not b.holds(box)]
        tests += [(e, -inf, inf) for e in self.dims if e.quotients and all(e != b.expr for b in self.bounds)]
        masks: list[NDArray[Any]] = []  # of tests that share indices, so that their counts multiply
        for e, lo, hi in tests:
            value, mask = e.values(box)
            mask = mask & (lo <= value) & (value < hi)
            apart = []
            for other in masks:
                if any(n > 1 and m > 1 for n, m in zip(mask.shape, other.shape, strict=True)):
                    mask = mask & other
                else:
                    apart.append(other)
            masks = [*apart, mask]
        return prod([int(np.count_nonzero(m)) for m in masks]) * (box.elements // prod([m.size for m in masks]))

    # Composition: self maps iteration points to indices of an op's result; the result maps them to its operand.

    def broadcast(self, dimensions: Sequence[int], operand: Sequence[int]) -> IndexMap:
        """Through `broadcast`: operand dimension k is result dimension `dimensions[k]` (size 1 stays at 0)."""
        zero = Expr((0,) * self.rank)
        picked = [zero if n == 1 else self.dims[d] for d, n in zip(dimensions, operand, strict=True)]
        return replace(self, dims=tuple(picked))

    def transpose(self, permutation: Sequence[int]) -> IndexMap:
        """Through `transpose`: result dimension k is operand dimension `permutation[k]`."""
        dims = [self.dims[0]] * len(permutation)
        for k, p in enumerate(permutation):
            dims[p] = self.dims[k]
        return replace(self, dims=tuple(dims))

    def slice(self, slices: Sequence[SliceDim]) -> IndexMap:
        """Through `slice`."""
        dims = tuple(e.scaled(s.stride, s.start) for e, s in zip(self.dims, slices, strict=True))
        return replace(self, dims=dims)

    def reverse(self, dimensions: Sequence[int], operand: Sequence[int]) -> IndexMap:
        """Through `reverse`."""
        turned = set(dimensions)
        dims = tuple(e.scaled(-1, operand[d] - 1) if d in turned else e for d, e in enumerate(self.dims))
        return replace(self, dims=dims)

    def pad(self, padding: Sequence[PadDim], operand: Sequence[int], result: Sequence[int]) -> IndexMap | None:
        """Through `pad`; None where a quotient of a quotient would be needed."""
        dims, bounds = [], list(self.bounds)
        for e, p, n, size in zip(self.dims, padding, operand, result, strict=True):
            index: Expr | None = e.scaled(1, -p.low)
            if p.interior:
                index = divided(e.scaled(1, -p.low), p.interior + 1)
                if index is None:
                    return None
            assert index is not None
            if p.low > 0 or p.interior or size - p.low > n:
                if not index.is_affine and (len(index.quotients) > 1 or any(index.coefs)):
                    return None
                bounds.append(Bound(index, 0, n))
            dims.append(index)
        return IndexMap(self.rank, tuple(dims), tuple(dict.fromkeys(bounds)))

    def reshape(self, operand: Sequence[int], result: Sequence[int]) -> IndexMap | None:
        """Through `reshape`; None where one result dimension holds several operand dimensions (of size over 1) and its
        index is not a sum of theirs.
        """
        dims: list[Expr] = []
        for xs, ys in reshape_factors(operand, result):
            flat = Expr((0,) * self.rank)
            for y in ys:
                if result[y] > 1:  # the one index of another is 0 wherever there is an element
                    flat = flat.scaled(result[y]).plus(self.dims[y])
            parts = split_index(flat, [operand[x] for x in xs], self.extents) if len(xs) > 1 else [flat][: len(xs)]
            if parts is None:
                return None
            dims.extend(parts)
        return replace(self, dims=tuple(dims))

    # Sizes of the iteration space, needed to split indices; set by `over`.
    extents: tuple[int, ...] = ()

    def over(self, extents: Sequence[int]) -> IndexMap:
        """The same map, knowing the sizes of the iteration space (lets reshapes split indices)."""
        return replace(self, extents=tuple(extents))


def window_index(
    w: WindowDim, rank: int, places: tuple[int, int], size: int, positions: int
) -> tuple[Expr, list[Bound]]:
    """Index along a dimension of `size` elements, and its bounds, of the position and the tap of a window.

    Args:
        w: the window.
        rank: of the iteration space.
        places: which of its indices are the position and the tap.
        size: of the dimension.
        positions: how many there are.
    """
    step = -w.window_dilation if w.reversal else w.window_dilation
    start = (w.size - 1) * w.window_dilation if w.reversal else 0
    coefs = [0] * rank
    coefs[places[0]], coefs[places[1]] = w.stride, step
    index = divided(Expr(tuple(coefs), start - w.low), w.base_dilation)
    assert index is not None
    reach = (positions - 1) * w.stride + (w.size - 1) * w.window_dilation - w.low
    outside = w.low > 0 or w.base_dilation > 1 or reach >= size
    return index, [Bound(index, 0, size)] if outside else []


def divided(e: Expr, div: int) -> Expr | None:
    """E / div as an expression in a new quotient; None if e has quotients itself."""
    if div == 1:
        return e
    if not e.is_affine:
        return None
    return Expr((0,) * len(e.coefs), 0, ((Quotient(e, div), 1),))


def reshape_factors(operand: Sequence[int], result: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Pairs of runs of dimensions with equal products, as fine as possible; dimensions of size 1 go where they fall.

    Every dimension of both sides is in exactly one run, in order.
    """
    pairs: list[tuple[list[int], list[int]]] = []
    x = y = 0
    while x < len(operand) or y < len(result):
        xs: list[int] = []
        ys: list[int] = []
        px = py = 1
        while True:
            if px <= py and x < len(operand) and (px < py or not xs):
                xs.append(x)
                px *= operand[x]
                x += 1
            elif (py < px and y < len(result)) or (not ys and y < len(result) and py <= px):
                ys.append(y)
                py *= result[y]
                y += 1
            else:
                break
        pairs.append((xs, ys))
    return pairs


def split_index(flat: Expr, sizes: Sequence[int], extents: Sequence[int]) -> list[Expr] | None:
    """Indices of row-major dimensions `sizes` (more than one) whose flattened index is `flat`.

    Each term of `flat` goes to the outermost dimension whose stride divides it; the split is right if no lower
    dimension can then carry over.  None if there is no such split, or the iteration space's sizes are not known.
    """
    if not flat.is_affine:
        return None
    rank = len(flat.coefs)
    strides = [prod(sizes[k + 1 :]) for k in range(len(sizes))]
    live = [(i, c) for i, c in enumerate(flat.coefs) if c and (not extents or extents[i] > 1)]
    if live and not extents:
        return None
    parts: list[Expr] = []
    rest, const = live, flat.const
    for size, stride in zip(sizes, strides, strict=True):
        taken = [(i, c) for i, c in rest if c % stride == 0]
        rest = [(i, c) for i, c in rest if c % stride]
        coefs = [0] * rank
        for i, c in taken:
            coefs[i] = c // stride
        part_const, const = divmod(const, stride)
        low, high = const + _span(rest, extents)[0], const + _span(rest, extents)[1]
        own = _span([(i, c // stride) for i, c in taken], extents)
        if low < 0 or high >= stride or own[0] + part_const < 0 or own[1] + part_const >= size:
            return None
        parts.append(Expr(tuple(coefs), part_const))
    return parts


def _span(terms: Sequence[tuple[int, int]], extents: Sequence[int]) -> Interval:
    values = [c * (extents[i] - 1) for i, c in terms]
    return sum(min(0, v) for v in values), sum(max(0, v) for v in values)


@lru_cache(maxsize=4096)
def _terms(coefs: tuple[int, ...]) -> Sequence[tuple[int, int]]:
    return tuple([(d, c) for d, c in enumerate(coefs) if c])


def _unit(rank: int, d: int) -> tuple[int, ...]:
    return tuple(int(k == d) for k in range(rank))


def _dot(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(map(mul, a, b))
