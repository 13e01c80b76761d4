"""The simulator's record of a matrix unit in a program: the model that the RTL is compared with.

Everything around the unit becomes events with a cycle: instructions pushed, tokens signalled and taken by other queues,
their writes to VMEM and to the accumulators.  Everything that the unit does becomes an expectation: starts,
retirements, accumulator rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from systolith.hw.tb.pack import Issued, issued
from systolith.isa.chip import Chip
from systolith.isa.instruction import Instruction
from systolith.isa.opcodes import queue_of
from systolith.isa.program import Program
from systolith.sim.memory import Machine
from systolith.sim.plane import TimePlane
from systolith.sim.sequencer import Hooks, Sequencer

ACC_PORT = 16  # accumulators that others may write in a cycle

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint32]


@dataclass
class Events:
    """Events around the unit in a cycle.

    Attributes:
        push: the instruction that is offered to a queue.
        signalled, taken: tokens, by other queues.
        written: (address, bytes) of VMEM, at the beginning of the cycle.
        accumulators: (number, word) of those that are written at the end of the cycle.
    """

    push: Issued | None = None
    signalled: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    written: list[tuple[int, bytes]] = field(default_factory=list)
    accumulators: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Recording:
    """A run of a program, as one matrix unit sees it.

    Attributes:
        name: for messages.
        vmem, acc_before: contents before the first cycle.
        events: by cycle.
        names: for each queue, the instructions in order.
        starts, retires: for each queue, cycles of its instructions in order; a latch's retirement may be before the one
            before it.
        rows: (accumulator row, words), in the order of writing.
        acc: [acc_rows, cols] words at the end.
        cycles: when the last instruction of the unit has retired.
    """

    name: str
    vmem: Bytes
    acc_before: Words
    events: dict[int, Events]
    names: tuple[list[str], list[str]]
    starts: tuple[list[int], list[int]]
    retires: tuple[list[int], list[int]]
    rows: list[tuple[int, tuple[int, ...]]]
    acc: Words
    cycles: int


@dataclass
class _Executed:
    """An instruction, and its writes if it is none of the unit's own."""

    instr: Instruction
    written: list[tuple[int, bytes]] = field(default_factory=list)
    accumulators: list[tuple[int, int]] = field(default_factory=list)


class Recorder:
    """Runs a program in the simulator and records one matrix unit."""

    def __init__(self, program: Program, chip: Chip, unit: int = 0) -> None:
        self.program = program
        self.chip = chip
        self.unit = unit
        self.queues = (f"w{unit}", f"s{unit}")
        self._executed: list[_Executed] = []
        self._rows: list[tuple[int, tuple[int, ...]]] = []
        self._known: Bytes = np.empty(0, np.uint8)
        self._known_acc: Words = np.empty(0, np.uint32)

    def run(self, name: str, setup: Callable[[Machine], None]) -> Recording:
        """Run; `setup` fills memories and links first."""
        machine = Machine(self.program, self.chip, {})
        setup(machine)
        before, acc_before = machine.vmem.copy(), machine.acc[self.unit].copy()
        self._known, self._known_acc = before.copy(), acc_before.copy()
        plane = TimePlane(self.program, self.chip)
        sequencer = Sequencer(self.program, machine)
        with np.errstate(all="ignore"):
            for issue in sequencer.execute(Hooks()):
                plane.execute(issue.index, issue.queue, issue.taken)
                self._take_down(machine, issue.instr)
        trace = plane.finish()[2]
        times = zip(trace.issue.tolist(), trace.start.tolist(), trace.retire.tolist(), strict=True)
        acc = machine.acc[self.unit].copy()
        recording = Recording(
            name, before, acc_before, defaultdict(Events), ([], []), ([], []), ([], []), self._rows, acc, 0
        )
        for executed, at in zip(self._executed, times, strict=True):
            self._add(recording, executed, at)
        return recording

    def _take_down(self, machine: Machine, instr: Instruction) -> None:
        """After the execution of an instruction."""
        if queue_of(instr) == "seq" and instr.op != "sync":
            return
        executed = _Executed(instr)
        if instr.op == "mxu.matmul" and instr.unit == self.unit:
            self._rows += _rows_of(machine, instr, self.program)
            self._known_acc = machine.acc[self.unit].copy()
        elif not instr.op.startswith("mxu."):
            executed.written = self._changes(machine)
            executed.accumulators = self._changed_accumulators(machine)
        self._executed.append(executed)

    def _changes(self, machine: Machine) -> list[tuple[int, bytes]]:
        known, now = self._known, machine.vmem
        at = np.flatnonzero(known != now)
        if not len(at):
            return []
        known[at] = now[at]
        runs = np.split(at, np.flatnonzero(np.diff(at) > 1) + 1)
        return [(int(r[0]), now[r].tobytes()) for r in runs]

    def _changed_accumulators(self, machine: Machine) -> list[tuple[int, int]]:
        known, now = self._known_acc.reshape(-1), machine.acc[self.unit].reshape(-1)
        at = np.flatnonzero(known != now)
        known[at] = now[at]
        return list(zip(at.tolist(), now[at].tolist(), strict=True))

    def _add(self, to: Recording, executed: _Executed, at: tuple[int, int, int]) -> None:
        issue, start, retire = at
        instr = executed.instr
        queue = queue_of(instr)
        if queue in self.queues:
            number = self.queues.index(queue)
            to.events[issue].push = issued(number, instr, self.program)
            to.names[number].append(instr.op)
            to.starts[number].append(start)
            to.retires[number].append(retire)
            to.cycles = max(to.cycles, retire)
            return
        tokens = self.program.tokens
        to.events[retire].signalled += [t for t in instr.signals if tokens[t].consumer in self.queues]
        to.events[start].taken += [t for t in instr.waits if tokens[t].producer in self.queues]
        to.events[retire].written += executed.written
        # As late as they can be, so that they are there when it retires.
        for n, first in enumerate(range(0, len(executed.accumulators), ACC_PORT), 1):
            to.events[retire - n].accumulators += executed.accumulators[first : first + ACC_PORT]


def _rows_of(machine: Machine, instr: Instruction, program: Program) -> list[tuple[int, tuple[int, ...]]]:
    """The accumulator rows that a matmul has just written."""
    src, first = instr.args["src"], cast(int, instr.args["acc"])
    counts = program.patterns[src.pattern].counts  # type: ignore[union-attr]
    rows = int(np.prod(counts[: cast(int, instr.args["row_loops"])], dtype=np.int64))
    words = machine.acc[instr.unit][first : first + rows].tolist()
    return [(first + m, tuple(row)) for m, row in enumerate(words)]
