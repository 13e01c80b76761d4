"""Common parts of copies of windows at a list of indices: parts that fit, lists in VMEM, patterns through a list.

Windows are `[B, w, R]` in an array `[B, D, R]`; of all of them `[B, N, w, R]` (see `passes/expand/index_vectors.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from systolith.compiler.index.affine import Box
from systolith.compiler.tile.arrays import view
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array, Ref, TileOp
from systolith.compiler.tile.patterns import Loop, merged
from systolith.isa.instruction import Space
from systolith.isa.pattern import Coord, Pattern

PARTS = 4
"""Parts of what is copied that are in VMEM at once."""

LEAST_PART = 1 << 15
"""Bytes of a part below which latencies cost more than overlap gains."""

LEAST_LIST = 64
"""Indices of a part below which windows are rather cut."""


def windows_array(array: Array) -> Array:
    """An array of all windows with a dimension for their places, which it lacks if they have one only."""
    if len(array.dims) == 4:
        return array

    def wider(v: tuple[int, ...], one: int) -> tuple[int, ...]:
        return (*v[:2], one, *v[2:])

    return replace(array, dims=wider(array.dims, 1), strides=wider(array.strides, 0), origin=(0,) * 4)


def part_bytes(ctx: TileBuilder, size: int) -> int:
    """Bytes of a part of something of `size` bytes."""
    return min(ctx.budget // PARTS, max(LEAST_PART, size // PARTS))


def parts(
    dims: tuple[int, ...], size: int, limit: int, order: Sequence[int] = (0, 3, 2)
) -> Iterator[tuple[Box, list[Box]]]:
    """All windows in parts: for boxes of some of the indices, boxes that these are cut into.

    Args:
        dims: of all windows, (B, N, w, R).
        size: bytes of an element.
        limit: bytes that a box and its indices should have at most.
        order: of the dimensions that are cut; places of windows that overlap must not be cut where order counts.
    """
    outer, count, width, inner = dims
    row = outer * width * inner * size
    each = max(limit // (row + 8), min(count, LEAST_LIST, limit // 8), 1)
    for first in range(0, count, each):
        whole = Box((0, first, 0, 0), (outer, min(each, count - first), width, inner))
        yield whole, list(_cut(whole, order, size, limit))


def _cut(whole: Box, order: Sequence[int], size: int, limit: int) -> Iterator[Box]:
    """Boxes of at most `limit` bytes, if that is possible, cut along dimensions in an order."""
    steps = list(whole.dims)
    for d in order:
        others = prod(steps) // steps[d] * size
        steps[d] = max(1, min(steps[d], limit // others))
    return whole.tiles(steps)


def list_in_vmem(ctx: TileBuilder, starts: Array, first: int, count: int) -> Array:
    """A part of a list of s32 in VMEM, dense at the start of a buffer."""
    part = view(starts, Box((starts.origin[0] + first,), (count,)))
    dense = part.strides[0] == part.dtype.size or count == 1
    if part.buf.space is Space.VMEM and dense and part.offset == 0 and part.dynamic is None:
        return part
    tile = ctx.array(f"{starts.buf.name}.list", part.dtype, part.dims)
    ctx.copy(part, tile, "load indices")
    return tile


def copy_windows(
    ctx: TileBuilder, array: Array, windows: Array, part: Box, width: int, indices: Array, scatter: bool
) -> None:
    """Append a DMA between windows of an array, at the places in a list, and their box in order.

    Args:
        ctx: where to.
        array: `[B, D, R]`, or a box of that with all of D.
        windows: the box of all windows; one of both is in VMEM.
        part: where that box is.
        width: of whole windows.
        indices: of the box, in VMEM; windows at places outside are not copied.
        scatter: whether windows are written into the array; else they are read from it.
    """
    outer, middle, inner = array.strides
    sides = [(outer, middle, middle, inner), windows.strides]
    loops = [Loop(0, 1, part.dims[0])] * (part.dims[0] > 1) + [Loop(1, 1, part.dims[1])]
    loops += [p for p in merged([2, 3], part.dims, sides) if p.count > 1]
    counts = tuple(p.count for p in loops)
    listed = next(k for k, p in enumerate(loops) if p.dim == 1)
    inside = Coord(tuple(int(k == listed) for k in range(len(loops))), 0, 0, array.dims[1] - width + 1)
    there, here = (tuple(strides[p.dim] for p in loops) for strides in sides)
    from_outer, from_inner = part.origin[0] - array.origin[0], part.origin[3] - array.origin[2]
    offset = array.offset + from_outer * outer + part.origin[2] * middle + from_inner * inner
    at = Pattern(array.dtype, counts, there, (inside,), 0, listed)
    picked = Ref(array.buf, at, offset, array.dynamic, index=indices.buf)
    in_order = Ref(windows.buf, Pattern(windows.dtype, counts, here), windows.offset, windows.dynamic)
    src, dst, into = (in_order, picked, array) if scatter else (picked, in_order, windows)
    op = "dma.load" if into.buf.space is Space.VMEM else "dma.store"
    ctx.append(TileOp(op, {"src": src, "dst": dst}, ctx.origin("scatter" if scatter else "gather")))
