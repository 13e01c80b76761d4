"""The meaning of patterns and kernels, an element at a time: slow, and as the definitions say it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

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


class Touch(NamedTuple):
    """A load or store of one iteration: its outer and inner iteration (None: once an outer one), operation, bytes."""

    outer: int
    inner: int | None
    op: MicroOp
    touched: frozenset[int]


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
        self.log: list[Touch] = []
        self.at: tuple[int, int | None] = (0, None)

    def run(self) -> None:
        counts, inner = self.args["counts"], self.args["inner"]
        outer = len(counts) - inner
        for i, first in enumerate(product(*(range(n) for n in counts[:outer]))):
            self.registers = {}
            self.at = (i, None)
            self.section(self.kernel.prologue.ops, first + (0,) * inner)
            for k, second in enumerate(product(*(range(n) for n in counts[outer:]))):
                self.at = (i, k)
                self.section(self.kernel.body.ops, first + second)
            self.at = (i, None)
            self.section(self.kernel.epilogue.ops, first + (0,) * inner)

    def section(self, ops: tuple[MicroOp, ...], at: tuple[int, ...]) -> None:
        for m in ops:
            sources = [self.operand(s) for s in m.srcs]
            if m.op == "st":
                self.memory(m, at, np.broadcast_to(sources[0], self.shape))
            elif m.op == "ld":
                self.registers[m.dst] = self.memory(m, at, None)
            elif m.op in ("coord", "inside"):
                self.registers[m.dst] = self.position(m, at)
            else:
                self.registers[m.dst] = np.broadcast_to(MICROOP_FUNCTIONS[m.op](*sources), self.shape)

    def operand(self, number: int) -> Array:
        if number >= SCALAR0:
            return np.array(self.args["scalars"][number - SCALAR0] & 0xFFFFFFFF, np.uint32)
        if number >= CONST0:
            return np.array(self.kernel.constants[number - CONST0], np.uint32)
        return self.registers[number]

    def index(self, p: Pattern, s: Stream) -> Any:
        if p.indirect < 0:
            return None
        assert isinstance(s.index, int)
        return self.machine.vmem[s.index : s.index + 4 * p.counts[p.indirect]].view(np.int32)

    def position(self, m: MicroOp, at: tuple[int, ...]) -> Array:
        """The results of `coord` and `inside`."""
        p, s, out = self.patterns[m.imm % 16], self.streams[m.imm % 16], np.zeros(self.shape, np.uint32)
        index = self.index(p, s)
        bias: Any = s.bias
        for lane in product(*(range(n) for n in p.counts[-2:])):
            if m.op == "inside":
                out[lane] = address_of(p, at + lane, 0, bias, index) is not None
                continue
            i = [int(index[n]) if k == p.indirect else n for k, n in enumerate(at + lane)]
            c = p.coords[m.imm // 16]
            value = (
                c.offset + sum(a * k for a, k in zip(c.coefs, i, strict=True)) + (bias[c.bias] if c.bias >= 0 else 0)
            )
            out[lane] = value & 0xFFFFFFFF
        return out

    def memory(self, m: MicroOp, at: tuple[int, ...], values: Array | None) -> Array:
        p, s = self.patterns[m.imm], self.streams[m.imm]
        data, out = self.machine.vmem, np.full(self.shape, p.fill, np.uint32)
        index = self.index(p, s)
        size = p.dtype.size
        touched: set[int] = set()
        for lane in product(*(range(n) for n in p.counts[-2:])):
            address = address_of(p, at + lane, s.base, s.bias, index)  # type: ignore[arg-type]
            if address is None:
                continue
            if not 0 <= address <= len(data) - size:
                raise IndexError(f"bytes {address} to {address + size} of {len(data)}")
            touched.update(range(address, address + size))
            if values is None:
                out[lane] = widen(data[address : address + size].view(raw_type(p.dtype)), p.dtype)[0]
            else:
                data[address : address + size] = narrow(values[lane].reshape(1), p.dtype).view(np.uint8)
        self.log.append(Touch(*self.at, m, frozenset(touched)))
        return out
