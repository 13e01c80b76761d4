"""Memory plan: an address in VMEM or SMEM for every buffer, from liveness over the regions.

Buffers that hold whole values are placed first, the largest ones first, at the top; tiles follow in program order, each
at the next free place after the one before it, so that consecutive tiles differ in address and transfers run ahead.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Collection, Generator, Iterable
from dataclasses import dataclass, field

from systolith.compiler.tile.ir import Block, Buf, If, TileOp
from systolith.isa.instruction import Space

MARGINS = (256, 32, 0)
"""Operations for which tiles keep away from the place of a value after its last use, if they can: what is loaded there
would wait for that use.
"""


LONG = 1024
"""A buffer that lives through so many operations is placed like a whole value: among tiles it would be in the way."""


ON_CHIP = (Space.VMEM, Space.SMEM)

END = sys.maxsize
"""A position after every operation."""


@dataclass
class Live:
    """A buffer's life: positions of its first and last use, both included."""

    buf: Buf
    first: int
    last: int


@dataclass
class MemoryPlan:
    """Result of planning.

    Attributes:
        address: byte address of every VMEM and SMEM buffer.
        high_water: bytes of VMEM used.
        failed: the buffer that found no place, if any.
        lives: lives of all buffers, for checks.
    """

    address: dict[Buf, int] = field(default_factory=dict)
    high_water: int = 0
    failed: Live | None = None
    lives: list[Live] = field(default_factory=list)

    def text(self) -> str:
        """A line a buffer: address, bytes, first and last use, where and what it is."""
        lines = [f"high water {self.high_water}"]
        lines += [
            f"{self.address[v.buf]:>10} {v.buf.bytes:>10} {v.first:>7} {v.last:>7} {v.buf.space.name} {v.buf.name}"
            for v in self.lives
        ]
        return "\n".join(lines) + "\n"


def lives(
    block: Block, spaces: Collection[Space] = ON_CHIP, before: Collection[Buf] = (), after: Collection[Buf] = ()
) -> list[Live]:
    """Lives of the buffers of some spaces, in order of first use.

    What is used both inside and outside a loop lives through the whole loop; what is used only inside is written there
    before it is read, in each iteration.

    Args:
        block: the program.
        spaces: of the buffers.
        before: buffers that hold something when it starts; they live from -1.
        after: buffers that are needed when it has ended; they live until `END`, and throughout if it never uses them.
    """
    found: dict[Buf, Live] = {b: Live(b, -1, -1) for b in before}
    loops: list[tuple[int, int]] = []
    for position, op in positions(block, loops):
        for buf in op.buffers:
            if buf.space in spaces:
                live = found.get(buf)
                if live is None:
                    found[buf] = Live(buf, position, position)
                else:
                    live.last = position
    for buf in after:
        found.setdefault(buf, Live(buf, -1, END)).last = END
    for start, end in sorted(loops, key=lambda s: s[1] - s[0]):
        for live in found.values():
            if live.first < start <= live.last < end or start <= live.first < end <= live.last:
                live.first, live.last = min(live.first, start), max(live.last, end - 1)
    return sorted(found.values(), key=lambda v: v.first)


def positions(block: Block, loops: list[tuple[int, int]], start: int = 0) -> Generator[tuple[int, TileOp], None, int]:
    """Operations with their positions in program order, where regions take one too; returns the end.

    Args:
        block: a program, or a region of it.
        loops: first position of each loop, and the one after its last, are added here.
        start: position of the first item.
    """
    at = start
    for item in block.items:
        if isinstance(item, TileOp):
            yield at, item
            at += 1
        elif isinstance(item, If):
            for branch in item.branches:
                at = yield from positions(branch, loops, at + 1)
        else:
            first = at
            at = yield from positions(item.condition, loops, at + 1)
            at = yield from positions(item.body, loops, at + 1)
            loops.append((first, at))
    return at


def plan_memory(block: Block, whole: Collection[Buf], vmem: int, smem: int, line: int) -> MemoryPlan:
    """Addresses for all buffers of `block`.

    Args:
        block: the program.
        whole: buffers that hold whole values.
        vmem, smem: sizes in bytes.
        line: VMEM addresses are multiples of it.
    """
    plan = MemoryPlan(lives=lives(block))
    in_vmem = [v for v in plan.lives if v.buf.space == Space.VMEM]
    values = {v.buf for v in in_vmem if v.buf in whole or v.last - v.first > LONG}
    placed = _Placed()
    by_size = sorted((v for v in in_vmem if v.buf in values), key=lambda v: (-v.buf.bytes, v.first, v.buf.name))
    for live in by_size:
        size = -(-live.buf.bytes // line) * line
        address = _highest(placed.during(live.first, live.last), size, vmem)
        if address is None:
            plan.failed = live
            return plan
        plan.address[live.buf] = address
        placed.add(live, address, address + size)
    if not _tiles(plan, [v for v in in_vmem if v.buf not in values], placed, vmem, line):
        return plan
    scalars = [v for v in plan.lives if v.buf.space == Space.SMEM]
    if not _tiles(plan, scalars, _Placed(), smem, 4):
        return plan
    ends = [plan.address[v.buf] + v.buf.bytes for v in in_vmem]
    starts = [plan.address[v.buf] for v in in_vmem]
    plan.high_water = _covered(starts, ends)
    return plan


class _Placed:
    """Places in memory and the times they are taken, found by time: segments of positions list who lives in them."""

    SPAN = 512

    def __init__(self) -> None:
        self._segments: dict[int, list[tuple[Live, int, int]]] = {}

    def add(self, live: Live, start: int, end: int) -> None:
        """Take the bytes from `start` to `end` for a life."""
        for segment in range(live.first // self.SPAN, live.last // self.SPAN + 1):
            self._segments.setdefault(segment, []).append((live, start, end))

    def during(self, first: int, last: int) -> set[tuple[int, int]]:
        """What is taken at some position from `first` to `last`."""
        segments = range(first // self.SPAN, last // self.SPAN + 1)
        lists = (self._segments.get(segment, ()) for segment in segments)
        return {(start, end) for each in lists for v, start, end in each if v.first <= last and first <= v.last}


def _highest(taken: Iterable[tuple[int, int]], size: int, limit: int) -> int | None:
    top = limit
    for start, end in sorted(taken, key=lambda t: -t[1]):
        if top - end >= size:
            return top - size
        top = min(top, start)
    return top - size if top >= size else None


def _tiles(plan: MemoryPlan, tiles: list[Live], placed: _Placed, limit: int, line: int) -> bool:
    """Place tiles in order of first use, each after the last one (around the end); false if one finds no place."""
    active: list[tuple[Live, int, int]] = []
    pointer = 0
    for live in tiles:
        size = -(-live.buf.bytes // line) * line
        active = [t for t in active if t[0].last >= live.first]
        step = max(line, live.buf.align)
        address = None
        for margin in MARGINS:
            taken = sorted([(a, e) for _, a, e in active] + [*placed.during(live.first - margin, live.last)])
            address = _next(taken, size, pointer, limit, step)
            if address is not None:
                break
        if address is None:
            plan.failed = live
            return False
        plan.address[live.buf] = address
        active.append((live, address, address + size))
        pointer = address + size
    return True


def _next(taken: list[tuple[int, int]], size: int, pointer: int, limit: int, step: int) -> int | None:
    """The first free place at or after `pointer`, else the first one of all."""
    for start in (pointer, 0):
        at = -(-start // step) * step
        for a, e in taken:
            if e <= at:
                continue
            if a - at >= size:
                break
            at = max(at, -(-e // step) * step)
        if at + size <= limit:
            return at
    return None


def _covered(starts: list[int], ends: list[int]) -> int:
    """Bytes that are used at some time."""
    total = reach = 0
    for start, end in sorted(zip(starts, ends, strict=True)):
        if end > reach:
            total += end - max(start, reach)
            reach = end
    return total


def value_at(lives_: list[Live], position: int) -> list[Live]:
    """Those alive at a position (`lives_` sorted by first use)."""
    upto = bisect_right([v.first for v in lives_], position)
    return [v for v in lives_[:upto] if v.last >= position]
