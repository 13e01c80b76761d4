"""Lowering of kInput groups: reductions on the vector and cross-lane units.

Three ways, whichever the cost model finds cheaper for a box:

- *kept lanes*: lanes and sublanes hold kept dimensions; a kernel carries one register an accumulator over the reduced
  loops and computes the epilogue itself.
- *reduced lanes*: lanes hold a reduced dimension; a kernel leaves partial results of `width` lanes in VMEM, the
cross-lane unit (or, for general computations, a second kernel with kept lanes) reduces those, a last kernel computes
the epilogue.
- *unrolled*: a kernel loads the few elements that are to be reduced (a pooling window) through a stream each.

Reduced dimensions that do not fit in VMEM are taken in chunks, each combined with the result so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from systolith.compiler.affine import Box, IndexMap
from systolith.compiler.emit import StreamSpec, Target, emit, halves, run
from systolith.compiler.errors import CompileError
from systolith.compiler.expression import Carried, Const, Load, Micro, Node, topological
from systolith.compiler.group import GroupPlan, streams_of
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.kernel_builder import build, interval, latency
from systolith.compiler.loops import StagingContext, boxes, choose_tile
from systolith.compiler.reduce_kernel import AccumulatingKernel, Accumulation, Job
from systolith.compiler.reduction import Reduction, reduction_of, register_type, scratch_leaf
from systolith.compiler.tile.ir import Arg, Array, Ref, TileOp
from systolith.isa.dtypes import DType
from systolith.isa.instruction import Space
from systolith.isa.kernel import MAX_STREAMS
from systolith.isa.pattern import MAX_LOOPS, Pattern

PASS_OVERHEAD = 40
"""Cycles that a further instruction costs in fetch, fill and drain, roughly."""


def lower_reduce(ctx: StagingContext, group: Instruction, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Lower a kInput group; arguments and errors as for `loops.lower_loop`."""
    computation = group.computation("calls")
    arrays = dict(zip(computation.parameters, operands, strict=True))
    r = reduction_of(computation)
    _Lowering(ctx, r, arrays, results).lower()


@dataclass(frozen=True)
class _Finish:
    """What becomes of accumulated values.

    Attributes:
        before: leaves that hold what earlier chunks gave; empty for the first chunk.
        last: whether this is the last chunk, so that the group's results follow; else raw values are kept.
        with_init: whether accumulation starts from the initial values, so that they are in already.
    """

    before: tuple[Instruction, ...] = ()
    last: bool = True

    def nodes(self, r: Reduction, values: Sequence[Node], index: IndexMap, started: bool) -> list[Node]:
        """Nodes of the targets; `started`: the initial values are in `values` already."""
        g = r.graph
        if self.before:
            values = r.combine([g.node(Load(leaf, index)) for leaf in self.before], values)
        if not self.last:
            return list(values)
        neutral = all(
            isinstance(init, Const) and init.image == image for init, image in zip(r.inits, r.identities, strict=True)
        )
        if not started and not neutral and None not in r.identities:
            values = r.combine(values, r.inits)
        return r.results(r.rounded(values), index)


@dataclass
class _Lowering:
    """The lowering of one group."""

    ctx: StagingContext
    r: Reduction
    arrays: Mapping[Instruction, Array]
    results: Sequence[Array]

    def lower(self) -> None:
        """Tile over kept dimensions, in chunks of reduced ones where they do not fit."""
        r = self.r
        if not prod(r.dims):
            index = IndexMap.identity(len(r.kept)).over([r.dims[d] for d in r.kept])
            nodes = r.results(r.rounded([_rank0(r, n) for n in r.inits]), index)
            box = Box.whole([r.dims[d] for d in r.kept])
            self._elementwise(nodes, box, self.arrays, self.results)
            return
        inputs = GroupPlan(r.dims, (), (*r.inputs, *r.inits), r.graph)
        self.epilogue = GroupPlan(
            r.dims, (), tuple(r.results([r.graph.const(0)] * len(r.inputs), r.embedding())), r.graph
        )
        plans = (inputs, self.epilogue)
        staged = {leaf for plan in plans for leaf in plan.leaves if self.arrays[leaf].buf.space == Space.HBM}
        self.plans, self.staged = plans, [leaf for leaf in self.arrays if leaf in staged]
        sizes = choose_tile(r.dims, self._traffic, self.ctx.budget, r.kept + r.reduced, r.reduced)
        self.tiles: dict[Instruction, Array] = {}
        kept = [r.dims[d] for d in r.kept]
        for box in boxes(kept, [sizes[d] for d in r.kept]):
            self._kept_box(box, [sizes[d] for d in r.reduced])

    def _traffic(self, box: Box) -> int:
        into = sum(self._need(leaf, box).elements * self.arrays[leaf].dtype.size for leaf in self.staged)
        out = sum(a.dtype.size for a in self.results if a.buf.space == Space.HBM)
        return into + out * prod(box.dims[d] for d in self.r.kept)

    def _need(self, leaf: Instruction, box: Box) -> Box:
        found = [plan.footprint(leaf, box) for plan in self.plans]
        found = [b for b in found if b.elements] or found[:1]
        origin = tuple(min(o) for o in zip(*(b.origin for b in found), strict=True))
        ends = [max(e) for e in zip(*(tuple(map(sum, zip(b.origin, b.dims, strict=True))) for b in found), strict=True)]
        return Box(origin, tuple(e - o for e, o in zip(ends, origin, strict=True)))

    def _leaves(self, box: Box) -> dict[Instruction, Array]:
        for leaf in self.staged:
            need = self._need(leaf, box)
            have = self.tiles.get(leaf)
            if need.elements and (have is None or (have.origin, have.dims) != (need.origin, need.dims)):
                self.tiles[leaf] = self.ctx.stage_in(self.arrays[leaf], need)
        return {**self.arrays, **self.tiles}

    def _kept_box(self, box: Box, chunk: Sequence[int]) -> None:
        r, ctx = self.r, self.ctx
        chunks = list(boxes([r.dims[d] for d in r.reduced], chunk))
        targets = [ctx.out_tile(a, box) for a in self.results]
        before: tuple[Instruction, ...] = ()
        held: dict[Instruction, Array] = {}
        for k, part in enumerate(chunks):
            whole = _joined(r, box, part)
            leaves = {**self._leaves(whole), **held}
            if k == len(chunks) - 1:
                self._box(whole, box, _Finish(before), leaves, targets)
                break
            raw = [self._scratch(f"{r.heavy.name}.sum{n}", register_type(s.dtype), box) for n, s in enumerate(r.shapes)]
            self._box(whole, box, _Finish(before, False), leaves, raw)
            before = tuple(scratch_leaf(f"sum{n}", register_type(s.dtype), s.dims) for n, s in enumerate(r.shapes))
            held = dict(zip(before, raw, strict=True))
        for target, array in zip(targets, self.results, strict=True):
            ctx.stage_out(target, array, box)

    def _scratch(self, name: str, dtype: DType, box: Box) -> Array:
        return Array(self.ctx.vmem(name, 4 * box.elements), dtype, box.dims, _dense(box.dims), box.origin)

    # One box.

    def _box(
        self, whole: Box, kept: Box, finish: _Finish, leaves: Mapping[Instruction, Array], targets: Sequence[Array]
    ) -> None:
        """Reduce a box of the iteration space into `targets`, which cover the box `kept` of the result."""
        r = self.r
        started = not finish.before and finish.last
        starts = list(r.inits) if started else r.starts()
        index = r.embedding()
        nodes = finish.nodes(r, [Carried(k) for k in range(len(r.inputs))], index, started)
        outs = [Target(a, index.shifted(whole.origin)) for a in targets]
        accumulation = Accumulation(r, self.ctx.chip)
        direct = accumulation.kernel(Job(whole, leaves, starts, nodes, outs, False))
        across = None
        if any(whole.dims[d] > 1 for d in r.reduced):
            carried = [Carried(k) for k in range(len(r.inputs))]
            across = accumulation.kernel(Job(whole, leaves, r.starts(), carried, None, True))
        if finish.last and self._unrolled(kept, whole, finish, leaves, targets, direct):
            return
        if direct is None and across is None:
            for half in halves(Box(kept.origin, kept.dims)):
                part = _joined(
                    r, half, Box(tuple(whole.origin[d] for d in r.reduced), tuple(whole.dims[d] for d in r.reduced))
                )
                self._box(part, half, finish, leaves, targets)
            return
        if across is not None and self._rows_in_place(across, kept, finish, leaves, targets):
            return
        if across is None or (direct is not None and direct.nest.cycles <= self._across_cycles(across, kept)):
            assert direct is not None
            self._run(direct, direct.streams, "reduce")
        else:
            self._across(across, kept, finish, leaves, targets)

    def _unrolled(
        self,
        kept: Box,
        whole: Box,
        finish: _Finish,
        leaves: Mapping[Instruction, Array],
        targets: Sequence[Array],
        direct: AccumulatingKernel | None,
    ) -> bool:
        """Reduce few elements in one iteration, a stream each, where that is faster; gives whether it did."""
        r, chip = self.r, self.ctx.chip
        steps = list(boxes([whole.dims[d] for d in r.reduced], [1] * len(r.reduced)))
        if direct is None or len(steps) * len(r.inputs) >= MAX_STREAMS:
            return False
        result = _over_result(r)
        values: list[Node] = list(result.inits)
        for step in steps:
            origin = [0] * len(r.dims)
            for d, o in zip(r.reduced, step.origin, strict=True):
                origin[d] = whole.origin[d] + o
            values = r.combine(values, r.graph.project(r.inputs, tuple(origin), r.kept))
        index = IndexMap.identity(len(kept.dims)).over([r.dims[d] for d in r.kept])
        nodes = finish.nodes(result, values, index, True)
        plan = GroupPlan(tuple(r.dims[d] for d in r.kept), (), tuple(nodes), r.graph)
        ops = (
            [n.op for n in topological(nodes) if isinstance(n, Micro)] + ["ld"] * len(plan.loads) + ["st"] * len(nodes)
        )
        outer = prod(p.count for p in direct.nest.outer[: len(direct.nest.outer) - direct.nest.inner])
        if streams_of(plan) > MAX_STREAMS or outer * interval(chip, ops) + latency(chip, ops) > direct.nest.cycles:
            return False
        emit(self.ctx, plan, kept, leaves, targets, self.ctx.origin("reduce"))
        return True

    def _across_cycles(self, k: AccumulatingKernel, kept: Box) -> int:
        """Estimate of the whole way with reduced lanes."""
        rows = kept.elements * (k.nest.sublane.count if k.nest.sublane.dim in k.nest.reduced else 1)
        passes = 2 + len(self.r.inputs)
        return k.nest.cycles + rows + kept.elements // self.ctx.chip.vpu.lanes + passes * PASS_OVERHEAD

    def _run(self, k: AccumulatingKernel, streams: Sequence[StreamSpec], what: str) -> None:
        kernel = build(self.ctx.chip, k.builder.source())
        run(self.ctx, kernel, k.nest, k.work, streams, self.ctx.origin(what))

    # Reduced lanes.

    def _across(
        self,
        k: AccumulatingKernel,
        kept: Box,
        finish: _Finish,
        leaves: Mapping[Instruction, Array],
        targets: Sequence[Array],
    ) -> None:
        r, nest = self.r, k.nest
        width = nest.lane.count
        height = nest.sublane.count if nest.sublane.dim in nest.reduced else 1
        partial = [
            self._scratch(f"{r.heavy.name}.part{n}", register_type(s.dtype), Box.whole((kept.elements, height, width)))
            for n, s in enumerate(r.shapes)
        ]
        accesses, streams = list(k.work.accesses), list(k.streams)
        for number, what in enumerate(k.builder.streams):
            if isinstance(what, int):
                strides = [
                    4 * height * width * s if d not in nest.reduced else 0
                    for d, s in enumerate(accesses[number].strides)
                ]
                if height > 1:
                    strides[nest.sublane.dim] = 4 * width if nest.sublane.dim != nest.lane.dim else 4
                strides[nest.lane.dim] = 4
                accesses[number] = replace(accesses[number], strides=tuple(strides), dtype=partial[what].dtype)
                streams[number] = StreamSpec(accesses[number], partial[what], 0)
        kernel = build(self.ctx.chip, k.builder.source())
        run(
            self.ctx,
            kernel,
            nest,
            replace(k.work, accesses=tuple(accesses)),
            streams,
            self.ctx.origin("partial reduce"),
        )
        self._after_rows(self._rows(partial, height, width, kept), kept, finish, leaves, targets)

    def _after_rows(
        self,
        rows: Sequence[Array],
        kept: Box,
        finish: _Finish,
        leaves: Mapping[Instruction, Array],
        targets: Sequence[Array],
    ) -> None:
        """The epilogue of what `rows` hold for the box `kept`."""
        r = self.r
        held = [scratch_leaf(f"row{n}", a.dtype, s.dims) for n, (a, s) in enumerate(zip(rows, r.shapes, strict=True))]
        index = IndexMap.identity(len(kept.dims)).over([r.dims[d] for d in r.kept])
        values = [r.graph.node(Load(leaf, index)) for leaf in held]
        nodes = finish.nodes(_over_result(r), values, index, None in r.identities)
        self._elementwise(nodes, kept, {**leaves, **dict(zip(held, rows, strict=True))}, targets)

    def _rows_in_place(
        self,
        k: AccumulatingKernel,
        kept: Box,
        finish: _Finish,
        leaves: Mapping[Instruction, Array],
        targets: Sequence[Array],
    ) -> bool:
        """Let the cross-lane unit read rows that lie in memory as they are: one vector each, nothing to compute first.

        Gives whether it did.
        """
        r, nest = self.r, k.nest
        source = next((s for s, what in zip(k.streams, k.builder.streams, strict=True) if isinstance(what, Load)), None)
        several = nest.inner or nest.sublane.dim in nest.reduced or len(k.builder.streams) != 2
        if source is None or source.array is None or source.access.coords or several or not r.plain:
            return False
        if not isinstance(r.inputs[0], Load):
            return False
        places = [d for d in range(len(k.work.dims)) if d not in nest.reduced]
        access = k.work.accesses[[isinstance(w, Load) for w in k.builder.streams].index(True)]
        dims = (*places, nest.lane.dim)
        if access.dtype is not register_type(r.shapes[0].dtype):
            return False  # the cross-lane unit does not widen
        if len(dims) > MAX_LOOPS or r.identities[0] is None or source.array.buf.space != Space.VMEM:
            return False
        counts, strides = tuple(k.work.dims[d] for d in dims), tuple(access.strides[d] for d in dims)
        src = Ref(source.array.buf, Pattern(access.dtype, counts, strides, fill=r.identities[0]), source.offset)
        row = self._scratch(f"{r.heavy.name}.row", register_type(r.shapes[0].dtype), kept)
        args: dict[str, Arg] = {"src": replace(src, dynamic=source.array.dynamic), "function": r.plain[0]}
        args["dst"] = Ref(row.buf, Pattern(row.dtype, counts[:-1] or (1,), _dense(counts[:-1]) or (4,)))
        self.ctx.append(TileOp("xlu.reduce", args, self.ctx.origin("across lanes")))
        self._after_rows([row], kept, finish, leaves, targets)
        return True

    def _rows(self, partial: Sequence[Array], height: int, width: int, kept: Box) -> list[Array]:
        """Partial results [rows, height, width] reduced to one element a row, as arrays over the box `kept`."""
        r = self.r
        out = [self._scratch(f"{r.heavy.name}.row{n}", a.dtype, kept) for n, a in enumerate(partial)]
        n = kept.elements
        if not r.plain:
            self._rows_by_kernel(partial, height, width, kept, out)
            return out
        source = partial[0]
        if height > 1:
            middle = self._scratch(f"{r.heavy.name}.column", source.dtype, Box.whole((n, height)))
            self._xlu(source, middle, n * height, width)
            source, width = middle, height
        self._xlu(source, out[0], n, width)
        return out

    def _xlu(self, source: Array, target: Array, rows: int, width: int) -> None:
        r = self.r
        identity = r.identities[0]
        assert identity is not None
        src = Ref(source.buf, Pattern(source.dtype, (rows, width), (4 * width, 4), fill=identity))
        dst = Ref(target.buf, Pattern(target.dtype, (rows,), (4,)))
        args: dict[str, Arg] = {"src": src, "dst": dst, "function": r.plain[0]}
        self.ctx.append(TileOp("xlu.reduce", args, self.ctx.origin("across lanes")))

    def _rows_by_kernel(
        self, partial: Sequence[Array], height: int, width: int, kept: Box, out: Sequence[Array]
    ) -> None:
        """The same for a general computation: a kernel with kept lanes over the partial results."""
        r = self.r
        dims = (kept.elements, height * width)
        flat = [replace(a, dims=dims, strides=(4 * dims[1], 4), origin=(0, 0)) for a in partial]
        leaves = [scratch_leaf(f"part{n}", a.dtype, dims) for n, a in enumerate(flat)]
        index = IndexMap.identity(2)
        inputs = tuple(r.graph.node(Load(leaf, index)) for leaf in leaves)
        inits = tuple(_reranked(r, n, 2) for n in r.inits)
        inner = replace(r, dims=dims, kept=(0,), reduced=(1,), inputs=inputs, inits=inits)
        rows = [replace(a, dims=(dims[0],), strides=(4,), origin=(0,)) for a in out]
        embed = inner.embedding()
        targets = [Target(a, embed) for a in rows]
        scalars = {**self.arrays, **self.tiles, **dict(zip(leaves, flat, strict=True))}
        nodes = [Carried(n) for n in range(len(inputs))]
        job = Job(Box.whole(dims), scalars, inner.starts(), nodes, targets, False)
        k = Accumulation(inner, self.ctx.chip).kernel(job)
        if k is None:
            raise CompileError(f"{r.heavy.opcode} {r.heavy.name!r}: its computation needs too many streams")
        self._run(k, k.streams, "across lanes")

    def _elementwise(
        self, nodes: Sequence[Node], box: Box, leaves: Mapping[Instruction, Array], targets: Sequence[Array]
    ) -> None:
        plan = GroupPlan(tuple(self.r.dims[d] for d in self.r.kept), (), tuple(nodes), self.r.graph)
        emit(self.ctx, plan, box, leaves, targets, self.ctx.origin("epilogue"))


def _dense(dims: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in bytes of 32-bit elements."""
    return tuple(4 * prod(dims[d + 1 :]) for d in range(len(dims)))


def _joined(r: Reduction, kept: Box, reduced: Box) -> Box:
    """The box of the iteration space over boxes of the kept and of the reduced dimensions."""
    origin, dims = [0] * len(r.dims), [1] * len(r.dims)
    for box, places in ((kept, r.kept), (reduced, r.reduced)):
        for d, o, n in zip(places, box.origin, box.dims, strict=True):
            origin[d], dims[d] = o, n
    return Box(tuple(origin), tuple(dims))


def _reranked(r: Reduction, node: Node, rank: int) -> Node:
    """An initial value's expression (loads of scalars only) in a space of another rank."""
    loads = [n for n in topological([node]) if isinstance(n, Load)]
    swap: dict[int, Node] = {id(n): r.graph.node(replace(n, map=IndexMap(rank, ()))) for n in loads}
    return r.graph.substitute([node], swap)[0]


def _rank0(r: Reduction, node: Node) -> Node:
    return _reranked(r, node, len(r.kept))


def _over_result(r: Reduction) -> Reduction:
    """The reduction with initial values over the result's space."""
    return replace(r, inits=tuple(_rank0(r, n) for n in r.inits))
