"""Scatters into arrays in HBM, row by row: rows that a part of the list names are read, combined and written back.

Rows with several updates in a part must be one row in VMEM.  For that each index of the part is written into a table
over D, at its place, in order, and read again: equal indices find the same number, that of the last of them.  Updates
go to the row of that number, in order, and only that row is written back.  The table needs no contents before, since
only what was just written is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from systolith.compiler.index.affine import Box, Expr
from systolith.compiler.lower.indexed.list_kernel import ListKernel, number_list
from systolith.compiler.lower.indexed.serial_kernel import Combination
from systolith.compiler.lower.windows import LEAST_LIST, copy_windows, list_in_vmem
from systolith.compiler.ops.expression import Coordinate
from systolith.compiler.tile.arrays import dense_array
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array
from systolith.isa.dtypes import S32
from systolith.isa.instruction import Space

TABLE = 8
"""Part of the budget that the table may take."""

ROWS = 2 / 3
"""Part of it that the rows of a part of the list, and their updates, take: a part waits for the one before."""

WHILE_COPIED = 2
"""Parts that are combined as one while arrays are copied."""

LISTS = 6
"""Lists of a part."""


def rows_fit(ctx: TileBuilder, results: Sequence[Array], updates: Sequence[Array]) -> bool:
    """Whether arrays can be combined so: in HBM, windows of one row, and the table has room."""
    in_hbm = all(a.buf.space is Space.HBM for a in results)
    fits = S32.size * results[0].dims[1] <= ctx.budget // TABLE
    return in_hbm and updates[0].dims[2] == 1 and fits and _most(ctx, updates) >= LEAST_LIST


def _most(ctx: TileBuilder, updates: Sequence[Array]) -> int:
    """Indices of a part."""
    outer, _, _, inner = updates[0].dims
    row = 2 * outer * inner * sum(u.dtype.size for u in updates)
    return int(ctx.budget * ROWS) // (row + LISTS * S32.size)


def combine_rows(
    ctx: TileBuilder,
    combine: Combination,
    bases: Sequence[Array],
    results: Sequence[Array],
    starts: Array,
    updates: Sequence[Array],
) -> None:
    """Combine arrays `[B, D, R]` with updates `[B, N, 1, R]` at indices s32[N].

    Where arrays are copied, the first part reads its rows from them as they were, so it is combined meanwhile.
    """
    outer, count, _, inner = updates[0].dims
    depth = results[0].dims[1]
    table = ctx.array("places", S32, (1, depth, 1))
    each = min(count, _most(ctx, updates))
    copied = [(b, r) for b, r in zip(bases, results, strict=True) if r.buf.memory is not b.buf.memory]
    alike = all(b.buf.space is Space.HBM and b.strides == r.strides for b, r in copied)
    ahead = min(count, WHILE_COPIED * each) if copied and alike else each
    if not alike:
        _copy(ctx, copied)
    numbers = number_list(ctx, ahead)
    for first in (0, *range(ahead, count, each)):
        part = Box((0, first, 0, 0), (outer, min(each if first else ahead, count - first), 1, inner))
        listed = list_in_vmem(ctx, starts, first, part.dims[1])
        rows, written = _lists(ctx, table, numbers, listed, depth)
        tiles = [ctx.array(f"{r.buf.name}.rows", r.dtype, part.dims) for r in results]
        for tile, source in zip(tiles, bases if alike and not first else results, strict=True):
            copy_windows(ctx, source, tile, part, 1, listed, scatter=False)
        given = [ctx.stage_in(u, part) for u in updates]
        if alike and not first:
            _copy(ctx, copied)
        without_width = [dense_array(t.buf, t.dtype, (outer, part.dims[1], inner)) for t in tiles]
        combine.run(without_width, given, rows, part.dims[1])
        for tile, result in zip(tiles, results, strict=True):
            copy_windows(ctx, result, tile, part, 1, written, scatter=True)


def _copy(ctx: TileBuilder, pairs: Sequence[tuple[Array, Array]]) -> None:
    for base, result in pairs:
        ctx.move(base, result, "copy")


def _lists(ctx: TileBuilder, table: Array, numbers: Array, listed: Array, depth: int) -> tuple[Array, Array]:
    """For each index the row of the part that has its updates, and where that row is to be written; -1: nowhere."""
    (count,) = listed.dims
    part = Box((0, 0, 0, 0), (1, count, 1, 1))
    found = ctx.array("found", S32, (count,))
    for windows, scatter in ((numbers, True), (found, False)):
        copy_windows(ctx, table, dense_array(windows.buf, S32, part.dims), part, 1, listed, scatter)
    kernel = ListKernel(ctx, (count,))
    graph, at, row = kernel.graph, kernel.load(listed), kernel.load(found)
    none, number, inside = graph.const(-1), graph.node(Coordinate(Expr((1,)))), kernel.inside(at, depth)
    last = graph.micro("and", inside, graph.micro("eq.s32", row, number))
    nodes = [graph.micro("select", inside, row, none), graph.micro("select", last, at, none)]
    rows, written = (ctx.array(name, S32, (count,)) for name in ("rows", "written"))
    kernel.emit(nodes, [rows, written], "find rows")
    return rows, written
