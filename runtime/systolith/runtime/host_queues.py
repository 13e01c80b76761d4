"""Infeed and outfeed queues of a device, by the configs of the programs that use them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from threading import Lock

from systolith.isa.program import Program, Role
from systolith.sim.host_queue import LIMIT, PATIENCE, HostQueue, QueuesByNumber

Config = int | str
"""A queue on the host: a config of infeeds or outfeeds, or a number, of programs that say no more; empty: number 0."""


class HostQueues:
    """The queues of one direction; each is made when it is first asked for, and lives as long as the device.

    Args:
        role: `INFEED` or `OUTFEED`.
        count: queues that the chip has, and a program can use at a time.
    """

    def __init__(self, role: Role, count: int) -> None:
        self.role = role
        self.count = count
        self._made: dict[Config, HostQueue] = {}
        self._runs = 0
        self._lock = Lock()

    def of(self, config: Config) -> HostQueue:
        """The queue of a config."""
        config = config or 0
        with self._lock:
            if config not in self._made:
                queue = self._made[config] = HostQueue(f"{self.role} queue {config!r}", LIMIT, PATIENCE)
                queue.runs = self._runs
            return self._made[config]

    def expect_run(self) -> None:
        """A run is called: who waits at a queue may count on it."""
        with self._lock:
            self._runs += 1
            for queue in self._made.values():
                queue.expect_run()

    def end_run(self, failed: bool) -> None:
        """A run has ended."""
        with self._lock:
            self._runs -= 1
            for queue in self._made.values():
                queue.end_run(failed)


def queues_of_run(queues: HostQueues, program: Program, look: Callable[[], None]) -> QueuesByNumber:
    """A device's queues that a run of a program uses; `look`: called while it waits, raises what is to end it."""
    names = cache(lambda: program.host_names(queues.role, queues.count))

    def of(number: int) -> HostQueue:
        queue = queues.of(names()[number])
        queue.start_run(look)
        return queue

    return QueuesByNumber(queues.count, of)
