"""Infeed and outfeed queues of a device, by the configs of the programs that use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import overload

from systolith.isa.program import Program, Role
from systolith.sim.host_queue import LIMIT, PATIENCE, HostQueue

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


class QueuesOfRun(Sequence[HostQueue]):
    """The queues of a device that a program's run uses, by number.

    Args:
        queues: the device's.
        program: the program that runs.
        look: called while the run waits at one; raises what is to end it.
    """

    def __init__(self, queues: HostQueues, program: Program, look: Callable[[], None]) -> None:
        self._queues = queues
        self._program = program
        self._look = look
        self._used: dict[int, HostQueue] = {}
        self._names: list[Config] = []

    def __len__(self) -> int:
        return self._queues.count

    @overload
    def __getitem__(self, number: int) -> HostQueue: ...
    @overload
    def __getitem__(self, number: slice) -> list[HostQueue]: ...
    def __getitem__(self, number: int | slice) -> HostQueue | list[HostQueue]:
        if isinstance(number, slice):
            return [self[n] for n in range(*number.indices(len(self)))]
        if number not in self._used:
            self._names = self._names or self._program.host_names(self._queues.role, len(self))
            queue = self._used[number] = self._queues.of(self._names[number])
            queue.start_run(self._look)
        return self._used[number]
