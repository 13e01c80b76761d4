"""Cycles that a group takes: one pass over the program by the rules of `docs/machine.md`, section Time.

Every instruction starts when it has been issued, its unit is free and its tokens are there; how long it takes is a
closed form of `isa/timing.py`.  Two things are simpler than in the simulator, so that program order is all the order
that is needed: HBM halves its bandwidth between loads and stores instead of granting chunks, and what it once said of
a transfer stays; loops and branches are taken once, as they are written.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from systolith.isa.chip import Chip
from systolith.isa.instruction import Instruction
from systolith.isa.opcodes import OPCODES, queue_of
from systolith.isa.program import Program
from systolith.isa.timing import Cost, CostModel, issue_cycles

SEQ = "seq"
HBM = "hbm"
"""The unit of everything that moves to or from HBM, whichever queue it is in."""


@dataclass
class Prediction:
    """One execution of a group.

    Attributes:
        cycles: in which the run waits for it: from when everything before it in the program has retired until it has.
        work: cycles of each unit: its queue, or HBM.
    """

    cycles: int = 0
    work: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def bound(self) -> str:
        """The unit that has most to do."""
        return max(self.work, key=self.work.__getitem__, default="")


def predict(program: Program, chip: Chip) -> dict[str, Prediction]:
    """A prediction for each group that the program's instructions come from."""
    found: dict[str, Prediction] = defaultdict(Prediction)
    timeline, done = _Timeline(chip), 0
    for instruction, group, cost in _costs(program, chip):
        issue = issue_cycles(instruction, chip)
        retired = timeline.add(instruction, cost, issue)
        p = found[group]
        p.work[SEQ] += issue
        if cost.occupancy and instruction.op != "sync":
            unit = HBM if cost.chunks else queue_of(instruction)
            p.work[unit] += cost.occupancy
        p.cycles += max(0, retired - done)
        done = max(done, retired)
    return {group: p for group, p in found.items() if group}


def _costs(program: Program, chip: Chip) -> Iterator[tuple[Instruction, str, Cost]]:
    """Each instruction, its group, and its cost."""
    costs = CostModel(program, chip)
    for index, instruction in enumerate(program.code):
        origin = program.debug[index] if index < len(program.debug) else -1
        yield instruction, program.origins[origin].group if origin >= 0 else "", costs.of(instruction)


@dataclass
class _Queue:
    """A unit's queue.

    Attributes:
        starts: of the last instructions, as many as a queue holds.
        free: when the next may start.
        retired: when all before have retired.
    """

    starts: deque[int]
    free: int = 0
    retired: int = 0


class _Timeline:
    """When instructions run that are given in program order."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.time = 0
        self.queues: dict[str, _Queue] = defaultdict(lambda: _Queue(deque(maxlen=chip.fifo.depth)))
        self.tokens: dict[int, deque[int]] = defaultdict(deque)
        self.bandwidth = Bandwidth()

    def add(self, instruction: Instruction, cost: Cost, issue: int) -> int:
        """The next instruction; when it has retired."""
        name = queue_of(instruction)
        if name == SEQ:
            self.time = self._waited(instruction, self.time) + issue
            return self._signal(instruction, self.time)
        queue = self.queues[name]
        self.time += issue
        if len(queue.starts) == self.chip.fifo.depth:
            self.time = max(self.time, queue.starts[0])
        start = self._waited(instruction, max(self.time + 1, queue.free))
        if instruction.fence:
            start = max(start, queue.retired)
        queue.starts.append(start)
        queue.free = start + cost.occupancy
        retired = start + cost.latency
        if cost.chunks:
            queue.free, late = self.bandwidth.take(name, start, cost.occupancy)
            self.queues["st" if name == "ld" else "ld"].free += late
            retired = queue.free + self.chip.hbm.latency
        if not OPCODES[instruction.op].retires_alone:
            retired = max(retired, queue.retired)
        queue.retired = max(retired, queue.retired)
        return self._signal(instruction, retired)

    def _waited(self, instruction: Instruction, start: int) -> int:
        """When its tokens are there, at `start` or later; those of a loop's last iteration count as there."""
        for token in instruction.waits:
            if self.tokens[token]:
                start = max(start, self.tokens[token].popleft())
        return start

    def _signal(self, instruction: Instruction, time: int) -> int:
        for token in instruction.signals:
            self.tokens[token].append(time)
        return time


class Bandwidth:
    """The bandwidth of HBM, which two queues share: a transfer has half of it while the other queue's run."""

    def __init__(self) -> None:
        self.taken: dict[str, deque[tuple[int, int]]] = {"ld": deque(), "st": deque()}

    def take(self, queue: str, start: int, cycles: int) -> tuple[int, int]:
        """Transfer for so many cycles (of the whole bandwidth) from `start` on: not before a queue's earlier ones.

        Returns:
            When it ends, and by how much the other queue's transfers are late.
        """
        other = self.taken["st" if queue == "ld" else "ld"]
        while other and other[0][1] <= start:
            other.popleft()
        at, late = start, 0
        for n, (lo, hi) in enumerate(other):
            begin, end = lo + late, hi + late
            if cycles and end > at:
                alone = min(cycles, max(0, begin - at))
                both = min(cycles - alone, end - max(at, begin))
                at, cycles, late = at + alone + 2 * both, cycles - alone - both, late + both
                end += both
            other[n] = begin, end
        at += cycles
        self.taken[queue].append((start, at))
        return at, late
