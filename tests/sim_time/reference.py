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


@dataclass
class NaiveCore:
    """The sequencer, the queues and HBM, and the times of the Works in the order of the stream."""

    limits: Limits
    counts: list[int]
    stream: list[Work | bool]
    position: int = 0
    number: int = 0
    ready: int = 0
    fetched: bool = False

    def __post_init__(self) -> None:
        self.works = [w for w in self.stream if isinstance(w, Work)]
        self.times = [Times() for _ in self.works]
        self.queues = {w.queue: NaiveQueue() for w in self.works if w.queue != "seq"}
        for c in self.limits.hbm_clients:
            self.queues.setdefault(c, NaiveQueue())
        self.hbm = NaiveHbm(self.limits.p, self.limits.q, self.limits.chunk, len(self.limits.hbm_clients))
        self.sync_done: deque[tuple[int, int]] = deque()

    @property
    def done(self) -> bool:
        """All is issued and has retired."""
        issued = self.number == len(self.works) and self.position == len(self.stream)
        return issued and all(x.retire >= 0 for x in self.times)

    def takes(self, w: Work) -> bool:
        """Take its tokens, if all are there."""
        if any(self.counts[t] < 1 for t in w.waits):
            return False
        for t in w.waits:
            self.counts[t] -= 1
        return True

    def retire(self, t: int) -> None:
        """Retire what is done, in the order of its queue, and signal."""
        for flying in (*(f for q in self.queues.values() for f in (q.flying, q.alone)), self.sync_done):
            while flying and 0 <= flying[0][1] <= t:
                i = flying.popleft()[0]
                self.times[i].retire = t
                for s in self.works[i].signals:
                    self.counts[s] += 1

    def start(self, q: NaiveQueue, t: int) -> None:
        """Start the head of a queue, if it may."""
        if not q.fifo or q.transfer >= 0 or q.free > t or self.times[q.fifo[0]].issue >= t:
            return
        i = q.fifo[0]
        w = self.works[i]
        if (w.fence and (q.flying or q.alone)) or not self.takes(w):
            return
        q.fifo.popleft()
        self.times[i].start = t
        if w.chunks:
            q.transfer = i
            q.flying.append((i, -1))
            self.hbm.left[self.limits.hbm_clients.index(w.queue)] = w.chunks
        else:
            q.free = self.times[i].end = t + w.occupancy
            (q.alone if w.alone else q.flying).append((i, t + w.latency))

    def sequence(self, t: int) -> None:
        """Run the sequencer as far as it comes."""
        while self.position < len(self.stream) and self.ready <= t:
            item = self.stream[self.position]
            if isinstance(item, bool):
                self.ready = t + 1 + (self.limits.branch_penalty if item else 0)
            elif item.queue == "seq":
                if not self.syncs(item, t):
                    return
            elif not self.fetched:
                self.ready, self.fetched = t + item.fetch, True
                continue
            elif not self.issues(item, t):
                return
            self.position += 1

    def syncs(self, w: Work, t: int) -> bool:
        """Run a sync, if its tokens are there."""
        times = self.times[self.number]
        if times.issue < 0:
            times.issue = t
        if not self.takes(w):
            return False
        times.start, times.end = t, t + 1
        self.sync_done.append((self.number, t + 1))
        self.ready = t + 1
        self.number += 1
        return True

    def issues(self, w: Work, t: int) -> bool:
        """Put a fetched instruction into its queue's FIFO, if there is room."""
        fifo = self.queues[w.queue].fifo
        if len(fifo) >= self.limits.fifo_depth:
            return False
        self.times[self.number].issue = t
        fifo.append(self.number)
        self.number += 1
        self.fetched = False
        return True

    def transfer(self, t: int) -> None:
        """Grant a chunk; the last one of an instruction ends it."""
        granted = self.hbm.cycle()
        if granted is None or self.hbm.left[granted]:
            return
        q = self.queues[self.limits.hbm_clients[granted]]
        i, q.transfer = q.transfer, -1
        q.free = self.times[i].end = t + 1
        q.flying[q.flying.index((i, -1))] = (i, t + 1 + self.works[i].latency)


def run(limits: Limits, tokens: list[TokenDecl], stream: list[Work | bool], horizon: int) -> tuple[list[Times], str]:
    """Run a stream: Works, and scalar instructions as True (taken branch) or False.

    Returns:
        Times of the Works in order, and the outcome: "done", "stuck" or "overflow".
    """
    core = NaiveCore(limits, [0] * len(tokens), stream)
    for t in range(horizon):
        core.retire(t)
        for q in core.queues.values():
            core.start(q, t)
        core.sequence(t)
        if any(c > limits.token_max for c in core.counts):
            return core.times, "overflow"
        core.transfer(t)
        if core.done:
            return core.times, "done"
    return core.times, "stuck"
