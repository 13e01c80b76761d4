"""Random address patterns: every kind of stride, coordinate and index list, that stay within a given room."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

from systolith.hw.fuzz.draw import Draw
from systolith.isa.dtypes import DType, Kind
from systolith.isa.geometry import Interval, Unknown, interval
from systolith.isa.pattern import MAX_LOOPS, UNBOUNDED, Coord, Pattern
from systolith.sim.plans import plan_of

INDEX_RANGE = (-2, 7)
"""Range of the entries of index lists."""

LIST_WORDS = 64
"""Their words: the largest count of a loop that goes through one."""

Values = tuple[int, ...]
"""Possible values of an operand when an instruction is issued."""

Biases = tuple[tuple[int | None, ...], tuple[int | None, ...]]
"""Possible values of a stream's bias operands, known ones first; None: not known before the run."""

Span = tuple[int, int]
"""First byte and first beyond, relative to the base."""

_TRIES = 6


def loops_of(draw: Draw, elements: int, most: int = MAX_LOOPS) -> tuple[int, ...]:
    """Trip counts of 1 to `most` loops whose product is `elements`."""
    counts: list[int] = []
    rest, factor = elements, 2
    while rest > 1 and factor * factor <= rest:
        if rest % factor:
            factor += 1
        else:
            counts.append(factor)
            rest //= factor
    counts.append(rest)
    counts += [1] * draw.weighted((0, 1, 3, 7), (6, 3, 1, 1))
    counts = draw.shuffled(counts)
    loops = draw.weighted((1, 2, 3, 5, 7, 8), (3, 5, 5, 3, 1, 3))
    while len(counts) > min(loops, most):
        k = draw.below(len(counts) - 1)
        counts[k : k + 2] = [counts[k] * counts[k + 1]]
    return tuple(counts)


def dense(size: int, counts: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in bytes, of elements of `size` bytes."""
    return tuple(size * prod(counts[k + 1 :]) for k in range(len(counts)))


def reach(pattern: Pattern, biases: Biases) -> Span:
    """The bytes that the elements lie in, whatever the biases and the index list hold."""
    least, most = INDEX_RANGE
    shift, k = 0, pattern.indirect
    # The extent that the access model gives, where an index list is bounded by coordinates only.
    spans = [s for pair in product(*biases) if k >= 0 and isinstance(s := interval(pattern, pair), Interval)]
    if k >= 0:
        # The index list's values as a loop over all that they may be.
        coords = tuple(replace(c, offset=c.offset + c.coefs[k] * least) for c in pattern.coords)
        counts = (*pattern.counts[:k], most - least + 1, *pattern.counts[k + 1 :])
        shift = pattern.strides[k] * least
        pattern = replace(pattern, counts=counts, coords=coords, indirect=-1)
    found = [interval(pattern, pair) for pair in product(*biases)]
    spans += [Interval(s.lo + shift, s.hi + shift) for s in found if isinstance(s, Interval)]
    spans = spans or [Interval(0, pattern.dtype.size)]
    return min(s.lo for s in spans), max(s.hi for s in spans)


def _strides(draw: Draw, size: int, counts: tuple[int, ...], align: int) -> tuple[int, ...]:
    plain = dense(size, counts)
    match draw.weighted(("dense", "turned", "gaps", "reversed", "still", "any"), (8, 3, 3, 2, 2, 3)):
        case "turned":
            order = draw.shuffled(range(len(counts)))
            moved = dense(size, tuple(counts[k] for k in order))
            return tuple(moved[order.index(k)] for k in range(len(counts)))
        case "gaps":
            return tuple(s + align * draw.pick((0, 0, 1, 3, 8)) for s in plain)
        case "reversed":
            return tuple(draw.pick((s, -s)) for s in plain)
        case "still":
            return tuple(draw.pick((s, s, 0)) for s in plain)
        case "any":
            steps = (0, size, -size, 2 * size, -3 * size, 5 * size, align, -align, 8 * size)
            return tuple(draw.pick(steps) for _ in plain)
        case _:
            return plain


def _coord(draw: Draw, size: int, counts: tuple[int, ...], biases: Biases) -> Coord:
    """A coordinate with some elements inside, most of the time."""
    coefs = [0] * len(counts)
    for _ in range(draw.weighted((1, 2, 3), (5, 3, 1))):
        coefs[draw.below(len(counts))] = draw.weighted((1, 2, -1, 3, -2), (6, 2, 2, 1, 1))
    bias = draw.weighted((-1, 0, 1), (2, 1, 1))
    div = draw.weighted((1, 2, 3, 4), (6, 2, 1, 1))
    offset = draw.weighted((0, draw.between(-4, 4)), (1, 1))
    moves = [c * (n - 1) for c, n in zip(coefs, counts, strict=True)]
    shift = offset + (biases[bias][0] or 0 if bias >= 0 else 0)
    least, most = shift + sum(min(0, m) for m in moves), shift + sum(max(0, m) for m in moves)
    lo = draw.weighted((UNBOUNDED[0], least // div + draw.between(-1, 2)), (1, 2))
    hi = draw.weighted((UNBOUNDED[1], most // div + draw.between(-1, 2)), (1, 2))
    if hi <= lo and draw.chance(0.95):
        hi = lo + draw.between(1, 3)
    stride = draw.weighted((0, size, -size, 2 * size, 8 * size), (6, 4, 1, 1, 1))
    return Coord(tuple(coefs), offset, lo, hi, div, stride, bias)


def _listed(draw: Draw, p: Pattern, bounded: bool) -> Pattern:
    """With one loop through an index list, bounded by a coordinate of its own, so that its reach is known, or not."""
    able = [k for k, n in enumerate(p.counts) if n <= LIST_WORDS]
    if not able:
        return p
    k = draw.pick(able)
    if not bounded and draw.chance(0.3):
        return replace(p, indirect=k)
    coefs = tuple(int(j == k) for j in range(len(p.counts)))
    size = p.dtype.size
    limits = Coord(coefs, draw.between(-1, 1), 0, draw.between(3, 6), 1, size * draw.pick((1, 2, 4, -2)))
    strides = tuple(0 if j == k else s for j, s in enumerate(p.strides))
    return replace(p, strides=strides, coords=(*p.coords[:3], limits), indirect=k)


def _fill(draw: Draw, dtype: DType, own: bool) -> int:
    if draw.chance(0.4):
        return 0
    if not own or dtype.is_float:
        return draw.image()
    if dtype.kind is Kind.SIGNED:
        return draw.between(-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1) & 0xFFFFFFFF
    return draw.below(1 << dtype.bits)


def random_pattern(
    draw: Draw,
    dtype: DType,
    counts: tuple[int, ...],
    room: int,
    biases: Biases = ((0,), (0,)),
    *,
    align: int = 1,
    indirect: bool = False,
    bounded: bool = False,
    own_fill: bool = False,
    coords: int = 0,
) -> tuple[Pattern, Span]:
    """A pattern and its extent, which fits `room` bytes.

    Args:
        draw: choices.
        dtype: element type.
        counts: trip counts.
        room: bytes.
        biases: possible values of the stream's bias operands.
        align: strides are multiples of it.
        indirect: whether it may have an index list.
        bounded: whether its extent must follow from its coordinates then.
        own_fill: whether elements outside read as a value of an integer type, not as any image.
        coords: coordinates that it has at least.
    """
    for attempt in range(_TRIES):
        tame = attempt == _TRIES - 1
        many = max(coords, 0 if tame else draw.weighted((0, 1, 2, 3, 4), (9, 4, 3, 1, 1)))
        some = tuple(_coord(draw, dtype.size, counts, biases) for _ in range(many))
        strides = dense(dtype.size, counts) if tame else _strides(draw, dtype.size, counts, align)
        p = Pattern(dtype, counts, strides, some, _fill(draw, dtype, own_fill))
        if tame:
            p = replace(p, coords=tuple(replace(c, stride=0) for c in some))
        elif indirect and draw.chance(0.25):
            p = _listed(draw, p, bounded)
            if bounded and isinstance(interval(p, (0, 0)), Unknown):
                continue
        if not tame and _empty(p, biases) and draw.chance(0.9):
            continue
        lo, hi = reach(p, biases)
        if hi - lo <= room:
            return p, (lo, hi)
    p = replace(p, strides=(0,) * len(counts))
    return p, reach(p, biases)


def _empty(p: Pattern, biases: Biases) -> bool:
    """Whether no element is inside, as far as can be told."""
    if p.indirect >= 0 or not p.coords:
        return False
    plan = plan_of(p, (biases[0][0] or 0, biases[1][0] or 0))
    return plan.low > plan.high


def host_pattern(dtype: DType, counts: tuple[int, ...]) -> Pattern:
    """A pattern for a queue of bytes, where only the counts matter."""
    return Pattern(dtype, counts, dense(dtype.size, counts))
