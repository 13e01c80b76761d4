"""Loops whose iterations compute element by element become `scan`: one kernel, which carries values in registers.

An iteration of a `while` runs kernels that load what the iteration before has stored: some 80 cycles, however few
elements there are.  A step of a scan takes as long as its chain of operations.  Arrays of which each iteration reads a
row are operands of the scan, those of which it writes a row results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from systolith.compiler.cost.prices import transfer_cycles, vectors
from systolith.compiler.errors import CompileError
from systolith.compiler.explain import Decision
from systolith.compiler.groups.all_steps import is_stackable
from systolith.compiler.groups.row_loops import RowLoop, body_cone, row_loop
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction, Module
from systolith.compiler.hlo.opcodes import ELEMENTWISE
from systolith.compiler.hlo.shape import array, tuple_of
from systolith.compiler.index.affine import Box
from systolith.compiler.ops.expression import Carried
from systolith.compiler.ops.expression_builder import splat_or_none
from systolith.compiler.ops.reduction_builder import reduction_of
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.effects import Effects
from systolith.compiler.passes.loop_values import viewed
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.compiler.passes.simplify.dead_code import DeadCode
from systolith.compiler.passes.simplify.tuples import SimplifyTuples
from systolith.compiler.passes.simplify.while_trip_count import element
from systolith.compiler.tile.arrays import dense
from systolith.compiler.tile.ir import Array
from systolith.compiler.vpu.emit import Target
from systolith.compiler.vpu.kernel_builder import build
from systolith.compiler.vpu.reduce_kernel import Accumulation, AccumulationJob
from systolith.compiler.vpu.reduce_ways import anywhere
from systolith.compiler.vpu.scan import Scan, nearest, outward, scan_of
from systolith.isa.chip import Chip

ITERATION = 64
"""Cycles that an iteration of a loop takes beyond those in which its operations are issued."""


@dataclass(frozen=True)
class ScanLoops:
    """Make loops of known trip counts scans where every value carried is computed element by element.

    Attributes:
        chip: a scan has to fit in one of its kernels, and to take fewer cycles.
    """

    chip: Chip

    def run(self, module: Module) -> Outcome:
        callees, effects = Callees(module), Effects()
        decisions: list[Decision] = []

        def scanned(r: Rewriter, i: Instruction) -> Instruction | None:
            if i.opcode != "while" or effects.of(i):
                return None
            loop = row_loop(i)
            if loop is not None and _is_map(loop, self.chip):
                why = "iterations depend on nothing that others make"
                decisions.append(Decision("loop", i.name, "all iterations at once", why, {"iterations": loop.count}))
                backwards = any(map(loop.is_backwards, loop.rows.values()))
                return loop.state_after(loop.all_steps(r, callees, loop.roots, backwards), {}, backwards)
            found = None if loop is None else self._fastest(loop, callees.name(f"{i.name}.step"))
            if found is None:
                return None
            scan, cycles = found
            callees.add(scan.step)
            numbers = {"steps": scan.loop.count, "scan-cycles": cycles[0], "loop-cycles": cycles[1]}
            decisions.append(Decision("loop", i.name, "scan", "its iterations compute element by element", numbers))
            return scan.replacement(r, callees)

        changed = rewrite(module, scanned, ("while",))
        callees.place()
        if changed:
            for tidy in (SimplifyTuples(), DeadCode()):
                tidy.run(module)
        return Outcome(changed, tuple(decisions))

    def _fastest(self, loop: RowLoop, name: str) -> tuple[_Scan, tuple[int, int]] | None:
        """A loop as a scan that takes fewer cycles, and those of both; None: it is none, or takes more."""
        made = [s for order in _orders(loop, self.chip) if (s := _scan_of(loop, name, order)) is not None]
        timed = [(s, cycles) for s in made if (cycles := _cycles(s, self.chip)) is not None]
        if not timed:
            return None
        scan, (best, _) = min(timed, key=lambda each: each[1][0])
        as_it_is = max(cycles for _, (_, cycles) in timed)
        return (scan, (best, as_it_is)) if best <= as_it_is else None


@dataclass(frozen=True)
class _Order:
    """An order of the dimensions of what is carried, but for those of size 1, which stay where they are.

    Attributes:
        sizes: of the dimensions, as they were.
        picked: for each place, which of them is there.
    """

    sizes: tuple[int, ...]
    picked: tuple[int, ...]

    def holds(self, dims: Sequence[int]) -> bool:
        """Whether an array has these dimensions."""
        return tuple(n for n in dims if n > 1) == self.sizes

    def of(self, dims: Sequence[int]) -> tuple[int, ...]:
        """For each dimension of such an array, which one was there before."""
        long = [d for d, n in enumerate(dims) if n > 1]
        taken = iter(long[k] for k in self.picked)
        return tuple(next(taken) if n > 1 else d for d, n in enumerate(dims))

    def dims(self, dims: Sequence[int]) -> tuple[int, ...]:
        """The dimensions of an array in this order; of another one as they are."""
        return tuple(dims[d] for d in self.of(dims)) if self.holds(dims) else tuple(dims)


def _orders(loop: RowLoop, chip: Chip) -> list[_Order]:
    """The order of what is carried, and one that fills more lanes."""
    sizes = tuple(n for n in _dims(loop) if n > 1) if loop.carried else ()
    same = _Order(sizes, tuple(range(len(sizes))))
    largest = max(same.picked, key=lambda k: (sizes[k], k), default=0)
    if not sizes or largest == len(sizes) - 1 or sizes[-1] >= chip.vpu.lanes:
        return [same]
    return [same, _Order(sizes, (*(k for k in same.picked if k != largest), largest))]


@dataclass(frozen=True)
class _Scan:
    """A loop as a scan.

    Attributes:
        loop: it.
        step: the computation of a step.
        given: what the step's parameters before those that are carried stand for in the loop's body.
        stacked: what the step's results before those that are carried stand for.
        outside: products and reductions that a loop would make in each iteration.
        order: that the dimensions of what is carried have in the step.

    Scalars that are carried beside arrays have the dimensions of these: all of their elements are equal.
    """

    loop: RowLoop
    step: Computation
    given: list[Instruction]
    stacked: list[Instruction]
    outside: list[Instruction]
    order: _Order

    @property
    def backwards(self) -> bool:
        """Whether it goes from the last row to the first."""
        return any(self.loop.is_backwards(u) for u in list(self.loop.rows.values())[:1])

    def on(self, operands: Sequence[Instruction]) -> Instruction:
        """The scan of these operands."""
        shapes = [p.shape for p in self.step.result.operands]
        rows, ends = shapes[: len(self.stacked)], shapes[len(self.stacked) :]
        shape = tuple_of([*(array(s.dtype, (self.loop.count, *s.dims)) for s in rows), *ends])
        attributes: dict[str, Attribute] = {"dimensions": (0,), "num_carries": len(ends), "to_apply": self.step}
        if self.backwards:
            attributes["is_reverse"] = True
        return Instruction("scan", "scan", shape, list(operands), attributes)

    def replacement(self, r: Rewriter, callees: Callees) -> Instruction:
        """The state after the loop."""
        loop = self.loop
        steps = loop.all_steps(r, callees, [*self.given, *loop.roots], self.backwards)
        dims, order = _dims(loop), self.order
        starts = [loop.state[k] for k in loop.carried]
        starts = [x if x.dims == dims else r.spread(x, array(x.shape.dtype, dims)) for x in starts]
        given = [self._in_order(r, steps.of(i), i.dims) for i in self.given]
        like = self.on([*given, *(r.transposed(x, order.of(dims)) for x in starts)])
        made = r.like(like, like.operands, like.shape, loop.loop.name)
        results = [r.emit("get-tuple-element", made, index=n) for n in range(len(made.shape.elements))]
        back = _inverse(order.of(dims))
        rows, last = results[: len(self.stacked)], results[len(self.stacked) :]
        for i, x in zip(self.stacked, rows, strict=True):
            x = r.transposed(x, (0, *(d + 1 for d in back)))
            steps.known[i] = _narrowed(r, x, (loop.count, *i.dims))
        ends = {
            k: _narrowed(r, r.transposed(x, back), loop.state[k].dims) for k, x in zip(loop.carried, last, strict=True)
        }
        return loop.state_after(steps, ends, self.backwards)

    def _in_order(self, r: Rewriter, x: Instruction, dims: Sequence[int]) -> Instruction:
        """What a step is given, for all steps: of a value with these dimensions."""
        order = self.order.of(dims) if self.order.holds(dims) else range(len(dims))
        return r.transposed(x, (0, *(d + 1 for d in order)))


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(order.index(d) for d in range(len(order)))


def _narrowed(r: Rewriter, x: Instruction, dims: Sequence[int]) -> Instruction:
    """A result with dimensions of as many elements; of fewer, which are scalars, the first of each."""
    if prod(x.dims) == prod(dims):
        return r.reshaped(x, dims)
    ends = [(0, n) if d < len(dims) else (0, 1) for d, n in enumerate(x.dims)]
    return r.reshaped(r.sliced(x, ends), dims)


def _is_map(loop: RowLoop, chip: Chip) -> bool:
    """Whether rows depend on nothing carried, and what is in memory beside them fits in VMEM, for all of them."""
    cone = body_cone(loop.roots, loop.body, loop.is_given)
    stored = {i for i in cone if i.opcode in ("dot", "reduce")}.difference(map(viewed, loop.roots))
    small = loop.count * sum(i.shape.bytes for i in stored) <= chip.vmem.bytes
    return not loop.carried and bool(cone) and small and all(loop.is_given(i) or is_stackable(i) for i in cone)


def _scan_of(loop: RowLoop, name: str, order: _Order) -> _Scan | None:
    """A loop as a scan whose computation has a name; None: what it carries is not computed element by element, or in
    this order.
    """
    ends = [loop.body.result.operands[k] for k in loop.carried]
    if not ends or any(not x.shape.is_array or x.dims not in ((), _dims(loop)) for x in ends):
        return None
    depends, simple = _kinds(loop, body_cone([*loop.roots, *ends], loop.body, loop.is_given))
    if any(end in depends and end not in simple for end in ends):
        return None

    def is_outside(i: Instruction) -> bool:
        return i not in depends and (loop.is_given(i) or not _is_plain(i))

    inside = body_cone([*ends, *simple.intersection(loop.roots)], loop.body, is_outside)
    given, made = [i for i in inside if is_outside(i)], depends.intersection(inside)

    def is_known(i: Instruction) -> bool:
        return i in made or loop.is_given(i)

    others = body_cone([*given, *(x for x in loop.roots if x not in made)], loop.body, is_known)
    if not all(is_known(i) or is_stackable(i) for i in others):
        return None
    stacked = [i for i in inside if i in made and (i in loop.roots or i in others)]
    if not given and not stacked:  # of which it would have its number of steps
        given = [i for i in loop.body.instructions if element(i, loop.body) in loop.counters][:1]
        if not given:
            return None
    step = _Step(Rewriter(Computation(name, [])), _dims(loop), order)
    if not all(step.takes(i, i in depends) for i in inside):
        return None
    r = step.r
    values = {i: r.emit("parameter", shape=array(i.shape.dtype, order.dims(i.dims)), name="given") for i in given}
    carried = [r.emit("parameter", shape=array(end.shape.dtype, step.dims), name="carried") for end in ends]
    for n, p in enumerate([*values.values(), *carried]):
        p.number = n
    for i in inside:
        number = element(i, loop.body)
        if number in loop.carried:
            values[i] = carried[loop.carried.index(number)]
        elif i not in values:
            values[i] = step.computed(i, [values[o] for o in i.operands], i in depends)
    rows = [r.reshaped(values[x], step.dims) for x in stacked]
    result = r.emit("tuple", *rows, *(_spread(r, values[x], step.dims) for x in ends))
    outside = [i for i in others if i.opcode in ("dot", "reduce")]
    return _Scan(loop, Computation(name, r.made, result), given, stacked, outside, order)


@dataclass
class _Step:
    """Makes the operations of a step.

    Attributes:
        r: with which.
        whole: dimensions of what is carried, as they were.
        order: that they have here.
    """

    r: Rewriter
    whole: tuple[int, ...]
    order: _Order

    @property
    def dims(self) -> tuple[int, ...]:
        """Dimensions of what is carried."""
        return self.order.dims(self.whole)

    def takes(self, i: Instruction, depends: bool) -> bool:
        """Whether an operation is possible in this order: reshapes and what depends on the rest have its dimensions."""
        if self.order.picked == tuple(sorted(self.order.picked)) or i.dims == ():
            return True
        if i.opcode == "reshape":
            return self.order.holds(i.dims) == self.order.holds(i.operands[0].dims)
        return self.order.holds(i.dims) or not depends

    def computed(self, i: Instruction, operands: Sequence[Instruction], depends: bool) -> Instruction:
        """An operation; scalars that depend on what is carried have the dimensions of arrays."""
        r, dims = self.r, self.order.dims(i.dims)
        if depends and not i.dims:
            dims = self.dims
        if i.opcode == "constant":
            return r.full(np.asarray(i.literal).reshape(-1)[0], array(i.shape.dtype, dims))
        if i.opcode == "reshape":
            return _spread(r, operands[0], dims)
        if i.opcode == "broadcast":
            return self._broadcast(i, operands[0], dims)
        return r.like(i, [_spread(r, x, dims) for x in operands], array(i.shape.dtype, dims))

    def _broadcast(self, i: Instruction, x: Instruction, dims: tuple[int, ...]) -> Instruction:
        r = self.r
        if prod(x.dims) == prod(dims):  # of a scalar that depends on what is carried, or along dimensions of size 1
            return r.reshaped(x, dims)
        if not self.order.holds(i.dims) or not x.dims:
            return r.like(i, [x], array(i.shape.dtype, dims))
        here = _inverse(self.order.of(i.dims))
        places = [here[d] for d in i.ints("dimensions")]
        sorted_places = sorted(range(len(places)), key=lambda k: places[k])
        x = r.transposed(x, sorted_places)
        made = r.like(i, [x], array(i.shape.dtype, dims))
        made.attributes["dimensions"] = tuple(places[k] for k in sorted_places)
        return made


def _spread(r: Rewriter, x: Instruction, dims: tuple[int, ...]) -> Instruction:
    """A scalar as an array, an array with dimensions of as many elements."""
    return r.reshaped(x, dims) if x.dims else r.spread(x, array(x.shape.dtype, dims))


def _dims(loop: RowLoop) -> tuple[int, ...]:
    """Of what is carried, but for scalars."""
    return max((loop.state[k].dims for k in loop.carried), key=len)


def _kinds(loop: RowLoop, order: Sequence[Instruction]) -> tuple[set[Instruction], set[Instruction]]:
    """Of values, operands first: those that depend on what is carried, and those that are made of it element by
    element.
    """
    depends, simple = set[Instruction](), set[Instruction]()
    for i in order:
        if element(i, loop.body) in loop.carried:
            depends.add(i)
            simple.add(i)
        elif not loop.is_given(i) and not depends.isdisjoint(i.operands):
            depends.add(i)
            alike = prod(i.dims) == prod(_dims(loop)) or i.dims == ()
            if alike and _is_plain(i) and simple.issuperset(depends.intersection(i.operands)):
                simple.add(i)
    return depends, simple


def _is_plain(i: Instruction) -> bool:
    """Whether a step may have an operation, or a constant."""
    if i.opcode == "constant":
        return splat_or_none(i) is not None
    return i.opcode in ELEMENTWISE or i.opcode in ("broadcast", "reshape")


def _cycles(scan: _Scan, chip: Chip) -> tuple[int, int] | None:
    """Cycles of the vector unit for a scan and, about, for its loop; None: no kernel has room for a step."""
    parameters, n = scan.step.parameters, scan.loop.count
    rows = [array(p.shape.dtype, (n, *p.dims)) for p in parameters[: len(scan.given)]]
    shapes = [*rows, *(p.shape for p in parameters[len(scan.given) :])]
    operands = [Instruction(f"operand.{k}", "parameter", shape, number=k) for k, shape in enumerate(shapes)]
    root = scan.on(operands)
    try:
        made = scan_of(reduction_of(Computation("scan", [*operands, root], root)))
        assert made is not None
        r, results = made.r, [anywhere(shape) for shape in root.shape.elements]
        sides = [Target(a, made.index) for a in results[: len(r.side_nodes)]]
        ends = [Target(a, r.embedding()) for a in results[len(sides) :]]
        leaves = {o: _as_read(made, o) for o in operands}
        finish = [Carried(k) for k in range(len(ends))]
        job = AccumulationJob(Box.whole(r.dims), leaves, r.inits, finish, ends, False, sides)
        kernel = Accumulation(r, chip).kernel(job)
        if kernel is None:
            return None
        build(chip, kernel.builder.source())
    except CompileError:
        return None
    outer = kernel.nest.outer
    each = prod(p.count for p in outer[: len(outer) - kernel.nest.inner])
    state = sum(shape.bytes for shape in root.shape.elements[len(sides) :])
    moved = transfer_cycles(2 * state, chip) if 2 * state > chip.vmem.bytes else 0
    others = {x for x in (*scan.given, *scan.stacked) if x not in scan.loop.roots and not scan.loop.is_given(x)}
    more = transfer_cycles(2 * n * sum(x.shape.bytes for x in others), chip)
    rest = sum(ITERATION + 2 * _vectors(o, chip) for i in scan.outside for o in i.operands[:1])
    return kernel.nest.cycles + more, n * (ITERATION + max(moved, each * kernel.work.interval) + rest)


def _vectors(i: Instruction, chip: Chip) -> int:
    """Vectors of an array, of which a short last dimension leaves lanes empty."""
    last = i.dims[-1] if i.dims else 1
    return vectors(i.shape.size // max(last, 1), last, chip)


def _as_read(scan: Scan, o: Instruction) -> Array:
    """An operand as the kernel reads it: turned, where that is done before."""
    array = anywhere(o.shape)
    if not scan.lies_otherwise(o, array):
        return array
    order = outward(array, nearest(array))
    strides = dense([array.dims[d] for d in order], array.dtype.size)
    return replace(array, strides=tuple(strides[order.index(d)] for d in range(len(order))))
