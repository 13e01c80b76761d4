"""Loops whose iterations compute element by element become `scan`: one kernel, which carries values in registers.

An iteration of a `while` runs kernels that load what the iteration before has stored: some 80 cycles, however few
elements there are.  A step of a scan takes as long as its chain of operations.  Arrays of which each iteration reads a
row are operands of the scan, those of which it writes a row results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from systolith.compiler.cost.prices import transfer_cycles
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
from systolith.compiler.ops.reduction import reduction_of
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.effects import Effects
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.compiler.passes.simplify.dead_code import DeadCode
from systolith.compiler.passes.simplify.tuples import SimplifyTuples
from systolith.compiler.passes.simplify.while_trip_count import element
from systolith.compiler.vpu.emit import Target
from systolith.compiler.vpu.kernel_builder import build
from systolith.compiler.vpu.reduce_kernel import Accumulation, AccumulationJob
from systolith.compiler.vpu.reduce_ways import anywhere
from systolith.compiler.vpu.scan import scan_of
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
                return loop.state_after(loop.all_steps(r, loop.roots, backwards), {}, backwards)
            scan = None if loop is None else _scan_of(loop, callees.name(f"{i.name}.step"))
            cycles = None if scan is None else _cycles(scan, self.chip)
            if scan is None or cycles is None or cycles[0] > cycles[1]:
                return None
            callees.add(scan.step)
            numbers = {"steps": scan.loop.count, "scan-cycles": cycles[0], "loop-cycles": cycles[1]}
            decisions.append(Decision("loop", i.name, "scan", "its iterations compute element by element", numbers))
            return scan.replacement(r)

        changed = rewrite(module, scanned, ("while",))
        callees.place()
        if changed:
            for tidy in (SimplifyTuples(), DeadCode()):
                tidy.run(module)
        return Outcome(changed, tuple(decisions))


@dataclass(frozen=True)
class _Scan:
    """A loop as a scan.

    Attributes:
        loop: it.
        step: the computation of a step.
        given: what the step's parameters before those that are carried stand for in the loop's body.
        stacked: what the step's results before those that are carried stand for.

    Scalars that are carried beside arrays have the dimensions of these: all of their elements are equal.
    """

    loop: RowLoop
    step: Computation
    given: list[Instruction]
    stacked: list[Instruction]

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

    def replacement(self, r: Rewriter) -> Instruction:
        """The state after the loop."""
        loop = self.loop
        steps = loop.all_steps(r, [*self.given, *loop.roots], self.backwards)
        dims = _dims(loop)
        starts = [loop.state[k] for k in loop.carried]
        starts = [x if x.dims == dims else r.spread(x, array(x.shape.dtype, dims)) for x in starts]
        like = self.on([*map(steps.of, self.given), *starts])
        made = r.like(like, like.operands, like.shape, loop.loop.name)
        results = [r.emit("get-tuple-element", made, index=n) for n in range(len(made.shape.elements))]
        for i, x in zip(self.stacked, results, strict=False):
            steps.known[i] = _narrowed(r, x, (loop.count, *i.dims))
        last = results[len(self.stacked) :]
        ends = {k: _narrowed(r, x, loop.state[k].dims) for k, x in zip(loop.carried, last, strict=True)}
        return loop.state_after(steps, ends, self.backwards)


def _narrowed(r: Rewriter, x: Instruction, dims: Sequence[int]) -> Instruction:
    """A result with dimensions of as many elements; of fewer, which are scalars, the first of each."""
    if prod(x.dims) == prod(dims):
        return r.reshaped(x, dims)
    ends = [(0, n) if d < len(dims) else (0, 1) for d, n in enumerate(x.dims)]
    return r.reshaped(r.sliced(x, ends), dims)


def _is_map(loop: RowLoop, chip: Chip) -> bool:
    """Whether rows depend on nothing carried, and what has to be in memory for all of them fits in VMEM."""
    cone = body_cone(loop.roots, loop.body, loop.is_given)
    stored = [i for i in cone if i.opcode in ("dot", "reduce") or i in loop.roots]
    small = loop.count * sum(i.shape.bytes for i in stored) <= chip.vmem.bytes
    return not loop.carried and bool(cone) and small and all(loop.is_given(i) or is_stackable(i) for i in cone)


def _scan_of(loop: RowLoop, name: str) -> _Scan | None:
    """A loop as a scan whose computation has a name; None: what it carries is not computed element by element."""
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
    r, dims = Rewriter(Computation(name, [])), _dims(loop)
    values = {i: r.emit("parameter", shape=i.shape, name="given") for i in given}
    carried = [r.emit("parameter", shape=array(end.shape.dtype, dims), name="carried") for end in ends]
    for n, p in enumerate([*values.values(), *carried]):
        p.number = n
    for i in inside:
        number = element(i, loop.body)
        if number in loop.carried:
            values[i] = carried[loop.carried.index(number)]
        elif i not in values:
            values[i] = _computed(r, i, [values[o] for o in i.operands], dims if i in depends else i.dims)
    rows = [r.reshaped(values[x], dims) for x in stacked]
    result = r.emit("tuple", *rows, *(_spread(r, values[x], dims) for x in ends))
    return _Scan(loop, Computation(name, r.made, result), given, stacked)


def _computed(r: Rewriter, i: Instruction, operands: Sequence[Instruction], dims: tuple[int, ...]) -> Instruction:
    """An operation of a step; scalars that depend on what is carried have the dimensions of arrays, `dims`."""
    if i.dims != () and all(x.dims == o.dims for x, o in zip(operands, i.operands, strict=True)):
        return r.like(i, operands, i.shape)
    dims = i.dims or dims
    if i.opcode in ("broadcast", "reshape"):
        return r.reshaped(operands[0], dims) if operands[0].dims else r.spread(operands[0], array(i.shape.dtype, dims))
    return r.like(i, [_spread(r, x, dims) for x in operands], array(i.shape.dtype, dims))


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
        leaves = {o: anywhere(o.shape) for o in operands}
        finish = [Carried(k) for k in range(len(ends))]
        job = AccumulationJob(Box.whole(r.dims), leaves, r.inits, finish, ends, False, sides)
        kernel = Accumulation(r, chip).kernel(job)
        if kernel is None:
            return None
        build(chip, kernel.builder.source())
    except CompileError:
        return None
    outer = kernel.nest.outer
    vectors = prod(p.count for p in outer[: len(outer) - kernel.nest.inner])
    state = sum(shape.bytes for shape in root.shape.elements[len(sides) :])
    moved = transfer_cycles(2 * state, chip) if 2 * state > chip.vmem.bytes else 0
    others = {x for x in (*scan.given, *scan.stacked) if x not in scan.loop.roots and not scan.loop.is_given(x)}
    more = transfer_cycles(2 * n * sum(x.shape.bytes for x in others), chip)
    return kernel.nest.cycles + more, n * (ITERATION + max(moved, vectors * kernel.work.interval))
