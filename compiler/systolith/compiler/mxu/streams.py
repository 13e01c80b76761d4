"""Address patterns for the operands of a contraction: loops over axes, padding as bounds, dilation as divisibility."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from systolith.compiler.errors import LimitError
from systolith.compiler.index.contraction import Index, Ranges
from systolith.compiler.tile.ir import Array, Ref
from systolith.isa.chip import Chip
from systolith.isa.dtypes import DType
from systolith.isa.pattern import MAX_COORDS, MAX_LOOPS, Coord, Pattern
from systolith.isa.timing import row_cycles


class Loops(NamedTuple):
    """Loops of one group (rows, or what is in a row): counts, byte strides, and a coefficient for each coordinate."""

    counts: tuple[int, ...]
    strides: tuple[int, ...]
    coefs: tuple[tuple[int, ...], ...]


def operand_ref(
    operand: Sequence[Index], array: Array, ranges: Ranges, groups: tuple[Sequence[str], Sequence[str]]
) -> tuple[Ref, int]:
    """The stream that visits `operand` (lying in `array`, which may be a box of it) over two groups of axes, rows and
    what is in a row, and how many of its loops are rows.

    Axes in no group stand at the first value of their range.  Loops merge within their group where that leaves the
    order of the elements as it is; each group keeps at least one loop.
    """
    base = array.offset
    strides = dict.fromkeys((a for group in groups for a in group), 0)
    coords: list[Coord] = []
    terms: list[dict[str, int]] = []
    for index, origin, stride in zip(operand, array.origin, array.strides, strict=True):
        start, low, high = index.offset, 0, 0
        for a, c in index.coefs.items():
            first, count = ranges[a]
            start += c * first
            if c > 0:
                high += c * (count - 1)
            else:
                low += c * (count - 1)
            if index.div == 1 and a in strides:
                strides[a] += c * stride
        base += (start - origin if index.div == 1 else -origin) * stride
        if index.div > 1 or start + low < 0 or start + high >= index.size:
            coords.append(Coord((), start, 0, index.size, index.div, 0 if index.div == 1 else stride))
            terms.append(dict(index.coefs))
    loops = tuple(_loops(group, ranges, strides, terms) for group in groups)
    pattern, rows = _pattern(array.dtype, loops, tuple(coords))
    return Ref(array.buf, pattern, base, array.dynamic), rows


@lru_cache(maxsize=4096)
def _pattern(dtype: DType, loops: Sequence[Loops], coords: Sequence[Coord]) -> tuple[Pattern, int]:
    """The pattern of groups of loops, and how many loops of it are the first group's; tiles of a product share few."""
    loops, coords = _merge(list(loops), list(coords))
    counts = tuple(c for group in loops for c in group.counts)
    if len(counts) > MAX_LOOPS or len(coords) > MAX_COORDS:
        raise LimitError(
            f"an operand of a product takes {len(counts)} loops and {len(coords)} bounds; an address generator has"
            f" {MAX_LOOPS} and {MAX_COORDS}"
        )
    steps = tuple(s for group in loops for s in group.strides)
    rows = [row for group in loops for row in group.coefs]
    final = tuple(replace(c, coefs=tuple(row[j] for row in rows)) for j, c in enumerate(coords))
    return Pattern(dtype, counts, steps, final), len(loops[0].counts)


def _loops(group: Sequence[str], ranges: Ranges, strides: dict[str, int], terms: list[dict[str, int]]) -> Loops:
    live = [a for a in group if ranges[a][1] > 1]
    if not live:
        return Loops((1,), (0,), ((0,) * len(terms),))
    coefs = tuple([tuple([t.get(a, 0) for t in terms]) for a in live])
    return Loops(tuple([ranges[a][1] for a in live]), tuple([strides[a] for a in live]), coefs)


def _merge(loops: list[Loops], coords: list[Coord]) -> tuple[list[Loops], list[Coord]]:
    """Merge neighbouring loops of a group whose strides allow it.

    A coordinate that only the outer one of two loops (with coefficient 1) moves becomes linear in both, scaled by the
    inner count: c in [lo, hi) is n * c + i in [n * lo, n * hi) for i in [0, n).
    """
    changed = True
    while changed:
        changed = False
        for g, group in enumerate(loops):
            for x in range(len(group.counts) - 1):
                n = group.counts[x + 1]
                scale = _scales(group, x, coords)
                if group.strides[x] != n * group.strides[x + 1] or scale is None:
                    continue
                factor = [n if s else 1 for s in scale]
                loops = [_scaled(other, factor) for other in loops]
                coords = [
                    replace(c, offset=c.offset * f, lo=c.lo * f, hi=c.hi * f)
                    for c, f in zip(coords, factor, strict=True)
                ]
                loops[g] = _joined(group, x, scale, factor)
                changed = True
                break
            if changed:
                break
    return loops, coords


def _scales(group: Loops, x: int, coords: list[Coord]) -> list[bool] | None:
    """For each coordinate, whether it must be scaled for loops x and x + 1 to merge; None: they cannot."""
    scale = []
    n = group.counts[x + 1]
    for c, outer, inner in zip(coords, group.coefs[x], group.coefs[x + 1], strict=True):
        if outer == n * inner:
            scale.append(False)
        elif outer == 1 and inner == 0 and c.div == 1:
            scale.append(True)
        else:
            return None
    return scale


def _scaled(group: Loops, factor: list[int]) -> Loops:
    return group._replace(coefs=tuple(tuple(c * f for c, f in zip(row, factor, strict=True)) for row in group.coefs))


def _joined(group: Loops, x: int, scale: list[bool], factor: list[int]) -> Loops:
    rows = list(_scaled(group, factor).coefs)
    rows[x : x + 2] = [tuple(1 if s else row for s, row in zip(scale, rows[x + 1], strict=True))]
    counts = (*group.counts[:x], group.counts[x] * group.counts[x + 1], *group.counts[x + 2 :])
    strides = (*group.strides[:x], *group.strides[x + 1 :])
    return Loops(counts, strides, tuple(rows))


def row_cost(ref: Ref, rows: int, chip: Chip) -> int:
    """Cycles of one row of a weight or stream port; `rows` is how many loops count rows."""
    return row_cycles(ref.pattern, rows, chip.mxu.segments, chip.mxu.segment_bytes)
