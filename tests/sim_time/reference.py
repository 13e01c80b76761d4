"""The time plane as a clock would run it, a cycle at a time: the same rules as the engine, written the slow way."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from systolith.isa.program import TokenDecl
from systolith.sim.queues import Limits, Work


@dataclass
class Times:
    """Times of one instruction; -1: never."""

    issue: int = -1
    start: int = -1
    end: int = -1
    retire: int = -1


@dataclass
class NaiveHbm:
    """The arbiter, a cycle at a time."""

    p: int
    q: int
    chunk: int
    clients: int
    left: list[int] = field(default_factory=list)
    credit: int = 0
    last: int = 0

    def __post_init__(self) -> None:
        self.left = [0] * self.clients
        self.credit = self.q * self.chunk
        self.last = self.clients - 1

    def cycle(self) -> int | None:
        """Run one cycle; the client granted."""
        need = self.q * self.chunk
        self.credit += self.p
        granted = None
        if self.credit >= need:
            order = [(self.last + 1 + i) % self.clients for i in range(self.clients)]
            granted = next((c for c in order if self.left[c]), None)
        if granted is not None:
            self.left[granted] -= 1
            self.last = granted
            self.credit -= need
        self.credit = min(self.credit, need)
        return granted


@dataclass
class NaiveQueue:
    """A FIFO, its unit, and instructions on their way to retirement, in order or alone: (record, when it is done)."""

    fifo: deque[int] = field(default_factory=deque)
    free: int = 0
    transfer: int = -1
    flying: deque[tuple[int, int]] = field(default_factory=deque)
    alone: deque[tuple[int, int]] = field(default_factory=deque)


def run(limits: Limits, tokens: list[TokenDecl], stream: list[Work | bool], horizon: int) -> tuple[list[Times], str]:
    """Run a stream: Works, and scalar instructions as True (taken branch) or False.

    Returns:
        Times of the Works in order, and the outcome: "done", "stuck" or "overflow".
    """
    works = [w for w in stream if isinstance(w, Work)]
    times = [Times() for _ in works]
    queues = {w.queue: NaiveQueue() for w in works if w.queue != "seq"}
    for c in limits.hbm_clients:
        queues.setdefault(c, NaiveQueue())
    counts = [0] * len(tokens)
    hbm = NaiveHbm(limits.p, limits.q, limits.chunk, len(limits.hbm_clients))
    sync_done: deque[tuple[int, int]] = deque()
    position, number, ready, fetched = 0, 0, 0, False

    def takes(w: Work) -> bool:
        if any(counts[t] < 1 for t in w.waits):
            return False
        for t in w.waits:
            counts[t] -= 1
        return True

    for t in range(horizon):
        every = [(n, f) for n, q in queues.items() for f in (q.flying, q.alone)]
        for name, flying in [*every, ("seq", sync_done)]:
            while flying and 0 <= flying[0][1] <= t:
                i = flying.popleft()[0]
                times[i].retire = t
                for s in works[i].signals:
                    counts[s] += 1
            assert name == "seq" or not flying or flying[0][1] != t
        for q in queues.values():
            if not q.fifo or q.transfer >= 0 or q.free > t or times[q.fifo[0]].issue >= t:
                continue
            i = q.fifo[0]
            w = works[i]
            if (w.fence and (q.flying or q.alone)) or not takes(w):
                continue
            q.fifo.popleft()
            times[i].start = t
            if w.chunks:
                q.transfer = i
                q.flying.append((i, -1))
                hbm.left[limits.hbm_clients.index(w.queue)] = w.chunks
            else:
                q.free = times[i].end = t + w.occupancy
                (q.alone if w.alone else q.flying).append((i, t + w.latency))
        while position < len(stream) and ready <= t:
            item = stream[position]
            if isinstance(item, bool):
                ready = t + 1 + (limits.branch_penalty if item else 0)
            elif item.queue == "seq":
                if times[number].issue < 0:
                    times[number].issue = t
                if not takes(item):
                    break
                times[number].start, times[number].end = t, t + 1
                sync_done.append((number, t + 1))
                ready = t + 1
                number += 1
            elif not fetched:
                ready, fetched = t + item.fetch, True
                continue
            else:
                q = queues[item.queue]
                if len(q.fifo) >= limits.fifo_depth:
                    break
                times[number].issue = t
                q.fifo.append(number)
                number += 1
                fetched = False
            position += 1
        if any(c > limits.token_max for c in counts):
            return times, "overflow"
        granted = hbm.cycle()
        if granted is not None and not hbm.left[granted]:
            q = queues[limits.hbm_clients[granted]]
            i, q.transfer = q.transfer, -1
            q.free = times[i].end = t + 1
            at = q.flying.index((i, -1))
            q.flying[at] = (i, t + 1 + works[i].latency)
        if number == len(works) and position == len(stream) and all(x.retire >= 0 for x in times):
            return times, "done"
    return times, "stuck"
