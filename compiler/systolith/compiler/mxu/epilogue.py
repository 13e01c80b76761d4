"""The epilogue of a product: its group's results, made of accumulators as tiles are done.

Results are elementwise in the product, or reduce such values over its rows (the gradient of a bias, the mean of a batch
norm).  Those are reduced tile by tile, on the way: what tiles give is combined in VMEM, in an array over the columns,
so that nothing is read again for a sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box, IndexMap
from systolith.compiler.index.contraction import Contraction
from systolith.compiler.mxu.gemm_plan import bytes_of
from systolith.compiler.ops.expression import Load, Micro, topological
from systolith.compiler.ops.expression_builder import GroupPlan, analyze, group_roots
from systolith.compiler.ops.group import Group
from systolith.compiler.ops.reduction import Reduction, register_type, scratch_leaf
from systolith.compiler.ops.reduction_builder import sums_of_product
from systolith.compiler.tile.arrays import nesting
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array
from systolith.compiler.tile.views import untransposed
from systolith.compiler.vpu.emit import emit
from systolith.compiler.vpu.reduce_box import emit_results, reduce_box
from systolith.compiler.vpu.reduce_lanes import scratch
from systolith.compiler.vpu.reduce_task import Finish, Task, over_result
from systolith.compiler.vpu.shuffles import shuffle, shuffle_cycles
from systolith.isa.chip import Chip
from systolith.isa.dependence import slot_interval
from systolith.isa.instruction import Space


@dataclass(frozen=True)
class Made:
    """What a group makes of its product.

    Attributes:
        product: it.
        plan: over the product's elements: what is reduced, and the elementwise results.
        results: where the elementwise results go.
        sums: the reductions of `plan`'s first nodes; None: there are none.
        reduced: where their results go.
    """

    product: Instruction
    plan: GroupPlan
    results: Sequence[Array]
    sums: Reduction | None = None
    reduced: Sequence[Array] = ()

    @cached_property
    def in_place(self) -> bool:
        """Whether the product is read at its own point of the iteration space, nowhere else."""
        same = IndexMap.identity(len(self.plan.dims)).dims
        return self.plan.dims == self.product.dims and all(
            load.map.dims == same and not load.map.bounds for load in self.plan.loads if load.leaf is self.product
        )

    def sums_rows(self, c: Contraction) -> bool:
        """Whether the reduced dimensions are rows of the contraction, or of its batch, and the kept ones columns."""
        assert self.sums is not None
        columns = {d for d, index in enumerate(c.out.dims) if not index.depends.isdisjoint(c.n)}
        return all((d in columns) == (d in self.sums.kept) for d, n in enumerate(self.sums.dims) if n > 1)

    def vector_cycles(self, chip: Chip) -> int:
        """Cycles that the epilogue takes for each vector; what is loaded once for many rows does not count."""
        nodes = topological(self.plan.nodes)
        whole = [n for n in nodes if isinstance(n, Load) and (n.leaf is self.product or n.leaf.dims == self.plan.dims)]
        ops = [n.op for n in nodes if isinstance(n, Micro)]
        if self.sums is not None:
            ops += self.sums.plain
        return slot_interval([*ops, *["ld"] * len(whole), *["st"] * len(self.results)], chip)


def made_of(group: Group, results: Sequence[Array]) -> Made:
    """What a group on the matrix units makes; `results`: where they go.

    Raises:
        CompileError: element types or operations that the vector unit does not have.
    """
    product = group.root
    roots, results = untransposed(group_roots(group.body), results)
    sums = sums_of_product(group.body, product, roots)
    if sums is None:
        return Made(product, analyze(roots, frontier={product}), results)
    plan = GroupPlan(sums.dims, (*sums.inputs, *sums.side_nodes), sums.graph)
    reduced, sides = sums.reduced_and_sides(roots, results)
    return Made(product, plan, sides, sums, reduced)


@dataclass
class Epilogue:
    """Makes results of accumulators.

    Attributes:
        ctx: where to.
        made: what.
        arrays: the group's parameters.
        stored: bytes of results that go to HBM.
        read: bytes that it reads from HBM.
        kept: bytes of sums, which lie in VMEM from the first tile to the last.
        vector_cycles: that the vector unit takes for each vector of sums.
    """

    ctx: TileBuilder
    made: Made
    arrays: Mapping[Instruction, Array]
    _tiles: dict[tuple[Instruction, Box], Array] = field(default_factory=dict)
    _sums: dict[Instruction, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        made = self.made
        outs = [a for a in (*made.results, *made.reduced) if a.buf.space == Space.HBM]
        self.stored = sum(Box.whole(a.dims).elements * a.dtype.size for a in outs)
        read = [self.arrays[leaf] for leaf in made.plan.leaves if leaf is not made.product]
        self.read = sum(bytes_of(a) for a in read if a.buf.space == Space.HBM)
        self.kept = 0 if made.sums is None else sum(4 * s.size for s in made.sums.shapes)
        self.vector_cycles = made.vector_cycles(self.ctx.chip)

    def begin(self) -> None:
        """Append what comes before the first tile: sums of nothing."""
        r = self.made.sums
        if r is None:
            return
        arrays = [
            scratch(self.ctx, f"{r.operation.name}.sum{n}", register_type(s.dtype), Box.whole(s.dims))
            for n, s in enumerate(r.shapes)
        ]
        self._sums = {scratch_leaf(f"sum{n}", a.dtype, a.dims): a for n, a in enumerate(arrays)}
        emit_results(self.ctx, r, r.starts(), Box.whole(arrays[0].dims), self.arrays, arrays)

    def __call__(self, acc: Array, box: Box) -> None:
        """Append what makes the results of a tile."""
        ctx, made = self.ctx, self.made
        leaves = {leaf: acc if leaf is made.product else self._leaf(leaf, box) for leaf in made.plan.leaves}
        outs = [ctx.out_tile(a, box) for a in made.results]
        targets = [self._target(acc, out) for out in outs]
        if made.sums is None:
            emit(ctx, made.plan, box, leaves, targets, ctx.origin("epilogue"))
        else:
            self._reduce(made.sums, box, leaves, targets)
        for target, out, array in zip(targets, outs, made.results, strict=True):
            if target is not out:
                shuffle(ctx, target, out, ctx.origin("transpose"), across=False)
            ctx.stage_out(out, array, box)

    def end(self) -> None:
        """Append what follows the last tile: results of the sums."""
        r = self.made.sums
        if r is None:
            return
        box = Box.whole([r.dims[d] for d in r.kept])
        index = IndexMap.identity(len(r.kept)).over(box.dims)
        values = [r.graph.node(Load(leaf, index)) for leaf in self._sums]
        nodes = Finish().nodes(over_result(r), values, index, started=False)
        needed = dict.fromkeys(n.leaf for n in topological(nodes) if isinstance(n, Load) and n.leaf not in self._sums)
        leaves = {leaf: self.ctx.stage_in(self.arrays[leaf], Box.whole(leaf.dims)) for leaf in needed}
        outs = [self.ctx.out_tile(a, box) for a in self.made.reduced]
        emit_results(self.ctx, r, nodes, box, {**self._sums, **leaves}, outs)
        for out, array in zip(outs, self.made.reduced, strict=True):
            self.ctx.stage_out(out, array, box)

    def _reduce(self, r: Reduction, box: Box, leaves: Mapping[Instruction, Array], sides: Sequence[Array]) -> None:
        """Add a tile to the sums, and make its elementwise results on the way."""
        kept = Box(tuple(box.origin[d] for d in r.kept), tuple(box.dims[d] for d in r.kept))
        finish = Finish(tuple(self._sums), last=False)
        task = Task(r, box, kept, finish, {**leaves, **self._sums}, list(self._sums.values()), sides, alone=True)
        reduce_box(self.ctx, task)

    def _target(self, acc: Array, out: Array) -> Array:
        """Where the vector unit stores: `out`, or an array nested as the accumulators, to be turned into it."""
        near = [[d for d in nesting(a.strides) if a.dims[d] > 1][-1:] for a in (acc, out)]
        if near[0] == near[1]:
            return out
        made = self.ctx.tile(f"{out.buf.name}.t", replace(out, strides=acc.strides), Box(out.origin, out.dims))
        strided = prod(out.dims) // self.ctx.chip.vpu.sublanes
        return made if shuffle_cycles(self.ctx.chip, made, out, across=False) < strided else out

    def _leaf(self, leaf: Instruction, box: Box) -> Array:
        need = self.made.plan.footprint(leaf, box)
        if not need.elements:
            need = Box(need.origin, tuple(min(1, n) for n in leaf.dims))
        key = (leaf, need)
        if key not in self._tiles:
            self._tiles = {k: v for k, v in self._tiles.items() if k[0] is not leaf}
            self._tiles[key] = self.ctx.stage_in(self.arrays[leaf], need)
        return self._tiles[key]
