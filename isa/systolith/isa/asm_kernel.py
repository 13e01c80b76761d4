"""Kernels in assembly: parsing and printing.

    .kernel axpy auto                      # auto: scheduled here; registers have any names
        const one = 1.0
      body
        x = ld s0
        t = mul.f32 a0, x                  # a0 to a3: the instruction's scalars
        y = add.f32 t, one
        st s1, y
    .end

Without `auto` each micro-operation says when and where it issues, and registers are v0 to v63, constants c0, c1, ...:

    .kernel copy ii=1 rotating=64
      body length=4
        @0.0 v0 = ld s0                    # @cycle.slot
        @3.0 st s1, v0
    .end

Stream operands are s0 to s11; `coord s2.1` is coordinate 1 of stream 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from systolith.isa.asm_lex import Line
from systolith.isa.errors import ProgramError
from systolith.isa.kernel import CONST0, NREGS, NSCALARS, SCALAR0, Kernel, MicroOp, Section
from systolith.isa.microops import MICROOPS
from systolith.isa.schedule import VIRTUAL0, schedule_kernel

if TYPE_CHECKING:
    from systolith.isa.chip import Chip

SECTIONS = ("prologue", "body", "epilogue")
_STREAM_OPS = ("ld", "st", "coord", "inside")


class KernelParser:
    """Reads the lines of one kernel, from `.kernel` on; `feed` returns the kernel at `.end`."""

    def __init__(self, head: Line, chip: Chip) -> None:
        self.chip = chip
        self.head = head
        self.name = head.name("a kernel's name")
        self.auto = head.take("auto")
        self.settings = {"ii": 1, "rotating": 0}
        while (key := head.keyword()) is not None:
            if key not in self.settings or self.auto:
                head.fail(f"{key}: unknown setting of a kernel")
            self.settings[key] = head.integer(key)
        head.finish()
        self.constants: list[int] = []
        self.names: dict[str, int] = {}
        self.ops: dict[str, list[MicroOp]] = {s: [] for s in SECTIONS}
        self.lengths = dict.fromkeys(SECTIONS, 0)
        self.section = ""

    def feed(self, line: Line) -> Kernel | None:
        """One line; the kernel once it is complete."""
        if line.take(".end"):
            line.finish()
            return self._finish()
        if line.take("const"):
            self._constant(line)
        elif line.peek.text in SECTIONS and line.peek.kind == "name":
            self.section = line.next().text
            if line.keyword() is not None:
                self.lengths[self.section] = line.integer("length")
            line.take(":")
        elif self.section:
            self.ops[self.section].append(self._microop(line))
        else:
            line.fail("expected const, prologue, body or epilogue")
        line.finish()
        return None

    def _constant(self, line: Line) -> None:
        key = line.keyword()
        if key is not None:
            if key in self.names:
                line.fail(f"{key}: defined before")
            self.names[key] = CONST0 + len(self.constants)
        self.constants.append(line.image("a constant"))

    def _microop(self, line: Line) -> MicroOp:
        cycle = slot = 0
        if not self.auto:
            line.expect("@")
            at = line.peek
            if not re.fullmatch(r"[0-9]{1,9}\.[0-9]{1,9}", at.text):
                line.fail("expected cycle.slot")
            line.next()
            cycle, slot = (int(x) for x in at.text.split("."))
        result = line.keyword()
        column = line.peek.column
        op = line.name("a micro-operation")
        if op not in MICROOPS:
            line.fail(f"{op}: no such micro-operation", column)
        imm = self._stream(line) if op in _STREAM_OPS else 0
        srcs = []
        while not line.done:
            if line.keyword() == "imm":
                imm = line.integer("imm")
            else:
                srcs.append(self._operand(line))
            if not line.take(","):
                break
        if len(srcs) != MICROOPS[op].sources:
            line.fail(f"{op}: {len(srcs)} operands, needs {MICROOPS[op].sources}", column)
        dst = -1 if result is None else self._register(line, result, column)
        return MicroOp(op, dst, tuple(srcs), imm, cycle, slot)

    def _stream(self, line: Line) -> int:
        m = re.fullmatch(r"s([0-9]{1,9})(?:\.([0-9]{1,9}))?", line.peek.text)
        if m is None or int(m[1]) > 15:
            line.fail("expected a stream, s0 to s11")
        line.next()
        line.take(",")
        return int(m[2] or 0) * 16 + int(m[1])

    def _register(self, line: Line, name: str, column: int) -> int:
        if self.auto:
            return self.names.setdefault(name, VIRTUAL0 + len(self.names))
        m = re.fullmatch(r"v([0-9]{1,9})", name)
        if m is None or int(m[1]) >= NREGS:
            line.fail(f"{name}: expected a register, v0 to v{NREGS - 1}", column)
        return int(m[1])

    def _operand(self, line: Line) -> int:
        column, name = line.peek.column, line.name("an operand")
        if name in self.names:
            return self.names[name]
        m = re.fullmatch(r"([ac])([0-9]{1,9})", name)
        if m is not None:
            n, limit = int(m[2]), NSCALARS if m[1] == "a" else len(self.constants)
            if n >= limit:
                line.fail(f"{name}: there are {limit}", column)
            return n + (SCALAR0 if m[1] == "a" else CONST0)
        if self.auto:
            line.fail(f"{name}: not defined", column)
        return self._register(line, name, column)

    def _finish(self) -> Kernel:
        if self.auto:
            try:
                ops = self.ops
                return schedule_kernel(
                    self.name, ops["prologue"], ops["body"], ops["epilogue"], self.constants, self.chip
                )
            except ProgramError as e:
                self.head.fail(str(e), 0)
        prologue, body, epilogue = (Section(tuple(self.ops[s]), self.lengths[s]) for s in SECTIONS)
        ii, rotating = self.settings["ii"], self.settings["rotating"]
        return Kernel(self.name, body, ii, prologue, epilogue, tuple(self.constants), rotating)


def _operand_text(n: int) -> str:
    if n >= SCALAR0:
        return f"a{n - SCALAR0}"
    return f"c{n - CONST0}" if n >= CONST0 else f"v{n}"


def _microop_text(m: MicroOp) -> str:
    args = [_operand_text(s) for s in m.srcs]
    if m.op in _STREAM_OPS:
        args.insert(0, f"s{m.imm % 16}" + (f".{m.imm // 16}" if m.imm >= 16 else ""))
    elif m.imm:
        args.append(f"imm={m.imm}")
    result = f"v{m.dst} = " if m.dst >= 0 else ""
    return f"@{m.cycle}.{m.slot} {result}{m.op} {', '.join(args)}".rstrip()


def print_kernel(kernel: Kernel, name: str) -> Iterator[str]:
    """Lines of a kernel; `name` as assembly writes it."""
    yield f".kernel {name} ii={kernel.ii} rotating={kernel.rotating}"
    for c in kernel.constants:
        yield f"    const {c:#x}"
    for where in SECTIONS:
        section: Section = getattr(kernel, where)
        if section != Section():
            yield f"  {where} length={section.length}"
            yield from (f"    {_microop_text(m)}" for m in section.ops)
    yield ".end"
