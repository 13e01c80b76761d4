"""SEQ's own work: arithmetic, SMEM words, branches, nested loops, on registers that nothing else uses."""

from __future__ import annotations

from systolith.hw.fuzz.draw import Draw
from systolith.hw.fuzz.places import Cell
from systolith.hw.fuzz.tree import Code, Label
from systolith.isa.instruction import Instruction, Reg
from systolith.isa.opcodes import ALU_OPS, BRANCH_OPS, MAX_LOOP_NEST

SCRATCH = range(1, 8)
"""Registers with any values."""
RESERVED = range(8, 24)
"""Registers that loops count with and change."""
CONSTANTS = range(24, 32)
"""Registers that are set just before they are used."""


class Labels:
    """Numbers for labels."""

    def __init__(self) -> None:
        self.count = 0

    def new(self) -> Label:
        self.count += 1
        return Label(self.count - 1)


def li(rd: int, imm: int) -> Instruction:
    return Instruction("li", {"rd": Reg(rd), "imm": imm})


def alu(op: str, rd: int, ra: int, b: int | Reg) -> Instruction:
    return Instruction(op, {"rd": Reg(rd), "ra": Reg(ra), "b": b})


def branch(op: str, ra: int, rb: int, target: Label) -> Instruction:
    return Instruction(op, {"ra": Reg(ra), "rb": Reg(rb), "target": target.number})


def constant(draw: Draw, rd: int, value: int) -> Code:
    """Code that sets a register to a value: in one instruction or in two."""
    other = draw.between(-1000, 1000)
    match draw.weighted(("li", "add", "sub", "xor", "mul"), (10, 2, 1, 1, 1)):
        case "add":
            return [li(rd, value - other), alu("add", rd, rd, other)]
        case "sub":
            return [li(rd, value), alu("sub", rd, rd, 0)]
        case "xor":
            return [li(rd, value ^ other), alu("xor", rd, rd, other)]
        case "mul":
            return [li(rd, -value), alu("mul", rd, rd, -1)]
        case _:
            return [li(rd, value)]


class Scalars:
    """Writes scalar code.

    Args:
        draw: choices.
        labels: numbers for its labels.
        words: SMEM that only SEQ uses.
        depth: loops around it.
    """

    def __init__(self, draw: Draw, labels: Labels, words: Cell, depth: int) -> None:
        self.draw, self.labels, self.words, self.depth = draw, labels, words, depth

    def code(self) -> Code:
        """A few instructions, or a branch or a loop over some."""
        match self.draw.weighted(("line", "skip", "loop", "count", "jumps"), (8, 4, 3, 2, 1)):
            case "skip":
                return self._skip()
            case "loop":
                return self._loop(self.depth)
            case "count":
                return self._counted()
            case "jumps":
                return self._jumps()
            case _:
                return self._line(self.draw.between(1, 6))

    def plain(self) -> Code:
        """Code that changes no register but `SCRATCH`."""
        return self._skip() if self.draw.chance(0.5) else self._line(self.draw.between(1, 4))

    def _any(self) -> int:
        return self.draw.pick(SCRATCH)

    def _line(self, length: int) -> Code:
        return [x for _ in range(length) for x in self._one()]

    def _one(self) -> Code:
        draw = self.draw
        match draw.weighted(("alu", "li", "word", "seq"), (12, 3, 3, 1)):
            case "li":
                return [li(self._any(), self._immediate())]
            case "word":
                return self._word()
            case "seq":
                return [Instruction("nop", {"queue": "seq"}) if draw.chance(0.5) else Instruction("sync")]
            case _:
                b = Reg(draw.below(8)) if draw.chance(0.5) else self._immediate()
                # r0 as a result: thrown away.
                rd = 0 if draw.chance(0.05) else self._any()
                return [alu(draw.pick(ALU_OPS), rd, draw.below(8), b)]

    def _immediate(self) -> int:
        kind = self.draw.below(3)
        if kind == 0:
            return self.draw.between(-5, 40)
        if kind == 1:
            return self.draw.pick((-(2**31), 2**31 - 1, -1, 0, 31, 32, 1 << 16))
        return self.draw.word() - (1 << 31)

    def _word(self) -> Code:
        """A load or a store of a word."""
        at = self.words.lo + 4 * self.draw.below(self.words.room // 4)
        if self.draw.chance(0.5):
            return [Instruction("sts", {"rb": Reg(self._any()), "ra": Reg(0), "imm": at})]
        return [Instruction("lds", {"rd": Reg(self._any()), "ra": Reg(0), "imm": at})]

    def _skip(self) -> Code:
        """A branch over some code, on values that may be equal."""
        draw, end = self.draw, self.labels.new()
        ra = draw.below(8)
        rb = ra if draw.chance(0.25) else draw.below(8)
        return [branch(draw.pick(BRANCH_OPS), ra, rb, end), *self._line(draw.between(1, 3)), end]

    def _loop(self, depth: int) -> Code:
        """Hardware loops in each other, which may end together; some of them run no iteration."""
        draw, end = self.draw, self.labels.new()
        levels = 1 if depth + 2 > MAX_LOOP_NEST else draw.weighted((1, 2, MAX_LOOP_NEST - depth), (5, 3, 1))
        return [*self._nest(levels, end), end]

    def _nest(self, levels: int, end: Label) -> Code:
        draw = self.draw
        trips = draw.weighted((1, 2, 3, 0, -2), (4, 5, 2, 1, 1) if levels < 4 else (5, 1, 0, 0, 0))
        count: int | Reg = trips
        code: Code = []
        if draw.chance(0.4):
            at = draw.pick(CONSTANTS)
            code.append(li(at, trips))
            count = Reg(at)
        inner = self.labels.new() if draw.chance(0.5) else end
        body = self._nest(levels - 1, inner) if levels > 1 else self._inside()
        tail = [inner, *self._line(1)] if inner != end else []
        ahead = self._line(1) if draw.chance(0.4) else []
        return [*code, Instruction("loop", {"count": count, "end": end.number}), *ahead, *body, *tail]

    def _inside(self) -> Code:
        return self._skip() + self._line(1) if self.draw.chance(0.3) else self._line(self.draw.between(1, 3))

    def _counted(self) -> Code:
        """A loop that a branch closes."""
        draw, start = self.draw, self.labels.new()
        counter, limit = draw.sample(CONSTANTS, 2)
        before, closing = counting(draw, counter, limit, draw.between(1, 4), start)
        safe: Code = [alu(draw.pick(ALU_OPS), self._any(), self._any(), self._immediate())]
        return [*before, start, *safe, *closing]

    def _jumps(self) -> Code:
        """Jumps forwards and back, over code that never runs."""
        a, b, c = (self.labels.new() for _ in range(3))
        jump = [Instruction("jmp", {"target": x.number}) for x in (a, b, c)]
        never: Code = [Instruction("trap", {"code": 7}), Instruction("nop", {"queue": "vpu"})]
        return [jump[0], b, *self._line(1), jump[2], *never[: self.draw.below(3)], a, jump[1], c]


def counting(draw: Draw, counter: int, limit: int, trips: int, start: Label) -> tuple[Code, Code]:
    """(before, at the end) of a loop of at least one iteration that a branch closes."""
    up: Code = [alu("add", counter, counter, 1)]
    match draw.weighted(("bne", "blt", "bltu", "bge", "bgeu", "beq"), (2, 1, 1, 1, 1, 1)):
        case "bne":
            return [li(counter, trips)], [alu("sub", counter, counter, 1), branch("bne", counter, 0, start)]
        case "beq":
            test = alu("slt", limit, counter, trips)
            return [li(counter, 0)], [*up, test, alu("xor", limit, limit, 1), branch("beq", limit, 0, start)]
        case "blt" | "bltu" as op:
            return [li(counter, 0), li(limit, trips)], [*up, branch(op, counter, limit, start)]
        case op:
            return [li(counter, 0), li(limit, trips - 1)], [*up, branch(op, limit, counter, start)]
