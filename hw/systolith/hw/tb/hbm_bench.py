"""HBM's arbiter against the simulator's, which jumps, and against the definition, cycle by cycle.

Environment: HBM_CHIP (preset), HBM_CHANGES (JSON: its fields as "group.field"), HBM_SEEDS ("first:last", last not
included).
"""

from __future__ import annotations

import json
import os
from collections import deque
from dataclasses import dataclass, field

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from systolith.hw.tb.dma_build import changed
from systolith.hw.tb.dma_play import PERIOD, Dut
from systolith.isa.chip import Chip, load_chip
from systolith.sim.hbm import Arbiter

CLIENTS = 2
JOBS = 40


@dataclass
class Client:
    """Asks for one job after another.

    Attributes:
        jobs: (cycles of rest after the job before, chunks).
        arrival: when the job under way, or the next one, arrives.
        left: chunks of it that are to be granted.
        ends: when each job was done.
    """

    jobs: deque[tuple[int, int]]
    arrival: int = 0
    left: int = 0
    ends: list[int] = field(default_factory=list)

    def next(self, now: int) -> None:
        if self.jobs:
            gap, self.left = self.jobs.popleft()
            self.arrival = now + gap

    def requests(self, cycle: int) -> bool:
        return self.left > 0 and cycle >= self.arrival

    def granted(self, cycle: int) -> None:
        self.left -= 1
        if not self.left:
            self.ends.append(cycle + 1)
            self.next(cycle + 1)


class Definition:
    """The arbiter as docs/machine.md says it."""

    def __init__(self, chip: Chip) -> None:
        self.gain, self.need = chip.hbm.p, chip.hbm.q * chip.hbm.chunk
        self.credit, self.last = self.need, CLIENTS - 1

    def cycle(self, requests: int) -> int:
        """Grants of a cycle, a bit for each client."""
        self.credit += self.gain
        order = [(self.last + i) % CLIENTS for i in range(1, CLIENTS + 1)]
        chosen = next((c for c in order if requests >> c & 1), None)
        grants = 0
        if self.credit >= self.need and chosen is not None:
            self.credit, self.last, grants = self.credit - self.need, chosen, 1 << chosen
        self.credit = min(self.credit, self.need)
        return grants


def jobs(seed: int) -> list[list[tuple[int, int]]]:
    """Random jobs for each client: long and short ones, with and without rests."""
    random = np.random.default_rng(seed)
    made = []
    for _ in range(CLIENTS):
        gaps = random.choice([0, 0, 1, 7, 50], JOBS) * random.integers(0, 2, JOBS)
        chunks = random.integers(1, random.choice([2, 4, 40], JOBS))
        made.append(list(zip(gaps.tolist(), chunks.tolist(), strict=True)))
    return made


def simulated(chip: Chip, work: list[list[tuple[int, int]]]) -> list[list[int]]:
    """When each client's jobs end, by the simulator's arbiter."""
    arbiter = Arbiter(chip.hbm.p, chip.hbm.q, chip.hbm.chunk, CLIENTS)
    waiting, ends = [deque(w) for w in work], [list[int]() for _ in work]
    for c, queue in enumerate(waiting):
        gap, chunks = queue.popleft()
        arbiter.submit(c, gap, chunks)
    while (done := arbiter.advance()) is not None:
        ends[done.client].append(done.end)
        if waiting[done.client]:
            gap, chunks = waiting[done.client].popleft()
            arbiter.submit(done.client, done.end + gap, chunks)
    return ends


async def play(dut: Dut, chip: Chip, seed: int) -> None:
    """Raise AssertionError where a grant or the end of a job differs."""
    work = jobs(seed)
    clients, definition = [Client(deque(w)) for w in work], Definition(chip)
    for client in clients:
        client.next(0)
    dut.rst_ni.value = 0
    cycle = 0
    while any(c.left for c in clients):
        await RisingEdge(dut.clk_i)
        dut.rst_ni.value = 1
        requests = sum(c.requests(cycle) << n for n, c in enumerate(clients))
        dut.request_i.value = requests
        await FallingEdge(dut.clk_i)
        got, want = int(dut.grant_o.value), definition.cycle(requests)
        assert got == want, f"seed {seed}, cycle {cycle}: requests {requests:02b}: RTL {got:02b}, definition {want:02b}"
        for n, c in enumerate(clients):
            if got >> n & 1:
                c.granted(cycle)
        cycle += 1
    for n, ends in enumerate(simulated(chip, work)):
        assert clients[n].ends == ends, f"seed {seed}: client {n}: jobs end elsewhere than in the simulator"


@cocotb.test()
async def random_requests(dut: Dut) -> None:
    chip = changed(load_chip(os.environ.get("HBM_CHIP", "tiny")), json.loads(os.environ.get("HBM_CHANGES", "{}")))
    dut.request_i.value = 0
    dut.rst_ni.value = 0
    Clock(dut.clk_i, PERIOD, "ns").start()
    first, last = os.environ.get("HBM_SEEDS", "0:10").split(":")
    for seed in range(int(first), int(last)):
        await play(dut, chip, seed)
