"""From an instruction to its record for the time plane and the statistics, each instruction of the program once."""

from __future__ import annotations

from typing import cast

import numpy as np

from systolith.isa.chip import Chip
from systolith.isa.instruction import Instruction, Space, Stream
from systolith.isa.opcodes import OPCODES, size_words
from systolith.isa.program import Program
from systolith.isa.timing import Cost, CostModel
from systolith.sim import causes as why
from systolith.sim.queues import Limits, Work
from systolith.sim.trace import Facts, origin_of

LOSSES = (why.SELF_CONFLICT, why.FILL, why.GRANULARITY, why.HOST_LINK)
Losses = tuple[tuple[str, int], ...]


def limits_of(chip: Chip) -> Limits:
    """The parameters of the chip that the time plane uses."""
    h = chip.hbm
    return Limits(chip.fifo.depth, chip.token.max, chip.seq.branch_penalty, h.p, h.q, h.chunk, chip.host.room)


def _host_queue(instr: Instruction) -> int:
    """The host queue that a copy goes to or comes from."""
    src, dst = (cast(Stream, instr.args[name]) for name in ("src", "dst"))
    return src.buffer if src.space is Space.HOST else dst.buffer


class Works:
    """Works and facts of a program's instructions, made when first asked for.

    Times depend on patterns and counts only, never on operands in registers, so an instruction has one Work.
    """

    def __init__(self, program: Program, chip: Chip) -> None:
        n = len(program.code)
        self.facts = Facts(*(np.zeros(n, np.int64) for _ in range(4)))
        self._program = program
        self._chip = chip
        self._costs = CostModel(program, chip)
        # The cost model keeps its costs, so their identities stay theirs.
        self._losses: dict[int, Losses] = {}

    def of(self, index: int, queue: str) -> Work:
        """The Work of a unit instruction or a sync: the one with that index, on that queue."""
        instr = self._program.code[index]
        cost = self._costs.of(instr)
        self._note(index, instr.op, cost)
        return Work(
            queue,
            -(-size_words(instr) // self._chip.seq.fetch_words),
            cost.occupancy,
            self._chip.hbm.latency if cost.chunks else cost.latency,
            cost.chunks,
            self._losses_of(cost),
            instr.op == "mxu.load",
            instr.waits,
            instr.signals,
            instr.fence,
            OPCODES[instr.op].retires_alone,
            _host_queue(instr) if cost.host_bytes else -1,
            cost.host_bytes,
        )

    def _losses_of(self, cost: Cost) -> Losses:
        losses = self._losses.get(id(cost))
        if losses is None:
            losses = tuple((cause, n) for cause in LOSSES if (n := cost.causes.get(cause, 0)))
            self._losses[id(cost)] = losses
        return losses

    def _note(self, index: int, op: str, cost: Cost) -> None:
        facts, program = self.facts, self._program
        if cost.hbm_bytes:
            reads = cast(Stream, program.code[index].args["src"]).space is Space.HBM
            (facts.read if reads else facts.written)[index] = cost.hbm_bytes
        if op == "mxu.matmul":
            facts.active[index] = cost.array_active
            facts.macs[index] = origin_of(program, index).macs
