"""Gather: windows of an array at places that a list has, by DMA through the list.

An array of fewer bytes than its windows touch is loaded first: whole, or in boxes of all of D, from each of which all
windows take their part.
"""

from __future__ import annotations

from math import prod

from systolith.compiler.index.affine import Box
from systolith.compiler.lower.indexed.list_kernel import ListKernel
from systolith.compiler.lower.windows import copy_windows, list_in_vmem, part_bytes, parts, windows_array
from systolith.compiler.tile.arrays import view
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array
from systolith.isa.dtypes import S32
from systolith.isa.instruction import Space

RESIDENT = 2
"""Part of the budget that an operand, or a box of it, may take to be loaded."""

LISTED = 8
"""Part of the budget that the list may take to stay there for all boxes of an operand."""


def lower_gather(ctx: TileBuilder, source: Array, starts: Array, result: Array) -> None:
    """Lower a gather of the form that `passes/expand/gathers.py` gives.

    Args:
        ctx: where to.
        source: `[B, D, R]`.
        starts: s32[N], clamped here.
        result: `[B, N, w, R]`, or without w if that is 1.
    """
    found = windows_array(result)
    width, size, count = found.dims[2], source.dtype.size, found.dims[1]
    limit = part_bytes(ctx, prod(found.dims) * size)
    boxes = _loaded(ctx, source, found)
    if len(boxes) > 1:
        listed = _clamped(ctx, list_in_vmem(ctx, starts, 0, count), source.dims[1] - width)
        for box in boxes:
            _take(ctx, ctx.stage_in(source, box, "load box"), found, _windows(box, found), listed)
        return
    if boxes:
        source = ctx.stage_in(source, boxes[0], "load whole")
    for whole, cut in parts(found.dims, size, limit):
        given = list_in_vmem(ctx, starts, whole.origin[1], whole.dims[1])
        indices = _clamped(ctx, given, source.dims[1] - width)
        for part in cut:
            _take(ctx, source, found, part, indices)


def _take(ctx: TileBuilder, source: Array, found: Array, part: Box, indices: Array) -> None:
    """A part of the windows, from an array or a box of it."""
    target = view(found, part)
    if Space.VMEM not in (source.buf.space, target.buf.space):
        target = ctx.tile(f"{found.buf.name}.out", found, part)
    copy_windows(ctx, source, target, part, found.dims[2], indices, scatter=False)
    ctx.stage_out(target, found, part)


def _windows(box: Box, found: Array) -> Box:
    """The part of all windows that lies in a box of an array."""
    (outer, _, inner), (outers, _, inners) = box.origin, box.dims
    return Box((outer, 0, 0, inner), (outers, *found.dims[1:3], inners))


def _loaded(ctx: TileBuilder, source: Array, found: Array) -> list[Box]:
    """The boxes in which an array in HBM is loaded; none where its windows take less time, or a box has no room."""
    if source.buf.space is not Space.HBM:
        return []
    boxes, size = _boxes(ctx, source), source.dtype.size
    one_by_one = _by_windows(ctx, source, found)
    if len(boxes) == 1:
        return boxes if prod(source.dims) * size < one_by_one else []
    _, count, width, _ = found.dims
    if found.buf.space is not Space.HBM or count * S32.size > ctx.budget // LISTED:
        return []
    lines = source.dims[1] + count * width
    moved = sum(b.dims[0] * lines * _line_bytes(ctx, b.dims[2] * size) for b in boxes)
    return boxes if moved < one_by_one + prod(found.dims) * size else []


def _boxes(ctx: TileBuilder, source: Array) -> list[Box]:
    """Boxes of an array with all of D that have room, cut along B, then along R in granules; none if they cannot."""
    outer, depth, inner = source.dims
    lines = max(ctx.budget // RESIDENT // (depth * source.dtype.size), 1)
    outers, inners = max(min(outer, lines // inner), 1), inner
    if inner > lines:
        granule = max(ctx.chip.hbm.granule // source.dtype.size, 1)
        pieces = -(-inner // max(lines // granule * granule, 1))
        inners = -(-inner // pieces // granule) * granule
    if outers * inners > lines:
        return []
    return list(Box.whole(source.dims).tiles((outers, depth, inners)))


def _line_bytes(ctx: TileBuilder, line: int) -> int:
    """Bytes that HBM could move in the time of a line of a DMA between it and VMEM."""
    granule, chunk = ctx.chip.hbm.granule, ctx.chip.hbm.chunk
    return max(-(-line // granule) * granule, chunk // ctx.chip.dma.segments)


def _by_windows(ctx: TileBuilder, source: Array, found: Array) -> int:
    """Bytes that HBM moves to read windows one by one."""
    outer, count, width, inner = found.dims
    line, granule = inner * source.dtype.size, ctx.chip.hbm.granule
    runs, run = (outer * count, width * line) if source.strides[1] == line else (outer * count * width, line)
    return runs * -(-run // granule) * granule


def _clamped(ctx: TileBuilder, given: Array, limit: int) -> Array:
    """A list with its entries between 0 and a limit."""
    kernel = ListKernel(ctx, given.dims)
    low = kernel.graph.micro("max.s32", kernel.load(given), kernel.graph.const(0))
    clamped = kernel.graph.micro("min.s32", low, kernel.graph.const(limit))
    return kernel.list_of(f"{given.buf.name}.clamped", clamped, "clamp")
