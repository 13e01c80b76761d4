"""Scatters into arrays in HBM whose indices should be unique: each row is read and written once, with its update.

The number of each update is written into a table over D, at its index.  Equal indices show when the table is read back
at the indices: all but the last find another number.  If there are none, the table says for each row which update it
has, if any: a part of the array is loaded, its updates are gathered, and what both give is stored.  If there are, rows
are combined in the order of the list; so the hint may be wrong.  A run without data takes the hint's word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box, Expr, IndexMap
from systolith.compiler.lower.indexed.list_kernel import ListKernel, filled, number_list
from systolith.compiler.lower.scalars import load_scalar
from systolith.compiler.lower.windows import copy_windows, list_in_vmem
from systolith.compiler.ops.expression_builder import inline_scalar
from systolith.compiler.tile.arrays import dense_array, view
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array, Block, If, TileOp
from systolith.isa.dtypes import S32

LISTS = 4
"""Lists over the indices that are in VMEM at once, while the table is made."""

SHARE = 2
"""Part of the budget that they and the table may take."""

TILES = 9
"""Parts of an array, its updates and results that are in VMEM at once."""


def unique_fit(ctx: TileBuilder, results: Sequence[Array], updates: Sequence[Array]) -> bool:
    """Whether arrays that can be combined by rows have room for the lists, and pay: few rows without an update."""
    depth, count = results[0].dims[1], updates[0].dims[1]
    return S32.size * (depth + LISTS * count) <= ctx.budget // SHARE and depth <= 2 * count


def combine_unique(
    ctx: TileBuilder,
    root: Instruction,
    bases: Sequence[Array],
    results: Sequence[Array],
    starts: Array,
    updates: Sequence[Array],
    in_order: Callable[[], None],
) -> None:
    """Combine arrays `[B, D, R]` with updates `[B, N, 1, R]` at indices s32[N].

    Args:
        ctx: where to.
        root: the scatter.
        bases, results, starts, updates: as `lower_scatter` has them.
        in_order: combines them in order.
    """
    table, repeated = _table(ctx, list_in_vmem(ctx, starts, 0, updates[0].dims[1]), results[0].dims[1])
    register = load_scalar(ctx, repeated, "whether indices are equal", expected=0)
    outer = ctx.block
    fast, ordered = Block(), Block()
    ctx.block = fast
    _combine(ctx, root, bases, results, table, updates)
    ctx.block = ordered
    in_order()
    ctx.block = outer
    ctx.append_region(If(register, [fast, ordered], ctx.origin("").group))
    # The group ends here, whichever branch ran.
    ctx.append(TileOp("li", {"rd": ctx.vreg(), "imm": 0}, ctx.origin("end")))


def _table(ctx: TileBuilder, listed: Array, depth: int) -> tuple[Array, Array]:
    """For each row the number of its last update, or -1; and a word that is 1 if some row has several, else 0."""
    (count,) = listed.dims
    part = Box((0, 0, 0, 0), (1, count, 1, 1))
    table = filled(ctx, "numbers of updates", depth, -1)
    numbers, found = number_list(ctx, count), ctx.array("found", S32, (count,))
    over = dense_array(table.buf, S32, (1, depth, 1))
    for windows, scatter in ((numbers, True), (found, False)):
        copy_windows(ctx, over, dense_array(windows.buf, S32, part.dims), part, 1, listed, scatter)
    kernel = ListKernel(ctx, (count,))
    graph, at, last, number = kernel.graph, kernel.load(listed), kernel.load(found), kernel.load(numbers)
    lost = graph.micro("and", kernel.inside(at, depth), graph.micro("ne.s32", last, number))
    first = graph.micro("select", lost, graph.const(0), graph.const(-1))
    where = kernel.list_of("repeated", first, "find equal indices")
    # Every update that another replaced writes a 1 to the one word.
    word, one = filled(ctx, "some are equal", 1, 0), filled(ctx, "one", 1, 1)
    ones = replace(one, dims=part.dims, strides=(0,) * 4, origin=(0,) * 4)
    copy_windows(ctx, replace(word, dims=(1, 1, 1), strides=(4, 4, 4), origin=(0,) * 3), ones, part, 1, where, True)
    return table, replace(word, dims=(), strides=(), origin=())


def _combine(
    ctx: TileBuilder,
    root: Instruction,
    bases: Sequence[Array],
    results: Sequence[Array],
    table: Array,
    updates: Sequence[Array],
) -> None:
    """Combine rows, part by part, each with the update that the table names."""
    outer, depth, inner = results[0].dims
    row = outer * inner * sum(u.dtype.size for u in updates)
    each = max(min(depth, ctx.budget // TILES // row), 1)
    for first in range(0, depth, each):
        box = Box((0, first, 0), (outer, min(each, depth - first), inner))
        rows = box.dims[1]
        listed = ctx.array("updates of rows", S32, (rows,))
        ctx.copy(view(table, Box((first,), (rows,))), listed, "part of the table")
        taken = []
        for u in updates:
            tile = ctx.array(f"{u.buf.name}.rows", u.dtype, (outer, rows, 1, inner))
            among = replace(u, dims=(outer, u.dims[1], inner), strides=(u.strides[0], u.strides[1], u.strides[3]))
            part = Box((0, 0, 0, 0), tile.dims)
            copy_windows(ctx, replace(among, origin=(0,) * 3), tile, part, 1, listed, scatter=False)
            taken.append(dense_array(tile.buf, u.dtype, box.dims))
        given = [ctx.stage_in(base, box) for base in bases]
        made = [ctx.out_tile(result, box) for result in results]
        _combine_tiles(ctx, root, given, taken, listed, made)
        for tile, result in zip(made, results, strict=True):
            ctx.stage_out(tile, result, box)


def _combine_tiles(
    ctx: TileBuilder,
    root: Instruction,
    bases: Sequence[Array],
    updates: Sequence[Array],
    listed: Array,
    results: Sequence[Array],
) -> None:
    """A kernel: rows with their updates where there is one, else as they are."""
    kernel = ListKernel(ctx, bases[0].dims)
    graph, values = kernel.graph, [kernel.load(a) for a in (*bases, *updates)]
    number = kernel.load(listed, IndexMap(3, (Expr((0, 1, 0)),)))
    there = graph.micro("ge.s32", number, graph.const(0))
    combined = inline_scalar(graph, root.computation(), values)
    nodes = [graph.micro("select", there, new, old) for new, old in zip(combined, values, strict=False)]
    kernel.emit(nodes, [replace(r, origin=(0,) * 3) for r in results], "combine")
