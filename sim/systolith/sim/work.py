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
from systolith.sim.decoded import Decoded
from systolith.sim.queues import Limits, Work
from systolith.sim.trace import Facts

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
    """Works and facts of a program's instructions.

    Times depend on patterns and counts only, never on operands in registers, so an instruction has one Work.
    """

    def __init__(self, program: Program, chip: Chip, decoded: Decoded) -> None:
        self._program = program
        self._chip = chip
        self._decoded = decoded
        self._costs = CostModel(program, chip)
        self._of_kind: list[Cost | None] = [None] * len(decoded.kinds)
        # The cost model keeps its costs, so their identities stay theirs.
        self._losses: dict[int, Losses] = {}

    def of(self, index: int, queue: str) -> Work:
        """The Work of a unit instruction or a sync: the one with that index, on that queue."""
        instr = self._program.code[index]
        cost = self._cost(self._decoded.kind[index])
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

    def _cost(self, kind: int) -> Cost:
        cost = self._of_kind[kind]
        if cost is None:
            cost = self._of_kind[kind] = self._costs.of(self._program.code[self._decoded.kinds[kind]])
        return cost

    def facts(self) -> Facts:
        """Of all instructions."""
        program, kind = self._program, self._decoded.kind_column
        rows = []
        for number, first in enumerate(self._decoded.kinds):
            instr, cost = program.code[first], self._cost(number)
            reads = bool(cost.hbm_bytes) and cast(Stream, instr.args["src"]).space is Space.HBM
            product = instr.op == "mxu.matmul"
            read, written = (cost.hbm_bytes, 0) if reads else (0, cost.hbm_bytes)
            rows.append((read, written, product, cost.array_active if product else 0))
        read, written, product, active = np.array(rows, np.int64).reshape(-1, 4)[kind].T
        macs = np.array([origin.macs for origin in program.origins] or [0], np.int64)
        debug = np.array(program.debug or [-1], np.int64)
        useful = np.zeros(len(kind), np.int64)
        useful[: len(program.debug)] = np.where(debug >= 0, macs[debug], 0)[: len(program.debug)]
        return Facts(read, written, useful * product, active)
