"""Cutting a contraction into tiles: boxes of rows, of columns, and of the sum, the latter packed into array rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from math import prod

Tile = dict[str, tuple[int, int]]
"""Axis name to (first value, size)."""

TRY_ALL_CUTS = 16
"""Axes of at most this size are cut at every place when packing."""


def box_tiles(axes: Sequence[str], sizes: Mapping[str, int], limit: int) -> list[Tile]:
    """Boxes of at most `limit` points that cover the axes, row-major, as equal as they get.

    The innermost axes stay whole as long as they fit; the next one is cut; those further out are taken one by one.
    """
    steps: dict[str, int] = {}
    room = max(limit, 1)
    for axis in reversed(axes):
        size = sizes[axis]
        pieces = -(-size // max(1, min(size, room)))
        steps[axis] = -(-size // pieces)
        room = room // size if size <= room else 1
    starts = [range(0, sizes[a], steps[a]) for a in axes]
    return [
        {a: (first, min(steps[a], sizes[a] - first)) for a, first in zip(axes, firsts, strict=True)}
        for firsts in product(*starts)
    ]


def packed_tiles(axes: Sequence[str], sizes: Mapping[str, int], limit: int) -> list[Tile]:
    """As few boxes of at most `limit` points as cuts from edge to edge give; outer axes are cut first.

    So a 3 x 3 kernel over 64 channels takes 5 tiles of 128 rows, and a 7 x 7 kernel over 3 channels takes 2.
    """
    boxes = _pack(tuple(sizes[a] for a in axes), limit)
    return [dict(zip(axes, zip(origin, dims, strict=True), strict=True)) for origin, dims in boxes]


Boxes = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


@cache
def _pack(sizes: tuple[int, ...], limit: int) -> Boxes:
    if prod(sizes) <= limit:
        return (((0,) * len(sizes), sizes),)
    best: Boxes | None = None
    for axis, size in enumerate(sizes):
        for cut in _cuts(sizes, axis, limit):
            left = _pack((*sizes[:axis], cut, *sizes[axis + 1 :]), limit)
            right = _pack((*sizes[:axis], size - cut, *sizes[axis + 1 :]), limit)
            if best is None or len(left) + len(right) < len(best):
                moved = tuple(((*o[:axis], o[axis] + cut, *o[axis + 1 :]), d) for o, d in right)
                best = left + moved
    assert best is not None, "a box larger than the limit has an axis to cut"
    return best


def _cuts(sizes: tuple[int, ...], axis: int, limit: int) -> list[int]:
    size = sizes[axis]
    inner = prod(sizes[axis + 1 :])
    chunk = max(1, limit // inner) if inner <= limit else 1
    if size == 1:
        return []
    if size > TRY_ALL_CUTS:
        whole = size // chunk * chunk if size % chunk else size - chunk
        # Many equal chunks: halve them, so that the recursion stays shallow.
        half = size // chunk // 2 * chunk
        return [c for c in (half or whole,) if 0 < c < size]
    tried = [c for c in range(size - 1, 0, -1) if axis < len(sizes) - 1 or size <= limit or c % limit == 0]
    return tried or [min(chunk, size - 1)]


def union(tiles: Sequence[Tile]) -> Tile:
    """The smallest ranges that hold all tiles."""
    ranges: Tile = {}
    for axis in tiles[0]:
        spans = [t[axis] for t in tiles]
        first = min(spans)[0]
        ranges[axis] = (first, max([start + size for start, size in spans]) - first)
    return ranges
