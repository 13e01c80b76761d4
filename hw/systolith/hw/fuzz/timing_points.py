"""Points of a program's run: causes of waiting, units at work together, counts of tokens, branches taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

import numpy as np

from systolith.hw.fuzz.case import Case
from systolith.hw.fuzz.points import Point
from systolith.isa.opcodes import BRANCH_OPS
from systolith.sim.sequencer import run_values
from systolith.sim.simulate import RunResult
from systolith.sim.trace import Trace


def cause_points(result: RunResult) -> Iterator[Point]:
    """Why each unit did not work, or did."""
    for unit, causes in result.units.items():
        yield from (("cause", f"{unit} {cause}") for cause, cycles in causes.items() if cycles)


def _meet(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether an interval of one list, in order of time, meets one of the other."""
    if not len(a) or not len(b):
        return False
    after = np.searchsorted(b[:, 1], a[:, 0], "right")
    found = after < len(b)
    return bool((b[after[found], 0] < a[found, 1]).any())


def overlap_points(t: Trace) -> Iterator[Point]:
    """Pairs of units that are occupied at the same time; queues with instructions in flight behind the occupied one."""
    spans = {}
    for q, name in enumerate(t.queues):
        mine = np.flatnonzero((t.queue == q) & (t.end > t.start))
        spans[name] = np.stack([t.start[mine], t.end[mine]], 1)
        flying = np.flatnonzero(t.queue == q)
        if (t.retire[flying][:-1] > t.start[flying][1:]).any():
            yield "overlap", f"{name} in flight"
    for a, b in combinations(spans, 2):
        if _meet(spans[a], spans[b]):
            yield "overlap", f"{a} and {b}"


def token_points(case: Case, result: RunResult) -> Iterator[Point]:
    """The largest count of a token."""
    t = result.trace
    assert t is not None
    events = []
    for i, start, retire in zip(t.index.tolist(), t.start.tolist(), t.retire.tolist(), strict=True):
        instr = case.program.code[i]
        events += [(retire, 0, token) for token in instr.signals]
        events += [(start, 1, token) for token in instr.waits]
    counts: Counter[int] = Counter()
    most = 0
    for _, waits, token in sorted(events):
        counts[token] += -1 if waits else 1
        most = max(most, counts[token])
    yield from (("count", str(n)) for n in range(1, most + 1))


def branch_points(case: Case) -> Iterator[Point]:
    """Branches taken and not."""
    if not any(i.op in BRANCH_OPS for i in case.program.code):
        return
    run = run_values(case.program, case.chip, case.buffers(), setup=case.setup)
    for issue in run.issues:
        if issue.instr.op in BRANCH_OPS:
            yield "branch", f"{issue.instr.op} {'taken' if issue.taken else 'not taken'}"


def run_points(case: Case, result: RunResult) -> Iterator[Point]:
    """Everything that a run shows."""
    assert result.trace is not None
    yield from cause_points(result)
    yield from overlap_points(result.trace)
    yield from token_points(case, result)
    yield from branch_points(case)
