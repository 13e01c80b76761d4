"""Random programs for one matrix unit: everything its two queues can be asked to do, correctly synchronised.

Tokens: the weight queue tells the stream queue that a tile is loaded, and is told that the shadow is free again; two
other queues (`ld` and `vpu`, which do nothing else) let either go on, and are signalled by it.  Latches retire alone:
no other instruction signals their tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systolith.hw.tb.data import REGION, Words, fill_image, memory, words
from systolith.isa.chip import Chip
from systolith.isa.dtypes import DTYPES, DType
from systolith.isa.instruction import Instruction, Reg, Space, Stream
from systolith.isa.pattern import UNBOUNDED, Coord, Pattern
from systolith.isa.program import Program, TokenDecl
from systolith.sim.memory import Machine
from systolith.sim.plans import plan_of

FLOATS = ("bf16", "bf16", "f32", "f32", "f16", "f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz")
INTEGERS = ("s8", "u8", "s8", "u8", "s4", "u4", "pred")

LOADED, FREE, TO_W, TO_S, FROM_W, FROM_S, FROM_LATCH = range(7)
TOKENS = [
    TokenDecl("w0", "s0"),
    TokenDecl("s0", "w0"),
    TokenDecl("ld", "w0"),
    TokenDecl("vpu", "s0"),
    TokenDecl("w0", "ld"),
    TokenDecl("s0", "vpu"),
    TokenDecl("s0", "vpu"),
]


@dataclass
class Case:
    """A program and the memories that it finds."""

    name: str
    program: Program
    vmem: NDArray[np.uint8]
    acc: Words

    def fill(self, machine: Machine) -> None:
        """Put the memories' contents into a machine."""
        machine.vmem[:] = self.vmem
        machine.acc[0] = self.acc


class Generator:
    """Random programs of a chip: the same seed gives the same program."""

    def __init__(self, chip: Chip, seed: int) -> None:
        self.chip = chip
        self.seed = seed
        self.random = np.random.default_rng(seed)
        self.program = Program(f"random {seed}", chip.name, "", tokens=list(TOKENS))
        self._between = self._pick(0, 0, 3, 30)  # most scalar instructions between two others
        self._spare = dict.fromkeys((FROM_W, FROM_S, FROM_LATCH), 0)  # signalled, not yet waited for

    def case(self, tiles: int) -> Case:
        """A program of that many weight tiles."""
        self._load(False, (), (LOADED,))
        self._emit("mxu.latch", (LOADED,), (FREE,))
        for _ in range(tiles):
            self._tile()
        self.program.code.append(Instruction("halt"))
        vmem = memory(self.random, self.chip.vmem.bytes)
        shape = self.chip.mxu.acc_rows, self.chip.mxu.cols
        acc = words(self.random, "edges", prod(shape)).reshape(shape)
        return Case(f"seed {self.seed}", self.program, vmem, acc)

    def _pick(self, *values: int) -> int:
        return int(self.random.choice(values))

    def _chance(self, p: float) -> bool:
        return bool(self.random.random() < p)

    def _emit(self, op: str, waits: tuple[int, ...] = (), signals: tuple[int, ...] = (), **args: Any) -> None:
        """An instruction, now and then after scalar ones (late issue), with waits for and signals to other queues."""
        code = self.program.code
        code += [Instruction("li", {"rd": Reg(1), "imm": 0})] * int(self.random.integers(0, self._between + 1))
        queue = str(args.get("queue", "w0" if op == "mxu.load" else "s0"))
        weights = queue == "w0"
        from_s = FROM_LATCH if op == "mxu.latch" else FROM_S
        other, go, done = ("ld", TO_W, FROM_W) if weights else ("vpu", TO_S, from_s)
        if self._chance(0.15):
            code.append(Instruction("nop", {"queue": other}, signals=(go,)))
            waits += (go,)
        if self._chance(0.2) and self._spare[done] < self.chip.token.max - 1:
            self._spare[done] += 1
            signals += (done,)
        code.append(Instruction(op, dict(args), 0, waits, signals, self._chance(0.08)))
        if self._spare[done] and self._chance(0.3):
            self._spare[done] -= 1
            code.append(Instruction("nop", {"queue": other}, waits=(done,)))
        if self._chance(0.05):
            self._emit("nop", queue=queue)

    def _stream(self, pattern: Pattern, bias: tuple[int, int]) -> Stream | None:
        """The pattern somewhere in memory, so that every element inside exists; None: it does not fit."""
        plan = plan_of(pattern, bias)
        low, high = (plan.low, plan.high) if plan.low <= plan.high else (0, 0)
        first, last = -low, REGION * 16 - high - pattern.dtype.size
        if first > last:
            return None
        home = int(self.random.integers(first, last + 1))
        base = home if self._chance(0.3) else home - home % 32
        self.program.patterns.append(pattern)
        return Stream(Space.VMEM, len(self.program.patterns) - 1, base if base >= first else home, 0, bias)

    def _counts(self, elements: int, loops: int) -> tuple[int, ...]:
        """Trip counts whose product is at most `elements`."""
        counts: list[int] = []
        for _ in range(loops):
            counts.append(int(self.random.integers(1, elements // prod(counts) + 1)) if counts else elements)
        if loops > 1:
            counts[0] = int(self.random.integers(1, max(elements // prod(counts[1:]), 1) + 1))
        return tuple(int(c) for c in self.random.permutation(counts))

    def _strides(self, counts: tuple[int, ...], size: int) -> tuple[int, ...]:
        """Dense row-major ones, and now and then anything else."""
        strides, dense = [], size
        for count in reversed(counts):
            strides.append(dense if self._chance(0.7) else self._pick(0, size, -size, 2 * size, -3 * size, 40, 0, 1))
            dense *= count
        return tuple(reversed(strides))

    def _coord(self, counts: tuple[int, ...], size: int) -> Coord:
        loops = len(counts)
        coefs = tuple(self._pick(0, 0, 1, 1, 2, -1, 3) for _ in range(loops))
        reach = sum(abs(c) * n for c, n in zip(coefs, counts, strict=True))
        div = self._pick(1, 1, 1, 2, 3)
        lo = int(self.random.integers(-2, 3)) if self._chance(0.7) else UNBOUNDED[0]
        hi = int(self.random.integers(0, reach // div + 3)) if self._chance(0.7) else UNBOUNDED[1]
        stride = self._pick(0, 0, size, 2 * size, -size, 48)
        return Coord(coefs, int(self.random.integers(-3, 4)), lo, hi, div, stride, self._pick(-1, -1, 0, 1))

    def _source(self, dtype: DType, rows: int, elements: int) -> tuple[Stream, int]:
        """(stream, row_loops) of at most `rows` rows of at most `elements` elements."""
        plain = self._chance(0.5)
        while True:
            if plain:
                elements -= self._pick(0, 0, 0, 1, 3) % elements
                dense = Pattern(dtype, (rows, elements), (elements * dtype.size, dtype.size))
                stream = self._stream(dense, (0, 0))
                assert stream is not None
                return stream, 1
            outer = self._counts(rows, self._pick(0, 1, 1, 1, 2))
            inner = self._counts(elements, self._pick(0, 1, 1, 2, 3))
            counts = outer + inner or (1,)
            coords = tuple(self._coord(counts, dtype.size) for _ in range(self._pick(0, 0, 0, 1, 1, 2, 4)))
            fill = fill_image(self.random, dtype)
            pattern = Pattern(dtype, counts, self._strides(counts, dtype.size), coords, fill)
            bias = int(self.random.integers(-3, 4)), int(self.random.integers(-3, 4))
            stream = self._stream(pattern, bias)
            if stream is not None:
                return stream, len(outer)

    def _tile(self) -> None:
        """Load a tile (at times twice), latch it, and stream rows through it."""
        m = self.chip.mxu
        integer = self._chance(0.25)
        if self._chance(0.2):
            self._load(self._chance(0.5), (FREE,), ())
            self._load(integer, (), (LOADED,))
        else:
            self._load(integer, (FREE,), (LOADED,))
        self._emit("mxu.latch", (LOADED,), (FREE,))
        for _ in range(self._pick(1, 2, 3, 6)):
            dtype = DTYPES[str(self.random.choice(INTEGERS if integer else FLOATS))]
            src, row_loops = self._source(dtype, self._pick(1, 2, 5, 12), m.rows)
            rows = prod(self.program.patterns[src.pattern].counts[:row_loops])
            self._emit(
                "mxu.matmul",
                src=src,
                row_loops=row_loops,
                acc=int(self.random.integers(0, min(m.acc_rows, 24) - rows + 1)),
                accumulate=int(self._chance(0.6)),
                part=0 if integer else self._pick(0, 0, 1, 2),
                integer=int(integer),
            )

    def _load(self, integer: bool, waits: tuple[int, ...], signals: tuple[int, ...]) -> None:
        m = self.chip.mxu
        dtype = DTYPES[str(self.random.choice(INTEGERS if integer else FLOATS))]
        transpose = int(self._chance(0.4))
        shape = (m.cols, m.rows) if transpose else (m.rows, m.cols)
        src, row_loops = self._source(dtype, *shape)
        part = 0 if integer else self._pick(0, 0, 1, 2)
        more: dict[str, Any] = {"row_loops": row_loops, "transpose": transpose, "part": part, "integer": int(integer)}
        self._emit("mxu.load", waits, signals, src=src, **more)
