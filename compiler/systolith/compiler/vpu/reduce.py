"""Lowering of groups that reduce: reductions on the vector and cross-lane units, tile by tile.

Several reductions over the same dimensions, and values of the whole space, are made in one pass (`vpu/reduce_ways.py`).
Reduced dimensions that do not fit in VMEM are taken in chunks, each combined with the result so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd, lcm, prod

from systolith.compiler.errors import DoesNotFitError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box, IndexMap
from systolith.compiler.ops.expression_builder import GroupPlan, group_roots
from systolith.compiler.ops.group import Group
from systolith.compiler.ops.reduction import Reduction, register_type, scratch_leaf
from systolith.compiler.ops.reduction_builder import reduction_of
from systolith.compiler.tile.arrays import dense_like
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array
from systolith.compiler.vpu.elementwise import TILES_WANTED, choose_tile
from systolith.compiler.vpu.parts import Traffic, split_parts, split_repeated, split_strided
from systolith.compiler.vpu.reduce_box import emit_results, reduce_box
from systolith.compiler.vpu.reduce_lanes import scratch
from systolith.compiler.vpu.reduce_rows import split_rows
from systolith.compiler.vpu.reduce_task import Finish, Task, joined, over_result
from systolith.compiler.vpu.reduce_ways import CHUNK, Ways
from systolith.compiler.vpu.scan import lower_scan, scan_of
from systolith.compiler.vpu.transposes import TILES, Turns, innermost, turned_arrays, turns_along
from systolith.isa.instruction import Space


def lower_reduce(ctx: TileBuilder, group: Group, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Lower a group that reduces on the vector unit; arguments and errors as for `elementwise.lower_loop`."""
    computation = group.body
    arrays = dict(zip(computation.parameters, operands, strict=True))
    r = reduction_of(computation)
    if (scan := scan_of(r)) is not None:
        lower_scan(ctx, scan, arrays, results)
        return
    _Lowering(ctx, r, arrays, *r.reduced_and_sides(group_roots(computation), results)).lower()


def _dense(array: Array, box: Box) -> Array:
    """A box of an array as it lies in a tile."""
    strides = dense_like(box.dims, array.strides, array.dtype.size)
    return replace(array, dims=box.dims, strides=strides, origin=box.origin, offset=0)


@dataclass
class _Lowering:
    """The lowering of one group."""

    ctx: TileBuilder
    r: Reduction
    arrays: Mapping[Instruction, Array]
    results: Sequence[Array]
    sides: Sequence[Array]
    turn: Turns = field(default_factory=Turns)
    split: int | None = None
    cost: float = 0.0
    made: tuple[Box, Sequence[Array], Sequence[Array]] | None = None

    def lower(self) -> None:
        """Tile over kept dimensions, in chunks of reduced ones where they do not fit."""
        r = self.r
        if not prod(r.dims):
            index = IndexMap.identity(len(r.kept)).over([r.dims[d] for d in r.kept])
            nodes = r.results(r.rounded(over_result(r).inits), index)
            emit_results(self.ctx, r, nodes, Box.whole([r.dims[d] for d in r.kept]), self.arrays, self.results)
            return
        self._prepare()
        self._best().tile()

    def _prepare(self) -> None:
        """Decide what is staged and turned, and the sizes of tiles."""
        self.orders = Ways(self.ctx.chip).orders(self.r)
        self._split_parts()
        r = self.r
        inputs = GroupPlan(r.dims, (*r.inputs, *r.side_nodes, *r.inits), r.graph)
        self.epilogue = GroupPlan(r.dims, tuple(r.results([r.graph.const(0)] * len(r.inputs), r.embedding())), r.graph)
        plans = (inputs, self.epilogue)
        staged = {leaf for plan in plans for leaf in plan.leaves if self.arrays[leaf].buf.space == Space.HBM}
        self.plans, self.staged = plans, [leaf for leaf in self.arrays if leaf in staged]
        self.sizes = self._choose(self._traffic)
        self._turn()
        self._make_room()

    def _make_room(self) -> None:
        """Take smaller tiles where operands are computed to memory first, and that does not hold so many elements."""
        box = Box.whole(self.sizes)
        if 2 * self._stored_bytes(box) <= self.ctx.budget:
            return
        turned = turned_arrays(self.plans[0], box, self._in_tiles(box), self.turn)
        if Ways(self.ctx.chip).best(self._task(box, turned, self.turn)).stores:
            self.sizes = self._choose(lambda box: self._traffic(box) + self._stored_bytes(box))

    def _stored_bytes(self, box: Box) -> int:
        return 4 * box.elements * len(self.r.inputs)

    def _in_tiles(self, box: Box) -> dict[Instruction, Array]:
        """Operands as they lie in memory when a box is reduced."""
        return {leaf: _dense(a, self._need(leaf, box)) if leaf in self.staged else a for leaf, a in self.arrays.items()}

    def _best(self) -> _Lowering:
        """This, or the same with a kept dimension as two, if that is turned in fewer cycles."""
        if not self.turn.any or any(self.arrays[leaf].buf.space is Space.HBM for leaf in self.epilogue.leaves):
            return self
        split = split_rows(self.r, self.arrays, self.results, self.ctx.chip.vpu.lanes)
        if split is None:
            return self
        other = _Lowering(self.ctx, split.r, split.arrays, split.results, (), split=split.place)
        other._prepare()
        return other if other.turn.any and other.cost < self.cost else self

    def tile(self) -> None:
        """Lower it, tile by tile."""
        r, sizes = self.r, self.sizes
        self.tiles: dict[Instruction, Array] = {}
        for box in Box.whole([r.dims[d] for d in r.kept]).tiles([sizes[d] for d in r.kept]):
            self._kept_box(box, [sizes[d] for d in r.reduced])
        self._finish()

    def _turn(self) -> None:
        """Find operands to turn, so that lanes hold kept dimensions where reduced ones lie innermost, if that takes
        fewer cycles.
        """
        r, (inputs, epilogue), chip = self.r, self.plans, self.ctx.chip
        kept = [d for d in r.kept if r.dims[d] > 1]
        if not kept or self.sides:
            return
        near = set(r.reduced)
        if self.split is not None:
            kept = [*kept[:-2], kept[-1], kept[-2]]
            near.add(kept[-2])
        lane = kept[-1]
        box = Box.whole(self.sizes)
        arrays = self._in_tiles(box)
        inside = {n for n in inputs.leaves if innermost(inputs, n, arrays[n]) in near} - {*epilogue.leaves}
        outer = [*(d for d in r.kept if d not in kept), *kept[:-1], *r.reduced, lane]
        turn = turns_along(chip, inputs, box, arrays, outer, inside)
        if not turn.any:
            return
        if self.split is not None:
            turn = turn.with_results(chip, self._targets(self._kept(box)), tuple(r.kept.index(d) for d in kept))
        before = Ways(chip).cycles(self._task(box, arrays, Turns()))
        after = Ways(chip).cycles(self._task(box, turned_arrays(inputs, box, arrays, turn), turn))
        tiles = TILES if self.ctx.tiled else prod(-(-n // size) for n, size in zip(r.dims, self.sizes, strict=True))
        together = max(turn.cycles, after) + min(turn.cycles, after) // tiles
        if together < before:
            self.turn, self.cost = turn, together / box.elements
            self.sizes = self._choose(self._traffic)

    def _kept(self, box: Box) -> Box:
        r = self.r
        return Box(tuple(box.origin[d] for d in r.kept), tuple(box.dims[d] for d in r.kept))

    def _targets(self, kept: Box) -> list[Array]:
        """Results as they lie in tiles."""
        return [_dense(a, kept) for a in self.results]

    def _task(self, box: Box, leaves: Mapping[Instruction, Array], turn: Turns) -> Task:
        """A box that is reduced at once."""
        kept = self._kept(box)
        continued = tuple(order is not None and not order.lanes for order in self.orders)
        targets, sides = turn.as_made(self._targets(kept)), [_dense(a, box) for a in self.sides]
        return Task(self.r, box, kept, Finish((), True, continued), leaves, targets, sides)

    def _choose(self, traffic: Traffic) -> tuple[int, ...]:
        try:
            return self._sizes(traffic)
        except DoesNotFitError as problem:
            raise self.ctx.error(f"{problem}; use a chip with more VMEM", DoesNotFitError) from problem

    def _split_parts(self) -> None:
        """Give parts of operands that lie far apart, or that are read alone, leaves of their own."""
        r, n, least = self.r, len(self.r.inputs), self.ctx.chip.hbm.granule
        nodes, self.arrays = split_strided(r.graph, (*r.inputs, *r.side_nodes), self.arrays, r.dims, least)
        nodes, self.arrays = split_parts(r.graph, nodes, self.arrays, r.dims, self._written, self._choose)
        nodes, self.arrays = split_repeated(r.graph, nodes, self.arrays)
        self.r = replace(r, inputs=nodes[:n], side_nodes=nodes[n:])

    def _sizes(self, traffic: Traffic) -> tuple[int, ...]:
        """Sizes of tiles: of kept dimensions; of reduced ones where chunks make no difference, in row-major order."""
        r, rows = self.r, 1
        tiles = 1 if self.ctx.tiled else TILES - 1 if self.turn.any else TILES_WANTED  # halves may be odd
        if self.split is not None:
            long = self.split + 1
            few = self.ctx.chip.vpu.lanes // max(1, prod(r.dims[d] for d in r.reduced))
            least = [max(1, few) if d == long else n if d == self.split else 1 for d, n in enumerate(r.dims)]
            nested = [*(d for d in r.kept if d not in (self.split, long)), long, self.split, *r.reduced]
            return choose_tile(r.dims, traffic, self.ctx.budget, nested, r.reduced, tiles=tiles, least=least)
        rest = set(r.reduced)
        row = self._row() if self.turn.any else None
        for order in self.orders:
            if order is None and r.kept and max(r.kept) > max(r.reduced):
                return choose_tile(
                    r.dims, traffic, self.ctx.budget, r.kept + r.reduced, tiles=tiles, least=self._full()
                )
            if order is None or order.lanes:
                return choose_tile(r.dims, traffic, self.ctx.budget, r.kept + r.reduced, r.reduced, tiles, row)
            rows = lcm(rows, order.rows)
            rest -= set(order.left)
        if not rest:  # nothing is reduced, or every element of it at once
            return choose_tile(r.dims, traffic, self.ctx.budget, r.kept + r.reduced, r.reduced, tiles, row)
        chunked = sorted(rest)
        around = [d for d in r.kept if d < chunked[0]]
        inside = [d for d in r.kept if d > chunked[0]]

        def smaller(sizes: Sequence[int], d: int) -> int:
            if d not in rest:
                return -(-sizes[d] // 2)
            step = rows // gcd(rows, prod(r.dims[e] for e in chunked if e > d))
            half = -(-sizes[d] // (2 * step)) * step
            outer = any(sizes[e] > 1 for e in chunked if e < d)
            few = prod(sizes[e] for e in chunked) // 2 < CHUNK * rows and any(sizes[e] > 1 for e in inside)
            return sizes[d] if outer or few else min(half, sizes[d])

        order_of = [*around, *chunked, *inside, *chunked]
        return choose_tile(r.dims, traffic, self.ctx.budget, order_of, tiles=tiles, least=row, smaller=smaller)

    def _row(self) -> list[int]:
        """Sizes of a row of lanes of the last kept dimension, and of all reduced ones."""
        r, lanes = self.r, self.ctx.chip.vpu.lanes
        return [n if d in r.reduced else min(lanes, n) if d == max(r.kept) else 1 for d, n in enumerate(r.dims)]

    def _full(self) -> list[int]:
        """Sizes of kept dimensions that fill vectors, and of a chunk of reduced ones."""
        r, vpu = self.r, self.ctx.chip.vpu
        left, least = vpu.lanes * vpu.sublanes, [CHUNK] * len(r.dims)
        for d in reversed(r.kept):
            least[d] = min(left, r.dims[d])
            left = -(-left // r.dims[d])
        return least

    def _traffic(self, box: Box) -> int:
        moved = [*self.staged, *self.turn.copied]
        into = sum(self._need(leaf, box).elements * self.arrays[leaf].dtype.size for leaf in moved)
        turned = prod(box.dims[d] for d in self.r.kept) * sum(self.results[n].dtype.size for n in self.turn.outs)
        return into + turned + self._written(box)

    def _written(self, box: Box) -> int:
        out = sum(a.dtype.size for a in self.results if a.buf.space == Space.HBM)
        beside = sum(a.dtype.size for a in self.sides if a.buf.space == Space.HBM)
        return beside * box.elements + out * prod(box.dims[d] for d in self.r.kept)

    def _need(self, leaf: Instruction, box: Box) -> Box:
        found = [plan.footprint(leaf, box) for plan in self.plans]
        return Box.hull([b for b in found if b.elements] or found[:1])

    def _leaves(self, box: Box) -> dict[Instruction, Array]:
        for leaf in self.staged:
            need = self._need(leaf, box)
            have = self.tiles.get(leaf)
            if need.elements and (have is None or (have.origin, have.dims) != (need.origin, need.dims)):
                self.tiles[leaf] = self.ctx.stage_in(self.arrays[leaf], need)
        leaves = {**self.arrays, **self.tiles}
        turned = self.turn.turned(self.ctx, self.plans[0], box, leaves, self.ctx.origin("transpose"))
        self._finish()
        return turned

    def _kept_box(self, box: Box, chunk: Sequence[int]) -> None:
        r, ctx = self.r, self.ctx
        chunks = list(Box.whole([r.dims[d] for d in r.reduced]).tiles(chunk))
        results = [ctx.out_tile(a, box) for a in self.results]
        targets = self.turn.targets(ctx, results)
        before: tuple[Instruction, ...] = ()
        held: dict[Instruction, Array] = {}
        raw: list[Array] = []
        for k, part in enumerate(chunks):
            whole = joined(r, box, part)
            leaves = {**self._leaves(whole), **held}
            sides = [ctx.out_tile(a, whole) for a in self.sides]
            last = k == len(chunks) - 1
            continued = tuple(order is not None and not order.lanes for order in self.orders)
            task = Task(r, whole, box, Finish(before, last, continued), leaves, targets, sides)
            if not last and not raw:
                raw = self._between(task)
                names = [scratch_leaf(f"sum{n}", a.dtype, a.dims) for n, a in enumerate(raw)]
                held = dict(zip(names, raw, strict=True))
            reduce_box(ctx, task if last else replace(task, targets=raw))
            before = tuple(held)
            for side, array in zip(sides, self.sides, strict=True):
                ctx.stage_out(side, array, whole)
        self.made = box, targets, results
        if not self.turn.outs:
            self._finish()

    def _finish(self) -> None:
        """Turn and store what was made last; where it is turned, after the operands of the next tile, so that the
        cross-lane unit need not wait for it.
        """
        if self.made is None:
            return
        box, targets, results = self.made
        self.made = None
        self.turn.finish(self.ctx, targets, results, self.ctx.origin("transpose"))
        for target, array in zip(results, self.results, strict=True):
            self.ctx.stage_out(target, array, box)

    def _between(self, task: Task) -> list[Array]:
        """Where accumulated values are kept between chunks, for each accumulator."""
        types = [register_type(s.dtype) for s in self.r.shapes]
        boxes = [task.partial(order) if order is not None and order.two_steps else task.kept for order in self.orders]
        return [
            scratch(self.ctx, f"{self.r.operation.name}.sum{n}", t, b)
            for n, (t, b) in enumerate(zip(types, boxes, strict=True))
        ]
