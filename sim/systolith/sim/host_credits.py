"""How long full infeed queues hold up the host, which sends a byte only on a credit.

An infeed queue has `host.room` credits, one a byte.  The host spends them as it sends, and the chip returns those of a
transfer in the cycle in which the transfer ends.  So of what the host offers until a cycle, it has sent

    sent(t) = min(offered(t), returned(t) + host.room)

and it is held in the cycles in which that is less than it offers.  A transfer has at most `host.room` bytes and starts
when those of its queue before it have ended, so it never waits for credits.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from systolith.sim.host_times import Steps, totals
from systolith.sim.trace import Ints

Intervals = list[tuple[int, int]]
"""First cycles, and those after the last."""


MANY = 1 << 62
"""Bytes, more than a run moves."""


class Credits:
    """The credits of the infeed queues whose times are given; the host of another sends when its bytes are taken.

    Args:
        steps: by queue, when the host offers how many bytes.
        room: bytes that a queue holds.
    """

    def __init__(self, steps: Mapping[int, Steps], room: int) -> None:
        self._steps, self._room = steps, room
        self._returned: dict[int, list[tuple[int, int]]] = {number: [] for number in steps}

    def give(self, queue: int, size: int, cycle: int) -> None:
        """Return the credits of `size` bytes of a queue, at a cycle that is not before those given so far."""
        returned = self._returned.get(queue)
        if returned is not None:
            returned.append((cycle, size))

    def held(self, cycles: int) -> dict[int, Intervals]:
        """Of each queue, when the host is held during a run of so many cycles, in order, no two of them adjacent."""
        return {
            n: _held(_until(offered, cycles), _until(self._returned[n], cycles), self._room, cycles)
            for n, offered in self._steps.items()
        }


def _until(steps: Steps, cycles: int) -> Steps:
    """Bytes so far from cycles of the run on; counts are of 64 bits."""
    return [(cycle, min(total, MANY)) for cycle, total in totals(steps) if cycle < cycles]


def _held(offered: Steps, returned: Steps, room: int, cycles: int) -> Intervals:
    edges = np.array(sorted({0, *(t for t, _ in (*offered, *returned))}), np.int64)
    waits = _at(offered, edges) > _at(returned, edges) + room
    changes = np.flatnonzero(np.diff(waits, prepend=False))
    times = [*edges[changes].tolist(), cycles]
    return list(zip(times[::2], times[1::2], strict=False))


def _at(steps: Steps, edges: Ints) -> Ints:
    """Bytes so far at each of some cycles."""
    times, sizes = np.array([(-1, 0), *steps], np.int64).T
    return np.asarray(sizes[np.searchsorted(times, edges, "right") - 1])
