"""A program in the simulator and on the core's RTL: the same cycles for every instruction, the same bits at the end.

    result = lockstep(program, load_chip("tiny"), buffers)
    assert result.ok, result.difference

`Lockstep` keeps the core's process for many programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np

from systolith.hw.compare import (
    NEVER,
    Difference,
    Reference,
    compare_held,
    compare_memories,
    compare_queues,
    compare_times,
    describe_failure,
    describe_places,
    ends_of,
    times_of,
)
from systolith.hw.image import contents, job, start_of
from systolith.hw.model import HW, CoreModel, Job, Outcome, Status, Wave
from systolith.isa.chip import Chip
from systolith.isa.instruction import Instruction
from systolith.isa.program import Program
from systolith.isa.verify import require_chip
from systolith.sim.host_times import ALL_THERE, HostTimes
from systolith.sim.limit import CycleLimit
from systolith.sim.memory import Bytes, Machine
from systolith.sim.naming import Iterations
from systolith.sim.plane import TimePlane
from systolith.sim.sequencer import Hooks, Sequencer

__all__ = ["Case", "Lockstep", "Result", "Wave", "compare", "lockstep", "lockstep_many", "prepare"]

MARGIN = 1000  # cycles that the core may take beyond the simulator's before it is stopped

Setup = Callable[[Machine], None]


@dataclass(frozen=True)
class Case:
    """A program and its initial state.

    Attributes:
        buffers: memory of buffer-table entries, as for `simulate`; not changed.
        setup: fills further memories, queues and links of the simulator's machine.
        max_cycles: that it may take; None: any number.
        host: when it has data and room.
    """

    program: Program
    buffers: Mapping[int, Bytes] | None = None
    setup: Setup | None = None
    max_cycles: int | None = None
    host: HostTimes = ALL_THERE


@dataclass(frozen=True)
class Result:
    """The outcome of a comparison.

    Attributes:
        name: the program's.
        chip: the one that it ran on.
        cycles: of the simulator's run.
        instructions: executed, SEQ's included; `timed` of them had times that were compared.
        words: of memories that were compared.
        seconds: of the host, for the core's cycles.
        difference: the first one; None: there is none.
        host_held: by infeed queue whose times are given, cycles in which the host waited for credits.
    """

    name: str
    chip: Chip
    cycles: int
    instructions: int
    timed: int
    words: int
    seconds: float
    difference: Difference | None
    host_held: dict[int, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """There is no difference."""
        return self.difference is None

    @property
    def cycles_per_second(self) -> float:
        """Cycles of the core in a second of the host."""
        return self.cycles / self.seconds if self.seconds else 0.0


def _simulate(case: Case, chip: Chip, machine: Machine) -> Reference:
    program = case.program
    plane = TimePlane(program, chip, case.host)
    limit = CycleLimit(program, case.max_cycles, plane.now) if case.max_cycles is not None else None
    issued: list[Instruction] = []
    iterations: list[Iterations] = []
    sequencer = Sequencer(program, machine)
    executed = 0
    with np.errstate(all="ignore"):
        for issue in sequencer.execute(Hooks()):
            plane.execute(issue.index, issue.queue, issue.taken, sequencer.iterations)
            executed += 1
            if issue.queue != "seq" or issue.instr.op == "sync":
                issued.append(issue.instr)
                iterations.append(sequencer.iterations)
            if limit is not None:
                limit.after(issue, sequencer.iterations)
    cycles, _, trace, _ = plane.finish()
    if limit is not None:
        limit.finish(cycles)
    held = {n: sum(end - start for start, end in of) for n, of in plane.held().items() if n < chip.host.queues}
    return Reference(program, chip, trace, issued, iterations, cycles, executed, contents(machine), held)


class Lockstep:
    """The core of a chip, for any number of programs; each one's waves replace those of the one before.

    Raises:
        ModelError: the core cannot be built for the chip.
    """

    def __init__(self, chip: Chip, wave: Wave | None = None, root: Path = HW, plusargs: Sequence[str] = ()) -> None:
        self.chip = chip
        self._wave = wave
        self._model = CoreModel(chip, wave.format if wave else "", root, plusargs)

    def __enter__(self) -> Lockstep:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._model.close()

    def run(self, case: Case) -> Result:
        """Run a program on both sides and compare.

        Raises:
            SystolithError: the program does something that the machine cannot do, or is too large for the model.
        """
        reference, todo = prepare(case, self.chip)
        todo.wave = self._wave
        return compare(reference, todo, self._model.run(todo))


def prepare(case: Case, chip: Chip) -> tuple[Reference, Job]:
    """The simulator's run of a program, and the job that is the same for the core.

    Raises:
        SystolithError: the program does something that the machine cannot do, or is too large for the model.
    """
    require_chip(case.program, chip)
    machine = Machine(case.program, chip, _copied(case.buffers or {}))
    if case.setup:
        case.setup(machine)
    start = start_of(case.program, chip, machine, case.host)
    reference = _simulate(case, chip, machine)
    return reference, job(chip, start, [data.size for data in reference.after.outfeed], reference.cycles + MARGIN)


def compare(reference: Reference, todo: Job, outcome: Outcome) -> Result:
    """Compare the core's run with the reference."""
    ends = ends_of(todo, outcome, reference.after)
    words, places = compare_memories(reference.after, ends.memories)
    difference = _times(reference, outcome)
    if difference is None and places:
        difference = describe_places(reference, places)
    if difference is None:
        difference = compare_queues(reference.after.outfeed, ends.outfeed) or compare_held(reference.held, ends.held)
    return Result(
        reference.program.name,
        reference.chip,
        reference.cycles,
        reference.executed,
        len(reference.issued),
        words,
        outcome.seconds,
        difference,
        reference.held,
    )


def _times(reference: Reference, outcome: Outcome) -> Difference | None:
    """The first difference in time, or why the core's run did not end."""
    times = reference.times()
    difference = compare_times(reference, times_of(outcome, times.queue, len(times.queue)))
    if outcome.status is Status.FAILED:
        return describe_failure(reference, outcome, difference)
    if difference is not None:
        return difference
    if outcome.status is Status.LIMIT or outcome.cycles != reference.cycles:
        got = "more" if outcome.status is Status.LIMIT else str(outcome.cycles)
        return Difference("cycles of the run", NEVER, "", "", "", str(reference.cycles), got)
    if outcome.trap >= 0:
        return Difference("end of the run", NEVER, "seq", "", "", "a halt", f"a trap with code {outcome.trap}")
    return None


def _copied(buffers: Mapping[int, Bytes]) -> dict[int, Bytes]:
    """A copy in which entries that share memory still do."""
    copies = {id(data): data.copy() for data in buffers.values()}
    return {entry: copies[id(data)] for entry, data in buffers.items()}


def lockstep(
    program: Program,
    chip: Chip,
    buffers: Mapping[int, Bytes] | None = None,
    setup: Setup | None = None,
    wave: Wave | None = None,
) -> Result:
    """Run a program in the simulator and on the core, and compare.

    Args:
        program: the one to run.
        chip: on which chip; the core is built for it unless it is there.
        buffers: as for `simulate`; not changed.
        setup: fills further memories, queues and links first.
        wave: where to write waves of the core.

    Raises:
        SystolithError: the program does something that the machine cannot do, or the core lacks a part of the chip.
    """
    with Lockstep(chip, wave) as both:
        return both.run(Case(program, buffers, setup))


def lockstep_many(cases: Iterable[Case], chip: Chip) -> Iterator[Result]:
    """The same for many programs, on one process of the core.

    Raises:
        SystolithError: as `lockstep`.
    """
    with Lockstep(chip) as both:
        for case in cases:
            yield both.run(case)
