"""Values of which each is made of the one before: cumulative sums and the like, and `scan`.

A kernel carries what a step leaves to the next one, registers for each vector of the other dimensions, and stores what
the step gives in every iteration.  A `reduce-window` over all that comes before an element (or after it) accumulates
so: elements are combined one after another, from the first (or the last) on, narrow floats in f32, rounded where they
are stored.  A chunk of the dimension goes on from what the one before kept in VMEM.  Where neighbours in memory lie
along the dimension the cross-lane unit turns tiles first, so that lanes hold other dimensions, and turns the results
back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from systolith.compiler.errors import DoesNotFitError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box, IndexMap
from systolith.compiler.ops.expression import Carried, Load, Node
from systolith.compiler.ops.expression_builder import GroupPlan, expressions, streams_of
from systolith.compiler.ops.reduction import Reduction, register_type, scratch_leaf
from systolith.compiler.passes.expand.scans import scanned
from systolith.compiler.tile.arrays import dense, nesting, view
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array
from systolith.compiler.vpu.elementwise import TILES_WANTED, choose_tile
from systolith.compiler.vpu.emit import Target
from systolith.compiler.vpu.reduce_kernel import Accumulation, AccumulationJob
from systolith.compiler.vpu.reduce_task import joined
from systolith.compiler.vpu.shuffles import shuffle
from systolith.compiler.vpu.transposes import TILES, innermost
from systolith.isa.instruction import Space
from systolith.isa.kernel import MAX_STREAMS
from systolith.isa.pattern import MAX_LOOPS


@dataclass(frozen=True)
class Scan:
    """An accumulation, stepwise, of which every step gives results; of `scan` also what the last one leaves.

    Attributes:
        r: over the operand's dimensions, the scanned one reduced; its sides are the results.
        dim: the scanned dimension.
        index: from a step to the element at which it is.
    """

    r: Reduction
    dim: int
    index: IndexMap

    @cached_property
    def plan(self) -> GroupPlan:
        """The plan of its inputs."""
        return GroupPlan(self.r.dims, (*self.r.side_nodes, *self.r.inputs, *self.r.inits), self.r.graph)

    def lies_otherwise(self, leaf: Instruction, array: Array) -> bool:
        """Whether neighbours of a leaf in memory lie along another dimension than those in the lanes, which are in the
        leaf, too: one of those that are carried.
        """
        lane = next((d for d in reversed(self.r.kept) if self.r.dims[d] > 1), -1)
        loads = [n for n in self.plan.loads if n.leaf is leaf]
        beside = any(lane in e.depends for n in loads for e in n.map.dims)
        return beside and innermost(self.plan, leaf, array) not in (-1, lane, self.dim)

    def place(self, box: Box) -> Box:
        """The elements at which the steps of a box are."""
        return self.index.footprint(box, self.r.dims)


def scan_of(r: Reduction) -> Scan | None:
    """The reduction of a group as a scan; None: it is none."""
    if r.stepwise:
        (dim,) = r.reduced
        return Scan(r, dim, _places(r.dims, dim, r.operation.flag("is_reverse")))
    found = scanned(r.operation) if len(r.operations) == 1 and r.plain and not r.sides else None
    if found is None:
        return None
    dim, backwards = found
    dims = r.operation.operands[0].dims
    index = _places(dims, dim, backwards)
    inputs = expressions(r.graph, r.operation.operands[:1], index)
    kept = tuple(d for d in range(len(dims)) if d != dim)
    made = r.combine([r.graph.node(Carried(0))], inputs)
    one = replace(r, dims=dims, kept=kept, reduced=(dim,), inputs=tuple(made), stepwise=True)
    nodes = one.results(one.rounded(made), index)
    fits = streams_of(GroupPlan(dims, tuple(nodes), r.graph)) + 2 <= MAX_STREAMS
    return Scan(replace(one, side_nodes=tuple(nodes)), dim, index) if fits else None


def _places(dims: Sequence[int], dim: int, backwards: bool) -> IndexMap:
    """From steps to elements."""
    index = IndexMap.identity(len(dims)).over(dims)
    return index.reverse((dim,), dims) if backwards else index


def lower_scan(ctx: TileBuilder, scan: Scan, arrays: Mapping[Instruction, Array], results: Sequence[Array]) -> None:
    """Lower a group that is a scan.

    Args:
        ctx: where operations go; `budget` bytes of VMEM for tiles.
        scan: the group.
        arrays: an array for each leaf, in HBM or VMEM.
        results: an array for each result, in HBM or VMEM.

    Raises:
        CompileError: tiles that do not fit.
    """
    _Lowering(ctx, scan, arrays, results).lower()


@dataclass
class _Lowering:
    """The lowering of one group."""

    ctx: TileBuilder
    scan: Scan
    arrays: Mapping[Instruction, Array]
    results: Sequence[Array]

    def lower(self) -> None:
        """Tile over the other dimensions, in chunks of the scanned one."""
        r, dim, plan = self.scan.r, self.scan.dim, self.scan.plan
        self.sides, self.ends = self.results[: len(r.side_nodes)], self.results[len(r.side_nodes) :]
        order = nesting(self.sides[0].strides) if self.sides else [*r.kept, dim]
        outer = [d for d in order if r.dims[d] > 1]
        others = prod(r.dims[d] for d in r.kept)
        along = self.sides and outer[-1:] == [dim]
        self.across = bool(along) and others > self.ctx.chip.vpu.sublanes and len(outer) <= MAX_LOOPS
        self.staged = [leaf for leaf in plan.leaves if self.arrays[leaf].buf.space == Space.HBM]
        self.turned = [leaf for leaf in plan.leaves if self._is_turned(leaf)]
        least = None
        if self.across:
            order, least = [*r.kept, dim], self._least()
        tiles = 1 if self.ctx.tiled else TILES if self.across else TILES_WANTED
        try:
            sizes = choose_tile(r.dims, self._traffic, self.ctx.budget, order, tiles=tiles, least=least)
        except DoesNotFitError as problem:
            raise self.ctx.error(f"{problem}; use a chip with more VMEM", DoesNotFitError) from problem
        self.tiles: dict[Instruction, Array] = {}
        self.copies: dict[Instruction, Array] = {}
        for kept in Box.whole([r.dims[d] for d in r.kept]).tiles([sizes[d] for d in r.kept]):
            before: list[Array] = []
            for chunk in Box.whole([r.dims[dim]]).tiles([sizes[dim]]):
                last = chunk.origin[0] + chunk.dims[0] == r.dims[dim]
                before = self._chunk(joined(r, kept, chunk), kept, before, last)

    def _is_turned(self, leaf: Instruction) -> bool:
        if not self.across:
            return self.scan.lies_otherwise(leaf, self.arrays[leaf])
        return innermost(self.scan.plan, leaf, self.arrays[leaf]) == self.scan.dim

    def _least(self) -> list[int]:
        """Sizes of tiles that are turned: vectors of the other dimensions are full, and both sides' accesses are."""
        vpu, r = self.ctx.chip.vpu, self.scan.r
        least, room = [vpu.lanes] * len(r.dims), vpu.lanes * vpu.sublanes
        for d in reversed(r.kept):
            least[d] = min(r.dims[d], room)
            room = -(-room // least[d])
        return least

    def _traffic(self, box: Box) -> int:
        def size(leaf: Instruction) -> int:
            return self.scan.plan.footprint(leaf, box).elements * self.arrays[leaf].dtype.size

        out = box.elements * sum(a.dtype.size for a in self.sides if self.across or a.buf.space == Space.HBM)
        kept = prod(box.dims[d] for d in self.scan.r.kept)
        out += kept * sum(a.dtype.size for a in self.ends if a.buf.space == Space.HBM)
        return out * (1 + self.across) + sum(map(size, self.staged)) + sum(map(size, self.turned))

    def _chunk(self, box: Box, kept: Box, before: Sequence[Array], last: bool) -> list[Array]:
        """Scan a box, from what `before` holds on; gives what is carried from it, none from the last one."""
        ctx, r, place = self.ctx, self.scan.r, self.scan.place(box)
        leaves, starts = self._leaves(box), list(r.inits)
        if before:
            carried = [scratch_leaf("carried", a.dtype, [r.dims[d] for d in r.kept]) for a in before]
            leaves |= zip(carried, before, strict=True)
            starts = [r.graph.node(Load(leaf, r.embedding())) for leaf in carried]
        after = [] if last else self._carried(kept)
        ends = [ctx.out_tile(a, kept) for a in self.ends] if last else []
        outs = [Target(a, r.embedding().shifted(box.origin)) for a in (*after, *ends)]
        targets = [ctx.out_tile(a, place) for a in self.sides]
        made = [self._nested(t, self.scan.dim) if self.across else t for t in targets]
        sides = [Target(a, self.scan.index.shifted(box.origin)) for a in made]
        finish: list[Node] = [Carried(n) for n in range(len(outs))]
        k = Accumulation(r, ctx.chip).kernel(AccumulationJob(box, leaves, starts, finish, outs, False, sides))
        if k is None:
            raise ctx.error("an accumulation over more dimensions than a kernel has loops")
        k.run(ctx, "scan")
        for source, target, array in zip(made, targets, self.sides, strict=True):
            if self.across:
                shuffle(ctx, source, target, ctx.origin("transpose"))
            ctx.stage_out(target, array, place)
        for target, array in zip(ends, self.ends, strict=False):
            ctx.stage_out(target, array, kept)
        return after

    def _leaves(self, box: Box) -> dict[Instruction, Array]:
        """The arrays that a box reads, staged where the kernel needs it."""
        leaves = dict(self.arrays)
        for leaf in self.staged:
            need = self.scan.plan.footprint(leaf, box)
            have = self.tiles.get(leaf)
            if have is None or (have.origin, have.dims) != (need.origin, need.dims):
                self.tiles[leaf] = self.ctx.stage_in(self.arrays[leaf], need)
            leaves[leaf] = self.tiles[leaf]
        for leaf in self.turned:
            part = view(leaves[leaf], self.scan.plan.footprint(leaf, box))
            copy = self.copies.get(leaf)
            if copy is None or (copy.origin, copy.dims) != (part.origin, part.dims):
                copy = self.copies[leaf] = self._nested(part, nearest(part))
                shuffle(self.ctx, part, copy, self.ctx.origin("transpose"))
            leaves[leaf] = copy
        return leaves

    def _carried(self, kept: Box) -> list[Array]:
        """Where a chunk leaves what the next one goes on from."""
        made = []
        shapes = [*self.scan.r.operation.shape.leaves()][-len(self.scan.r.inputs) :]
        for shape in shapes:
            buf = self.ctx.vmem(f"{self.scan.r.operation.name}.carried", 4 * kept.elements)
            made.append(Array(buf, register_type(shape.dtype), kept.dims, dense(kept.dims, 4), kept.origin))
        return made

    def _nested(self, array: Array, outermost: int) -> Array:
        """A new array for the same elements, one dimension outermost."""
        order = outward(array, outermost)
        nested = replace(array, strides=tuple(len(order) - order.index(d) for d in range(len(order))))
        return self.ctx.tile(f"{array.buf.name}.t", nested, Box(array.origin, array.dims))


def nearest(array: Array) -> int:
    """The dimension along which neighbours in memory lie."""
    return [d for d in nesting(array.strides) if array.dims[d] > 1][-1]


def outward(array: Array, outermost: int) -> list[int]:
    """The dimensions from the outermost one in memory to the innermost one, with another outermost."""
    return [outermost, *(d for d in nesting(array.strides) if d != outermost)]
