"""Tile loops of elementwise groups: boxes of the iteration space whose operands and results fit in VMEM, one after
another.

Operands in HBM are staged into fresh tiles and results out of them; values that live in VMEM are used in place.
Consecutive tiles use different buffers, so that the transfers of one overlap the computation of another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from systolith.compiler.errors import DoesNotFitError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box
from systolith.compiler.ops.expression import Load
from systolith.compiler.ops.expression_builder import GroupPlan, analyze, group_roots
from systolith.compiler.ops.group import Group
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array
from systolith.compiler.tile.strided import compact
from systolith.compiler.vpu.emit import emit
from systolith.compiler.vpu.parts import split_parts, split_spread, split_strided, split_turned
from systolith.compiler.vpu.transposes import MOST_PARTS, PARTS_SHARE, TILES, Turns, turns
from systolith.isa.instruction import Space

BUFFERS = 2
"""Tiles of each staged value that are in VMEM at once."""

TILES_WANTED = 6
"""A group that is worth splitting is split into so many tiles, so that transfers and computation overlap."""

SMALLEST_TILE = 1 << 15
"""Bytes of HBM traffic below which splitting further costs more in latencies than overlap gains."""


def lower_loop(ctx: TileBuilder, group: Group, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Lower an elementwise group.

    Args:
        ctx: where operations go; `budget` bytes of VMEM for tiles.
        group: what to compute.
        operands: an array for each operand, in HBM or VMEM.
        results: an array for each result (one, or a tuple's elements), in HBM or VMEM.

    Raises:
        CompileError: an operation that the vector unit does not have, or tiles that do not fit.
    """
    arrays = dict(zip(group.body.parameters, operands, strict=True))
    lower_plan(ctx, analyze(group_roots(group.body)), arrays, results)


def lower_plan(
    ctx: TileBuilder, plan: GroupPlan, arrays: Mapping[Instruction, Array], results: Sequence[Array]
) -> None:
    """Compute a plan's iteration space, tile by tile; arguments and errors as for `lower_loop` and `emit`."""
    whole = Box.whole(plan.dims)
    tile_loop(ctx, plan, arrays, results, whole).run(ctx, results, whole)


@dataclass(frozen=True, eq=False)
class TileLoop:
    """How a part of an iteration space is computed, tile by tile: any part of its size where a plan is uniform.

    Attributes:
        given: what is computed, of operands as they lie in memory.
        plan: the same of views of some of them, which `spread` has.
        arrays: the operands.
        turn: what is transposed on the way.
        sizes: of a tile.
    """

    given: GroupPlan
    plan: GroupPlan
    spread: Mapping[Instruction, Load]
    arrays: Mapping[Instruction, Array]
    turn: Turns
    sizes: tuple[int, ...]

    def run(self, ctx: TileBuilder, results: Sequence[Array], within: Box) -> None:
        """Append the tiles of a part."""
        tiles: dict[Instruction, Array] = {}
        for box in within.tiles(self.sizes):
            for leaf in _staged(self.given, self.arrays):
                need = self.given.footprint(leaf, box)
                have = tiles.get(leaf)
                if have is None or have is self.arrays[leaf] or (have.origin, have.dims) != (need.origin, need.dims):
                    tiles[leaf] = ctx.stage_in(self.arrays[leaf], need) if need.elements else self.arrays[leaf]
            self._tile(ctx, box, results, {**self.arrays, **tiles})

    def _tile(self, ctx: TileBuilder, box: Box, results: Sequence[Array], arrays: Mapping[Instruction, Array]) -> None:
        """Append one tile, whose operands are in VMEM."""
        targets = [ctx.out_tile(a, box) for a in results]
        made = self.turn.targets(ctx, targets)
        read = {**arrays, **_views(self.spread, arrays, self.plan.dims)}
        leaves = self.turn.emit(ctx, self.plan, box, read, targets[0], ctx.origin("transpose"))
        if leaves is not None:
            emit(ctx, self.plan, box, leaves, made, ctx.origin("compute"))
            self.turn.finish(ctx, made, targets, ctx.origin("transpose"))
        for target, array in zip(targets, results, strict=True):
            ctx.stage_out(target, array, box)


def tile_loop(
    ctx: TileBuilder,
    plan: GroupPlan,
    arrays: Mapping[Instruction, Array],
    results: Sequence[Array],
    within: Box,
    budget: int = 0,
    parts: int = 1,
) -> TileLoop:
    """The tiles of a part of a plan's iteration space; arguments and errors as for `lower_loop` and `emit`.

    Args:
        budget: bytes of VMEM for the tiles; 0: as many as the context has.
        parts: as large as this one that are computed one after another, so that transfers overlap between them, too:
            each is in `BUFFERS` tiles at least, or what is staged of it would take as much VMEM as the part does.
    """

    def written(box: Box) -> int:
        return box.elements * sum(a.dtype.size for a in results if a.buf.space == Space.HBM)

    def choose(traffic: Callable[[Box], int], turn: Turns | None = None) -> tuple[int, ...]:
        order, tiles = (turn.order, TILES) if turn and turn.any else (None, TILES_WANTED)
        tiles = 1 if ctx.tiled else max(-(-tiles // parts), BUFFERS)
        try:
            least = turn.least if turn else None
            return choose_tile(within.dims, traffic, budget or ctx.budget, order, tiles=tiles, least=least)
        except DoesNotFitError as problem:
            raise ctx.error(f"{problem}; use a chip with more VMEM", DoesNotFitError) from problem

    nodes, arrays = split_strided(plan.graph, plan.nodes, arrays, plan.dims, ctx.chip.hbm.granule)
    nodes, arrays = split_parts(plan.graph, nodes, arrays, within.dims, written, choose)
    nodes, arrays = split_turned(plan.graph, nodes, arrays)
    given = plan if nodes == plan.nodes else replace(plan, nodes=nodes, code={})
    staged = _staged(given, arrays)
    nodes, spread = split_spread(plan.graph, given.nodes, arrays, plan.dims)
    arrays = {**arrays, **_views(spread, arrays, plan.dims)}
    plan = replace(given, nodes=nodes, code={}) if spread else given
    most = MOST_PARTS if ctx.region is not None else max(MOST_PARTS, ctx.chip.vpu.lanes // PARTS_SHARE)
    turn = turns(ctx.chip, plan, within, arrays, results, most)

    def traffic(box: Box) -> int:
        turned = box.elements * sum(results[n].dtype.size for n in turn.outs)
        read = sum(given.footprint(leaf, box).elements * arrays[leaf].dtype.size for leaf in staged)
        copied = sum(plan.footprint(leaf, box).elements * arrays[leaf].dtype.size for leaf in turn.copied)
        return written(box) + turned + read + copied

    return TileLoop(given, plan, spread, arrays, turn, choose(traffic, turn))


def _staged(plan: GroupPlan, arrays: Mapping[Instruction, Array]) -> list[Instruction]:
    """What is read of HBM."""
    return [leaf for leaf in plan.leaves if arrays[leaf].buf.space == Space.HBM]


def _views(
    spread: Mapping[Instruction, Load], arrays: Mapping[Instruction, Array], dims: Sequence[int]
) -> dict[Instruction, Array]:
    """What loads of an iteration space read, as arrays of its dimensions."""
    return {alias: compact(arrays[load.leaf], load.map, dims, 0)[0] for alias, load in spread.items()}


def _half(sizes: Sequence[int], d: int) -> int:
    return -(-sizes[d] // 2)


SHARED = 0.8
"""Work that fits is not split where this part of what a tile moves, or more, is left for each half: moved again."""


def choose_tile(
    dims: Sequence[int],
    traffic: Callable[[Box], int],
    budget: int,
    order: Sequence[int] | None = None,
    unwilling: Sequence[int] = (),
    tiles: int = TILES_WANTED,
    least: Sequence[int] | None = None,
    smaller: Callable[[Sequence[int], int], int] = _half,
) -> tuple[int, ...]:
    """Sizes of tiles: `BUFFERS` of them fit in `budget` bytes, or one, where there are no smaller ones; large work is
    split into some, from the outermost dimension, so that runs in memory stay long.

    Args:
        dims: sizes of the iteration space.
        traffic: bytes that a box moves from and to HBM.
        budget: bytes of VMEM.
        order: dimensions in the order in which they are split; outermost first unless given.
        unwilling: dimensions that are split only where tiles would not fit otherwise.
        tiles: how many large work is split into.
        least: sizes below which dimensions are split only where tiles would not fit otherwise.
        smaller: the next smaller size of a dimension, of sizes and that; the same where there is none.

    Raises:
        DoesNotFitError: the smallest tile does not fit.
    """
    sizes = list(dims)
    total = traffic(Box.whole(dims))
    wanted = max(SMALLEST_TILE, total // tiles)

    def wasted(d: int, size: int) -> bool:
        """Whether smaller tiles along a dimension would move nearly as much, each: what all of them read."""
        return traffic(Box.whole([*sizes[:d], size, *sizes[d + 1 :]])) > SHARED * used

    while (used := traffic(Box.whole(sizes))) * BUFFERS > budget or used > wanted:
        fits = used * BUFFERS <= budget
        smallers = ((d, smaller(sizes, d)) for d in order or range(len(dims)) if not (fits and d in unwilling))
        candidates = [(d, n) for d, n in smallers if n < sizes[d] and not (fits and wasted(d, n))]
        willing = [(d, n) for d, n in candidates if least is None or n >= least[d]]
        d, size = next(iter(willing or ([] if fits else candidates)), (None, 0))
        if d is None:
            if used > budget:
                raise DoesNotFitError(f"the smallest tile takes {used} bytes of a budget of {budget}")
            break
        trial = [*sizes[:d], size, *sizes[d + 1 :]]
        if fits and prod(trial) < prod(dims) and traffic(Box.whole(trial)) < SMALLEST_TILE // 2:
            break
        sizes = trial
    return tuple(sizes)
