"""Random programs for SEQ.  The same seed gives the same program.

Wild ones have every instruction with arbitrary fields, and branches to anywhere: into and out of loops, to their ends.
They are for SEQ alone.  Timed ones can be executed by the whole simulator: transfers and permutations that keep queues
full, and tokens between SEQ and the queues.

Programs end: branches go forward, or back with a counter that was set before and is not set again on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from systolith.isa.chip import Chip
from systolith.isa.dtypes import DTYPES
from systolith.isa.instruction import Instruction, Operand, Reg, Space, Stream
from systolith.isa.opcodes import ALU_OPS, BRANCH_OPS, MAX_LOOP_NEST, REDUCE_FUNCTIONS, queues
from systolith.isa.pattern import Pattern
from systolith.isa.program import Program, TokenDecl

EDGES = (0, 1, 2, 31, 32, 0x7FFFFFFF, -1, -2, -0x80000000)
REGION = 64  # words of SMEM that programs use, from address 0
DATA = 20  # r1 to r19 hold data
LOW = (20, 21, 22)  # word addresses from 0 to 0x3C
HIGH = 23  # an address that an offset wraps around
COUNTERS = (24, 25, 26, 27, 28, 29)
SIZES = (1, 8, 64, 300)  # elements that instructions of timed programs move


class Generator:
    """A program in the making.

    Args:
        chip: for which chip.
        seed: of the random numbers.
        timed: the simulator can execute it.
    """

    def __init__(self, chip: Chip, seed: int, timed: bool = False) -> None:
        self.random = np.random.default_rng(seed)
        self.program = Program(f"seed {seed}", chip.name, "")
        self._chip = chip
        self._timed = timed
        self._queues = queues(chip)[1:]
        self._code = self.program.code
        self._forward: list[int] = []  # branches whose targets are not chosen yet
        self._counters: list[tuple[int, int]] = []  # (register, where it was set)
        self._depth = 0

    def generate(self, items: int) -> Program:
        """A program of about that many instructions, loops counted as one."""
        if self._timed:
            self.program.patterns = [Pattern(DTYPES["f32"], (n,), (4,)) for n in SIZES]
            tokens = [[TokenDecl("seq", q), TokenDecl(q, "seq")] for q in self._queues]
            self.program.tokens = [t for pair in tokens for t in pair]
        self._prologue()
        self._block(items)
        end = len(self._code)
        if not self._timed:
            self._overlap(end)
        for at in self._forward:
            self._patch(at, end)
        for number in range(32):
            self._emit("sts", rb=Reg(number), ra=Reg(0), imm=4 * number)
        self._emit("halt")
        return self.program

    def _pick(self, values: Any) -> Any:
        return values[int(self.random.integers(len(values)))]

    def _chance(self, p: float) -> bool:
        return bool(self.random.random() < p)

    def _below(self, n: int) -> int:
        return int(self.random.integers(n))

    def _value(self) -> int:
        return self._pick(EDGES) if self._chance(0.3) else self._below(1 << 32) - (1 << 31)

    def _reg(self) -> Reg:
        return Reg(self._below(32))

    def _data(self) -> Reg:
        return Reg(self._below(DATA))

    def _operand(self) -> Operand:
        return self._reg() if self._chance(0.5) else self._value()

    def _emit(self, op: str, unit: int = 0, **args: Any) -> None:
        self._code.append(Instruction(op, args, unit))

    def _prologue(self) -> None:
        """Every word that may be read is written, every register has a value."""
        self._emit("li", rd=Reg(HIGH), imm=-0x40)
        for number in range(1, DATA):
            self._emit("li", rd=Reg(number), imm=self._value())
        for word in range(REGION):
            self._emit("sts", rb=self._data(), ra=Reg(0), imm=4 * word)

    def _block(self, items: int) -> None:
        kinds: list[tuple[Callable[[], None], float]] = [
            (self._alu, 6),
            (self._memory, 3),
            (self._li, 1),
            (self._loop, 1.5),
            (self._skip, 1.5),
            *([(self._group, 4)] if self._timed else [(self._unit, 4), (self._sync, 1), (self._branch, 2)]),
            *([] if self._timed else [(self._set_counter, 0.5), (self._back, 0.5)]),
        ]
        weights = np.array([w for _, w in kinds])
        for which in self.random.choice(len(kinds), items, p=weights / weights.sum()):
            kinds[which][0]()

    def _alu(self) -> None:
        b = self._operand()
        self._emit(self._pick(ALU_OPS), rd=self._data(), ra=self._reg(), b=b)

    def _li(self) -> None:
        if self._chance(0.1):
            self._emit("nop", queue="seq")
        self._emit("li", rd=self._data(), imm=self._value())

    def _memory(self) -> None:
        low, offset = self._pick(LOW), 4 * self._below(REGION - 16)
        if self._chance(0.3):
            self._emit("and", rd=Reg(low), ra=self._data(), b=0x3C)
        base, offset = self._pick([(0, offset), (low, offset), (HIGH, offset + 0x40)])
        if self._chance(0.5):
            self._emit("lds", rd=self._data(), ra=Reg(base), imm=offset)
        else:
            self._emit("sts", rb=self._reg(), ra=Reg(base), imm=offset)

    def _loop(self) -> None:
        if self._depth == MAX_LOOP_NEST:
            return
        count: Operand = self._pick((-1, 0, 1, 1, 2, 2, 3, 5))
        if self._chance(0.4):
            register = self._data()
            self._emit("li", rd=register, imm=count)
            count = register
        start = len(self._code)
        self._emit("loop", count=count, end=0)
        self._depth += 1
        self._block(1 + self._below(5))
        if self._chance(0.3):  # the ends of two loops are the same
            self._loop()
        if len(self._code) == start + 1:
            self._alu()
        self._depth -= 1
        self._code[start].args["end"] = len(self._code)

    def _overlap(self, end: int) -> None:
        """Let some loops end later than the ones that they are in."""
        for instr in self._code[:end]:
            if instr.op == "loop" and self._chance(0.15):
                instr.args["end"] = min(end, int(instr.args["end"]) + 1 + self._below(6))  # type: ignore[arg-type]

    def _skip(self) -> None:
        """A branch or jump over a few scalar instructions."""
        at = len(self._code)
        self._jump()
        for _ in range(self._below(4)):
            self._alu()
        self._code[at].args["target"] = len(self._code)

    def _jump(self) -> None:
        if self._chance(0.2):
            self._emit("jmp", target=0)
        else:
            b = self._data()
            self._emit(self._pick(BRANCH_OPS), ra=b if self._chance(0.2) else self._data(), rb=b, target=0)

    def _branch(self) -> None:
        self._forward.append(len(self._code))
        self._jump()

    def _patch(self, at: int, end: int) -> None:
        """Choose where a branch goes, often the end of a loop."""
        last = min(end, at + 12)
        ends = [i.args["end"] for i in self._code[:last] if i.op == "loop" and at < int(i.args["end"]) <= last]  # type: ignore[arg-type]
        target = self._pick(ends) if ends and self._chance(0.5) else at + 1 + self._below(last - at)
        self._code[at].args["target"] = target

    def _set_counter(self) -> None:
        register = COUNTERS[len(self._counters) % len(COUNTERS)]
        if len(self._counters) < len(COUNTERS):
            self._counters.append((register, len(self._code)))
            self._emit("li", rd=Reg(register), imm=1 + self._below(3))

    def _back(self) -> None:
        if self._counters:
            register, at = self._counters.pop(self._below(len(self._counters)))
            self._emit("sub", rd=Reg(register), ra=Reg(register), b=1)
            target = at + 1 + self._below(len(self._code) - at)
            self._emit("blt", ra=Reg(0), rb=Reg(register), target=target)

    def _tokens(self, instr: Instruction) -> Instruction:
        waits, signals = (tuple(self.random.integers(0, 255, self._below(5)).tolist()) for _ in range(2))
        return replace(instr, waits=waits, signals=signals, fence=self._chance(0.2))

    def _sync(self) -> None:
        self._code.append(self._tokens(Instruction("sync")))

    def _stream(self) -> Stream:
        space = self._pick([s for s in Space if s is not Space.SMEM])
        bias = (self._operand(), self._operand())
        pattern, buffer = self._below(1 << 20), self._below(1 << 16)
        entry = Reg(1 + self._below(31)) if self._chance(0.3) else 0
        return Stream(space, pattern, self._operand(), buffer, bias, self._operand(), entry)

    def _unit(self) -> None:
        """Any unit instruction."""
        op = self._pick(("dma.load", "dma.store", "mxu.load", "mxu.latch", "mxu.matmul", "nop", "vpu.run", "vpu.run"))
        op = self._pick((op, op, "xlu.shuffle", "xlu.reduce"))
        args: dict[str, Any] = {}
        if op in ("dma.load", "dma.store", "xlu.shuffle", "xlu.reduce"):
            args = {"src": self._stream(), "dst": self._stream()}
        if op == "xlu.reduce":
            args["function"] = self._pick(list(REDUCE_FUNCTIONS))
        if op in ("mxu.load", "mxu.matmul"):
            args = {"src": self._stream(), "row_loops": self._below(9)}
            args |= {"part": self._below(3), "integer": self._below(2)}
        if op == "mxu.load":
            args["transpose"] = self._below(2)
        if op == "mxu.matmul":
            args |= {"acc": self._operand(), "accumulate": self._below(2)}
        if op == "nop":
            args = {"queue": self._pick(self._queues)}
        if op == "vpu.run":
            args = self._run()
        unit = self._below(self._chip.mxu.count) if op.startswith("mxu.") else 0
        self._code.append(self._tokens(Instruction(op, args, unit)))

    def _run(self) -> dict[str, Any]:
        counts = tuple(self.random.integers(1, 1 << 32, 1 + self._below(6)).tolist())
        return {
            "kernel": self._below(1 << 16),
            "counts": counts,
            "inner": self._below(len(counts) + 1),
            "serial": self._below(2),
            "scalars": tuple(self._reg() if self._chance(0.5) else self._below(1 << 32) for _ in range(4)),
            "streams": tuple(self._stream() for _ in range(self._below(13))),
        }

    def _group(self) -> None:
        """A few instructions of a queue, perhaps with SEQ waiting for them, or they for SEQ."""
        queue = self._below(len(self._queues))
        burst = self._pick((1, 1, 2, 12))
        instrs = [self._work(self._queues[queue]) for _ in range(burst)]
        if self._chance(0.3):
            self._code.append(Instruction("sync", signals=(2 * queue,)))
            instrs[0] = replace(instrs[0], waits=(2 * queue,))
        waits = self._chance(0.3)
        if waits:
            instrs[-1] = replace(instrs[-1], signals=(2 * queue + 1,))
        self._code += instrs
        if waits:
            for _ in range(self._pick((0, 3, 20))):
                self._alu()
            self._code.append(Instruction("sync", waits=(2 * queue + 1,)))

    def _work(self, queue: str) -> Instruction:
        """An instruction of a queue that the simulator can time."""
        op = {"ld": "dma.load", "st": "dma.store", "xlu": "xlu.shuffle"}.get(queue)
        if op is None or self._chance(0.3):
            return Instruction("nop", {"queue": queue}, fence=self._chance(0.2))
        pattern = self._below(len(SIZES))
        src, dst = Stream(Space.VMEM, pattern, self._operand()), Stream(Space.VMEM, pattern, self._operand())
        return Instruction(op, {"src": src, "dst": dst}, fence=self._chance(0.2))
