"""What the simulator says a matrix unit does in a program: the model that the RTL is compared with.

Everything around the unit becomes events with a cycle: instructions pushed, tokens signalled and taken by other queues,
bytes of VMEM written.  Everything that the unit does becomes an expectation: starts, retirements, accumulator rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hw.tb.pack import pack_instruction
from systolith.isa.chip import Chip
from systolith.isa.instruction import Instruction
from systolith.isa.opcodes import queue_of
from systolith.isa.program import Program
from systolith.sim.memory import Machine
from systolith.sim.plane import TimePlane
from systolith.sim.sequencer import Hooks, Sequencer

Bytes = NDArray[np.uint8]


@dataclass
class Events:
    """What happens around the unit at the beginning of a cycle.

    Attributes:
        push: (queue, instruction's bits); queue 0 is the weights', 1 the stream's.
        signalled, taken: tokens, by other queues.
        written: (address, bytes) of VMEM.
    """

    push: tuple[int, int] | None = None
    signalled: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    written: list[tuple[int, bytes]] = field(default_factory=list)


@dataclass
class Recording:
    """A run of a program, as one matrix unit sees it.

    Attributes:
        name: what to call it when it fails.
        vmem: contents before the first cycle.
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
    events: dict[int, Events]
    names: tuple[list[str], list[str]]
    starts: tuple[list[int], list[int]]
    retires: tuple[list[int], list[int]]
    rows: list[tuple[int, tuple[int, ...]]]
    acc: NDArray[np.uint32]
    cycles: int


class Recorder:
    """Runs a program in the simulator and takes down what concerns one matrix unit."""

    def __init__(self, program: Program, chip: Chip, unit: int = 0) -> None:
        self.program = program
        self.chip = chip
        self.unit = unit
        self.queues = (f"w{unit}", f"s{unit}")
        self._executed: list[tuple[Instruction, list[tuple[int, bytes]]]] = []
        self._rows: list[tuple[int, tuple[int, ...]]] = []
        self._known: Bytes = np.empty(0, np.uint8)

    def run(self, name: str, setup: Callable[[Machine], None]) -> Recording:
        """Run; `setup` fills memories and links first."""
        machine = Machine(self.program, self.chip, {})
        setup(machine)
        before, self._known = machine.vmem.copy(), machine.vmem.copy()
        plane = TimePlane(self.program, self.chip, str)
        sequencer = Sequencer(self.program, machine)
        with np.errstate(all="ignore"):
            for issue in sequencer.execute(Hooks()):
                plane.execute(issue.index, issue.queue, issue.taken)
                self._take_down(machine, issue.instr)
        trace = plane.finish()[2]
        times = zip(trace.issue.tolist(), trace.start.tolist(), trace.retire.tolist(), strict=True)
        acc = machine.acc[self.unit].copy()
        recording = Recording(name, before, defaultdict(Events), ([], []), ([], []), ([], []), self._rows, acc, 0)
        for (instr, written), at in zip(self._executed, times, strict=True):
            self._add(recording, instr, written, at)
        return recording

    def _take_down(self, machine: Machine, instr: Instruction) -> None:
        """After the execution of an instruction."""
        if queue_of(instr) == "seq" and instr.op != "sync":
            return
        written: list[tuple[int, bytes]] = []
        if instr.op == "mxu.matmul" and instr.unit == self.unit:
            self._rows += _rows_of(machine, instr, self.program)
        elif not instr.op.startswith("mxu."):
            written = self._changes(machine)
        self._executed.append((instr, written))

    def _changes(self, machine: Machine) -> list[tuple[int, bytes]]:
        known, now = self._known, machine.vmem
        at = np.flatnonzero(known != now)
        if not len(at):
            return []
        known[at] = now[at]
        runs = np.split(at, np.flatnonzero(np.diff(at) > 1) + 1)
        return [(int(r[0]), now[r].tobytes()) for r in runs]

    def _add(
        self, to: Recording, instr: Instruction, written: list[tuple[int, bytes]], at: tuple[int, int, int]
    ) -> None:
        issue, start, retire = at
        queue = queue_of(instr)
        if queue in self.queues:
            number = self.queues.index(queue)
            to.events[issue].push = (number, pack_instruction(instr, self.program.patterns))
            to.names[number].append(instr.op)
            to.starts[number].append(start)
            to.retires[number].append(retire)
            to.cycles = max(to.cycles, retire)
            return
        tokens = self.program.tokens
        to.events[retire].signalled += [t for t in instr.signals if tokens[t].consumer in self.queues]
        to.events[start].taken += [t for t in instr.waits if tokens[t].producer in self.queues]
        to.events[retire].written += written


def _rows_of(machine: Machine, instr: Instruction, program: Program) -> list[tuple[int, tuple[int, ...]]]:
    """The accumulator rows that a matmul has just written."""
    src, first = instr.args["src"], cast(int, instr.args["acc"])
    counts = program.patterns[src.pattern].counts  # type: ignore[union-attr]
    rows = int(np.prod(counts[: cast(int, instr.args["row_loops"])], dtype=np.int64))
    words = machine.acc[instr.unit][first : first + rows].tolist()
    return [(first + m, tuple(row)) for m, row in enumerate(words)]
