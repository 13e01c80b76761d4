"""Bytes that VMEM and HBM hold over a run: the compiler's placement of buffers, at the simulator's times.

A buffer is held from the start of the first instruction that uses it to the end of the last one; parameters and
constants lie in HBM throughout, results from their first use to the end.  Two buffers of a loop may have one place in
turn: VMEM counts every line of memory once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systolith.compiler.memory.report import MemoryUse, Placed
from systolith.isa.instruction import Space
from systolith.isa.program import Role
from systolith.sim.stats import RunResult

Ints = NDArray[np.int64]
THROUGHOUT = (Role.PARAMETER, Role.CONSTANT, Role.STATE)
LINES = 1 << 15
"""VMEM is counted in so many lines."""


@dataclass(frozen=True)
class Steps:
    """Bytes held: `held[i]` from cycle `times[i]` to the next; the first time is 0."""

    times: Ints
    held: Ints

    def most(self, edges: list[int]) -> list[int]:
        """The most that is held in each part of the run; `edges` in cycles, one more than there are parts."""
        starts = np.array(edges[:-1], np.int64)
        times = np.union1d(starts, self.times[self.times < edges[-1]])
        values = self.held[np.searchsorted(self.times, times, side="right") - 1]
        return np.maximum.reduceat(values, np.searchsorted(times, starts)).tolist() if len(starts) else []


def held(result: RunResult, memory: MemoryUse) -> dict[str, Steps]:
    """Bytes held by VMEM (`vmem`) and HBM (`hbm`); empty without times, and of a binary, whose plan is not known."""
    if result.trace is None or not memory.placed:
        return {}
    size, trace = len(result.program.code), result.trace
    first, last = np.full(size, np.iinfo(np.int64).max), np.full(size, -1, np.int64)
    np.minimum.at(first, trace.index, trace.start)
    np.maximum.at(last, trace.index, trace.end)
    events: dict[Space, list[tuple[int, int, Placed]]] = {Space.VMEM: [], Space.HBM: []}
    for piece in memory.placed:
        used = np.array(piece.used, np.int64)
        start = int(first[used].min(initial=np.iinfo(np.int64).max))
        end = int(last[used].max(initial=-1))
        if piece.role in THROUGHOUT:
            start, end = 0, result.cycles or 0
        elif piece.role == Role.RESULT:
            start, end = min(start, result.cycles or 0), result.cycles or 0
        if start < end:
            events[piece.space] += [(start, 1, piece), (end, -1, piece)]
    return {"vmem": _vmem(events[Space.VMEM], result.chip.vmem.bytes), "hbm": _hbm(events[Space.HBM])}


def _vmem(events: list[tuple[int, int, Placed]], capacity: int) -> Steps:
    line = max(1, capacity // LINES)
    users = np.zeros(-(-capacity // line) + 1, np.int32)
    changes = []
    for time, change, piece in sorted(events, key=lambda e: (e[0], e[1])):
        part = users[piece.address // line : -(-(piece.address + piece.bytes) // line)]
        before = int(np.count_nonzero(part))
        part += change
        changes.append((time, (int(np.count_nonzero(part)) - before) * line))
    return _steps(changes)


def _hbm(events: list[tuple[int, int, Placed]]) -> Steps:
    return _steps([(time, change * piece.bytes) for time, change, piece in events])


def _steps(changes: list[tuple[int, int]]) -> Steps:
    if not changes:
        return Steps(np.zeros(1, np.int64), np.zeros(1, np.int64))
    at, by = np.array([(0, 0), *changes], np.int64).T
    times, place = np.unique(at, return_inverse=True)
    sums = np.zeros(len(times), np.int64)
    np.add.at(sums, place, by)
    return Steps(times, np.cumsum(sums))
