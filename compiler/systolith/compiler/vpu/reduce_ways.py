"""Ways of reducing a box, and which of them takes the fewest cycles of the vector unit.

In which order elements are combined depends only on the shape and type of what is reduced, by what, and on the chip:
it is that of the fastest way to reduce an array in memory, so that fusion changes no bit: where no kernel has that
order, operands are stored first.  Boxes that are reduced alone (tiles of a product) have an order of their own.  A
reduction of several parts, or with values of its whole space among its results, is one pass over its operands if all
parts have the same order and that is faster than one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import lcm, prod
from typing import Literal

from systolith.compiler.cost.prices import OVERHEAD, full_vectors, kernel_length
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.index.affine import Box, Expr, IndexMap
from systolith.compiler.ops.expression import Carried, Graph, Load, Micro, Node, topological
from systolith.compiler.ops.expression_builder import GroupPlan, streams_of
from systolith.compiler.ops.reduction import Reduction, register_type, scratch_leaf
from systolith.compiler.tile.arrays import dense_array
from systolith.compiler.tile.ir import Array, Buf, Ref
from systolith.compiler.tile.patterns import Loop, pattern
from systolith.compiler.vpu.emit import Target, kernel_cycles, vector_cycles
from systolith.compiler.vpu.reduce_kernel import AccumulatingKernel, Accumulation, AccumulationJob, CombineOrder
from systolith.compiler.vpu.reduce_rows import short_rows
from systolith.compiler.vpu.reduce_task import Finish, Task, over_result, staying
from systolith.isa.chip import Chip
from systolith.isa.chip_reads import Known
from systolith.isa.dependence import slot_interval
from systolith.isa.dtypes import DType
from systolith.isa.instruction import Space
from systolith.isa.kernel import MAX_STREAMS
from systolith.isa.pattern import MAX_LOOPS
from systolith.isa.timing import reduce_cost

CHUNK = 8
"""Elements that an accumulator takes of a chunk at least, where something else can be cut; chunks of so many must be
possible."""

FULL = 2.5
"""One step that takes up to so many times the cycles of full vectors is fast enough."""

WORTH = 0.8
"""Part of one step's cycles that two steps must not exceed, nor those with longer rows those with shorter ones."""


@dataclass(frozen=True)
class Way:
    """How a box is reduced.

    Attributes:
        name: `direct`, lanes of kept dimensions; `unrolled`, so too, a stream for each element; `two steps`, partial
            results first; `across`, lanes of a reduced dimension; `rows`, those in memory as they are; `apart`, one
            part after another; `halves`, in two; `stored`, once its operands are computed to memory.
        cycles: of the vector unit, until the cross-lane unit takes over.
        saved: cycles by which one pass is faster than one part after another.
        kernel: of `direct`, `two steps` and `across`; that of `across` for `rows`, which does not need it.
        in_order: of `two steps`.
        plan: of `unrolled`.
        source: of `rows`.
        parts: of `apart`.
    """

    name: Literal["direct", "unrolled", "two steps", "across", "rows", "apart", "halves", "stored"]
    cycles: int = 0
    saved: int = 0
    kernel: AccumulatingKernel | None = None
    plan: GroupPlan | None = None
    source: Ref | None = None
    parts: tuple[Way, ...] = ()
    in_order: CombineOrder | None = None

    @property
    def order(self) -> CombineOrder | None:
        """In which order elements are combined; None: in more than one."""
        if self.name in ("across", "rows") and self.kernel is not None:
            return CombineOrder(self.kernel.nest.order)
        return (self.in_order or CombineOrder()) if self.name in ("direct", "unrolled", "two steps") else None

    @property
    def stores(self) -> bool:
        """Whether operands are computed to memory first."""
        return self.name == "stored" or any(part.stores for part in self.parts)


@dataclass(frozen=True)
class Ways:
    """Finds the ways of a chip."""

    chip: Chip

    def best(self, task: Task) -> Way:
        """The way that takes the fewest cycles."""
        return self._several(task) if task.several else self._single(task)

    def cycles(self, task: Task) -> int:
        """Cycles of the best way, of the vector or the cross-lane unit, with those of streams that stall."""
        way = self.best(task)
        if way.plan is not None:
            return vector_cycles(self.chip, way.plan, task.kept, task.leaves, task.targets)
        if way.name in ("across", "rows") and way.kernel is not None:
            return self._by_lanes(task, way.kernel)[1]
        return way.cycles

    def _several(self, task: Task) -> Way:
        tasks = task.parts()
        parts = tuple(self._single(part) for part in tasks)
        sides = kernel_cycles(self.chip, task.side_plan(), task.whole, task.leaves, task.sides) if task.sides else 0
        orders = {self.order(part) for part in tasks}
        if sides is None or len(orders) > 1 or None in orders:
            return Way("apart", parts=parts)
        apart = Way("apart", sides + sum(part.cycles for part in parts), parts=parts)
        (order,) = orders
        way = None if order is None else self._in_order(task, order)
        if way is None or way.cycles > apart.cycles:
            return apart
        return replace(way, saved=apart.cycles - way.cycles)

    def _single(self, task: Task) -> Way:
        order = self.order(task)
        if order is None:
            return self.any_order(task)
        way = self._in_order(task, order)
        if way is None:
            return self.any_order(task) if task.r.ordered or (order.lanes and task.stored) else Way("stored")
        if order.lanes and way.kernel is not None:
            return self._by_lanes(task, way.kernel)[0]
        unrolled = self._unrolled(task, way) if task.finish.last and way.name == "direct" else None
        return unrolled or way

    def _in_order(self, task: Task, order: CombineOrder) -> Way | None:
        """One pass that combines elements in an order; None: no kernel can."""
        k = self._kernel(task, bool(order.lanes), order)
        if k is None:
            return None
        if not order.two_steps:
            return Way("across" if order.lanes else "direct", k.nest.cycles, kernel=k)
        if not task.finish.second:
            return Way("two steps", k.nest.cycles, kernel=k, in_order=order)
        box = task.partial(order)
        arrays = [somewhere(box, register_type(s.dtype)) for s in task.r.shapes]
        after = self.best(task.second(order, arrays)).cycles + OVERHEAD
        return Way("two steps", k.nest.cycles + after, kernel=k, in_order=order)

    def order(self, task: Task) -> CombineOrder | None:
        """The order in which elements are combined; None: it does not matter, nothing is fused with it.

        Rows of reduced lanes are combined chunk by chunk; otherwise it does not depend on chunks.
        """
        r, box = task.r, task.whole.dims
        whole = self.order_of(r, box if task.alone else r.dims)
        if task.alone or whole is None or not whole.lanes:
            return whole
        return self.order_of(r, [box[d] if d in r.reduced else n for d, n in enumerate(r.dims)])

    def orders(self, r: Reduction) -> list[CombineOrder | None]:
        """The order of each accumulator."""
        several = len(r.operations) > 1
        return [self.order_of(p, r.dims) for p in r.parts()] if several else [self.order_of(r, r.dims)] * len(r.inputs)

    def order_of(self, r: Reduction, dims: Sequence[int]) -> CombineOrder | None:
        """The same for a box of these sizes, as though it were all of the reduction's space."""
        if r.ordered:
            return CombineOrder()
        if r.operation.opcode != "reduce" or not r.plain or None in r.identities:
            return None
        operand = r.operation.operands[0].shape
        dtype = operand.dtype if operand.dims == r.dims else register_type(operand.dtype)
        asked = tuple(dims), r.reduced, dtype, r.plain[0], r.identities[0] or 0
        return _orders.get(asked, self.chip, lambda chip: _order(chip, *asked))

    def any_order(self, task: Task) -> Way:
        """The way that takes the fewest cycles, in whatever order."""
        direct = self._in_order(task, CombineOrder())
        free = not task.r.ordered and any(task.whole.dims[d] > 1 for d in task.r.reduced)
        k = self._kernel(task, True) if free else None
        if task.finish.last and direct is not None and (unrolled := self._unrolled(task, direct)) is not None:
            return unrolled
        best, least = direct or Way("halves"), None if direct is None else direct.cycles
        if k is not None:
            way, cycles = self._by_lanes(task, k)
            if least is None or cycles < least:
                best, least = way, cycles
        if direct is not None and self._is_full(task, direct):
            return best
        for order in self._two_steps(task):
            step = self._in_order(task, order)
            if step is not None and (least is None or step.cycles < least * WORTH):
                best, least = step, step.cycles
        return best

    def _is_full(self, task: Task, direct: Way) -> bool:
        """Whether vectors of one step are full enough: two steps would lose what they save where more is fused."""
        if direct.kernel is None:
            return False
        each = max(direct.kernel.work.interval, self.chip.vpu.alu_latency)
        return direct.cycles <= FULL * full_vectors(task.whole.elements, self.chip) * each

    def _two_steps(self, task: Task) -> list[CombineOrder]:
        """Orders of two steps: vectors of kept elements and of a few indices of reduced dimensions."""
        r, sizes, vpu = task.r, task.whole.dims, self.chip.vpu
        if not r.plain or None in r.identities or not r.kept:
            return []
        left = tuple(d for d in r.reduced if d > max(r.kept))
        rest = [d for d in r.reduced if d not in left]
        if prod(sizes[d] for d in rest) == 1 or prod(sizes[d] for d in left) > vpu.lanes:
            return []
        inner = prod(sizes[max(rest) + 1 :])
        wanted = dict.fromkeys((vpu.sublanes, vpu.lanes // inner * vpu.sublanes))
        found: dict[CombineOrder, None] = {CombineOrder((), left): None} if left else {}
        n = 1
        for d in range(max(rest), min(rest) - 1, -1):
            if d not in rest:
                break
            n, below = n * sizes[d], n
            for most in wanted:
                even = next((m for m in range(min(most, n - 1), 1, -1) if n % m == 0), 1)
                for rows in (even, most) if d == min(rest) else (even,):
                    if 1 < rows < n and lcm(rows, below) <= CHUNK * rows:
                        found[CombineOrder((), left, rows)] = None
        return list(found)

    def _by_lanes(self, task: Task, k: AccumulatingKernel) -> tuple[Way, int]:
        """With lanes of a reduced dimension, and cycles of the whole way."""
        rows = task.kept.elements * (k.nest.sublane.count if k.nest.sublane.dim in k.nest.reduced else 1)
        after = task.kept.elements // self.chip.vpu.lanes + OVERHEAD
        whole = k.nest.cycles + rows + after + (1 + len(task.r.inputs)) * OVERHEAD
        source = self._row_source(task, k)
        in_place = 0 if source is None else reduce_cost(source.pattern, self.chip).occupancy + after
        if source is None or in_place > whole:
            return Way("across", k.nest.cycles, kernel=k), whole
        return Way("rows", kernel=k, source=source), in_place

    def _kernel(self, task: Task, across: bool, order: CombineOrder | None = None) -> AccumulatingKernel | None:
        """The accumulating kernel of a task with lanes of a reduced dimension, or of kept ones."""
        r, origin, finish = task.r, task.whole.origin, task.finish
        carried = [Carried(k) for k in range(len(r.inputs))]
        sides = [Target(a, IndexMap.identity(len(r.dims)).shifted(origin)) for a in task.sides]
        job = AccumulationJob(task.whole, task.leaves, r.starts(), carried, None, across, sides, order)
        if across:
            return Accumulation(r, self.chip).kernel(job)
        before = finish.before if finish.goes_on else ()
        if order is not None and order.two_steps:
            _, place = staying(r, order)
            index, box = _into_partial(r, order), task.partial(order)
            arrays = [somewhere(box, register_type(s.dtype)) for s in r.shapes]
            stride = 4 * prod(box.dims[place + 1 :])
            job = replace(job, outs=[Target(a, index.shifted(origin)) for a in arrays], stride=stride)
        else:
            started = finish.goes_on or (not finish.before and finish.last)
            index = r.embedding()
            outs = [Target(a, index.shifted(origin)) for a in task.targets]
            nodes = finish.nodes(r, carried, index, started)
            job = replace(job, starts=list(r.inits) if started else r.starts(), finish=nodes, outs=outs)
        if before:
            job = replace(job, starts=[r.graph.node(Load(leaf, index)) for leaf in before], before=before)
        return Accumulation(r, self.chip).kernel(job)

    def _unrolled(self, task: Task, direct: Way) -> Way | None:
        """Few elements in one iteration, a stream each, where that is faster."""
        r, whole, chip, k = task.r, task.whole, self.chip, direct.kernel
        sizes = [whole.dims[d] for d in r.reduced]
        if k is None or prod(sizes) * len(r.inputs) >= MAX_STREAMS or (task.finish.before and task.finish.goes_on):
            return None
        result = over_result(r)
        values: list[Node] = list(result.inits)
        for step in product(*map(range, sizes)):
            origin = [0] * len(r.dims)
            for d, o in zip(r.reduced, step, strict=True):
                origin[d] = whole.origin[d] + o
            values = r.combine(values, r.graph.project(r.inputs, tuple(origin), r.kept))
        index = IndexMap.identity(len(task.kept.dims)).over([r.dims[d] for d in r.kept])
        nodes = task.finish.nodes(result, values, index, True)
        plan = GroupPlan(tuple(r.dims[d] for d in r.kept), tuple(nodes), r.graph)
        ops = (
            [n.op for n in topological(nodes) if isinstance(n, Micro)] + ["ld"] * len(plan.loads) + ["st"] * len(nodes)
        )
        outer = prod(p.count for p in k.nest.outer[: len(k.nest.outer) - k.nest.inner])
        cycles = outer * slot_interval(ops, chip) + kernel_length(ops, chip)
        if streams_of(plan) > MAX_STREAMS or cycles > k.nest.cycles:
            return None
        return Way("unrolled", cycles, plan=plan)

    def _row_source(self, task: Task, k: AccumulatingKernel) -> Ref | None:
        """Rows that lie in memory as the cross-lane unit can read them: one vector each, nothing to compute first."""
        r, nest = task.r, k.nest
        source = next((s for s, what in zip(k.streams, k.builder.streams, strict=True) if isinstance(what, Load)), None)
        # What a broadcast repeats is one stream of a kernel that has all iterations of inner loops in one.
        several = prod(k.work.dims[d] for d in nest.reduced) != nest.lane.count or len(k.builder.streams) != 2
        if source is None or source.array is None or source.access.coords or several or not r.plain:
            return None
        if not isinstance(r.inputs[0], Load):
            return None
        places = [d for d in range(len(k.work.dims)) if d not in nest.reduced]
        access = k.work.accesses[[isinstance(w, Load) for w in k.builder.streams].index(True)]
        dims = (*places, nest.lane.dim)
        if access.dtype is not register_type(r.shapes[0].dtype):
            return None  # the cross-lane unit does not widen
        if len(dims) > MAX_LOOPS or r.identities[0] is None or source.array.buf.space != Space.VMEM:
            return None
        loops = [Loop(d, 1, k.work.dims[d]) for d in dims]
        rows = pattern(access.dtype, loops, access.strides, fill=r.identities[0])
        return Ref(source.array.buf, rows, source.offset, source.array.dynamic)


_orders: Known[CombineOrder | None] = Known(4096)


def _order(
    chip: Chip,
    dims: tuple[int, ...],
    reduced: tuple[int, ...],
    dtype: DType,
    function: str,
    identity: int,
) -> CombineOrder | None:
    """The order of the fastest way to reduce a dense array in VMEM."""
    kept = tuple(d for d in range(len(dims)) if d not in reduced)
    rest = tuple(dims[d] for d in kept)
    source, result = (scratch_leaf(name, dtype, n) for name, n in (("source", dims), ("result", rest)))
    graph = Graph()
    element = graph.node(Load(source, IndexMap.identity(len(dims)).over(dims)))
    start = graph.const(identity)
    r = Reduction((result,), (result,), dims, kept, reduced, graph, (element,), (start,), (function,), (identity,))
    arrays = [anywhere(i.shape) for i in (source, result)]
    task = Task(r, Box.whole(dims), Box.whole(rest), Finish(), {source: arrays[0]}, [arrays[1]])
    order = Ways(chip).any_order(task).order
    return CombineOrder() if order is not None and order.lanes and short_rows(chip, dims, reduced, dtype) else order


def _into_partial(r: Reduction, order: CombineOrder) -> IndexMap:
    """From the iteration space to the first row of partial results."""
    rank = len(r.dims)
    stays, place = staying(r, order)
    units = [Expr(tuple(int(k == d) for k in range(rank))) for d in stays]
    return IndexMap(rank, (*units[:place], Expr((0,) * rank), *units[place:]), extents=r.dims)


def somewhere(box: Box, dtype: DType) -> Array:
    """A dense array of a box in VMEM, for costs."""
    whole = anywhere(array(dtype, box.dims))
    return replace(whole, origin=box.origin)


def anywhere(shape: Shape) -> Array:
    """A dense array in VMEM, for costs."""
    return dense_array(Buf("", Space.VMEM, max(shape.bytes, 1), 4), shape.dtype, shape.dims)
