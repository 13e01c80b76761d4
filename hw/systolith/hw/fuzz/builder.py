"""The state that writers of instructions share: a tree under construction, operands in registers, streams in cells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from systolith.hw.fuzz.draw import Draw
from systolith.hw.fuzz.layout import Branch
from systolith.hw.fuzz.patterns import Values, random_pattern
from systolith.hw.fuzz.places import TABLE_VALUES, Cell, Places
from systolith.hw.fuzz.scalars import CONSTANTS, RESERVED, SCRATCH, Labels, Scalars, alu, branch, constant, counting, li
from systolith.hw.fuzz.tree import Blob, Code, Label, Loop, Node, Step
from systolith.isa.access import Access, accesses
from systolith.isa.chip import Chip
from systolith.isa.dtypes import DType
from systolith.isa.instruction import Instruction, Operand, Reg, Space, Stream, Value
from systolith.isa.kernel import NSCALARS, Kernel
from systolith.isa.opcodes import BRANCH_OPS, NREGISTERS, registers_of
from systolith.isa.pattern import Pattern
from systolith.isa.program import Program
from systolith.sim.independence import check_independent
from systolith.sim.kernels import prepare
from systolith.sim.memory import Machine, SimulationError
from systolith.sim.resolve import Resolver


@dataclass(frozen=True)
class Known:
    """An operand and its possible values."""

    operand: Operand
    values: Values

    @property
    def ways(self) -> tuple[int | None, ...]:
        """Its possible values, and None if they are not known before the run."""
        return self.values if isinstance(self.operand, int) else (*self.values, None)


class _Held(NamedTuple):
    """Possible values of a register, and the loop that changes it: registers of one change together; 0: none."""

    values: Values
    moves: int


class Builder:
    """A program under construction.

    Attributes:
        nodes: where the next one goes.
        loops: around it, the outermost first.
        trips: how often the next node runs.
        group: number of the alternative that comes next is part of; 0: none.
        hold: registers set for one step are kept for later ones.
        branches: for each alternative, the branch that chooses the arm.
    """

    def __init__(self, draw: Draw, chip: Chip, program: Program) -> None:
        self.draw, self.chip, self.program = draw, chip, program
        self.places = Places(draw, chip, program)
        self.labels = Labels()
        self.nodes: list[Node] = []
        self.loops: list[Loop] = []
        self.trips = 1
        self.group = 0
        self.hold = False
        self.branches: dict[int, Branch] = {}
        self._groups = 0
        self._machine: Machine | None = None
        self._free = list(RESERVED)
        self._next = 0
        self._values: dict[int, _Held] = {}
        self._fresh = 0
        self._patterns: dict[Pattern, int] = {}
        self._kernels: dict[str, int] = {}

    # Nodes.

    def code(self, code: Code) -> None:
        """Scalar code; in an alternative, of one of the arms."""
        arms: tuple[Code, ...] = (code,)
        if self.group:
            arms = (code, []) if self.draw.chance(0.5) else ([], code)
        self.nodes.append(Blob(arms, self.group))

    def scalars(self) -> None:
        """Some code of SEQ's own; in an alternative, where registers wait for their use, of `SCRATCH` only."""
        depth = sum(loop.count is not None for loop in self.loops)
        scalars = Scalars(self.draw, self.labels, self.places.scratch, depth)
        self.code(scalars.plain() if self.group else scalars.code())

    def step(self, *arms: Instruction) -> Step:
        """Append an instruction, or those of both arms of an alternative."""
        touches = [a for instr in arms for a in self._touches(instr)]
        step = Step(arms, tuple(dict.fromkeys(touches)), self.group)
        self.nodes.append(step)
        if step.arms[0].op != "lds" and not self.hold:
            self._fresh = 0
        return step

    def _touches(self, instr: Instruction) -> Iterator[Access]:
        numbers = sorted({r.n for r in registers_of(instr)} & self._values.keys())
        if instr.op in ("lds", "sts") or not numbers:
            yield from accesses(instr, self.program, self.chip)
            return
        resolve = Resolver(instr)
        moves = sorted({self._values[n].moves for n in numbers})
        ways = [max(len(self._values[n].values) for n in numbers if self._values[n].moves == m) for m in moves]
        for way in product(*map(range, ways)):
            at = dict(zip(moves, way, strict=True))
            registers: list[int | None] = [0] * NREGISTERS
            for n in numbers:
                held = self._values[n]
                registers[n] = held.values[at[held.moves]] & 0xFFFFFFFF
            yield from accesses(resolve(registers), self.program, self.chip)

    def independent(self, instr: Instruction) -> bool:
        """Whether a kernel's iterations are plainly independent: its streams have no registers and no index lists."""
        streams = instr.args["streams"]
        assert isinstance(streams, tuple)
        if any(True for s in streams for _ in registers_of(Instruction("", {"src": s}))):
            return False
        if any(self.program.patterns[s.pattern].indirect >= 0 for s in streams if isinstance(s, Stream)):
            return False
        if self._machine is None:
            self._machine = Machine(self.program, self.chip, {})
        plain = replace(instr, args={**instr.args, "scalars": (0,) * NSCALARS})
        try:
            check_independent(prepare(self._machine, plain))
        except SimulationError:
            return False
        return True

    def word(self) -> Step:
        """A load or a store of an SMEM word whose address is in a register: it may be any, to who looks for races."""
        at = 4 * self.draw.below(self.places.scratch.room // 4)
        offset = self.draw.pick((0, 4, -8, 4096))
        ra = self.constant(at - offset)
        if self.draw.chance(0.5):
            return self.step(Instruction("sts", {"rb": self.scratch(), "ra": ra, "imm": offset}))
        return self.step(Instruction("lds", {"rd": self.scratch(), "ra": ra, "imm": offset}))

    def scratch(self) -> Reg:
        """A register with any value."""
        return Reg(self.draw.pick(SCRATCH))

    @contextmanager
    def loop(self) -> Iterator[None]:
        """A loop around the steps that are added in this context."""
        loop = self._new_loop()
        outer, self.nodes = self.nodes, loop.body
        outer_trips = self.trips
        self.loops.append(loop)
        self.trips *= max(loop.trips, 1)
        yield
        self.loops.pop()
        self.nodes, self.trips = outer, outer_trips
        if not self.loops:
            # A register that an inner loop changes may not become one of the loop around it.
            self._free = list(RESERVED)
        self._close(loop)

    def _new_loop(self) -> Loop:
        """A loop that a branch closes, or a hardware loop; some run no iteration."""
        draw, trips = self.draw, self.draw.weighted((1, 2, 3, 4), (1, 4, 3, 1))
        loop = Loop(trips, trips, self.labels.new())
        if len(self._free) > 5 and draw.chance(0.3):
            loop.count = None
            loop.before, loop.after = counting(draw, self._free.pop(), self._free.pop(), trips, loop.start)
        elif draw.chance(0.3):
            if draw.chance(0.15):
                loop.trips = trips = draw.pick((0, -1))
            count = self.constant(trips)
            loop.before, loop.count = self._last_code(), count
        elif draw.chance(0.1):
            loop.trips = loop.count = 0
        return loop

    def _close(self, loop: Loop) -> None:
        if not any(isinstance(n, Step | Loop) for n in loop.body):
            loop.body.append(Blob(([alu("add", 1, 1, 1)],)))
        if loop.count is None:
            last = loop.after.pop()
            assert isinstance(last, Instruction)
            loop.closing = last
        self.nodes.append(loop)

    @contextmanager
    def alternative(self) -> Iterator[None]:
        """An alternative around the steps that are added in this context: each has an instruction for either arm."""
        self._groups += 1
        self.group = self._groups
        op, ra, rb = self.draw.pick(BRANCH_OPS), self.scratch().n, self.draw.below(8)

        def choose(target: Label) -> Instruction:
            return branch(op, ra, rb, target)

        self.branches[self.group] = choose
        yield
        self.group = 0

    # Operands.

    def _last_code(self) -> Code:
        """The code that was just written, taken back."""
        blob = self.nodes.pop()
        assert isinstance(blob, Blob)
        return blob.arms[0]

    def constant(self, value: int) -> Reg:
        """A register that holds a value until a few constants later."""
        n = self._constant()
        self.code(constant(self.draw, n, value))
        self._values[n] = _Held((value,), 0)
        return Reg(n)

    def _constant(self) -> int:
        self._next += 1
        self._fresh += 1
        return CONSTANTS[self._next % len(CONSTANTS)]

    def operand(self, value: int, slack: int = 0, unit: int = 1) -> Known:
        """A value as an operand; in a loop it may grow, in steps that are multiples of `unit`, by up to `slack`."""
        draw = self.draw
        if self.loops and self._free and draw.chance(0.5):
            grown = self._growing(value, slack // unit * unit, unit)
            if grown is not None:
                return grown
        if draw.chance(0.65) or self._fresh == len(CONSTANTS):
            return Known(value, (value,))
        if value == 0 and draw.chance(0.3):
            return Known(Reg(0), (0,))
        return Known(self.constant(value), (value,))

    def _growing(self, value: int, slack: int, unit: int) -> Known | None:
        """A register that the innermost loop changes."""
        loop = self.loops[-1]
        steps = max(loop.trips, 1) - 1
        if not steps or slack < steps * unit:
            return None
        step = unit * self.draw.between(1, slack // steps // unit)
        start = value
        if self.draw.chance(0.3):
            start, step = value + step * steps, -step
        n = self._free.pop()
        loop.before.append(li(n, start))
        loop.after.insert(0, alu("add", n, n, step))
        values = tuple(start + k * step for k in range(steps + 1))
        self._values[n] = _Held(values, loop.start.number + 1)
        return Known(Reg(n), values)

    def bias(self) -> Known:
        """A small operand for coordinates: mostly immediate; at times read from SMEM."""
        draw = self.draw
        if draw.chance(0.5):
            return Known(0, (0,))
        if self.chip.smem.bytes > self.places.table.hi and self._fresh < 2 and draw.chance(0.12):
            return self._from_table()
        return self.operand(draw.between(-3, 3), draw.between(0, 6))

    def _from_table(self) -> Known:
        """A register with a word from the table in SMEM, which transfers may have put there."""
        n = self._constant()
        table = self.places.table
        at = table.lo + 4 * self.draw.below(table.room // 4)
        self.step(Instruction("lds", {"rd": Reg(n), "ra": Reg(0), "imm": at}))
        self._values[n] = _Held(TABLE_VALUES, -n)
        return Known(Reg(n), TABLE_VALUES)

    # Streams.

    def pattern(self, p: Pattern) -> int:
        """Its number in the table."""
        number = self._patterns.setdefault(p, len(self.program.patterns))
        if number == len(self.program.patterns):
            self.program.patterns.append(p)
        return number

    def kernel(self, k: Kernel) -> int:
        """Its number in the table."""
        number = self._kernels.setdefault(k.name, len(self.program.kernels))
        if number == len(self.program.kernels):
            self.program.kernels.append(k)
        return number

    def stream(
        self,
        cell: Cell,
        dtype: DType,
        counts: tuple[int, ...],
        *,
        indirect: bool = False,
        own_fill: bool = False,
        coords: int = 0,
    ) -> Stream:
        """A stream of those counts within a cell; see `random_pattern`."""
        draw = self.draw
        biases = (self.bias(), self.bias())
        align = 4 if cell.space is Space.ACC else 1 if draw.chance(0.1) else dtype.size
        pattern, (lo, hi) = random_pattern(
            draw,
            dtype,
            counts,
            cell.room - align,
            (biases[0].ways, biases[1].ways),
            align=align,
            indirect=indirect,
            bounded=cell.space is Space.SMEM,
            own_fill=own_fill,
            coords=coords,
        )
        lo -= lo % align  # an access may begin between elements
        slack = (cell.room - (hi - lo)) // align
        first = draw.below(slack + 1)
        base = self.operand(cell.lo - lo + first * align, (slack - first) * align, align)
        index = self._index(pattern)
        bias = (biases[0].operand, biases[1].operand)
        return Stream(cell.space, self.pattern(pattern), base.operand, cell.number, bias, index)

    def _index(self, pattern: Pattern) -> Operand:
        """Where the pattern's index list is."""
        if pattern.indirect < 0:
            return 0
        lists = self.places.lists
        spare = lists.room // 4 - pattern.counts[pattern.indirect]
        first = self.draw.below(spare + 1)
        return self.operand(lists.lo + 4 * first, 4 * (spare - first), 4).operand

    def nowhere(self, dtype: DType, counts: tuple[int, ...], coords: int) -> Stream:
        """A stream that is there for its coordinates only."""
        biases = (self.bias(), self.bias())
        values = (biases[0].ways, biases[1].ways)
        pattern, _ = random_pattern(self.draw, dtype, counts, 1 << 30, values, indirect=True, coords=max(coords, 1))
        index = self._index(pattern)
        return Stream(Space.NONE, self.pattern(pattern), 0, 0, (biases[0].operand, biases[1].operand), index)


def args(**values: Value) -> dict[str, Value]:
    """An instruction's arguments."""
    return dict(values)
