"""Entries of the pattern table: `walk_pkg::pattern_t`, ready to be walked by additions only.

Each loop's coefficient is divided here: c / div and c mod div of a coordinate are kept apart, and the share of c / div
in the address becomes part of the loop's step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from systolith.isa.pattern import MAX_COORDS, MAX_LOOPS, UNBOUNDED, Coord, Pattern

NOT_INDIRECT = 8
WORD = 32

Field = tuple[int, int]  # value, bits


def pack(fields: Iterable[Field]) -> int:
    """Fields of a packed struct, the first at the top; values may be negative.

    Raises:
        ValueError: a value that its field does not hold.
    """
    bits = 0
    for value, width in fields:
        if not -(1 << (width - 1)) <= value < 1 << width:
            raise ValueError(f"{value} does not fit {width} bits")
        bits = bits << width | value & (1 << width) - 1
    return bits


def array(values: Sequence[int], width: int) -> list[Field]:
    """A packed array: element 0 at the bottom."""
    return [(value, width) for value in reversed(values)]


def _point(coords: Sequence[Coord], values: Sequence[int], address: int) -> list[Field]:
    """A `point_t`: the coordinates' values divided, and the address modulo 2^32."""
    parts = [divmod(value, c.div) for value, c in zip(values, coords, strict=True)]
    moved = sum(quotient * c.stride for (quotient, _), c in zip(parts, coords, strict=True))
    return [
        *array([quotient for quotient, _ in parts], WORD),
        *array([remainder for _, remainder in parts], WORD),
        ((address + moved) % (1 << WORD), WORD),
    ]


def pattern_entry(pattern: Pattern) -> int:
    """The bits of a pattern's `pattern_t`.

    Loop `MAX_LOOPS - 1` of the entry is the innermost, also where `indirect` names one; loops that the pattern lacks
    are the outermost ones.

    Raises:
        ValueError: a value that its field does not hold.
    """
    lacking = MAX_LOOPS - len(pattern.counts)
    none = Coord((0,) * len(pattern.counts), 0, *UNBOUNDED)
    coords = [*pattern.coords, *[none] * (MAX_COORDS - len(pattern.coords))]
    still = _point(coords, [0] * MAX_COORDS, 0)
    steps = [_point(coords, [c.coefs[k] for c in coords], stride) for k, stride in enumerate(pattern.strides)]
    indirect = NOT_INDIRECT if pattern.indirect < 0 else pattern.indirect + lacking
    return pack(
        [
            (pattern.dtype.code, 5),
            (len(pattern.counts), 4),
            (indirect, 4),
            *array([1 << c.bias if c.bias >= 0 else 0 for c in coords], 2),
            (pattern.fill, WORD),
            *array([*[1] * lacking, *pattern.counts], WORD),
            *(field for step in reversed([*[still] * lacking, *steps]) for field in step),
            *_point(coords, [c.offset for c in coords], 0),
            *(f for name in ("lo", "hi", "div", "stride") for f in array([getattr(c, name) for c in coords], WORD)),
        ]
    )


POINT_BITS = (2 * MAX_COORDS + 1) * WORD
PATTERN_BITS = 5 + 4 + 4 + 2 * MAX_COORDS + (1 + MAX_LOOPS + 4 * MAX_COORDS) * WORD + (MAX_LOOPS + 1) * POINT_BITS
