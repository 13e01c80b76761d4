"""When operations run on the units of a chip, by the rules of `docs/machine.md`, section Time.

An operation starts when its unit is free and what it waits for is there; how long it takes is a closed form of
`isa/timing.py`.  One thing is simpler than in the simulator, so that operations can be taken one by one: HBM halves its
bandwidth between loads and stores instead of granting chunks, and what it once said of a transfer stays.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

from systolith.isa.timing import Cost

_OTHER = {"ld": "st", "st": "ld"}
"""The queue that shares HBM with a queue."""


NEAR = 1.002
"""Cycles, as a ratio, that count as equal."""


class Timeline:
    """The queues of a chip, and the bandwidth of HBM, as far as they are taken."""

    def __init__(self) -> None:
        self._free: dict[str, int] = defaultdict(int)
        self._transfers: dict[str, deque[tuple[int, int]]] = {queue: deque() for queue in _OTHER}

    def start(self, queue: str, needed: Iterable[int]) -> int:
        """The cycle in which an operation could start whose operands are there at the times `needed`."""
        return max(self._free[queue], *needed, 0)

    def run(self, queue: str, start: int, cost: Cost) -> int:
        """Let an operation start; when it is done.  Those of a queue are given in their order."""
        end = self._transfer(queue, start, cost.occupancy) if cost.chunks else start + cost.occupancy
        self._free[queue] = end
        return end + cost.latency - cost.occupancy

    def _transfer(self, queue: str, start: int, cycles: int) -> int:
        """When a transfer ends that takes so many cycles of the whole bandwidth: it has half of it while the other
        queue's run, which are late then.
        """
        other = self._transfers[_OTHER[queue]]
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
        self._transfers[queue].append((start, at))
        self._free[_OTHER[queue]] += late
        return at
