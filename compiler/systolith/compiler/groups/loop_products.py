"""Products in loops that need not wait for what the loop carries: one product for all iterations.

A recurrent layer multiplies a row of its input by weights in each iteration, and its gradient adds a product of two
rows to that of the weights.  Few rows stream through each tile of weights then, which takes longer to load.  Products
of rows by what all iterations share are made before the loop, for all rows; what each iteration only adds up is the
sum of one product after it, of rows that the iterations leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import prod

from systolith.compiler.cost.prices import product_cycles, transfer_cycles
from systolith.compiler.explain import Decision
from systolith.compiler.groups.all_steps import is_stackable
from systolith.compiler.groups.loop_state import loops_of, plain
from systolith.compiler.groups.row_loops import RowLoop, body_cone, row_loop
from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.memory.residency import ALLOCATE
from systolith.compiler.mxu.precision import passes_of
from systolith.compiler.passes.base import Outcome
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.effects import Effects
from systolith.compiler.passes.loop_values import added_values, carried_values, viewed
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.compiler.passes.simplify.dead_code import DeadCode
from systolith.compiler.passes.simplify.tuples import SimplifyTuples
from systolith.compiler.passes.simplify.while_loops import SimplifyWhileLoops
from systolith.compiler.passes.simplify.while_trip_count import element, keeps
from systolith.isa.chip import Chip
from systolith.isa.dtypes import F32, S32

RESIDENT = 4
"""Part of VMEM up to which values of all iterations do not move through HBM."""


@dataclass(frozen=True)
class LoopProducts:
    """Make one product of those of all iterations, where they depend on nothing carried, or are only added up.

    Attributes:
        chip: whose matrix units have to save more cycles than HBM takes to move the values of all iterations.
        precision: of products, in place of what they ask for.
    """

    chip: Chip
    precision: str | None = None

    def run(self, module: Module) -> Outcome:
        callees, effects = Callees(module), Effects()
        taken_apart = {loop for outer, loop in loops_of(module) if plain(outer, loop)}
        decisions: list[Decision] = []

        def apart(r: Rewriter, i: Instruction) -> Instruction | None:
            if i not in taken_apart or effects.of(i):
                return None
            loop = row_loop(i)
            found = None if loop is None else _Finder(loop, self.chip, self.precision).products()
            if found is None:
                return None
            numbers = {"before": len(found.before), "after": len(found.sums)}
            why = "few rows of one iteration stream through weights that take long to load"
            decisions.append(Decision("loop", i.name, "products of all iterations", why, numbers))
            return _Rest(found, callees, r).state()

        changed = rewrite(module, apart, ("while",))
        callees.place()
        if changed:
            for tidy in (SimplifyTuples(), DeadCode(), SimplifyWhileLoops(), DeadCode()):
                tidy.run(module)
        return Outcome(changed, tuple(decisions))


@dataclass(frozen=True)
class _Products:
    """What leaves a loop.

    Attributes:
        loop: it.
        before: products that depend on nothing carried.
        sums: what each iteration adds to an element of the state that nothing else reads, by its number.
        rows: values of which the loop leaves a row for each iteration, for these.
    """

    loop: RowLoop
    before: list[Instruction]
    sums: dict[int, list[Instruction]]
    rows: list[Instruction]


@dataclass
class _Finder:
    """Finds what leaves a loop.

    Attributes:
        loop: it.
        chip, precision: as of the pass.
    """

    loop: RowLoop
    chip: Chip
    precision: str | None

    @cached_property
    def depends(self) -> set[Instruction]:
        """Values of the body that depend on what is carried."""
        return carried_values(self.loop.loop)

    def products(self) -> _Products | None:
        """What is worth it; None: nothing is."""
        loop, body = self.loop, self.loop.body
        if loop.counter is None:
            return None
        before = [i for i in body.instructions if self._is_before(i)]
        exact = {k for k in loop.carried if loop.state[k].shape.is_array and loop.state[k].shape.dtype in (F32, S32)}
        added = {k: terms for k, terms in added_values(body).items() if k in exact}
        rows: dict[Instruction, None] = {}
        sums: dict[int, list[Instruction]] = {}
        for k, terms in added.items():
            products = [viewed(x) for x in terms]
            operands = dict.fromkeys(o for p in products for o in p.operands)
            new = [o for o in operands if o not in rows and not self._is_free(o)]
            if not all(map(_is_plain_dot, products)):
                continue
            if sum(self._saved(p, "k") for p in products) > self._moved([o.shape for o in new]):
                rows |= dict.fromkeys(new)
                sums[k] = terms
        for k, terms in added.items():
            cone = body_cone(terms, body, lambda i: i in rows or loop.is_given(i))
            known = all(i in rows or loop.is_given(i) or is_stackable(i) for i in cone)
            if k not in sums and known and not self._moved([x.shape for x in terms]):
                sums[k] = terms
        return _Products(loop, before, sums, [*rows]) if before or rows else None

    def _is_before(self, i: Instruction) -> bool:
        """Whether a product of rows by what all iterations share is worth making before the loop."""
        if not _is_plain_dot(i) or not self._is_free(i):
            return False
        shared = [all(self._is_shared(x) for x in self._cone(o)) for o in i.operands]
        return shared[0] != shared[1] and self._saved(i, "n" if shared[0] else "m") > self._moved([i.shape])

    def _cone(self, i: Instruction) -> list[Instruction]:
        return body_cone([i], self.loop.body, self.loop.is_given)

    def _is_free(self, i: Instruction) -> bool:
        """Whether a value for all iterations can be made before the loop."""
        return i not in self.depends and all(self.loop.is_given(x) or is_stackable(x) for x in self._cone(i))

    def _is_shared(self, i: Instruction) -> bool:
        """Whether what a value is made of is the same in all iterations, as far as it is part of the state."""
        if not self.loop.is_given(i):
            return True
        number = element(i, self.loop.body)
        return number is not None and keeps(self.loop.loop, number)

    def _saved(self, i: Instruction, together: str) -> float:
        """Cycles of the matrix units that one product for all iterations takes less: of the rows (`m`) or columns (`n`)
        of all, or their sum (`k`).
        """
        (x, y), n = i.operands, self.loop.count
        k = prod(x.dims[d] for d in i.ints("lhs_contracting_dims", ()))
        sizes = {"m": x.shape.size // max(k, 1), "n": y.shape.size // max(k, 1), "k": k}
        each, once = self._product(**sizes), self._product(**sizes | {together: n * sizes[together]})
        passes = 1 if i.shape.dtype is S32 else len(passes_of(i, self.precision, x.shape.dtype, y.shape.dtype))
        return passes * (n * each - once) / self.chip.mxu.count

    def _product(self, m: int, n: int, k: int) -> int:
        """Cycles of a product, whichever operand is stationary."""
        return min(product_cycles(m, n, k, self.chip), product_cycles(n, m, k, self.chip))

    def _moved(self, shapes: Sequence[Shape]) -> float:
        """Cycles in which HBM stores and loads values for all iterations."""
        size = self.loop.count * sum(s.bytes for s in shapes)
        return transfer_cycles(2 * size, self.chip) if size > self.chip.vmem.bytes // RESIDENT else 0


def _is_plain_dot(i: Instruction) -> bool:
    return i.opcode == "dot" and not i.ints("lhs_batch_dims", ())


@dataclass
class _Rest:
    """Makes the loop that is left.

    Attributes:
        of: what leaves it.
        callees: has its computations placed.
        r: makes what stands around it.
    """

    of: _Products
    callees: Callees
    r: Rewriter

    def state(self) -> Instruction:
        """The state after the loop, as it was."""
        loop, r = self.of.loop, self.r
        old = loop.loop
        leaving = [*self.of.before, *chain(*self.of.sums.values())]
        self.backwards = any(row[2] for i in body_cone(leaving, loop.body, loop.is_given) if (row := loop.row(i)))
        steps = loop.all_steps(r, self.callees, leaving, self.backwards)
        given = [steps.of(i) for i in self.of.before]
        spaces = [r.emit("custom-call", shape=steps.shape(i.shape), custom_call_target=ALLOCATE) for i in self.of.rows]
        first = r.emit("tuple", *loop.state, *given, *spaces)
        left = r.like(old, [first], first.shape)
        left.attributes |= {"body": self._body(first.shape), "condition": self._condition(first.shape)}
        after = [r.emit("get-tuple-element", left, index=k) for k in range(len(first.operands))]
        steps.known |= zip(self.of.rows, after[len(after) - len(spaces) :], strict=True)
        for k, terms in self.of.sums.items():
            after[k] = loop.state[k]
            for x in terms:
                after[k] = r.emit("add", after[k], steps.total(x))
        return r.emit("tuple", *after[: len(loop.state)], shape=old.shape)

    def _condition(self, shape: Shape) -> Computation:
        old = self.of.loop.loop.computation("condition")
        r, values = self._inside(old, shape)
        for i in old.instructions:
            if i.opcode != "parameter":
                values[i] = r.like(i, [values[o] for o in i.operands], i.shape)
        return self.callees.add(Computation(self.callees.name(old.name), r.made, values[old.result]))

    def _inside(self, old: Computation, shape: Shape) -> tuple[Rewriter, dict[Instruction, Instruction]]:
        """What makes a computation of the new state, and what stands for the old one."""
        r = Rewriter(Computation(old.name, []))
        state = r.emit("parameter", shape=shape, name=old.first_parameter.name)
        state.number = 0
        return r, {old.first_parameter: state}

    def _body(self, shape: Shape) -> Computation:
        loop = self.of.loop
        old, root = loop.body, loop.body.result
        r, values = self._inside(old, shape)
        state = values[old.first_parameter]
        number = len(loop.state)
        place = self._place(r, state)

        def starts(i: Instruction) -> list[Instruction]:
            return [place, *(r.constant(0, S32) for _ in i.dims)]

        ends: list[Instruction] = []
        for i in self.of.before:
            whole = r.emit("get-tuple-element", state, index=number + len(ends))
            row = r.emit("dynamic-slice", whole, *starts(i), dynamic_slice_sizes=(1, *i.dims))
            values[i] = r.reshaped(row, i.dims)
            ends.append(whole)
        skipped = {root, *(root.operands[k] for k in self.of.sums)}
        for i in old.instructions:
            if i not in values and i not in skipped:
                values[i] = r.like(i, [values[o] for o in i.operands], i.shape)
        for i in self.of.rows:
            whole = r.emit("get-tuple-element", state, index=number + len(ends))
            row = r.reshaped(values[i], (1, *i.dims))
            ends.append(r.emit("dynamic-update-slice", whole, row, *starts(i)))
        kept = {k: r.emit("get-tuple-element", state, index=k) for k in self.of.sums}
        result = r.emit("tuple", *(kept.get(k) or values[o] for k, o in enumerate(root.operands)), *ends)
        return self.callees.add(Computation(self.callees.name(old.name), r.made, result))

    def _place(self, r: Rewriter, state: Instruction) -> Instruction:
        """The row of an iteration."""
        loop = self.of.loop
        assert loop.counter is not None
        k, (first, step) = loop.counter
        count = r.emit("get-tuple-element", state, index=k)
        last = loop.count - 1 if self.backwards else 0
        if self.backwards == (step > 0):
            return r.emit("subtract", r.constant(last + first, S32), count)
        return r.emit("add", count, r.constant(last - first, S32)) if last != first else count
