"""Random copies between all memories, one after the other, and the simulator's results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from systolith.hw.fuzz.draw import Draw
from systolith.hw.fuzz.patterns import INDEX_RANGE, loops_of, random_pattern
from systolith.hw.patterns import pattern_entry
from systolith.isa.chip import Chip
from systolith.isa.dtypes import DTYPES, DType
from systolith.isa.encode import encode_instruction
from systolith.isa.instruction import Instruction, Space, Stream
from systolith.isa.pattern import Pattern
from systolith.isa.program import BufferDecl, Program, Role
from systolith.isa.timing import Cost, cost
from systolith.sim.memory import Machine
from systolith.sim.values import EXECUTE

BYTES = 4096
"""Of each memory, and of each host queue."""

BUFFER_BYTES = 2048
"""Of each of the two HBM buffers."""

LENGTH = 8
"""Instructions in a list."""

LIST_BYTES = 256
"""At the start of VMEM: index lists, which nothing writes."""

MEMORIES = ("HBM", "VMEM", "SMEM", "link 0", "link 1")

_HALF = (BYTES - LIST_BYTES) // 2
_HOST_BYTES = 500  # most that a copy takes from a host queue or gives to one
_SOURCES = {"dma.load": (Space.HBM, Space.HOST, Space.SMEM, Space.VMEM), "dma.store": (Space.VMEM, Space.SMEM)}
_TARGETS = {
    "dma.load": (Space.VMEM, Space.SMEM),
    "dma.store": (Space.HBM, Space.HOST, Space.LINK, Space.VMEM, Space.SMEM),
}

Bytes = NDArray[np.uint8]


def bench_chip(chip: Chip) -> Chip:
    """The chip with memories as small as the bench's."""
    host, link = replace(chip.host, queues=2), replace(chip.link, count=2)
    vmem, smem = replace(chip.vmem, bytes=BYTES), replace(chip.smem, bytes=BYTES)
    return replace(chip, vmem=vmem, smem=smem, host=host, link=link)


class Streams:
    """Random streams for the instructions of a program; the same seed gives the same ones."""

    def __init__(self, name: str, seed: int) -> None:
        self.draw = Draw(seed)
        buffers = [BufferDecl(f"b{n}", Role.TEMP, "u8", (BUFFER_BYTES,), BUFFER_BYTES) for n in range(2)]
        self.program = Program(f"{name} {seed}", "", "", buffers=buffers)

    def make(self, space: Space, half: int, dtype: DType, counts: tuple[int, ...]) -> Stream:
        """A stream that stays in a half of a memory, or wherever nothing else is."""
        draw = self.draw
        first, room = {
            Space.VMEM: (LIST_BYTES + half * _HALF, _HALF),
            Space.SMEM: (half * BYTES // 2, BYTES // 2),
        }.get(space, (0, BUFFER_BYTES))
        bias = draw.between(-3, 3), draw.between(-3, 3)
        pattern, (lo, hi) = self._pattern(dtype, counts, room, bias)
        self.program.patterns.append(pattern)
        base = first - lo + draw.below(room - (hi - lo) + 1)
        if draw.chance(0.5) and base - base % dtype.size >= first - lo:
            base -= base % dtype.size
        listed = pattern.counts[pattern.indirect] if pattern.indirect >= 0 else 0
        index = 4 * draw.below(LIST_BYTES // 4 - listed + 1)
        return Stream(space, len(self.program.patterns) - 1, base, draw.below(2), bias, index)

    def _pattern(
        self, dtype: DType, counts: tuple[int, ...], room: int, bias: tuple[int, int]
    ) -> tuple[Pattern, tuple[int, int]]:
        while True:
            biases = (bias[0],), (bias[1],)
            pattern, span = random_pattern(self.draw, dtype, counts, room, biases, indirect=True)
            if pattern.indirect < 0 or 4 * counts[pattern.indirect] <= LIST_BYTES:
                return pattern, span

    def type_of(self, size: int) -> DType:
        return self.draw.pick([t for t in DTYPES.values() if t.size == size])

    def elements(self) -> int:
        return self.draw.between(1, self.draw.weighted((8, 64, 400), (2, 5, 3)))


def random_copy(streams: Streams) -> Instruction:
    """A `dma.load` or `dma.store` between any memories."""
    draw = streams.draw
    op = draw.pick(("dma.load", "dma.store"))
    spaces = draw.pick(_SOURCES[op]), draw.pick(_TARGETS[op])
    size, half, elements = draw.pick((1, 2, 4)), draw.below(2), streams.elements()
    if Space.HOST in spaces:
        elements = min(elements, _HOST_BYTES // size)
    src, dst = (
        streams.make(space, half ^ side, streams.type_of(size), loops_of(draw, elements))
        for side, space in enumerate(spaces)
    )
    return Instruction(op, {"src": src, "dst": dst})


@dataclass(frozen=True)
class Case:
    """A list of instructions, and the memories before and after them.

    Attributes:
        name: for messages.
        program: code and patterns.
        costs: of each instruction.
        gaps: cycles that the bench waits before each.
        before, after: bytes of the memories, as in `MEMORIES`.
        infeed: bytes of the host queues.
        outfeed: the values that they gave to host queues.
    """

    name: str
    program: Program
    costs: tuple[Cost, ...]
    gaps: tuple[int, ...]
    before: Bytes
    after: Bytes
    infeed: Bytes
    outfeed: tuple[bytes, ...]

    def words(self, most: int) -> list[int]:
        """The instructions' words, each padded to `most`."""
        coded = [encode_instruction(i) for i in self.program.code]
        return [w for words in coded for w in (*words, *[0] * (most - len(words)))]

    def patterns(self) -> list[int]:
        """Two entries of the pattern table for each instruction."""
        streams = [cast(Stream, i.args[name]) for i in self.program.code for name in ("src", "dst")]
        return [pattern_entry(self.program.patterns[s.pattern]) for s in streams]


def _machine(program: Program, chip: Chip, images: Bytes, infeed: Bytes) -> tuple[Machine, list[Bytes]]:
    """A machine with these contents, and its memories as in `MEMORIES` (HBM: each buffer)."""
    machine = Machine(program, chip, {})
    empty = Program("remote", "", "")
    machine.links = {n: Machine(empty, chip, {}) for n in range(2)}
    memories = [*machine.buffers, machine.vmem, machine.smem, *(machine.links[n].vmem for n in range(2))]
    for memory, image in zip(memories, _parts(images), strict=True):
        memory[:] = image
    for queue, data in zip(machine.infeed, infeed, strict=True):
        queue.push(data)
    return machine, memories


def _parts(images: Bytes) -> list[Bytes]:
    return [images[0, :BUFFER_BYTES], images[0, BUFFER_BYTES:], *images[1:]]


def finish(streams: Streams, chip: Chip) -> Case:
    """The instructions of the streams' program on random data, executed by the simulator."""
    program, draw = streams.program, streams.draw
    before = draw.data(len(MEMORIES) * BYTES).reshape(-1, BYTES).copy()
    lists = draw.generator.integers(INDEX_RANGE[0], INDEX_RANGE[1] + 1, LIST_BYTES // 4, np.int32)
    before[1, :LIST_BYTES] = lists.view(np.uint8)
    infeed = draw.data(2 * BYTES).reshape(2, BYTES)
    machine, memories = _machine(program, chip, before, infeed)
    for at, instr in enumerate(program.code):
        machine.at = at
        with np.errstate(all="ignore"):
            EXECUTE[instr.op](machine, instr)
    after = np.concatenate(memories).reshape(-1, BYTES)
    costs = tuple(cost(i, program, chip) for i in program.code)
    gaps = tuple(draw.weighted((0, draw.below(40)), (2, 1)) for _ in costs)
    outfeed = tuple(queue.contents().tobytes() for queue in machine.outfeed)
    return Case(program.name, program, costs, gaps, before, after, infeed, outfeed)


def copies(chip: Chip, seed: int) -> Case:
    """A list of random copies."""
    streams = Streams("copies", seed)
    streams.program.code = [random_copy(streams) for _ in range(LENGTH)]
    return finish(streams, chip)
