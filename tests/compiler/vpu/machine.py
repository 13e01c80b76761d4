"""Runs tile IR on plain byte arrays: the meaning of the instructions that vector lowerings emit.

Addresses come straight from the definition of a pattern, element by element; micro-operations from
`systolith.isa.numerics`.  Memory starts as 0xFF (NaN in floats), an access outside a buffer fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from systolith.compiler.tile.ir import Array, Block, Buf, Ref, TileOp
from systolith.isa.kernel import CONST0, MAX_NEST, MAX_STREAMS, NSCALARS, Kernel, Section
from systolith.isa.numerics.alu import MICROOP_FUNCTIONS
from systolith.isa.numerics.formats import narrow, widen
from systolith.isa.pattern import Coord

Bits = np.ndarray[Any, np.dtype[Any]]


def grid(counts: tuple[int, ...]) -> list[Bits]:
    return list(np.meshgrid(*[np.arange(n, dtype=np.int64) for n in counts], indexing="ij", sparse=True))


def addresses(ref: Ref) -> tuple[Bits, Bits, list[Bits]]:
    """Byte addresses from the buffer's start, which elements exist, and the coordinates before division."""
    p = ref.pattern
    loops = grid(p.counts)
    address = np.full(p.counts, ref.offset, np.int64)
    for i, stride in zip(loops, p.strides, strict=True):
        address = address + i * stride
    inside = np.ones(p.counts, bool)
    values: list[Bits] = []
    for n, c in enumerate(p.coords):
        begins = c.offset + (ref.offset if ref.buf is None and n == 0 else 0)
        value = np.full(p.counts, begins, np.int64)
        for i, k in zip(loops, c.coefs, strict=True):
            value = value + i * k
        quotient = value // c.div
        inside = inside & (value % c.div == 0) & (quotient >= c.lo) & (quotient < c.hi)
        address = address + quotient * c.stride
        values.append(value)
    return address, inside, values


def at_iteration(ref: Ref, index: tuple[int, ...]) -> Ref:
    """The stream of one iteration of the nest: its last two loops."""
    p, n = ref.pattern, len(index)
    offset = ref.offset + sum(i * s for i, s in zip(index, p.strides[:n], strict=True))
    coords = tuple(
        Coord(c.coefs[n:], c.offset + sum(map(int.__mul__, index, c.coefs[:n])), c.lo, c.hi, c.div, c.stride)
        for c in p.coords
    )
    return replace(ref, offset=offset, pattern=replace(p, counts=p.counts[n:], strides=p.strides[n:], coords=coords))


@dataclass
class Machine:
    """Memories by buffer, and how many VPU instructions ran."""

    memory: dict[Buf, Bits] = field(default_factory=dict)
    runs: int = 0

    def bytes_of(self, buf: Buf | None) -> Bits:
        assert buf is not None
        return self.memory.setdefault(buf, np.full(buf.bytes, 0xFF, np.uint8))

    def write(self, array: Array, values: Bits) -> None:
        """Put a whole value into an array."""
        dense = np.ascontiguousarray(values).reshape(array.dims)
        raw = dense.reshape(*array.dims, 1).view(np.uint8)
        at, memory = self._places(array), self.bytes_of(array.buf)
        for b in range(array.dtype.size):
            memory[at + b] = raw[..., b]

    def read(self, array: Array) -> Bits:
        """The value that lies in an array."""
        at, memory = self._places(array), self.bytes_of(array.buf)
        raw = np.stack([memory[at + b] for b in range(array.dtype.size)], axis=-1)
        return cast(Bits, np.ascontiguousarray(raw).view(array.dtype.stored).reshape(array.dims))

    @staticmethod
    def _places(array: Array) -> Bits:
        at = np.full(array.dims, array.offset, np.int64)
        for i, s in zip(grid(array.dims), array.strides, strict=True):
            at = at + i * s
        return at

    def run(self, block: Block) -> None:
        handlers = {"vpu.run": self._vpu_run, "xlu.reduce": self._xlu_reduce}
        for op in block.ops():
            handlers.get(op.op, self._copy)(op)

    def load(self, ref: Ref) -> Bits:
        at, inside, _ = addresses(ref)
        size, memory = ref.pattern.dtype.size, self.bytes_of(ref.buf)
        self._check(ref, at[inside], size, memory)
        at = np.where(inside, at, 0)
        raw = np.ascontiguousarray(np.stack([memory[at + b] for b in range(size)], axis=-1))
        bits = widen(raw.view(ref.pattern.dtype.stored)[..., 0], ref.pattern.dtype)
        return np.where(inside, bits, np.uint32(ref.pattern.fill))

    def store(self, ref: Ref, bits: Bits) -> None:
        at, inside, _ = addresses(ref)
        size, memory = ref.pattern.dtype.size, self.bytes_of(ref.buf)
        self._check(ref, at[inside], size, memory)
        full = np.ascontiguousarray(np.broadcast_to(bits, at.shape))
        raw = np.ascontiguousarray(narrow(full, ref.pattern.dtype)).view(np.uint8).reshape(*at.shape, size)
        for b in range(size):
            memory[at[inside] + b] = raw[inside][:, b]

    @staticmethod
    def _check(ref: Ref, at: Bits, size: int, memory: Bits) -> None:
        assert not at.size or (at.min() >= 0 and at.max() + size <= memory.size), f"outside of {ref}"

    def _vpu_run(self, op: TileOp) -> None:
        self.runs += 1
        kernel, counts, inner, streams = (cast(Any, op.args[k]) for k in ("kernel", "counts", "inner", "streams"))
        assert 1 <= len(counts) <= MAX_NEST
        assert len(streams) <= MAX_STREAMS
        assert len(cast(tuple[int, ...], op.args["scalars"])) == NSCALARS
        for ref in streams:
            assert ref.pattern.counts[:-2] == counts, (ref.pattern.counts, counts)
        if not kernel.prologue.ops and not kernel.epilogue.ops:
            self._section(kernel, kernel.body, streams, {}, ())  # independent iterations: all at once
            return
        split = len(counts) - inner
        for outer in np.ndindex(*counts[:split]):
            registers: dict[int, Bits] = {}
            first = (*outer, *(0,) * inner)
            self._section(kernel, kernel.prologue, streams, registers, first)
            for index in np.ndindex(*counts[split:]):
                self._section(kernel, kernel.body, streams, registers, (*outer, *index))
            self._section(kernel, kernel.epilogue, streams, registers, first)

    def _section(
        self,
        kernel: Kernel,
        section: Section,
        streams: tuple[Ref, ...],
        registers: dict[int, Bits],
        at: tuple[int, ...],
    ) -> None:
        def value(n: int) -> Bits:
            return np.asarray(np.uint32(kernel.constants[n - CONST0])) if n >= CONST0 else registers[n]

        for m in section.ops:
            if m.op in MICROOP_FUNCTIONS:
                args = np.broadcast_arrays(*[value(s) for s in m.srcs])
                registers[m.dst] = MICROOP_FUNCTIONS[m.op](*[np.ascontiguousarray(a) for a in args])
                continue
            ref = at_iteration(streams[m.imm % 16], at)
            if m.op == "ld":
                registers[m.dst] = self.load(ref)
            elif m.op == "st":
                self.store(ref, value(m.srcs[0]))
            elif m.op == "coord":
                registers[m.dst] = addresses(ref)[2][m.imm // 16].astype(np.int32).view(np.uint32)
            elif m.op == "inside":
                registers[m.dst] = addresses(ref)[1].astype(np.uint32)
            else:
                raise AssertionError(f"no such micro-operation: {m.op}")

    def _copy(self, op: TileOp) -> None:
        src, dst = cast(Ref, op.args["src"]), cast(Ref, op.args["dst"])
        self.store(dst, self.load(src).reshape(dst.pattern.counts))

    def _xlu_reduce(self, op: TileOp) -> None:
        src, dst = cast(Ref, op.args["src"]), cast(Ref, op.args["dst"])
        bits = self.load(src)
        width = 1 << (bits.shape[-1] - 1).bit_length()
        padding = np.full((*bits.shape[:-1], width - bits.shape[-1]), np.uint32(src.pattern.fill))
        bits = np.concatenate([bits, padding], axis=-1)
        while width > 1:
            width //= 2
            halves = (np.ascontiguousarray(half) for half in (bits[..., :width], bits[..., width:]))
            bits = MICROOP_FUNCTIONS[cast(str, op.args["function"])](*halves)
        self.store(dst, bits[..., 0].reshape(dst.pattern.counts))
