"""Address patterns: loops over what an index map reads of an array.

`address` gives an array's elements through an index map as bytes: an offset, a stride for each index, and coordinates
that bound or divide.  Units differ in the loops over these indices: the vectoriser gives some to lanes and sublanes,
a matrix stream has groups of them (`mxu/streams.py`), a copy takes all as they lie.  Indices of which every side goes
through two as through one are one loop (`runs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, prod
from typing import NamedTuple

from systolith.compiler.index.affine import Bound, IndexMap, Quotient
from systolith.compiler.tile.ir import Array, Ref
from systolith.isa.dtypes import DType
from systolith.isa.pattern import MAX_LOOPS, UNBOUNDED, Coord, Pattern


class AxisCoord(NamedTuple):
    """A pattern's coordinate before loops are chosen: one coefficient an index; rest as in `pattern.Coord`."""

    coefs: tuple[int, ...]
    offset: int = 0
    lo: int = UNBOUNDED[0]
    hi: int = UNBOUNDED[1]
    div: int = 1
    stride: int = 0


class Address(NamedTuple):
    """Where elements lie: bytes from the start of a buffer, bytes for each index, bounds and quotients."""

    offset: int
    strides: tuple[int, ...]
    coords: tuple[AxisCoord, ...]


@dataclass(frozen=True)
class Loop:
    """A loop over an index (a dimension of a box): index += step, `count` times."""

    dim: int
    step: int
    count: int


def address(array: Array, index: IndexMap) -> Address:
    """Where the elements of an array lie that a map reads."""
    strides = [0] * index.rank
    offset = array.offset
    quotients: dict[Quotient, int] = {}
    for e, base, stride in zip(index.dims, array.origin, array.strides, strict=True):
        offset += (e.const - base) * stride
        for k, c in e.terms:
            strides[k] += c * stride
        for q, scale in e.quotients:
            quotients[q] = quotients.get(q, 0) + scale * stride
    return Address(offset, tuple(strides), axis_coords(index.bounds, quotients))


def axis_coords(bounds: Sequence[Bound], quotients: Mapping[Quotient, int]) -> tuple[AxisCoord, ...]:
    """Coordinates that test bounds, and that divide: `quotients` gives the bytes each quotient adds to the address.

    Bounds of multiples of one function of the indices are one coordinate.
    """
    if not bounds and not quotients:
        return ()
    limits: dict[Quotient, tuple[int, int]] = {}
    affine: dict[tuple[int, ...], list[Bound]] = {}
    for b in bounds:
        if b.expr.is_affine:
            affine.setdefault(_direction(b)[0], []).append(b)
            continue
        ((q, scale),) = b.expr.quotients
        ends = (b.lo - b.expr.const, b.hi - b.expr.const)
        if scale < 0:  # lo <= s q < hi is 1 - hi <= -s q < 1 - lo
            scale, ends = -scale, (1 - ends[1], 1 - ends[0])
        lo, hi = limits.get(q, UNBOUNDED)
        limits[q] = (max(lo, -(-ends[0] // scale)), min(hi, -(-ends[1] // scale)))
    coords = [_intersection(alike) for alike in affine.values()]
    for q in dict.fromkeys((*quotients, *limits)):
        lo, hi = limits.get(q, UNBOUNDED)
        coords.append(AxisCoord(q.dividend.coefs, q.dividend.const, lo, hi, q.div, quotients.get(q, 0)))
    return tuple(coords)


def _direction(bound: Bound) -> tuple[tuple[int, ...], int]:
    """The coefficients of an affine bound without their common factor, and that factor; the first one is positive."""
    coefs = bound.expr.coefs
    factor = gcd(*coefs) or 1
    if next((c for c in coefs if c), 1) < 0:
        factor = -factor
    return tuple(c // factor for c in coefs), factor


def _intersection(bounds: Sequence[Bound]) -> AxisCoord:
    """Affine bounds of multiples of one function of the indices as one coordinate."""
    if len(bounds) == 1:
        (b,) = bounds
        return AxisCoord(b.expr.coefs, b.expr.const, b.lo, b.hi)
    lo, hi = UNBOUNDED
    for b in bounds:
        coefs, factor = _direction(b)
        ends = (b.lo - b.expr.const, b.hi - 1 - b.expr.const)  # of factor * the function, both inside
        if factor < 0:
            ends = (-ends[1], -ends[0])
        lo, hi = max(lo, -(-ends[0] // abs(factor))), min(hi, ends[1] // abs(factor) + 1)
    return AxisCoord(coefs, 0, lo, max(lo, hi))


def runs(order: Sequence[int], dims: Sequence[int], vectors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Runs of dimensions, in an order, through which every vector of steps goes as through one; without size 1."""
    found: list[list[int]] = []
    for d in order:
        if dims[d] == 1:
            continue
        if found and all(v[found[-1][-1]] == v[d] * dims[d] for v in vectors):
            found[-1].append(d)
        else:
            found.append([d])
    return found


def merged(order: Sequence[int], dims: Sequence[int], vectors: Sequence[Sequence[int]]) -> list[Loop]:
    """A loop for each of `runs`, at least one."""
    loops = [Loop(run[-1], 1, prod([dims[d] for d in run])) for run in runs(order, dims, vectors)]
    return loops or [Loop(0, 0, 1)]


def pattern(
    dtype: DType, loops: Sequence[Loop], strides: Sequence[int], coords: Sequence[AxisCoord] = (), fill: int = 0
) -> Pattern:
    """The address generator's program of loops over indices, given bytes for each index and coordinates."""

    def steps(v: Sequence[int]) -> tuple[int, ...]:
        return tuple([v[p.dim] * p.step if p.step else 0 for p in loops])

    made = tuple([Coord(steps(c.coefs), c.offset, c.lo, c.hi, c.div, c.stride) for c in coords])
    return Pattern(dtype, tuple([p.count for p in loops]), steps(strides), made, fill)


def fitting(loops: Sequence[Loop]) -> Iterator[tuple[list[Loop], dict[int, int]]]:
    """Loops as an address generator can have them: the shortest ones that are too many are unrolled.

    Yields:
        The others, and the indices of those.
    """
    short = sorted(loops[:-1], key=lambda p: p.count)[: max(0, len(loops) - MAX_LOOPS)]
    unrolled = [p for p in loops if p in short]
    for index in product(*(range(p.count) for p in unrolled)):
        yield [p for p in loops if p not in short], dict(zip([p.dim for p in unrolled], index, strict=True))


def stream(array: Array, loops: Sequence[Loop], at: Mapping[int, int] | None = None) -> Ref:
    """Loops over dimensions of an array, others being at an index."""
    offset = array.offset + sum(array.strides[d] * n for d, n in (at or {}).items())
    return Ref(array.buf, pattern(array.dtype, loops, array.strides), offset, array.dynamic)
