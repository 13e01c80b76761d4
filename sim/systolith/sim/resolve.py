"""Instructions with their scalar registers replaced by values, as they are when SEQ issues them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from systolith.isa.instruction import Instruction, Operand, Reg, Stream, Value
from systolith.isa.opcodes import registers_of
from systolith.isa.program import ENTRIES
from systolith.sim.scalar import signed

_IMAGES = "scalars"  # the field whose operands are 32-bit images; all others are signed


class Resolver:
    """Resolves one instruction of a program again and again.

    Attributes:
        registers: numbers of those it reads.
        entries: for each stream with a register for its entry of a stack, the first one and the register's number.
    """

    def __init__(self, instr: Instruction) -> None:
        self.instr = instr
        self.registers = tuple(sorted({r.n for r in registers_of(instr)}))
        streams = [s for v in instr.args.values() for s in (v if isinstance(v, tuple) else (v,)) if type(s) is Stream]
        self.entries = [(s.buffer, s.entry.n) for s in streams if isinstance(s.entry, Reg)]
        self._seen: dict[tuple[int, ...], Instruction] = {}

    def __call__(self, registers: list[int | None]) -> Instruction:
        """The instruction with these register values (unknown ones as 0); the same object for the same values."""
        values = tuple(registers[n] or 0 for n in self.registers)
        found = self._seen.get(values)
        if found is None:
            known = dict(zip(self.registers, values, strict=True))
            args = {name: _resolve(v, known, name == _IMAGES) for name, v in self.instr.args.items()}
            found = replace(self.instr, args=args)
            if len(self._seen) < 4096:
                self._seen[values] = found
        return found


def _resolve(value: Value, known: dict[int, int], images: bool) -> Value:
    if isinstance(value, Reg):
        return known[value.n] if images else signed(known[value.n])
    if isinstance(value, tuple):
        return tuple(_resolve(v, known, images) for v in value)  # type: ignore[return-value]
    if isinstance(value, Stream):
        operand: Callable[[Operand], int] = lambda v: signed(known[v.n]) if isinstance(v, Reg) else v  # noqa: E731
        bias = (operand(value.bias[0]), operand(value.bias[1]))
        named = replace(value, base=operand(value.base), bias=bias, index=operand(value.index), entry=0)
        return replace(named, buffer=(value.buffer + operand(value.entry)) % ENTRIES) if value.entry else named
    return value
