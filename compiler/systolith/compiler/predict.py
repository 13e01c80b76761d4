"""Cycles that a group takes, from the code that was made for it and the closed forms of `isa/timing.py`.

Units overlap, so a group takes what its slowest unit takes: its work, after what has to come before its first
instruction and before what has to follow its last.  One rule for every kind of group; nothing is simulated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from systolith.isa.chip import Chip
from systolith.isa.instruction import Instruction
from systolith.isa.opcodes import queue_of
from systolith.isa.program import Program
from systolith.isa.timing import CostModel, issue_cycles

HBM = "hbm"
"""The unit of everything that moves to or from HBM, whichever queue it is in."""


@dataclass(frozen=True)
class Step:
    """An instruction of a group.

    Attributes:
        index: in the program.
        queue: its queue.
        unit: what it keeps busy: its queue, or HBM.
        fence: it waits for the results of all before it in its queue.
        work: cycles in which nothing else can have the unit.
        latency: cycles from its start until what waits for it may start.
        issue: cycles of SEQ.
        ahead: it stands among the instructions of an earlier group, so that nobody waits for it here.
    """

    index: int
    queue: str
    unit: str
    fence: bool
    work: int
    latency: int
    issue: int
    ahead: bool = False


@dataclass
class Prediction:
    """One execution of a group.

    Attributes:
        cycles: of the whole.
        bound: the unit that decides.
        work: cycles of each unit.
        before, after: cycles until the unit that decides may start, and from its end to the group's.
    """

    cycles: int = 0
    bound: str = ""
    work: dict[str, int] = field(default_factory=dict)
    before: int = 0
    after: int = 0


def predict(program: Program, chip: Chip) -> dict[str, Prediction]:
    """A prediction for each group that the program's instructions come from."""
    steps: dict[str, list[Step]] = defaultdict(list)
    issue: dict[str, int] = defaultdict(int)
    costs = CostModel(program, chip)
    for index, instruction in enumerate(program.code):
        if index >= len(program.debug) or program.debug[index] < 0:
            continue
        group = program.origins[program.debug[index]].group
        cycles = issue_cycles(instruction, chip)
        issue[group] += cycles
        if queue_of(instruction) != "seq":
            steps[group].append(_step(index, instruction, costs, cycles))
    producers = _producers(program.code)
    ends = [(found[-1].index, group) for group, found in steps.items()]
    return {
        group: _predict(_begun(found, group, ends), producers, issue[group]) for group, found in steps.items() if group
    }


def _begun(steps: Sequence[Step], group: str, ends: Sequence[tuple[int, str]]) -> Sequence[Step]:
    """The steps, those that run while groups before this one are busy as if they took no time to wait for."""
    first = next((s.index for s in steps if s.unit != HBM), steps[0].index)
    begin = max((end for end, other in ends if other != group and end < first), default=-1)
    return [replace(s, ahead=True) if s.index < begin else s for s in steps]


def _step(index: int, instruction: Instruction, costs: CostModel, issue: int) -> Step:
    cost, queue = costs.of(instruction), queue_of(instruction)
    # The next tile cannot be loaded before the latch that waits for this one.
    work = cost.latency + 1 if instruction.op == "mxu.load" else cost.occupancy
    unit = HBM if cost.chunks else queue
    return Step(index, queue, unit, instruction.fence, work, cost.latency, issue)


def _producers(code: Sequence[Instruction]) -> dict[int, list[int]]:
    """For each instruction that waits, those that signal what it waits for; loops are taken as they are written."""
    signals: dict[int, list[int]] = defaultdict(list)
    waited: dict[int, int] = defaultdict(int)
    found: dict[int, list[int]] = {}
    for index, instruction in enumerate(code):
        for token in instruction.waits:
            if waited[token] < len(signals[token]):
                found.setdefault(index, []).append(signals[token][waited[token]])
            waited[token] += 1
        for token in instruction.signals:
            signals[token].append(index)
    return found


def _predict(steps: Sequence[Step], producers: Mapping[int, list[int]], issue: int) -> Prediction:
    work: dict[str, int] = defaultdict(int)
    retired: dict[str, int] = defaultdict(int)
    for s in steps:
        # A unit also waits for its own results: stores to the same line of HBM, for one.
        start = max(work[s.unit], retired[s.queue] if s.fence else 0)
        work[s.unit] = start + s.work
        retired[s.queue] = max(retired[s.queue], start + s.latency)
    ahead, rest = _before(steps, producers, len(work)), _after(steps, producers, len(work))
    total = {unit: ahead[unit] + cycles + rest[unit] for unit, cycles in work.items()}
    bound = max(total, key=total.__getitem__)
    if issue > total[bound]:
        return Prediction(issue, "seq", {**work, "seq": issue})
    return Prediction(total[bound], bound, {**work, "seq": issue}, ahead[bound], rest[bound])


def _before(steps: Sequence[Step], producers: Mapping[int, list[int]], units: int) -> dict[str, int]:
    """For each unit, when its first instruction may start."""
    first: dict[str, int] = {}
    free: dict[str, int] = defaultdict(int)
    done: dict[int, int] = {}
    retired: dict[str, int] = defaultdict(int)
    issued = 0
    for s in steps:
        if s.ahead:
            first.setdefault(s.unit, 0)
            continue
        issued += s.issue
        start = max(issued, free[s.unit], retired[s.queue] if s.fence else 0)
        start = max([start, *(done.get(p, 0) for p in producers.get(s.index, ()))])
        retired[s.queue] = max(retired[s.queue], start + s.latency)
        free[s.unit], done[s.index] = start + s.work, start + s.latency
        first.setdefault(s.unit, start)
        if len(first) == units:
            break
    return first


def _after(steps: Sequence[Step], producers: Mapping[int, list[int]], units: int) -> dict[str, int]:
    """For each unit, how much follows the end of its last instruction."""
    last: dict[str, int] = {}
    following: dict[str, int] = defaultdict(int)
    waiting: dict[int, int] = defaultdict(int)
    for s in reversed(steps):
        rest = max(s.latency + waiting[s.index], s.work + following[s.unit])
        following[s.unit] = rest
        for p in producers.get(s.index, ()):
            waiting[p] = max(waiting[p], rest)
        last.setdefault(s.unit, rest - s.work)
        if len(last) == units:
            break
    return last
