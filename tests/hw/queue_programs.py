"""Random programs for the rules of queues: waits, signals and fences; everything copied or multiplied is zero."""

from __future__ import annotations

import numpy as np

from systolith.hw.lockstep import Case
from systolith.isa.chip import Chip
from systolith.isa.dtypes import DTYPES
from systolith.isa.instruction import Instruction, Space, Stream, Value
from systolith.isa.opcodes import queues
from systolith.isa.pattern import Pattern
from systolith.isa.program import BufferDecl, Program, Role, TokenDecl
from systolith.isa.verify import verify_program
from systolith.sim.memory import Machine, Tile

COUNTS = (1, 3, 8, 40)  # bytes that copies move, and rows of matrices
COLUMNS = 4  # of matrices


def is_matrix(queue: str) -> bool:
    """Whether it is a queue of a matrix unit."""
    return queue[1:].isdigit()


class _Generator:
    def __init__(self, chip: Chip, seed: int) -> None:
        self.chip = chip
        self.rng = np.random.default_rng(seed)
        self.queues = queues(chip)
        self.program = Program(f"queues {seed}", chip.name, chip.digest())
        self.program.patterns = [Pattern(DTYPES["u8"], (n,), (1,)) for n in COUNTS]
        self.program.patterns += [Pattern(DTYPES["bf16"], (n, COLUMNS), (2 * COLUMNS, 2)) for n in COUNTS]
        self.program.buffers = [BufferDecl("buffer", Role.TEMP, "u8", (64,), 64)]
        self._declare()

    def _declare(self) -> None:
        """Tokens between any two queues; those that latches signal are theirs alone."""
        self.producers: dict[str, list[int]] = {}
        for _ in range(12):
            producer, consumer = self.rng.choice(self.queues, 2, replace=False).tolist()
            latch = producer[0] == "s" and is_matrix(producer) and self.rng.random() < 0.5
            self.producers.setdefault(f"{producer} latch" if latch else producer, []).append(len(self.program.tokens))
            self.program.tokens.append(TokenDecl(producer, consumer))
        self.there = [0] * len(self.program.tokens)

    def _operation(self, queue: str) -> tuple[str, dict[str, Value]]:
        """Op and arguments."""
        if queue == "seq":
            return "sync", {}
        kind = self.rng.random()
        if queue in ("ld", "st") and kind < 0.7:
            return self._copy(queue, near=kind < 0.3)
        if is_matrix(queue) and kind < 0.3:
            return self._matrix("mxu.load" if queue[0] == "w" else "mxu.matmul")
        if queue[0] == "s" and is_matrix(queue) and kind < 0.7:
            return "mxu.latch", {}
        return "nop", {"queue": queue}

    def _copy(self, queue: str, near: bool) -> tuple[str, dict[str, Value]]:
        pattern = int(self.rng.integers(len(COUNTS)))
        here, there = Stream(Space.VMEM, pattern, 64), Stream(Space.HBM, pattern)
        if near:
            there = Stream(Space.VMEM, pattern, 128)
        if queue == "ld":
            return "dma.load", {"src": there, "dst": here}
        return "dma.store", {"src": here, "dst": there}

    def _matrix(self, op: str) -> tuple[str, dict[str, Value]]:
        rows = [n for n, count in enumerate(COUNTS) if op == "mxu.matmul" or count <= self.chip.mxu.rows]
        src = Stream(Space.VMEM, len(COUNTS) + int(self.rng.choice(rows)), 256)
        own: dict[str, Value] = {"transpose": 0} if op == "mxu.load" else {"acc": 0, "accumulate": 1}
        return op, {"src": src, "row_loops": 1, "part": 0, "integer": 0, **own}

    def _tokens(self, queue: str, op: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Waits for tokens signalled before, signals of those that can still grow."""
        rng, tokens = self.rng, self.program.tokens
        waits = [t for t, decl in enumerate(tokens) if decl.consumer == queue and self.there[t] and rng.random() < 0.5]
        for t in waits[:4]:
            self.there[t] -= 1
        own = self.producers.get(f"{queue} latch" if op == "mxu.latch" else queue, [])
        signals = [t for t in own if self.there[t] < self.chip.token.max and rng.random() < 0.5]
        for t in signals[:4]:
            self.there[t] += 1
        return tuple(waits[:4]), tuple(signals[:4])

    def run(self, length: int) -> Program:
        for _ in range(length):
            queue = str(self.rng.choice(self.queues))
            op, args = self._operation(queue)
            unit = int(queue[1:]) if op.startswith("mxu.") else 0
            waits, signals = self._tokens(queue, op)
            fence = queue != "seq" and bool(self.rng.random() < 0.2)
            self.program.code.append(Instruction(op, args, unit, waits, signals, fence))
        self.program.code.append(Instruction("halt"))
        return self.program


def queue_program(chip: Chip, seed: int, length: int = 60) -> Case:
    """The program of a seed; the matrix units have tiles of zeros from the start."""
    program = _Generator(chip, seed).run(length)
    verify_program(program, chip)

    def setup(machine: Machine) -> None:
        zeros = Tile(np.zeros((COLUMNS, chip.mxu.cols), np.float32), False)
        machine.shadow = [zeros] * chip.mxu.count
        machine.active = [zeros] * chip.mxu.count

    return Case(program, setup=setup)
