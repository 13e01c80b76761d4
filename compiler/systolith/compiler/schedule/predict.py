"""Cycles that a group takes: one pass over the program in order, on a timeline (`cost/timeline.py`).

Every instruction starts when it has been issued, its unit is free and its tokens are there.  Loops and branches are
taken once, as they are written.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from systolith.compiler.cost.timeline import Timeline
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
    sequencer, done = _Sequencer(chip), 0
    for instruction, group, cost in _costs(program, chip):
        issue = issue_cycles(instruction, chip)
        retired = sequencer.add(instruction, cost, issue)
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


class _Sequencer:
    """When instructions run that are given in program order: issued in order, retired in the order of their queue."""

    def __init__(self, chip: Chip) -> None:
        self.time = 0
        self.timeline = Timeline()
        self.starts: dict[str, deque[int]] = defaultdict(lambda: deque(maxlen=chip.fifo.depth))
        self.retired: dict[str, int] = defaultdict(int)
        self.tokens: dict[int, deque[int]] = defaultdict(deque)

    def add(self, instruction: Instruction, cost: Cost, issue: int) -> int:
        """The next instruction; when it has retired."""
        queue = queue_of(instruction)
        if queue == SEQ:
            retired = self.time = max([self.time, *self._tokens(instruction)]) + issue
        else:
            starts = self.starts[queue]
            self.time += issue
            if len(starts) == starts.maxlen:
                self.time = max(self.time, starts[0])
            before = self.retired[queue]
            fence = [before] if instruction.fence else []
            start = self.timeline.start(queue, [self.time + 1, *self._tokens(instruction), *fence])
            starts.append(start)
            retired = self.timeline.run(queue, start, cost)
            if not OPCODES[instruction.op].retires_alone:
                retired = max(retired, before)
            self.retired[queue] = max(retired, before)
        for token in instruction.signals:
            self.tokens[token].append(retired)
        return retired

    def _tokens(self, instruction: Instruction) -> list[int]:
        """When the tokens that it waits for are there; those of a loop's last iteration count as there."""
        return [self.tokens[token].popleft() for token in instruction.waits if self.tokens[token]]
