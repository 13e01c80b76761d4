"""Assembly: programs as text, both ways.

    assemble(text, chip) -> Program            disassemble(program) -> str

A line is a directive, an instruction (after any labels, `name:`), or empty; one that ends with a comma goes on in the
next; `#` starts a comment.  Names that are not letters, digits, `_` and `.` are written in quotes.  Numbers: decimal,
`0x`, and where 32-bit images are meant also `1.5`, `1e-3`, `inf`, `nan`.  An integer may be a sum of products and exact
quotients, also of names that `.equ` defines and of the chip's integer fields (`mxu.cols`).

    .program axpy
    .equ n 16                                        # or a register: .equ row r5
    .buffer x parameter f32 [16] number=0            # bytes=, alias=, offset=, stack=, name=, config=,
                                                     # sizes=[], data="hex", "hex"
    .buffer y result f32 [16] number=0
    .token loaded ld -> vpu
    .token ok vpu -> st
    .pattern all f32 counts=(n) strides=(4)          # fill=, indirect=
    .pattern rows f32 counts=(1, 2, 8) strides=(n * 4, 32, 4)
        coord coefs=(0, 8, 1) lo=0 hi=n              # offset=, div=, stride=, bias=
    .kernel scale auto                               # see `asm_kernel.py`
      body
        x = ld s0
        y = mul.f32 a0, x
        st s1, y
    .end

    start:
        dma.load hbm(x)[0]:all, vmem[0]:all signal loaded
        vpu.run scale, (1), inner=1, scalars=(2.0, 0, 0, 0), streams=(vmem[0]:rows, vmem[64]:rows) wait loaded signal ok
        dma.store vmem[64]:all, hbm(y)[0]:all wait ok
        halt

An instruction is `[fence] op[@unit] arguments [wait tokens] [signal tokens] [!origin]`.  Arguments are in the order of
the opcode table, or `name=value`; transpose, part, integer, accumulate, serial, inner, scalars and streams may be left
out (0).  A stream is `space(buffer)[base]:pattern`, with `bias=(a, b)` and `index=a` after it where they are not 0.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from systolith.isa.asm_kernel import print_kernel
from systolith.isa.asm_parser import DEFAULTS, Parser
from systolith.isa.instruction import Instruction, Reg, Space, Stream
from systolith.isa.opcodes import OPCODES, Field
from systolith.isa.pattern import UNBOUNDED, Coord, Pattern
from systolith.isa.program import BufferDecl, Program

if TYPE_CHECKING:
    from systolith.isa.chip import Chip

_PLAIN = re.compile(r"[A-Za-z_$][\w$]*(\.[\w$]+)*")
_RESERVED = ("auto", "fence", "inf", "nan", "signal", "wait")
_COORD_DEFAULTS = {"offset": 0, "lo": UNBOUNDED[0], "hi": UNBOUNDED[1], "div": 1, "stride": 0, "bias": -1}


def assemble(text: str, chip: Chip) -> Program:
    """The program that a text describes.

    Args:
        text: assembly.
        chip: the one that `auto` kernels are scheduled for; its name and digest go into the program.

    Raises:
        AsmError: with the line's number, text and a caret.
    """
    parser = Parser(chip)
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        parser.feed(line, number)
    return parser.finish(len(lines) + 1)


def _text(name: str) -> str:
    return name if _PLAIN.fullmatch(name) and name not in _RESERVED else json.dumps(name)


def _tuple(values: Any) -> str:
    return f"({', '.join(_value(v) for v in values)})"


def _value(v: Any) -> str:
    if isinstance(v, tuple):
        return _tuple(v)
    return f"r{v.n}" if isinstance(v, Reg) else str(v)


class _Printer:
    """Prints a program; buffers and kernels by their names; patterns, tokens and labels as p0, t0, L0, ..."""

    def __init__(self, program: Program) -> None:
        self.program = program
        names = [b.name for b in program.buffers]
        plain = {n for n, times in Counter(names).items() if times == 1 and _text(n) == n}
        self.buffers = [n if n in plain else f"buffer.{i}" for i, n in enumerate(names)]
        targets = {cast(int, c.args[k]) for c in program.code for k in ("target", "end") if k in c.args}
        self.labels = {t: f"L{t}" for t in sorted(targets)}

    def lines(self) -> Iterator[str]:
        p = self.program
        yield f".program {_text(p.name)}"
        yield f".chip {_text(p.chip)} {json.dumps(p.chip_digest)}"
        if p.vmem_high_water:
            yield f".vmem_high_water {p.vmem_high_water}"
        yield from (self._buffer(i, b) for i, b in enumerate(p.buffers))
        yield from (f".token t{i} {t.producer} -> {t.consumer}" for i, t in enumerate(p.tokens))
        for i, pattern in enumerate(p.patterns):
            yield from self._pattern(i, pattern)
        for k in p.kernels:
            yield from print_kernel(k, _text(k.name))
        yield from (
            f".origin {json.dumps(o.hlo)} {json.dumps(o.group)} {json.dumps(o.what)} {o.macs}"
            + (f" {o.expected}" if o.expected >= 0 else "")
            for o in p.origins
        )
        for key, table in (("group", p.groups), ("probe", p.probes)):
            yield from (f".{key} {json.dumps(json.dumps(asdict(x)))}" for x in cast(list[Any], table))
        for i, instr in enumerate(p.code):
            if i in self.labels:
                yield f"{self.labels[i]}:"
            yield f"    {self.instruction(instr)}" + (f" !{p.debug[i]}" if p.debug else "")
        if len(p.code) in self.labels:
            yield f"{self.labels[len(p.code)]}:"

    def _buffer(self, i: int, b: BufferDecl) -> str:
        dims = ", ".join(str(d) for d in b.dims)
        text = f".buffer {self.buffers[i]} {b.role} {b.dtype} [{dims}] bytes={b.bytes}"
        text += f" name={json.dumps(b.name)}" * (b.name != self.buffers[i])
        text += f" number={b.number}" * (b.number != -1) + f" alias={b.alias}" * (b.alias != -1)
        text += f" offset={b.offset}" * (b.offset != 0) + f" stack={b.stack}" * (b.stack != 1)
        text += f" config={json.dumps(b.config)}" * bool(b.config)
        text += f" sizes=[{', '.join(map(str, b.sizes))}]" if b.sizes else ""
        return text + (f' data="{b.data.hex()}"' if b.data else "")

    def _pattern(self, i: int, p: Pattern) -> Iterator[str]:
        text = f".pattern p{i} {p.dtype} counts={_tuple(p.counts)} strides={_tuple(p.strides)}"
        yield text + f" fill={p.fill:#x}" * (p.fill != 0) + f" indirect={p.indirect}" * (p.indirect != -1)
        yield from (self._coord(c) for c in p.coords)

    def _coord(self, c: Coord) -> str:
        rest = "".join(f" {k}={getattr(c, k)}" for k, v in _COORD_DEFAULTS.items() if getattr(c, k) != v)
        return f"    coord coefs={_tuple(c.coefs)}{rest}"

    def stream(self, s: Stream) -> str:
        text = s.space.name.lower()
        entry = f", {_value(s.entry)}" if s.entry else ""
        if s.space is Space.HBM and s.buffer < len(self.buffers):
            text += f"({self.buffers[s.buffer]}{entry})"
        elif s.buffer or entry or s.space in (Space.ACC, Space.HOST, Space.LINK, Space.HBM):
            text += f"({s.buffer}{entry})"
        text += f"[{_value(s.base)}]" if s.base != 0 or s.space is not Space.NONE else ""
        text += f":p{s.pattern}" if s.pattern < len(self.program.patterns) else f":{s.pattern}"
        text += f" bias={_tuple(s.bias)}" if s.bias != (0, 0) else ""
        return text + (f" index={_value(s.index)}" if s.index != 0 else "")

    def _arg(self, f: Field, value: Any) -> str:
        if isinstance(value, Stream):
            return self.stream(value)
        if f.name == "streams":
            return f"({', '.join(self.stream(s) for s in value)})"
        if f.name == "kernel" and value < len(self.program.kernels):
            return _text(self.program.kernels[value].name)
        if f.name in ("target", "end"):
            return self.labels[value]
        return _value(value)

    def instruction(self, instr: Instruction) -> str:
        op = OPCODES[instr.op]
        args, named = [], False
        for f in op.fields:
            value = instr.args[f.name]
            if f.name in DEFAULTS:
                named = True
                if value == DEFAULTS[f.name]:
                    continue
            args.append(f"{f.name}={self._arg(f, value)}" if named else self._arg(f, value))
        text = "fence " * instr.fence + instr.op + (f"@{instr.unit}" if op.queue in ("w", "s") else "")
        text += (" " + ", ".join(args)) * bool(args)
        for verb, tokens in (("wait", instr.waits), ("signal", instr.signals)):
            if tokens:
                names = (f"t{t}" if t < len(self.program.tokens) else str(t) for t in tokens)
                text += f" {verb} {', '.join(names)}"
        return text


def disassemble(program: Program) -> str:
    """The program as text, which assembles to an equal program on the same chip."""
    return "\n".join(_Printer(program).lines()) + "\n"


def instruction_text(instr: Instruction, program: Program) -> str:
    """One instruction as assembly (branch targets as numbers), for reports and errors."""
    printer = _Printer(Program("", "", "", [instr], program.patterns, program.kernels, program.buffers, program.tokens))
    printer.labels = {t: str(t) for t in printer.labels}
    return printer.instruction(instr)
