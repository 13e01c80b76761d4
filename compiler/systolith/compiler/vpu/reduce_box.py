"""One box of a reduction.

Three ways, whichever the cost model (`vpu/reduce_ways.py`) finds cheaper:

- *kept lanes*: lanes and sublanes hold kept dimensions; a kernel carries one register an accumulator over the reduced
  loops and computes the epilogue itself.
- *reduced lanes*: lanes hold a reduced dimension; a kernel leaves partial results of `width` lanes in VMEM, the
  cross-lane unit (or, for general computations, other kernels) reduces those (`vpu/reduce_lanes.py`), a last kernel
  computes the epilogue.
- *unrolled*: a kernel loads the few elements that are to be reduced (a pooling window) through a stream each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from systolith.compiler.errors import LimitError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box, IndexMap
from systolith.compiler.ops.expression import Load, Node
from systolith.compiler.ops.expression_builder import GroupPlan
from systolith.compiler.ops.reduction import Reduction, register_type, row_type, scratch_leaf
from systolith.compiler.tile.arrays import dense
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Arg, Array, Ref, TileOp
from systolith.compiler.vpu.emit import StreamSpec, emit, halves
from systolith.compiler.vpu.reduce_kernel import AccumulatingKernel, CombineOrder
from systolith.compiler.vpu.reduce_lanes import PartialRows, scratch
from systolith.compiler.vpu.reduce_task import Task, over_result
from systolith.compiler.vpu.reduce_ways import Way, Ways
from systolith.isa.pattern import Pattern


def reduce_box(ctx: TileBuilder, task: Task) -> None:
    """Append what reduces a box of the iteration space.

    Raises:
        LimitError: no kernel can.
    """
    _Box(ctx).reduce(task)


def emit_results(
    ctx: TileBuilder,
    r: Reduction,
    nodes: Sequence[Node],
    box: Box,
    leaves: Mapping[Instruction, Array],
    targets: Sequence[Array],
) -> None:
    """Append what makes a box of a reduction's results of what has been reduced."""
    plan = GroupPlan(tuple(r.dims[d] for d in r.kept), tuple(nodes), r.graph)
    emit(ctx, plan, box, leaves, targets, ctx.origin("epilogue"))


@dataclass(frozen=True)
class _Box:
    """What appends the operations."""

    ctx: TileBuilder

    def reduce(self, task: Task) -> None:
        """As `reduce_box`."""
        self._by(Ways(self.ctx.chip).best(task), task)

    def _by(self, way: Way, task: Task) -> None:
        """Reduce it in a way that has been found for it."""
        if way.name == "apart":
            if task.sides:
                emit(self.ctx, task.side_plan(), task.whole, task.leaves, task.sides, self.ctx.origin("compute"))
            for one, part in zip(way.parts, task.parts(), strict=True):
                self._by(one, part)
        elif way.name == "halves":
            for half in halves(Box(task.kept.origin, task.kept.dims)):
                self.reduce(task.over(half))
        elif way.name == "unrolled" and way.plan is not None:
            emit(self.ctx, way.plan, task.kept, task.leaves, task.targets, self.ctx.origin("reduce"))
        elif way.name == "stored":
            self._stored(task)
        elif way.kernel is not None and way.in_order is not None:
            self._two_steps(way.kernel, way.in_order, task)
        elif way.name == "rows" and way.source is not None:
            self._rows_in_place(way.source, task)
        elif way.kernel is not None and way.name == "across":
            self._across(way.kernel, task)
        elif way.kernel is not None:
            way.kernel.run(self.ctx, "reduce")

    def _two_steps(self, k: AccumulatingKernel, order: CombineOrder, task: Task) -> None:
        """Leave partial results in memory; reduce those after the last chunk."""
        finish = task.finish
        partial: Sequence[Array]
        if finish.goes_on and finish.before:
            partial = [task.leaves[leaf] for leaf in finish.before]
        elif finish.goes_on and not finish.last:
            partial = task.targets
        else:
            box, name = task.partial(order), task.r.operation.name
            partial = [
                scratch(self.ctx, f"{name}.part{n}", register_type(s.dtype), box) for n, s in enumerate(task.r.shapes)
            ]
        streams = [
            replace(s, array=partial[what]) if isinstance(what, int) and what < len(partial) else s
            for s, what in zip(k.streams, k.builder.streams, strict=True)
        ]
        k.run(self.ctx, "partial reduce", streams)
        if finish.second:
            self.reduce(task.second(order, partial))

    def _stored(self, task: Task) -> None:
        """Compute what is to be reduced to memory, and reduce that: no kernel reads it in the order that it has."""
        r = task.r
        if task.stored:
            raise LimitError(f"no kernel reduces {len(r.inputs)} operands at once in their order", r.operation)
        arrays = [
            scratch(self.ctx, f"{r.operation.name}.of{n}", register_type(s.dtype), task.whole)
            for n, s in enumerate(r.shapes)
        ]
        plan = GroupPlan(r.dims, r.inputs, r.graph)
        emit(self.ctx, plan, task.whole, task.leaves, arrays, self.ctx.origin("compute"))
        held = [scratch_leaf(f"of{n}", a.dtype, r.dims) for n, a in enumerate(arrays)]
        index = IndexMap.identity(len(r.dims)).over(r.dims)
        inputs = tuple(r.graph.node(Load(leaf, index)) for leaf in held)
        leaves = {**task.leaves, **dict(zip(held, arrays, strict=True))}
        self.reduce(replace(task, r=replace(r, inputs=inputs), leaves=leaves, stored=True))

    def _across(self, k: AccumulatingKernel, task: Task) -> None:
        r, nest, kept = task.r, k.nest, task.kept
        width = nest.lane.count
        height = nest.sublane.count if nest.sublane.dim in nest.reduced else 1
        partial = [
            scratch(
                self.ctx,
                f"{r.operation.name}.part{n}",
                register_type(s.dtype),
                Box.whole((kept.elements, height, width)),
            )
            for n, s in enumerate(r.shapes)
        ]
        accesses, streams = list(k.work.accesses), list(k.streams)
        for number, what in enumerate(k.builder.streams):
            if isinstance(what, int) and what < len(partial):
                strides = [
                    4 * height * width * s if d not in nest.reduced else 0
                    for d, s in enumerate(accesses[number].strides)
                ]
                if height > 1:
                    strides[nest.sublane.dim] = 4 * width if nest.sublane.dim != nest.lane.dim else 4
                strides[nest.lane.dim] = 4
                accesses[number] = replace(accesses[number], strides=tuple(strides), dtype=partial[what].dtype)
                streams[number] = StreamSpec(accesses[number], partial[what], 0)
        replace(k, work=replace(k.work, accesses=tuple(accesses))).run(self.ctx, "partial reduce", streams)
        self._after_rows(PartialRows(self.ctx, r, task.leaves, kept).combined(partial, height, width), task)

    def _after_rows(self, rows: Sequence[Array], task: Task) -> None:
        """The epilogue of what `rows` hold for the kept dimensions."""
        r, kept = task.r, task.kept
        held = [scratch_leaf(f"row{n}", a.dtype, s.dims) for n, (a, s) in enumerate(zip(rows, r.shapes, strict=True))]
        index = IndexMap.identity(len(kept.dims)).over([r.dims[d] for d in r.kept])
        values = [r.graph.node(Load(leaf, index)) for leaf in held]
        nodes = task.finish.nodes(over_result(r), values, index, None in r.identities)
        emit_results(self.ctx, r, nodes, kept, {**task.leaves, **dict(zip(held, rows, strict=True))}, task.targets)

    def _rows_in_place(self, source: Ref, task: Task) -> None:
        """Let the cross-lane unit read rows as they lie in memory."""
        r = task.r
        row = scratch(self.ctx, f"{r.operation.name}.row", register_type(r.shapes[0].dtype), task.kept)
        counts = source.pattern.counts[:-1]
        dst = Ref(row.buf, Pattern(row.dtype, counts or (1,), dense(counts, 4) or (4,)))
        pattern = replace(source.pattern, dtype=row_type(r.plain[0], row.dtype))
        args: dict[str, Arg] = {"src": replace(source, pattern=pattern), "dst": dst, "function": r.plain[0]}
        self.ctx.append(TileOp("xlu.reduce", args, self.ctx.origin("across lanes")))
        self._after_rows([row], task)
