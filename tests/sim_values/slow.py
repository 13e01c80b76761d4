"""The meaning of patterns and kernels, an element at a time: slow, and as the definitions say it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from systolith.isa.instruction import Instruction, Stream
from systolith.isa.kernel import CONST0, SCALAR0, MicroOp
from systolith.isa.numerics.alu import MICROOP_FUNCTIONS
from systolith.isa.numerics.formats import narrow, raw_type, widen
from systolith.isa.pattern import Pattern
from systolith.sim.memory import Machine

Array = npt.NDArray[Any]


def visit(
    p: Pattern, base: int, bias: tuple[int, int], index: Any = None
) -> Iterator[tuple[tuple[int, ...], int | None]]:
    """Loop positions in order, each with its address, None outside."""
    for position in product(*(range(n) for n in p.counts)):
        yield position, address_of(p, position, base, bias, index)


def address_of(
    p: Pattern, position: tuple[int, ...], base: int, bias: tuple[int, int], index: Any = None
) -> int | None:
    i = list(position)
    if p.indirect >= 0:
        i[p.indirect] = int(index[i[p.indirect]])
    address = base + sum(s * k for s, k in zip(p.strides, i, strict=True))
    for c in p.coords:
        v = c.offset + sum(a * k for a, k in zip(c.coefs, i, strict=True)) + (bias[c.bias] if c.bias >= 0 else 0)
        if v % c.div or not c.lo <= v // c.div < c.hi:
            return None
        address += v // c.div * c.stride
    return address


class SlowVpu:
    """vpu.run, one lane of one iteration after another."""

    def __init__(self, machine: Machine, instr: Instruction) -> None:
        self.machine = machine
        self.args: dict[str, Any] = dict(instr.args)
        self.kernel = machine.program.kernels[self.args["kernel"]]
        streams: tuple[Stream, ...] = self.args["streams"]
        self.streams = streams
        self.patterns = [machine.program.patterns[s.pattern] for s in streams]
        self.shape = tuple(max(p.counts[k] for p in self.patterns) for k in (-2, -1))
        self.registers: dict[int, Array] = {}

    def run(self) -> None:
        counts, inner = self.args["counts"], self.args["inner"]
        outer = len(counts) - inner
        for first in product(*(range(n) for n in counts[:outer])):
            self.registers = {}
            self.section(self.kernel.prologue.ops, first + (0,) * inner)
            for second in product(*(range(n) for n in counts[outer:])):
                self.section(self.kernel.body.ops, first + second)
            self.section(self.kernel.epilogue.ops, first + (0,) * inner)

    def section(self, ops: tuple[MicroOp, ...], at: tuple[int, ...]) -> None:
        for m in ops:
            sources = [self.operand(s) for s in m.srcs]
            if m.op == "st":
                self.memory(m.imm, at, sources[0])
            elif m.op == "ld":
                self.registers[m.dst] = self.memory(m.imm, at, None)
            else:
                self.registers[m.dst] = np.broadcast_to(MICROOP_FUNCTIONS[m.op](*sources), self.shape)

    def operand(self, number: int) -> Array:
        if number >= SCALAR0:
            return np.array(self.args["scalars"][number - SCALAR0] & 0xFFFFFFFF, np.uint32)
        if number >= CONST0:
            return np.array(self.kernel.constants[number - CONST0], np.uint32)
        return self.registers[number]

    def memory(self, number: int, at: tuple[int, ...], values: Array | None) -> Array:
        p, s = self.patterns[number], self.streams[number]
        data, out = self.machine.vmem, np.full(self.shape, p.fill, np.uint32)
        index: Any = None
        assert isinstance(s.base, int)
        assert isinstance(s.index, int)
        if p.indirect >= 0:
            index = data[s.index : s.index + 4 * p.counts[p.indirect]].view(np.int32)
        size = p.dtype.size
        for lane in product(*(range(n) for n in p.counts[-2:])):
            address = address_of(p, at + lane, s.base, s.bias, index)  # type: ignore[arg-type]
            if address is None:
                continue
            if values is None:
                out[lane] = widen(data[address : address + size].view(raw_type(p.dtype)), p.dtype)[0]
            else:
                data[address : address + size] = narrow(values[lane].reshape(1), p.dtype).view(np.uint8)
        return out
