"""Instructions that go on where they stopped, as arithmetic on a state that loops, branches and calls hand on.

The state of such an instruction begins with the run, and is what its last time left, whichever computation ran it.  A
computation that has such instructions, or calls one that has, takes the tuple of its parameters and of their states,
and gives that of its result and of the states after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.hlo.shape import Shape, array, tuple_of
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import DType

Step = Callable[[Rewriter, Instruction, Instruction], tuple[Instruction, Instruction]]
"""(what makes instructions, one with a state, its state) -> what it gives, and the state after it."""

CALLING = frozenset({"call", "fusion", "while", "conditional"})
"""Opcodes of what can hand states on."""

States = Sequence[Instruction]
"""Instructions with states, in the order of the states in tuples."""


def thread_states(
    module: Module,
    states: Mapping[Instruction, np.ndarray],
    dtype: DType,
    step: Step,
    kept: Collection[Instruction] = (),
) -> dict[Instruction, int] | None:
    """Write instructions with states as what `step` makes, where the entry runs them through `CALLING` only.

    Others, in the conditions of loops and in computations of reductions and the like, stay.

    Args:
        module: changed in place.
        states: the instructions, and the state of each when the run begins.
        dtype: of the states.
        step: writes one.
        kept: those whose states the entry takes as further parameters and gives as further results, a tuple of the
            result and of these.

    Returns:
        The number of the parameter of each of `kept`; None: there is nothing to write.
    """
    needs = _needs(module, states)
    if not needs[module.entry]:
        return None
    numbers: dict[Instruction, int] = {}
    for computation in module.post_order():
        if needs[computation]:
            threading = _Threading(module, computation, needs, states, dtype, step)
            threading.run([s for s in needs[computation] if s in kept])
            numbers = threading.numbers
    return numbers


def _needs(module: Module, states: Mapping[Instruction, np.ndarray]) -> dict[Computation, States]:
    """Those that each computation runs itself or by others; what one instruction calls has the same."""
    order = module.post_order()
    conditions = {i.computation("condition") for i in module.instructions() if i.opcode == "while"}
    barred = _all_below(conditions | {c for i in module.instructions() if i.opcode not in CALLING for c in i.called})
    found = {c: dict.fromkeys(i for i in c.instructions if i in states and c not in barred) for c in order}
    callers = [(c, i) for c in order for i in c.instructions if i.opcode in CALLING]
    changed = True
    while changed:
        changed = False
        for caller, i in callers:
            together = {s: None for c in i.called for s in found[c]}
            for c in (caller, *i.called):
                changed = changed or not together.keys() <= found[c].keys()
                found[c] |= together
    number = {i: n for n, i in enumerate(i for c in order for i in c.instructions)}
    return {c: sorted(own, key=lambda i: number[i]) for c, own in found.items()}


def _all_below(computations: set[Computation]) -> set[Computation]:
    """Computations, and all that they run."""
    waiting, below = list(computations), set(computations)
    while waiting:
        called = {c for i in waiting.pop().instructions for c in i.called} - below
        below |= called
        waiting += called
    return below


@dataclass
class _Threading:
    """One computation, with the states that it hands on.

    Attributes:
        module, computation: where.
        needs: of every computation.
        first, dtype, step: as for `thread_states`.
        given: its parameter: the tuple of its parameters, and the tuple of states; of the entry None.
        now: the state of each instruction, as far as the sweep has come.
        numbers: of the entry, the parameters that states come as.
    """

    module: Module
    computation: Computation
    needs: Mapping[Computation, States]
    first: Mapping[Instruction, np.ndarray]
    dtype: DType
    step: Step
    given: Instruction | None = None
    now: dict[Instruction, Instruction] = field(default_factory=dict)
    numbers: dict[Instruction, int] = field(default_factory=dict)

    def run(self, kept: States) -> None:
        """`kept`: states that the entry takes and gives."""
        computation = self.computation
        if computation is self.module.entry:
            self._take(kept)
        if computation is not self.module.entry:
            parameters = [p.shape for p in computation.parameters]
            shape = tuple_of([*parameters, tuple_of([self._shape(s) for s in self.needs[computation]])])
            self.given = Instruction(computation.fresh_name("given"), "parameter", shape, number=0)
            computation.instructions.insert(0, self.given)
        computation.root = computation.result
        Rewriter(computation).sweep(self._rule)
        conditions = [i.computation("condition") for i in self.module.instructions() if i.opcode == "while"]
        if self.given is not None and computation not in conditions:
            r = Rewriter(computation)
            computation.root = r.emit("tuple", computation.result, self._states(r, self.needs[computation]))
            computation.instructions += r.made
        elif kept and self.given is None:
            r = Rewriter(computation)
            computation.root = r.emit("tuple", computation.result, *(self.now[s] for s in kept))
            computation.instructions += r.made

    def _take(self, kept: States) -> None:
        """Have the entry take states, as parameters after its others."""
        computation = self.computation
        for number, s in enumerate(kept, len(computation.parameters)):
            name = computation.fresh_name("state")
            self.now[s] = Instruction(name, "parameter", self._shape(s), number=number)
            self.numbers[s] = number
            computation.instructions.insert(0, self.now[s])

    def _rule(self, r: Rewriter, i: Instruction) -> Instruction | None:
        if i.opcode == "parameter" and self.given is not None and i is not self.given:
            return r.emit("get-tuple-element", self.given, shape=i.shape, index=i.number or 0)
        if i in self.needs[self.computation]:
            value, self.now[i] = self.step(r, i, self._state(r, i))
            return value
        inner = self.needs[i.called[0]] if i.opcode in CALLING else []
        return self._called(r, i, inner) if inner else None

    def _called(self, r: Rewriter, i: Instruction, inner: States) -> Instruction:
        """An instruction that runs other computations, with their states."""
        states = self._states(r, inner)
        if i.opcode == "conditional":
            operands = [i.operands[0], *(r.emit("tuple", o, states) for o in i.operands[1:])]
        else:
            operands = [r.emit("tuple", *i.operands, states)]
        made = r.like(i, operands, tuple_of([i.shape, states.shape]))
        after = r.emit("get-tuple-element", made, index=1)
        self.now |= {s: r.emit("get-tuple-element", after, index=k) for k, s in enumerate(inner)}
        return r.emit("get-tuple-element", made, index=0)

    def _states(self, r: Rewriter, states: States) -> Instruction:
        return r.emit("tuple", *(self._state(r, s) for s in states))

    def _state(self, r: Rewriter, s: Instruction) -> Instruction:
        if s not in self.now:
            if self.given is None:
                self.now[s] = r.constant(self.first[s], self.dtype)
            else:
                states = r.emit("get-tuple-element", self.given, index=len(self.given.shape.elements) - 1)
                self.now[s] = r.emit("get-tuple-element", states, index=self.needs[self.computation].index(s))
        return self.now[s]

    def _shape(self, s: Instruction) -> Shape:
        return array(self.dtype, self.first[s].shape)
