"""Cycles that a group takes: one pass over the program in order, on a timeline (`cost/timeline.py`).

Every instruction starts when it has been issued, its unit is free and its tokens are there.  Of a `loop` some
iterations are looked at, of which the last ones stand for all later ones; branches and other loops are taken once, as
they are written.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from systolith.compiler.cost.timeline import Timeline
from systolith.isa.chip import Chip
from systolith.isa.instruction import Instruction
from systolith.isa.opcodes import OPCODES, queue_of
from systolith.isa.program import Program
from systolith.isa.timing import Cost, CostModel, issue_cycles

SEQ = "seq"
HBM = "hbm"
"""The unit of everything that moves to or from HBM, whichever queue it is in."""


LOOKED_AT = 64
"""Iterations of a loop that are looked at; of longer ones the second half of these stands for all others, too."""

LONG = 1024
"""Instructions of an iteration from which on fewer are looked at: `FEW`."""

FEW = 4


@dataclass
class Prediction:
    """One execution of a group.

    Attributes:
        cycles: in which the run waits for it: from when everything before it in the program has retired until it has.
        work: cycles of each unit: its queue, or HBM.
    """

    cycles: float = 0
    work: dict[str, float] = field(default_factory=lambda: defaultdict(int))

    @property
    def bound(self) -> str:
        """The unit that has most to do."""
        return max(self.work, key=self.work.__getitem__, default="")


def predict(program: Program, chip: Chip) -> dict[str, Prediction]:
    """A prediction for each group that the program's instructions come from."""
    found: dict[str, Prediction] = defaultdict(Prediction)
    sequencer, done = _Sequencer(chip), 0
    for instruction, group, cost, times in _costs(program, chip):
        issue, queue = issue_cycles(instruction, chip), queue_of(instruction)
        retired = sequencer.add(instruction, queue, cost, issue)
        p = found[group]
        p.work[SEQ] += issue * times
        if cost.occupancy and instruction.op != "sync":
            p.work[HBM if cost.chunks else queue] += cost.occupancy * times
        p.cycles += max(0, retired - done) * times
        done = max(done, retired)
    return {group: p for group, p in found.items() if group}


def _costs(program: Program, chip: Chip) -> Iterator[tuple[Instruction, str, Cost, float]]:
    """Each instruction that is looked at, its group, its cost, and for how many it stands."""
    costs = CostModel(program, chip)
    for index, times in _executions(program.code, 0, len(program.code), 1):
        instruction = program.code[index]
        origin = program.debug[index] if index < len(program.debug) else -1
        yield instruction, program.origins[origin].group if origin >= 0 else "", costs.of(instruction), times


def _executions(code: Sequence[Instruction], start: int, end: int, times: float) -> Iterator[tuple[int, float]]:
    """Numbers of the instructions from `start` up to `end`, each with the executions for which it stands."""
    at = start
    while at < end:
        yield at, times
        instruction = code[at]
        at += 1
        if instruction.op == "loop":
            first, at = at, cast(int, instruction.args["end"])
            count = instruction.args["count"] if isinstance(instruction.args["count"], int) else 1
            most = FEW if at - first >= LONG else LOOKED_AT
            rest = max(1.0, 2 * count / most - 1)
            for n in range(min(count, most)):
                yield from _executions(code, first, at, times if n < most // 2 else times * rest)


class _Sequencer:
    """When instructions run that are given in program order: issued in order, retired in the order of their queue."""

    def __init__(self, chip: Chip) -> None:
        self.time = 0
        self.timeline = Timeline()
        self.starts: dict[str, deque[int]] = defaultdict(lambda: deque(maxlen=chip.fifo.depth))
        self.retired: dict[str, int] = defaultdict(int)
        self.tokens: dict[int, deque[int]] = defaultdict(deque)

    def add(self, instruction: Instruction, queue: str, cost: Cost, issue: int) -> int:
        """The next instruction; when it has retired."""
        there = self._tokens(instruction) if instruction.waits else 0
        if queue == SEQ:
            retired = self.time = max(self.time, there) + issue
        else:
            starts = self.starts[queue]
            self.time += issue
            if len(starts) == starts.maxlen and starts[0] > self.time:
                self.time = starts[0]
            before = self.retired[queue]
            needed = self.time + 1, there, before if instruction.fence else 0
            start = self.timeline.start(queue, needed)
            starts.append(start)
            retired = self.timeline.run(queue, start, cost)
            if retired < before and not OPCODES[instruction.op].retires_alone:
                retired = before
            self.retired[queue] = max(retired, before)
        for token in instruction.signals:
            self.tokens[token].append(retired)
        return retired

    def _tokens(self, instruction: Instruction) -> int:
        """When the tokens that it waits for are there; those of a loop's last iteration count as there."""
        return max([self.tokens[token].popleft() for token in instruction.waits if self.tokens[token]], default=0)
