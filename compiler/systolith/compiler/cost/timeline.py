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
        self._transfers = {queue: _Transfers() for queue in _OTHER}

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
        end, late = self._transfers[_OTHER[queue]].shared(start, cycles)
        self._transfers[queue].append(start, end)
        self._free[_OTHER[queue]] += late
        return end


class _Transfers:
    """Transfers of a queue that are not known to be over.

    Each is kept as the cycles between the end of the one before and its start, and its length, so that one that takes
    longer moves those after it.
    """

    def __init__(self) -> None:
        self._first = self._last = 0  # when those end that are over, and all
        self._apart: deque[list[int]] = deque()

    def append(self, start: int, end: int) -> None:
        """One more, after the others."""
        self._apart.append([start - self._last, end - start])
        self._last = end

    def shared(self, start: int, cycles: int) -> tuple[int, int]:
        """When a transfer of the other queue ends that would take so many cycles alone, and how late it makes these.

        Transfers that are over at its start are forgotten.
        """
        while self._apart and self._first + sum(self._apart[0]) <= start:
            self._first += sum(self._apart.popleft())
        at, late, begin = start, 0, self._first
        for each in self._apart:
            gap, length = each
            begin += gap
            alone = min(cycles, max(0, begin - at))
            both = min(cycles - alone, begin + length - max(at, begin))
            at, cycles, late = at + alone + 2 * both, cycles - alone - both, late + both
            each[1] += both
            if not cycles:
                break
            begin += each[1]
        self._last += late
        return at + cycles, late
