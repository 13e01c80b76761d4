"""A program with everything that it finds when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from systolith.isa.chip import Chip
from systolith.isa.instruction import Space
from systolith.isa.program import Program
from systolith.sim.host_times import HostTimes
from systolith.sim.memory import Machine
from systolith.sim.simulate import RunResult, simulate

Bytes = NDArray[np.uint8]


OFTEN = 0.7
"""How often a host queue has cycles."""

SLOWLY, ALL = 1 << 13, 1 << 24
"""Bytes that the host takes from an outfeed queue in parts, and then."""


@dataclass(frozen=True)
class Piece:
    """Contents of a part of a memory before the run; the rest is zero.

    Attributes:
        space: VMEM, SMEM, HBM, or HOST for an infeed queue.
        number: buffer-table entry or queue; 0 for VMEM and SMEM.
        address: first byte; 0 for queues.
        data: the bytes.
    """

    space: Space
    number: int
    address: int
    data: bytes


@dataclass(frozen=True)
class Case:
    """A program, the contents of its memories and queues, and a name for messages."""

    name: str
    program: Program
    chip: Chip
    pieces: tuple[Piece, ...] = field(default=())

    def buffers(self) -> dict[int, Bytes]:
        """HBM: fresh memory for each buffer that has memory of its own."""
        table = self.program.buffers
        memory = {i: np.zeros(b.bytes, np.uint8) for i, b in enumerate(table) if b.alias < 0}
        for i, array in memory.items():
            array[: len(table[i].data)] = np.frombuffer(table[i].data, np.uint8)
        for p in self.pieces:
            if p.space is Space.HBM:
                memory[p.number][p.address : p.address + len(p.data)] = np.frombuffer(p.data, np.uint8)
        return memory

    def setup(self, machine: Machine) -> None:
        """Fill a machine's other memories and its infeed queues, and connect its links."""
        for p in self.pieces:
            data = np.frombuffer(p.data, np.uint8)
            if p.space is Space.HOST:
                machine.infeed[p.number].push(data)
            elif p.space is not Space.HBM:
                memory = machine.vmem if p.space is Space.VMEM else machine.smem
                memory[p.address : p.address + len(data)] = data
        nothing = Program("remote", self.chip.name, "")
        for number in range(self.chip.link.count):
            machine.links[number] = Machine(nothing, self.chip, {})

    @property
    def host(self) -> HostTimes:
        """When the host sends what the infeed queues have, and takes from the outfeed queues: some cycles, in any case.

        They follow from the case alone, so that a smaller one has others.
        """
        rng = np.random.default_rng([len(self.program.code), sum(len(p.data) for p in self.pieces)])
        infeed = dict.fromkeys(range(self.chip.host.queues), 0)
        for p in self.pieces:
            if p.space is Space.HOST:
                infeed[p.number] += len(p.data)
        return HostTimes(
            {n: _steps(rng, total + self._more(rng)) for n, total in infeed.items() if rng.random() < OFTEN},
            {n: [*_steps(rng, SLOWLY), (1000, ALL)] for n in infeed if rng.random() < OFTEN},
        )

    def _more(self, rng: np.random.Generator) -> int:
        """Bytes that the host offers beyond those that the run takes: some cases fill the queue."""
        return int(rng.integers(0, 2 * self.chip.host.room))

    def run(self, hostile: bool = False) -> RunResult:
        """Simulate it.

        Raises:
            SystolithError: it is not legal.
        """
        return simulate(self.program, self.chip, self.buffers(), hostile=hostile, setup=self.setup, host=self.host)


def _steps(rng: np.random.Generator, total: int) -> list[tuple[int, int]]:
    """Bytes that come in parts at random cycles, some of them at one."""
    count = int(rng.integers(1, 12))
    parts = np.diff(np.sort(rng.integers(0, total + 1, count - 1)), prepend=0, append=total)
    return list(zip(np.sort(rng.integers(0, 80 * count, count)).tolist(), parts.tolist(), strict=True))
