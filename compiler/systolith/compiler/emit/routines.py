"""Routines in a program: their instructions with its tables, registers and addresses, and a join of queues behind them.

A routine's tokens are its own: none counts anything where it begins or ends, so all routines share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, cast

from systolith.compiler.tile.ir import Buf, Ref, TileOp, VReg
from systolith.isa.asm_routine import AssembledRoutine, assemble_routine
from systolith.isa.chip import Chip
from systolith.isa.host_functions import Signature
from systolith.isa.instruction import Instruction, Reg, Space, Stream, Value
from systolith.isa.kernel import Kernel
from systolith.isa.opcodes import MAX_WAITS, queue_of
from systolith.isa.pattern import Pattern
from systolith.isa.program import TokenDecl


class Tables(Protocol):
    """The tables of a program (`codegen.py`)."""

    kernels: dict[Kernel, int]
    buffers: dict[Buf, int]

    def pattern(self, pattern: Pattern) -> int: ...

    def kernel(self, kernel: Kernel) -> int: ...


@dataclass
class RoutineTokens:
    """Tokens of routines, behind those of a program."""

    table: list[TokenDecl]
    own: dict[tuple[TokenDecl, int], int] = field(default_factory=dict)

    def number(self, decl: TokenDecl, n: int) -> int:
        """The n-th of those from one queue to another."""
        if (decl, n) not in self.own:
            self.own[decl, n] = len(self.table)
            self.table.append(decl)
        return self.own[decl, n]


@dataclass(frozen=True)
class WrittenOut:
    """A routine in a program.

    Attributes:
        code: its instructions and the join; targets and tokens count from its own first.
        tokens: its tokens, and those of the join.
    """

    code: list[Instruction]
    tokens: list[TokenDecl]

    def placed(self, first: int, tokens: RoutineTokens) -> list[Instruction]:
        """Its instructions where the first is number `first`."""
        seen: dict[TokenDecl, int] = {}
        numbers = []
        for decl in self.tokens:
            seen[decl] = seen.get(decl, -1) + 1
            numbers.append(tokens.number(decl, seen[decl]))
        return [_placed(instr, first, numbers) for instr in self.code]


def _placed(instr: Instruction, first: int, tokens: list[int]) -> Instruction:
    targets = [name for name in ("target", "end") if name in instr.args]
    jumps: dict[str, Value] = {name: first + cast(int, instr.args[name]) for name in targets}
    waits, signals = (tuple(tokens[t] for t in of) for of in (instr.waits, instr.signals))
    return replace(instr, args={**instr.args, **jumps}, waits=waits, signals=signals)


def written_out(
    op: TileOp, chip: Chip, address: Mapping[Buf, int], registers: Mapping[VReg, int], tables: Tables
) -> WrittenOut:
    """The routine of an operation, with its places at their addresses."""
    refs = dict(zip(cast(tuple[str, ...], op.args["names"]), op.refs, strict=True))
    at = {n: r.offset + address[r.buf] for n, r in refs.items() if r.buf is not None and r.buf.space is not Space.HBM}
    call = Signature.from_bytes(str(op.args["call"]).encode())
    made = assemble_routine(str(op.args["text"]), chip, call, at)
    program = made.program
    own = cast(tuple[VReg, ...], op.args["registers"])
    writer = _Writer(
        registers={n: registers[v] for n, v in zip(made.registers, own, strict=True)},
        patterns=[tables.pattern(p) for p in program.patterns],
        kernels=[tables.kernel(_named(k, call.target, tables)) for k in program.kernels],
        buffers=_buffers(made, refs, tables),
    )
    code = [writer.instruction(instr) for instr in program.code[:-1]]
    busy = list(dict.fromkeys(q for q in map(queue_of, code) if q != "seq"))
    first = len(program.tokens)
    signals = [first + n for n in range(len(busy))]
    code += [Instruction("nop", {"queue": q}, signals=(t,)) for q, t in zip(busy, signals, strict=True)]
    groups = [tuple(signals[n : n + MAX_WAITS]) for n in range(0, len(signals), MAX_WAITS)]
    code += [Instruction("sync", {}, waits=group) for group in groups or [()]]
    return WrittenOut(code, [*program.tokens, *(TokenDecl(q, "seq") for q in busy)])


def _buffers(made: AssembledRoutine, refs: Mapping[str, Ref], tables: Tables) -> list[int]:
    bufs = (refs[b.name].buf for b in made.program.buffers)
    return [tables.buffers[buf] for buf in bufs if buf is not None]


def _named(kernel: Kernel, target: str, tables: Tables) -> Kernel:
    """The kernel under a name that no other one has."""
    stem, number, taken = f"{target}.{kernel.name}", 1, {k.name: k for k in tables.kernels}
    found = replace(kernel, name=stem)
    while taken.get(found.name, found) != found:
        number += 1
        found = replace(kernel, name=f"{stem}.{number}")
    return found


@dataclass(frozen=True)
class _Writer:
    """What numbers in a routine's instructions become."""

    registers: Mapping[int, int]
    patterns: list[int]
    kernels: list[int]
    buffers: list[int]

    def instruction(self, instr: Instruction) -> Instruction:
        args = {name: self._value(value) for name, value in instr.args.items()}
        if "kernel" in args:
            args["kernel"] = self.kernels[cast(int, args["kernel"])]
        return replace(instr, args=args)

    def _value(self, value: Value) -> Value:
        if isinstance(value, Reg):
            return Reg(self.registers[value.n]) if value.n else value
        if isinstance(value, Stream):
            return self._stream(value)
        if isinstance(value, tuple):
            return tuple(self._value(v) for v in value)  # type: ignore[return-value]
        return value

    def _stream(self, s: Stream) -> Stream:
        base, index, *bias = (cast("int | Reg", self._value(v)) for v in (s.base, s.index, *s.bias))
        buffer = self.buffers[s.buffer] if s.space is Space.HBM else s.buffer
        return Stream(s.space, self.patterns[s.pattern], base, buffer, (bias[0], bias[1]), index)
