"""Kernels made ready to run: micro-operations as bound functions, and the body split around its recurrence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from systolith.isa.errors import ProgramError
from systolith.isa.kernel import CONST0, Kernel, MicroOp
from systolith.isa.numerics.alu import RULES, Function

MEMORY_OPS = ("ld", "st", "coord", "inside")
_NEXT = 1 << 16  # above all other names


class Step(NamedTuple):
    """A micro-operation.

    Attributes:
        op: its name.
        function: images to image; None for ld, st, coord and inside.
        dst: register, -1: none.
        srcs: operand numbers.
        clean: positions in `srcs` whose NaNs must be made canonical first.
        stream: for memory operations.
        number: coordinate, for coord.
        finish: make the result's NaNs canonical.
        frees: names that nothing reads after this step.
    """

    op: str
    function: Function | None
    dst: int
    srcs: tuple[int, ...]
    clean: tuple[int, ...]
    stream: int
    number: int
    finish: bool = False
    frees: tuple[int, ...] = ()


@dataclass(frozen=True)
class Code:
    """A kernel ready to run.

    Attributes:
        kernel: its source.
        prologue, epilogue: their steps.
        before: steps of the body that no carried register reaches.
        core: steps that carried registers go through, from one iteration to the next.
        after: steps that only use values of the core.
        carried: registers that the core carries.
        core_reads: registers from outside (`before` or the prologue) that the core reads.
        recorded: names of the core of which every iteration's value is kept, for `after` and the epilogue.
        in_order: the body cannot be split so; run it iteration by iteration.
        copies: loads must be copied, because a store may change memory while they are in use.
    """

    kernel: Kernel
    prologue: tuple[Step, ...]
    before: tuple[Step, ...]
    core: tuple[Step, ...]
    after: tuple[Step, ...]
    epilogue: tuple[Step, ...]
    body: tuple[Step, ...]
    carried: tuple[int, ...]
    core_reads: tuple[int, ...]
    recorded: tuple[int, ...]
    in_order: bool
    copies: bool


class _State(IntEnum):
    """The state of the NaNs of a register."""

    NONE = 0  # there are none
    EXACT = 1  # their bits matter
    RAW = 2  # they stand for the canonical one


@dataclass
class _Names:
    """Renames the body's registers so that each name is written once; names from 256 on."""

    current: dict[int, int] = field(default_factory=dict)
    entry: set[int] = field(default_factory=set)
    next: int = 256

    def read(self, r: int) -> int:
        if r >= CONST0:
            return r
        if r not in self.current:
            self.entry.add(r)
            self.current[r] = r
        return self.current[r]

    def write(self, r: int) -> int:
        if r < 0:
            return r
        self.current[r] = self.next
        self.next += 1
        return self.current[r]


@lru_cache(maxsize=1024)
def compile_kernel(kernel: Kernel) -> Code:
    """Make a kernel ready to run.

    Raises:
        ProgramError: an unknown micro-operation, or a rotating register that is read before it is written.
    """
    names = _Names()
    ops = []
    for m in kernel.body.ops:
        srcs = tuple(names.read(s) for s in m.srcs)
        ops.append(MicroOp(m.op, names.write(m.dst), srcs, m.imm))
    carried = tuple(sorted(r for r in names.entry if names.current[r] != r))
    for r in sorted(names.entry):
        if r < kernel.rotating:
            raise ProgramError(f"kernel {kernel.name}: rotating register {r} is read before the body writes it")
    back = {n: next_name(r) if r in carried else r for r, n in names.current.items() if n != r}
    ops = [MicroOp(m.op, back.get(m.dst, m.dst), tuple(back.get(s, s) for s in m.srcs), m.imm) for m in ops]
    prologue, body, epilogue = _bind(kernel, ops, carried)
    before, core, after = _split(body, carried)
    made = {s.dst for s in core}
    core_reads = {s for step in core for s in step.srcs if not CONST0 <= s < 256} - made - set(carried)
    core_reads |= {next_name(r) for r in carried} - made
    recorded = {s for step in after for s in step.srcs if s in made or s in carried}
    recorded |= {s for step in epilogue for s in step.srcs if s in made}
    kept = {s for step in (*core, *epilogue) for s in step.srcs} | core_reads | set(carried)
    return Code(
        kernel=kernel,
        prologue=prologue,
        before=_free(before, kept | {s for step in after for s in step.srcs}),
        core=core,
        after=_free(after, kept),
        epilogue=epilogue,
        body=tuple(s._replace(dst=m.dst, srcs=m.srcs) for s, m in zip(body, kernel.body.ops, strict=True)),
        carried=carried,
        core_reads=tuple(sorted(core_reads)),
        recorded=tuple(sorted(recorded)),
        in_order=bool(carried) and loads_after_store(body),
        copies=_uses_after_store((*prologue, *body, *epilogue), bool(names.entry)),
    )


def next_name(register: int) -> int:
    """The name under which the core leaves a carried register's new value."""
    return register + _NEXT


def _bind(
    kernel: Kernel, body: Sequence[MicroOp], carried: Sequence[int]
) -> tuple[tuple[Step, ...], tuple[Step, ...], tuple[Step, ...]]:
    """Bind the functions of all sections, and decide where NaNs are made canonical."""
    settled: set[int] = set()
    while True:
        states = {CONST0 + i: _State.EXACT if _is_nan(c) else _State.NONE for i, c in enumerate(kernel.constants)}
        prologue = _steps(kernel, kernel.prologue.ops, states, settled)
        first = dict(states)
        for r in carried:  # raw from the second iteration on, if an iteration leaves it so
            states[r] = _entry_state(kernel, body, first, settled, r)
        entry = dict(states)
        steps = _steps(kernel, body, states, {next_name(r) for r in settled})
        sensitive = {s for step in steps for s in _sensitive(step)}
        mixed = {
            r
            for r in carried
            if r in sensitive
            and {_State.EXACT, _State.RAW} <= {first.get(r, _State.EXACT), entry[r], states[next_name(r)]}
        }
        if mixed <= settled:
            break
        settled |= mixed
    final = {**states, **{r: states[next_name(r)] for r in carried}}
    return prologue, steps, _steps(kernel, kernel.epilogue.ops, final, set())


def _entry_state(
    kernel: Kernel, body: Sequence[MicroOp], states: dict[int, _State], settled: set[int], register: int
) -> _State:
    """State of a carried register's NaNs on entry to any iteration: the fixed point that starts from `states`."""
    trial, settled_next = dict(states), {next_name(r) for r in settled}
    while True:
        after = dict(trial)
        _steps(kernel, body, after, settled_next)
        left = {n - _NEXT: v for n, v in after.items() if n >= _NEXT}
        grown = {r: max(trial.get(r, _State.EXACT), v) for r, v in left.items()}
        if all(trial.get(r) == v for r, v in grown.items()):
            return trial[register]
        trial.update(grown)


def _is_nan(bits: int) -> bool:
    return bits & 0x7FFFFFFF > 0x7F800000


def _sensitive(step: Step) -> tuple[int, ...]:
    """The operands of which a step shows the bits."""
    if step.op == "st":
        return step.srcs
    return () if step.function is None or RULES[step.op].takes_raw else step.srcs


def _steps(kernel: Kernel, ops: Iterable[MicroOp], states: dict[int, _State], settled: set[int]) -> tuple[Step, ...]:
    """Bind functions.

    Args:
        kernel: for messages.
        ops: a section.
        states: of every register, brought up to date.
        settled: names whose NaNs are to be made canonical as they are written.
    """
    steps = []
    for m in ops:
        rule = RULES.get(m.op)
        if rule is None and m.op not in MEMORY_OPS:
            raise ProgramError(f"kernel {kernel.name}: unknown micro-operation {m.op!r}")
        raw = tuple(i for i, s in enumerate(m.srcs) if states.get(s) is _State.RAW)
        state = _State.RAW if rule is not None and rule.gives_raw else _State.EXACT
        if m.op == "mov":
            raw, state = (), states.get(m.srcs[0], _State.EXACT)
        elif rule is not None and rule.takes_raw:
            raw = ()
        finish = m.dst in settled and state is _State.RAW
        states[m.dst] = _State.EXACT if finish else state
        memory = rule is None
        function = None if rule is None else rule.function
        steps.append(Step(m.op, function, m.dst, m.srcs, raw, m.imm & 15 if memory else -1, m.imm >> 4, finish))
    return tuple(steps)


def _split(body: Sequence[Step], carried: Sequence[int]) -> tuple[tuple[Step, ...], tuple[Step, ...], tuple[Step, ...]]:
    """Steps before, in and after the recurrence."""
    reached = set(carried)
    for step in body:
        if any(s in reached for s in step.srcs):
            reached.add(step.dst)
    reached.discard(-1)
    needed = {next_name(r) for r in carried}
    for step in reversed(body):
        if step.dst in needed:
            needed.update(step.srcs)
    dependent = [any(s in reached for s in step.srcs) for step in body]
    stores = [i for i, step in enumerate(body) if step.op == "st"]
    for earlier, later in pairwise(stores):  # stores stay in the order listed
        dependent[later] |= dependent[earlier]
    core = tuple(s for s, d in zip(body, dependent, strict=True) if d and s.dst in needed)
    after = tuple(s for s, d in zip(body, dependent, strict=True) if d and s.dst not in needed)
    return tuple(s for s, d in zip(body, dependent, strict=True) if not d), core, after


def _free(section: Sequence[Step], kept: set[int]) -> tuple[Step, ...]:
    """Note which names each step is the last to need: those it reads or makes that nothing reads later."""
    later = set(kept)
    out = []
    for step in reversed(section):
        own = {s for s in (*step.srcs, step.dst) if s >= 0 and not CONST0 <= s < 256}
        out.append(step._replace(frees=tuple(own - later)))
        later |= own
    return tuple(reversed(out))


def loads_after_store(body: Sequence[Step]) -> bool:
    """Whether any load is listed after a store."""
    stored = False
    for step in body:
        stored = stored or step.op == "st"
        if stored and step.op == "ld":
            return True
    return False


def _uses_after_store(steps: Sequence[Step], kept: bool) -> bool:
    """Whether any register is read after a store (a load's register may be a view of memory).

    Values that iterations read of the prologue or of the one before (`kept`) are, wherever the store is listed.
    """
    stored = kept and any(s.op == "st" for s in steps)
    for step in steps:
        if stored and step.srcs:
            return True
        stored = stored or step.op == "st"
    return False
