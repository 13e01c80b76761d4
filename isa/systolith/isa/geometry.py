"""The geometry of a pattern, without visiting its elements: strides, contiguous runs, segments, bounding intervals."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import permutations
from math import gcd, prod
from typing import NamedTuple

from systolith.isa.pattern import UNBOUNDED, Coord, Pattern


def loop_strides(pattern: Pattern) -> tuple[int | None, ...]:
    """Bytes each loop adds to the address, coordinates included; None: not the same at every step, or indirect."""
    return tuple(_loop_stride(pattern, k) for k in range(len(pattern.counts)))


def _loop_stride(pattern: Pattern, k: int) -> int | None:
    if k == pattern.indirect:
        return None
    total = pattern.strides[k]
    for c in pattern.coords:
        if c.stride and c.coefs[k]:
            if c.coefs[k] % c.div:
                return None
            total += c.coefs[k] // c.div * c.stride
    return total


def runs(pattern: Pattern) -> tuple[int, int]:
    """(number of contiguous runs, bytes of each): the innermost loops merge while they are contiguous."""
    run, n = pattern.dtype.size, pattern.elements
    for count, stride in zip(reversed(pattern.counts), reversed(loop_strides(pattern)), strict=True):
        if count == 1:
            continue
        if stride != run:
            break
        run *= count
    return n * pattern.dtype.size // run, run


def row_accesses(pattern: Pattern, row_loops: int, segment_bytes: int) -> int:
    """Accesses of `segment_bytes` that one row takes; the loops from `row_loops` on form it.

    A segment is all elements of the row's innermost loop, if its stride is the element size or 0; otherwise every
    element is one.  A segment of n bytes is ceil(n / segment_bytes) accesses at any alignment.
    """
    counts, size = pattern.counts[row_loops:], pattern.dtype.size
    if not counts:
        return 1
    stride = _loop_stride(pattern, len(pattern.counts) - 1)
    if stride == 0:
        return prod(counts[:-1])
    if stride == size:
        return prod(counts[:-1]) * -(-counts[-1] * size // segment_bytes)
    return prod(counts)


def side_accesses(pattern: Pattern, lanes: int) -> int:
    """Accesses of up to `lanes` elements along whichever loop is contiguous (or stays in place); at best."""
    size, n = pattern.dtype.size, pattern.elements
    best = n
    for count, stride in zip(pattern.counts, loop_strides(pattern), strict=True):
        if stride in (0, size):
            best = min(best, n // count * -(-count // lanes))
    return best


class Interval(NamedTuple):
    """Bytes lo to hi - 1, relative to the base."""

    lo: int
    hi: int


class Unknown(NamedTuple):
    """The addresses depend on values that only a run knows."""


@lru_cache(maxsize=65536)
def pitched(pattern: Pattern) -> tuple[int, int]:
    """(run, pitch) in bytes: all elements are in the first `run` bytes of every `pitch`, counted from the lowest one.

    (0, 0) where that says no more than an interval, or where coordinates or an index list choose the elements.
    """
    if pattern.indirect >= 0 or pattern.coords:
        return 0, 0
    steps = sorted((abs(s), n) for s, n in zip(pattern.strides, pattern.counts, strict=True) if n > 1 and s)
    run = pattern.dtype.size
    for i, (stride, count) in enumerate(steps):
        if stride > run and all(outer % stride == 0 for outer, _ in steps[i:]):
            return run, stride
        run += stride * (count - 1)
    return 0, 0


Bias = tuple[int | None, int | None]
Range = tuple[int | None, int | None]


def _clip(coord: Coord, pattern: Pattern, bias: Bias) -> Range:
    """(least, greatest) of c over elements inside; None: not known."""
    shift: int | None = coord.offset
    if coord.bias >= 0:
        b = bias[coord.bias]
        shift = None if b is None else coord.offset + b
    used = [k for k, coef in enumerate(coord.coefs) if coef]
    lo = None if coord.lo == UNBOUNDED[0] else coord.lo * coord.div
    hi = None if coord.hi == UNBOUNDED[1] else (coord.hi - 1) * coord.div
    if shift is not None and pattern.indirect not in used:
        reach = [coord.coefs[k] * (pattern.counts[k] - 1) for k in used]
        least = shift + sum(min(0, r) for r in reach)
        most = shift + sum(max(0, r) for r in reach)
        lo = least if lo is None else max(lo, least)
        hi = most if hi is None else min(hi, most)
    if shift is not None and lo is not None and hi is not None and pattern.indirect not in used:
        step = gcd(*coord.coefs)
        return (lo + (shift - lo) % step, hi - (hi - shift) % step) if step else (lo, hi)
    return lo, hi


def _clips(pattern: Pattern, bias: Bias) -> list[Range]:
    """`_clip` of each coordinate; coordinates that are multiples of one sum over the loops narrow one another."""
    found = [_multiples(_clip(coord, pattern, bias), coord.div) for coord in pattern.coords]
    alike: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}
    for number, coord in enumerate(pattern.coords):
        shift = coord.offset if coord.bias < 0 else _plus(coord.offset, bias[coord.bias])
        if shift is not None and any(coord.coefs):
            first = next(coef for coef in coord.coefs if coef)
            factor = gcd(*coord.coefs) * (1 if first > 0 else -1)
            alike.setdefault(tuple(coef // factor for coef in coord.coefs), []).append((number, factor, shift))
    for group in (g for g in alike.values() if len(g) > 1):
        sums = [_quotients(found[number], shift, factor) for number, factor, shift in group]
        known = [(least, most) for least, most in sums if least is not None and most is not None]
        if known:
            least, most = max(lo for lo, _ in known), min(hi for _, hi in known)
            for number, factor, shift in group:
                ends = sorted((shift + factor * least, shift + factor * most))
                found[number] = _multiples((ends[0], ends[1]), pattern.coords[number].div) if least <= most else (1, 0)
    return found


def _quotients(reach: Range, shift: int, factor: int) -> Range:
    """The integers x for which shift + factor * x is in a range."""
    least, most = reach
    if least is None or most is None:
        return None, None
    if factor < 0:
        least, most, shift, factor = -most, -least, -shift, -factor
    return -((shift - least) // factor), (most - shift) // factor


def _multiples(reach: Range, div: int) -> Range:
    """The multiples of div in a range: only these are inside."""
    least, most = reach
    return reach if least is None or most is None else (-(-least // div) * div, most // div * div)


def _scaled(lo: int, hi: int, factor: int, div: int) -> tuple[int, int]:
    """Range of c * factor / div, rounded outwards, for c from lo to hi."""
    ends = (lo * factor, hi * factor)
    return min(ends) // div, -(-max(ends) // div)


def _proportional(pattern: Pattern, coord: Coord, loops: list[int]) -> list[frozenset[int]]:
    """A coordinate's loops by the multiple of its coefficients that their strides are; none beside an indirect one."""
    found: dict[Fraction, list[int]] = {}
    for k in loops:
        found.setdefault(Fraction(pattern.strides[k], coord.coefs[k]), []).append(k)
    return [frozenset(some) for some in found.values() if pattern.indirect in some or pattern.indirect not in loops]


def _advanced(pattern: Pattern, coord: Coord, some: frozenset[int], least: int, most: int) -> tuple[int, int]:
    """Bytes by which some loops, proportional ones, advance the address while all add a number in a range to the
    coordinate: a multiple of what their coefficients have in common.
    """
    reaches = {k: coef * (count - 1) for k, (coef, count) in enumerate(zip(coord.coefs, pattern.counts, strict=True))}
    least -= sum(max(0, reach) for k, reach in reaches.items() if k not in some)
    most -= sum(min(0, reach) for k, reach in reaches.items() if k not in some)
    if pattern.indirect not in some:
        least = max(least, sum(min(0, reaches[k]) for k in some))
        most = min(most, sum(max(0, reaches[k]) for k in some))
    common, k = gcd(*(coord.coefs[k] for k in some)), min(some)
    least, most = -(-least // common) * common, most // common * common
    stride, coef = pattern.strides[k], coord.coefs[k]
    return _scaled(least, most, stride if coef > 0 else -stride, abs(coef))


@lru_cache(maxsize=65536)
def interval(pattern: Pattern, bias: Bias = (0, 0)) -> Interval | Unknown | None:
    """Bytes that the elements inside lie in, relative to the stream's base; None: no element is inside.

    Args:
        pattern: the pattern.
        bias: the stream's bias operands; None: not known.

    Bounds narrow the interval where some of a coordinate's loops advance the address in proportion to it.  Where
    coordinates share loops, each order in which they may narrow them gives an interval that holds all elements: so does
    their intersection.
    """
    lo = hi = 0
    advances: dict[frozenset[int], tuple[int, int]] = {}
    for coord, (least, most) in zip(pattern.coords, _clips(pattern, bias), strict=True):
        if least is not None and most is not None and least > most:
            return None
        if coord.stride:
            if least is None or most is None:
                return Unknown()
            a, b = _scaled(least, most, coord.stride, coord.div)
            lo, hi = lo + a, hi + b
        loops = [k for k, coef in enumerate(coord.coefs) if coef]
        shift = coord.offset if coord.bias < 0 else _plus(coord.offset, bias[coord.bias])
        if least is None or most is None or shift is None or not loops:
            continue
        for some in _proportional(pattern, coord, loops):
            a, b = _advanced(pattern, coord, some, least - shift, most - shift)
            before = advances.get(some, (a, b))
            advances[some] = max(a, before[0]), min(b, before[1])
    found = [_advance(pattern, order) for order in permutations(advances.items())]
    reaches = [reach for reach in found if reach is not None]
    if not reaches:
        return Unknown()
    lo, hi = lo + max(a for a, _ in reaches), hi + min(b for _, b in reaches)
    return Interval(lo, hi + pattern.dtype.size) if lo <= hi else None


def _advance(pattern: Pattern, narrowed: Sequence[tuple[frozenset[int], tuple[int, int]]]) -> tuple[int, int] | None:
    """Bytes by which the loops advance the address, least and most; None: not known.

    Args:
        narrowed: sets of loops and the bytes by which they do so together inside; the first of those that share a loop
            counts.
    """
    lo = hi = 0
    free = set(range(len(pattern.counts)))
    for loops, (a, b) in narrowed:
        if free >= loops:
            lo, hi = lo + a, hi + b
            free -= loops
    for k in free:
        reach = pattern.strides[k] * (pattern.counts[k] - 1)
        if k == pattern.indirect and pattern.strides[k]:
            return None
        lo, hi = lo + min(0, reach), hi + max(0, reach)
    return lo, hi


def _plus(offset: int, bias: int | None) -> int | None:
    return None if bias is None else offset + bias
