"""Kernels that accumulate: one register an accumulator, carried over the reduced loops of a box."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

from systolith.compiler.cost.prices import kernel_length
from systolith.compiler.errors import LimitError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import Box
from systolith.compiler.ops.expression import Carried, Const, Inside, Load, Node, topological
from systolith.compiler.ops.reduction import Reduction
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array
from systolith.compiler.tile.patterns import AxisCoord, Loop
from systolith.compiler.vpu.emit import StreamSpec, Target, What, describe, run, run_cycles
from systolith.compiler.vpu.expand import expanded
from systolith.compiler.vpu.hoist import held, unchanged
from systolith.compiler.vpu.kernel_builder import KernelBuilder, build
from systolith.compiler.vpu.vectorise import Access, LaneOrder, Nest, Work, apart, choose, merge
from systolith.isa.chip import Chip
from systolith.isa.dependence import slot_interval
from systolith.isa.dtypes import S32
from systolith.isa.kernel import MAX_STREAMS
from systolith.isa.pattern import MAX_COORDS
from systolith.isa.timing import nest_cycles

TAILS = Inside(())
"""Where the elements of the last vectors exist."""


@dataclass(frozen=True)
class CombineOrder:
    """In which order a reduction combines elements.

    Attributes:
        lanes: of reduced lanes (`Nest.order`); empty: lanes hold kept elements, and each accumulator takes its
            elements in row-major order.
        left: reduced dimensions that a second step reduces, of partial results.
        rows: how many accumulators an element of the first step's result has, beside each other: one for the indices
            of the other reduced dimensions, flattened, that are equal modulo `rows`.  The second step combines them.
    """

    lanes: LaneOrder = ()
    left: tuple[int, ...] = ()
    rows: int = 1

    @property
    def two_steps(self) -> bool:
        """Whether partial results are reduced afterwards."""
        return bool(self.left) or self.rows > 1


@dataclass(frozen=True)
class AccumulatingKernel:
    """An accumulating kernel with its loops; `nest.cycles` are those of its run, and of the copies of operands that it
    needs (see `vpu/expand.py`).
    """

    builder: KernelBuilder
    nest: Nest
    work: Work
    streams: tuple[StreamSpec, ...]
    copies: Mapping[int, Work] = field(default_factory=dict)

    def run(self, ctx: TileBuilder, what: str, streams: Sequence[StreamSpec] = ()) -> None:
        """Append its run, with other streams if these are given."""
        kernel = build(ctx.chip, self.builder.source())
        run(ctx, kernel, self.nest, self.work, streams or self.streams, ctx.origin(what), self.copies)


@dataclass(frozen=True)
class AccumulationJob:
    """The accumulation that a kernel is to be made for.

    Attributes:
        box: of the iteration space.
        leaves: an array for each leaf.
        starts: what the accumulators start from.
        finish: what is stored of them, in terms of `Carried`.
        outs: where; None: partial results, one for each lane.
        lanes_reduced: whether a reduced dimension goes to the lanes.
        sides: where the reduction's sides go.
        order: that the kernel must have; None: any of one step.
        before: leaves of what earlier chunks gave, that accumulators start from.
        stride: bytes between rows of partial results, where the order has two steps.
    """

    box: Box
    leaves: Mapping[Instruction, Array]
    starts: Sequence[Node]
    finish: Sequence[Node]
    outs: Sequence[Target] | None
    lanes_reduced: bool
    sides: Sequence[Target] = ()
    order: CombineOrder | None = None
    before: tuple[Instruction, ...] = ()
    stride: int = 0


@dataclass(frozen=True)
class Accumulation:
    """Makes the accumulating kernels of a reduction for a chip.

    A kernel runs the reduced loops inside, with a prologue and an epilogue around them for each vector of kept
    elements, which costs the time to fill and drain the pipeline.  Where there are streams for it, an iteration takes a
    vector of kept elements with all that is reduced to it instead, or a vector of each of several bands of kept
    elements, which share what they all read (the filter of a depthwise convolution).
    """

    r: Reduction
    chip: Chip

    def kernel(self, job: AccumulationJob) -> AccumulatingKernel | None:
        """The faster kernel; None if its loops do not fit."""
        looped = self._looped(job, False)
        if looped is not None and _beyond(looped):
            looped = self._looped(job, True)
        if looped is None:
            return None
        found = [looped, self._unrolled(job, looped), self._banded(job, looped)]
        timed = [t for k in found if k is not None and (t := self._timed(k)) is not None]
        return min(timed, key=lambda k: k.nest.cycles, default=looped)

    def _timed(self, k: AccumulatingKernel) -> AccumulatingKernel | None:
        """With the cycles of the scheduled kernel; None if it does not fit in the registers."""
        try:
            kernel = build(self.chip, k.builder.source())
        except LimitError:
            return None
        return replace(k, nest=replace(k.nest, cycles=run_cycles(self.chip, kernel, k.nest, k.work, k.copies)))

    def _looped(self, job: AccumulationJob, tails: bool) -> AccumulatingKernel | None:
        """A kernel that runs the reduced loops inside."""
        r, g, box = self.r, self.r.graph, job.box
        b = KernelBuilder()
        inputs = g.specialise(r.inputs, box)
        if tails:
            inputs = [self._neutral(x, s) for x, s in zip(inputs, g.specialise(r.starts(), box), strict=True)]
        for n, value in enumerate(b.lower("prologue", g.specialise(job.starts, box))):
            b.carried[n] = b.register()
            b.emit("prologue", "mov", value, dst=b.carried[n])
        b.carry("body", self._step(b, job, inputs))
        self._store(b, "epilogue", b.lower("epilogue", g.specialise(job.finish, box)), 0)
        work, streams = self._work(b, job)
        if work is None:
            return None
        lanes = job.order.lanes if job.order else None
        merged = merge(work)
        nest = choose(self.chip, merged, lanes)
        loads = [n for n, s in enumerate(b.streams) if isinstance(s, Load) and s.leaf not in job.before]
        better = expanded(self.chip, work, loads, nest, lanes)
        if better is not None:
            return AccumulatingKernel(b, better.nest, better.work, streams, better.copies)
        return AccumulatingKernel(b, nest, merged, streams) if nest is not None else None

    def _unrolled(self, job: AccumulationJob, k: AccumulatingKernel) -> AccumulatingKernel | None:
        """The kernel with all iterations of its inner loops in one iteration; None: there are none, or too many."""
        g, nest = self.r.graph, k.nest
        inner, outer = nest.outer[len(nest.outer) - nest.inner :], nest.outer[: len(nest.outer) - nest.inner]
        if not 1 < prod(p.count for p in inner) < MAX_STREAMS or _beyond(k):
            return None
        iterations = list(product(*(range(p.count) for p in inner)))
        access = {id(s): a for s, a in zip(k.builder.streams, k.work.accesses, strict=True) if isinstance(s, Load)}
        inputs, sides = g.specialise(self.r.inputs, job.box), g.specialise(self.r.side_nodes, job.box)
        roots = [*self._combined(inputs), *sides]
        order = topological(roots)
        b = KernelBuilder()
        still = held(order, roots, unchanged(order, access, inner))
        for node, register in zip(still, b.lower("body", still), strict=True):
            b.held[id(node)] = register
        b.carried = dict(enumerate(b.lower("body", g.specialise(job.starts, job.box))))
        at: dict[int, tuple[int, ...]] = {}
        for iteration in iterations:
            first = len(b.streams)
            b.carried = dict(enumerate(self._step(b, job, inputs)))
            at |= dict.fromkeys(range(first, len(b.streams)), iteration)
        self._store(b, "body", b.lower("body", g.specialise(job.finish, job.box)), 0)
        work, streams = self._work(b, job)
        work = None if work is None else merge(work)
        if work is None or work.dims != k.work.dims or k.copies:
            return None
        by = {n: [(p.dim, p.step * t) for p, t in zip(inner, iteration, strict=True)] for n, iteration in at.items()}
        moved = [_moved(s, a, by.get(n, ())) for n, (s, a) in enumerate(zip(streams, work.accesses, strict=True))]
        around = replace(nest, outer=outer or (Loop(nest.lane.dim, nest.lane.count, 1),), inner=0)
        work = replace(work, accesses=tuple(a for _, a in moved))
        return AccumulatingKernel(b, around, work, tuple(s for s, _ in moved))

    def _banded(self, job: AccumulationJob, k: AccumulatingKernel) -> AccumulatingKernel | None:
        """The kernel with a vector of each of several bands in an iteration; None: they would share nothing, or there
        are too few streams.
        """
        nest = k.nest
        known = all(isinstance(s, Load | int) for s in k.builder.streams)
        if job.outs is None or job.sides or not nest.inner or nest.order or k.copies or not known or _beyond(k):
            return None
        found = []
        for p in nest.outer[: len(nest.outer) - nest.inner]:
            own = sum(_moves(a, p) for a in k.work.accesses)
            most = min(p.count, (MAX_STREAMS - len(k.work.accesses) + own) // own) if own else 1
            if own < len(k.work.accesses) and most > 1 and p.dim not in nest.tails:
                found.append(self._in_bands(job, k, p, -(-p.count // most)))
        return min((b for b in found if b is not None), key=lambda b: b.nest.cycles, default=None)

    def _in_bands(self, job: AccumulationJob, k: AccumulatingKernel, p: Loop, count: int) -> AccumulatingKernel | None:
        """The kernel for bands of `count` iterations of a loop; the last one's streams end with the loop."""
        g, b, nest, bands = self.r.graph, KernelBuilder(), k.nest, -(-p.count // count)
        access = {id(s): a for s, a in zip(k.builder.streams, k.work.accesses, strict=True) if isinstance(s, Load)}
        starts, finish = g.specialise(job.starts, job.box), g.specialise(job.finish, job.box)
        combined = self._combined(g.specialise(self.r.inputs, job.box))
        carried = [{n: b.register() for n in range(len(starts))} for _ in range(bands)]
        at: dict[int, int] = {}

        def each(section: str, roots: Sequence[Node], use: Callable[[Sequence[int]], None]) -> None:
            order = topological(roots)
            still = held(order, roots, unchanged(order, access, [p]))
            b.held = dict(zip(map(id, still), b.lower(section, still), strict=True))
            for band, b.carried in enumerate(carried):
                first = len(b.streams)
                use(b.lower(section, roots))
                at.update(dict.fromkeys(range(first, len(b.streams)), band))
            b.held = {}

        def start(values: Sequence[int]) -> None:
            for n, value in enumerate(values):
                b.emit("prologue", "mov", value, dst=b.carried[n])

        each("prologue", starts, start)
        each("body", combined, lambda values: b.carry("body", values))
        each("epilogue", finish, lambda values: self._store(b, "epilogue", values, 0))
        work, streams = self._work(b, job)
        work = None if work is None else merge(work)
        if work is None or work.dims != k.work.dims:
            return None
        moved = [
            _moved(s, a, [(p.dim, p.step * count * at.get(n, 0))])
            for n, (s, a) in enumerate(zip(streams, work.accesses, strict=True))
        ]
        if p.count % count:
            moved = [(s, _ended(a, p, count, bands) if at.get(n) == bands - 1 else a) for n, (s, a) in enumerate(moved)]
            if any(len(a.coords) > MAX_COORDS - len(nest.masked(a)) for _, a in moved):
                return None
        kept = [replace(q, count=count) if q is p else q for q in nest.outer]
        outer = tuple(q for q in kept if q.count > 1)
        inner = prod(q.count for q in outer[len(outer) - nest.inner :])
        cycles = nest_cycles(prod(q.count for q in outer) // inner, inner, work.interval, 2 * work.latency)
        work = replace(work, accesses=tuple(a for _, a in moved))
        return AccumulatingKernel(b, replace(nest, outer=outer, cycles=cycles), work, tuple(s for s, _ in moved))

    def _step(self, b: KernelBuilder, job: AccumulationJob, inputs: Sequence[Node]) -> list[int]:
        """Append what one vector of every input does; gives the new accumulated values."""
        sides = self.r.graph.specialise(self.r.side_nodes, job.box)
        values = b.lower("body", [*self._combined(inputs), *sides])
        self._store(b, "body", values[len(inputs) :], len(job.finish))
        return values[: len(inputs)]

    def _combined(self, inputs: Sequence[Node]) -> list[Node]:
        """The carried values combined with one vector of every input."""
        return self.r.combine([self.r.graph.node(Carried(n)) for n in range(len(inputs))], inputs)

    def _store(self, b: KernelBuilder, section: str, values: Sequence[int], first: int) -> None:
        for n, value in enumerate(values):
            b.emit(section, "st", value, imm=b.stream(first + n))

    def _work(self, b: KernelBuilder, job: AccumulationJob) -> tuple[Work | None, tuple[StreamSpec, ...]]:
        """The accesses, dimensions merged except for rows that are kept apart, and the streams before merging; None:
        there are too many, or the order is impossible.
        """
        r, chip, box = self.r, self.chip, job.box
        if len(b.streams) > MAX_STREAMS:
            return None, ()
        streams = tuple(self._spec(what, job) for what in b.streams)
        ops = [o.op for o in b.sections["body"]]
        accesses = tuple(s.access for s in streams)
        order = job.order or CombineOrder()
        reduced, ii, length = frozenset(r.reduced) - set(order.left), slot_interval(ops, chip), kernel_length(ops, chip)
        work: Work | None = merge(Work(box.dims, accesses, reduced, ii, length, job.lanes_reduced))
        return apart(work, order.rows, job.stride) if work and order.rows > 1 else work, streams

    def _spec(self, what: What, job: AccumulationJob) -> StreamSpec:
        """A stream of a kernel."""
        if isinstance(what, int) and what >= len(job.finish):
            return describe(what - len(job.finish), job.box, job.leaves, job.sides)
        if isinstance(what, int) and job.outs is None:
            return _partial(self.r, job.box)
        if what == TAILS:
            return StreamSpec(Access(S32, (0,) * len(job.box.dims), (), 0, False, True))
        spec = describe(what, job.box, job.leaves, job.outs or ())
        partial = isinstance(what, int) or (isinstance(what, Load) and what.leaf in job.before)
        if partial and job.order is not None and job.order.two_steps:
            return replace(spec, access=replace(spec.access, partial=True))
        return spec

    def _neutral(self, x: Node, start: Node) -> Node:
        """An input that is neutral in the last vector's lanes beyond a reduced dimension."""
        g = self.r.graph
        if isinstance(x, Load) and isinstance(start, Const) and not x.map.bounds and x.map.total:
            return g.node(replace(x, fill=start.image))
        return g.micro("select", g.node(TAILS), x, start)


def _beyond(k: AccumulatingKernel) -> bool:
    """Whether vectors reach beyond the reduced elements."""
    return k.work.ragged is not None or any(d in k.nest.reduced for d in k.nest.tails)


def _moves(a: Access, p: Loop) -> bool:
    """Whether a stream's address or coordinates change along a loop."""
    return any(v[p.dim] for v in (a.strides, *(c.coefs for c in a.coords)))


def _ended(a: Access, p: Loop, count: int, bands: int) -> Access:
    """A stream of the last of so many bands of a loop, which has fewer than `count` iterations."""
    unit = tuple(int(d == p.dim) for d in range(len(a.strides)))
    left = p.count - count * (bands - 1)
    return replace(a, coords=(*a.coords, AxisCoord(unit, 0, 0, p.step * left)))


def _moved(spec: StreamSpec, access: Access, by: Sequence[tuple[int, int]]) -> tuple[StreamSpec, Access]:
    """A stream and its merged access, so many indices further along some dimensions."""
    offset = spec.offset + sum(access.strides[d] * n for d, n in by)
    coords = tuple(c._replace(offset=c.offset + sum(c.coefs[d] * n for d, n in by)) for c in access.coords)
    return replace(spec, offset=offset), replace(access, coords=coords)


def _partial(r: Reduction, box: Box) -> StreamSpec:
    """Partial results before the vector's loops are known: strides of kept dimensions in units of rows."""
    strides = [0] * len(box.dims)
    step = 1
    for d in reversed(r.kept):
        strides[d] = step
        step *= box.dims[d]
    step = 4
    for d in reversed(r.reduced):
        strides[d] = step
        step *= box.dims[d]
    return StreamSpec(Access(S32, tuple(strides), partial=True))
