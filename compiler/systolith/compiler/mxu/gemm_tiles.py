"""Cutting a contraction into tiles: boxes of rows, of columns, and of the sum, the latter packed into array rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod

from systolith.compiler.index.affine import Box

TRY_ALL_CUTS = 16
"""Axes of at most this size are cut at every place when packing."""


def box_tiles(sizes: Sequence[int], limit: int) -> list[Box]:
    """Boxes of at most `limit` points that cover axes of some sizes, row-major, as equal as they get.

    The innermost axes stay whole as long as they fit; the next one is cut; those further out are taken one by one.
    """
    steps: list[int] = []
    room = max(limit, 1)
    for size in reversed(sizes):
        pieces = -(-size // max(1, min(size, room)))
        steps.insert(0, -(-size // pieces))
        room = room // size if size <= room else 1
    return list(Box.whole(sizes).tiles(steps))


def packed_tiles(sizes: Sequence[int], limit: int) -> list[Box]:
    """As few boxes of at most `limit` points as cuts from edge to edge give; outer axes are cut first.

    So a 3 x 3 kernel over 64 channels takes 5 tiles of 128 rows, and a 7 x 7 kernel over 3 channels takes 2.
    """
    return list(_pack(tuple(sizes), limit))


@cache
def _pack(sizes: tuple[int, ...], limit: int) -> tuple[Box, ...]:
    if prod(sizes) <= limit:
        return (Box.whole(sizes),)
    best: tuple[Box, ...] | None = None
    for axis, size in enumerate(sizes):
        for cut in _cuts(sizes, axis, limit):
            left = _pack((*sizes[:axis], cut, *sizes[axis + 1 :]), limit)
            right = _pack((*sizes[:axis], size - cut, *sizes[axis + 1 :]), limit)
            if best is None or len(left) + len(right) < len(best):
                best = left + tuple(_moved(box, axis, cut) for box in right)
    assert best is not None, "a box larger than the limit has an axis to cut"
    return best


def _moved(box: Box, axis: int, by: int) -> Box:
    o = box.origin
    return Box((*o[:axis], o[axis] + by, *o[axis + 1 :]), box.dims)


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
