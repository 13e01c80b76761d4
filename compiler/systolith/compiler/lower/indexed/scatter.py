"""Scatter: windows into an array at places that a list has, in the order of the list.

A computation that takes the update is a DMA through the list.  Any other is a kernel in serial mode: an iteration reads
a window of the array, combines it with its update and writes it, and the next one sees that.  An array in HBM is
combined in one box in VMEM if it fits there, else by rows (`scatter_rows.py`; `scatter_unique.py`, if it says that
indices are unique), or, where windows are several rows, in boxes, each with all updates; those of other boxes are
outside of the bounds of its streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from systolith.compiler.errors import LimitError, compile_error
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box
from systolith.compiler.lower.indexed.scatter_rows import combine_rows, rows_fit
from systolith.compiler.lower.indexed.scatter_unique import combine_unique, unique_fit
from systolith.compiler.lower.indexed.serial_kernel import Combination
from systolith.compiler.lower.windows import copy_windows, list_in_vmem, part_bytes, parts, windows_array
from systolith.compiler.tile.arrays import view
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array
from systolith.isa.instruction import Space

RESIDENT = 2
"""Part of the budget that a box of an array in HBM takes while it is combined."""


def lower_scatter(ctx: TileBuilder, root: Instruction, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Lower a scatter of the form that `passes/expand/scatters.py` gives.

    Args:
        ctx: where to.
        root: the scatter.
        operands: arrays `[B, D, R]`; indices s32[N]; updates `[B, N, w, R]`, or without w if that is 1.
        results: as the arrays.

    Raises:
        CompileError: arrays and updates of different types, or a computation that exceeds a kernel's limits.
    """
    count = len(results)
    bases, starts, updates = operands[:count], operands[count], list(map(windows_array, operands[count + 1 :]))
    if any(a.dtype is not u.dtype for a, u in zip(bases, updates, strict=True)):
        raise compile_error(root, "updates of another type than the array; convert them before")
    takes = _takes_updates(root)
    for base, result in zip(bases, results, strict=True):
        whole = takes or result.buf.space is Space.VMEM
        if whole and result.buf.memory is not base.buf.memory:
            ctx.move(base, result, "copy")
    if takes:
        for result, update in zip(results, updates, strict=True):
            _write(ctx, result, starts, update)
        return
    try:
        combine = Combination(ctx, root, updates)
    except LimitError as problem:
        raise compile_error(root, f"{problem}; use fewer arrays, or a simpler computation") from problem
    boxes = _boxes(ctx, results)
    if len(boxes) > 1 and rows_fit(ctx, results, updates):

        def in_order() -> None:
            combine_rows(ctx, combine, bases, results, starts, updates)

        if root.flag("unique_indices") and unique_fit(ctx, results, updates):
            combine_unique(ctx, root, bases, results, starts, updates, in_order)
        else:
            in_order()
        return
    for box in boxes:
        tiles = [_tile(ctx, base, result, box) for base, result in zip(bases, results, strict=True)]
        _combine_box(ctx, combine, tiles, box, starts, updates, results[0].dims[1])
        for tile, result in zip(tiles, results, strict=True):
            ctx.stage_out(tile, result, box)


def _takes_updates(root: Instruction) -> bool:
    """Whether a scatter's computation gives the updates as they are."""
    made = root.computation().result
    given = made.operands if made.opcode == "tuple" else [made]
    count = len(root.operands) // 2
    return [p.number if p.opcode == "parameter" else -1 for p in given] == list(range(count, 2 * count))


def _write(ctx: TileBuilder, result: Array, starts: Array, updates: Array) -> None:
    """Write windows over an array."""
    size = updates.dtype.size
    for whole, boxes in parts(updates.dims, size, part_bytes(ctx, prod(updates.dims) * size), order=(0, 3)):
        indices = list_in_vmem(ctx, starts, whole.origin[1], whole.dims[1])
        for part in boxes:
            given = view(updates, part) if result.buf.space is Space.VMEM else ctx.stage_in(updates, part)
            copy_windows(ctx, result, given, part, updates.dims[2], indices, scatter=True)


def _boxes(ctx: TileBuilder, results: Sequence[Array]) -> list[Box]:
    """Boxes of arrays that are combined in VMEM: all, if they lie there; windows are cut while they fill a vector."""
    dims = results[0].dims
    if all(a.buf.space is Space.VMEM for a in results):
        return [Box.whole(dims)]
    limit = ctx.budget // RESIDENT // sum(a.dtype.size for a in results)
    vector = ctx.chip.vpu.sublanes * ctx.chip.vpu.lanes
    steps = list(dims)
    for d, least in ((0, vector), (2, vector), (1, 1), (0, 1), (2, 1)):
        others = prod(steps) // steps[d]
        window = prod(steps[k] for k in (0, 2) if k != d)
        steps[d] = min(steps[d], max(limit // others, -(-least // window), 1))
    return list(Box.whole(dims).tiles(steps))


def _tile(ctx: TileBuilder, base: Array, result: Array, box: Box) -> Array:
    """The box of a result in VMEM, with what the operand has there."""
    if result.buf.space is Space.VMEM:
        return view(result, box)
    tile = ctx.tile(f"{result.buf.name}.in", result, box)
    ctx.copy(replace(view(base, box), origin=tile.origin), tile, "load")
    return tile


def _combine_box(
    ctx: TileBuilder,
    combine: Combination,
    tiles: Sequence[Array],
    box: Box,
    starts: Array,
    updates: Sequence[Array],
    depth: int,
) -> None:
    """Combine a box of the arrays, which lies in VMEM, with all updates."""
    _, count, width, _ = updates[0].dims
    dims = (box.dims[0], count, width, box.dims[2])
    size = sum(u.dtype.size for u in updates)
    for whole, boxes in parts(dims, size, part_bytes(ctx, prod(dims) * size), order=(0, 3)):
        indices = list_in_vmem(ctx, starts, whole.origin[1], whole.dims[1])
        for part in boxes:
            outer, _, _, inner = part.origin
            there = Box((box.origin[0] + outer, *part.origin[1:3], box.origin[2] + inner), part.dims)
            given = [ctx.stage_in(u, there) for u in updates]
            at = Box((there.origin[0], box.origin[1], there.origin[3]), (part.dims[0], box.dims[1], part.dims[3]))
            combine.run([view(t, at) for t in tiles], given, indices, depth)
