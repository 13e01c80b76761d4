"""Gather: windows of an array at places that a list has, by DMA through the list."""

from __future__ import annotations

from math import prod

from systolith.compiler.index.affine import Box, IndexMap
from systolith.compiler.lower.windows import copy_windows, list_in_vmem, part_bytes, parts, windows_array
from systolith.compiler.ops.expression import Graph, Load
from systolith.compiler.ops.expression_builder import GroupPlan
from systolith.compiler.ops.reduction import scratch_leaf
from systolith.compiler.tile.arrays import view
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array
from systolith.compiler.vpu.emit import emit
from systolith.isa.dtypes import S32
from systolith.isa.instruction import Space

RESIDENT = 2
"""Part of the budget that an operand may take to be loaded whole."""


def lower_gather(ctx: TileBuilder, source: Array, starts: Array, result: Array) -> None:
    """Lower a gather of the form that `passes/expand/gathers.py` gives.

    Args:
        ctx: where to.
        source: `[B, D, R]`.
        starts: s32[N], clamped here.
        result: `[B, N, w, R]`, or without w if that is 1.
    """
    found = windows_array(result)
    width, size = found.dims[2], source.dtype.size
    if source.buf.space is Space.HBM and _pays_to_load(ctx, source, found):
        source = ctx.stage_in(source, Box(source.origin, source.dims), "load whole")
    for whole, boxes in parts(found.dims, size, part_bytes(ctx, prod(found.dims) * size)):
        given = list_in_vmem(ctx, starts, whole.origin[1], whole.dims[1])
        indices = _clamped(ctx, given, source.dims[1] - width)
        for part in boxes:
            target = view(found, part)
            if Space.VMEM not in (source.buf.space, target.buf.space):
                target = ctx.tile(f"{found.buf.name}.out", found, part)
            copy_windows(ctx, source, target, part, width, indices, scatter=False)
            ctx.stage_out(target, found, part)


def _pays_to_load(ctx: TileBuilder, source: Array, found: Array) -> bool:
    """Whether a whole array takes less of HBM's time than its windows, and has room."""
    outer, count, width, inner = found.dims
    size, granule = source.dtype.size, ctx.chip.hbm.granule
    line = inner * size
    runs, run = (outer * count, width * line) if source.strides[1] == line else (outer * count * width, line)
    whole = prod(source.dims) * size
    return whole < runs * -(-run // granule) * granule and whole <= ctx.budget // RESIDENT


def _clamped(ctx: TileBuilder, given: Array, limit: int) -> Array:
    """A list with its entries between 0 and a limit."""
    graph, leaf = Graph(), scratch_leaf("starts", S32, given.dims)
    index = IndexMap.identity(1).over(given.dims)
    low = graph.micro("max.s32", graph.node(Load(leaf, index)), graph.const(0))
    plan = GroupPlan(given.dims, (), (graph.micro("min.s32", low, graph.const(limit)),), graph)
    made = ctx.array(f"{given.buf.name}.clamped", S32, given.dims)
    arrays = {leaf: view(given, Box(given.origin, given.dims))}
    arrays[leaf] = Array(given.buf, S32, given.dims, given.strides, (0,), given.offset)
    emit(ctx, plan, Box.whole(given.dims), arrays, [made], ctx.origin("clamp"))
    return made
