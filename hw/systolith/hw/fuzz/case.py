"""A program with everything that it finds when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from systolith.isa.chip import Chip
from systolith.isa.instruction import Space
from systolith.isa.program import Program
from systolith.sim.memory import Machine
from systolith.sim.simulate import RunResult, simulate

Bytes = NDArray[np.uint8]


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

    def run(self, hostile: bool = False) -> RunResult:
        """Simulate it.

        Raises:
            SystolithError: it is not legal.
        """
        return simulate(self.program, self.chip, self.buffers(), hostile=hostile, setup=self.setup)
