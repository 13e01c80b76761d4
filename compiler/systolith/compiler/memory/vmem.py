"""Memory plan: an address in VMEM or SMEM for every buffer, from liveness over the regions.

Buffers that hold whole values are placed first: small ones at the bottom, then the others, the largest ones first, at
the top.  Tiles follow in program order, each at the next free place after the one before it, so that consecutive tiles
differ in address and transfers run ahead.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import dataclass, field

from systolith.compiler.memory.liveness import Live, Liveness
from systolith.compiler.tile.ir import Block, Buf, If, TileOp
from systolith.isa.instruction import Space

MARGINS = (256, 32, 0)
"""Operations for which tiles keep away from the place of a value after its last use, if they can: what is loaded there
would wait for that use.
"""


LONG = 720
"""A buffer that lives through so many operations is placed like a whole value: among tiles it would be in the way.

With 512 and less, loops of 12 heads of attention over 2,048 positions wait for places; with 1,024, attention's gradient
does.
"""


SMALL = 64
"""A whole value of up to this part of VMEM lies at the bottom: a place below a large one, which does not live as long,
would divide the room of tiles.
"""


ROUNDS = 2
"""So often tiles without a place are placed before the others."""

LASTING = 64
"""A tile that lives through so many operations may be placed before the others, as loops' buffers are: consecutive
tiles of short lives would be in the same place, and wait for each other.
"""

ON_CHIP = (Space.VMEM, Space.SMEM)

END = sys.maxsize
"""A position after every operation."""


@dataclass
class MemoryPlan:
    """Result of planning.

    Attributes:
        address: byte address of every VMEM and SMEM buffer.
        high_water: bytes of VMEM used.
        failures: buffers that found no place.
        lives: lives of all buffers, for checks.
    """

    address: dict[Buf, int] = field(default_factory=dict)
    high_water: int = 0
    failures: list[Live[Buf]] = field(default_factory=list)
    lives: Liveness[Buf] = field(default_factory=Liveness)

    @property
    def failed(self) -> Live[Buf] | None:
        """The first buffer that found no place, if any."""
        return self.failures[0] if self.failures else None

    def fullest(self) -> list[int]:
        """Where memory is fullest in the life of each buffer that found no place, in order."""
        used = self.lives.usage(lambda buf: buf.bytes, max(self.lives.last.values(), default=0) + 1)
        return sorted({max(range(start, end + 1), key=used.__getitem__) for _, start, end in self.failures})

    def text(self) -> str:
        """A line a buffer: address, bytes, first and last use, where and what it is."""
        lines = [f"high water {self.high_water}"]
        lines += [
            f"{self.address[buf]:>10} {buf.bytes:>10} {first:>7} {last:>7} {buf.space.name} {buf.name}"
            for buf, first, last in self.lives
        ]
        return "\n".join(lines) + "\n"


def lives(
    block: Block, spaces: Collection[Space] = ON_CHIP, before: Collection[Buf] = (), after: Collection[Buf] = ()
) -> Liveness[Buf]:
    """Lives of the buffers of some spaces, in order of first use.

    A buffer used both inside and outside a loop lives through the whole loop; one used only inside is written there
    before it is read, in each iteration.

    Args:
        block: the program.
        spaces: of the buffers.
        before: buffers that hold something when it starts; they live from -1.
        after: buffers that are needed when it has ended; they live until `END`, and throughout if it never uses them.
    """
    found = Liveness(dict.fromkeys(before, -1), dict.fromkeys(before, -1))
    loops: list[tuple[int, int]] = []
    for position, op in positions(block, loops):
        for buf in op.buffers:
            if buf.space in spaces:
                found.use(buf, position)
    for buf in after:
        found.first.setdefault(buf, -1)
        found.last[buf] = END
    for start, end in sorted(loops, key=lambda s: s[1] - s[0]):
        for buf, first in found.first.items():
            last = found.last[buf]
            if first < start <= last < end or start <= first < end <= last:
                found.first[buf], found.last[buf] = min(first, start), max(last, end - 1)
    return found


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
        else:
            first = at
            for region in item.regions:
                at = yield from positions(region, loops, at + 1)
            if not isinstance(item, If):
                loops.append((first, at))
    return at


def plan_memory(block: Block, whole: Collection[Buf], vmem: int, smem: int, line: int) -> MemoryPlan:
    """Addresses for all buffers of `block`.

    Lasting tiles that find no place among the others, which may lie far apart, are placed before them.

    Args:
        block: the program.
        whole: buffers that hold whole values.
        vmem, smem: sizes in bytes.
        line: VMEM addresses are multiples of it, from the lowest and from the highest on.
    """
    vmem -= vmem % line
    found = lives(block)
    in_vmem = [v for v in found if v.value.space == Space.VMEM]
    first = {v.value for v in in_vmem if v.value in whole or v.last - v.first > LONG}
    small = {v.value for v in in_vmem if v.value in whole and v.value.bytes * SMALL <= vmem}
    plan = _with_first(first, small, found, in_vmem, vmem, line)
    for _ in range(ROUNDS):
        helped = {v.value for v in plan.failures if v.value.align <= line and v.last - v.first >= LASTING} - first
        if not helped:
            break
        first |= helped
        plan = _with_first(first, small, found, in_vmem, vmem, line)
    if plan.failures:
        return plan
    _tiles(plan, [v for v in found if v.value.space == Space.SMEM], _Placed(), smem, 4)
    ends = [plan.address[v.value] + v.value.bytes for v in in_vmem]
    starts = [plan.address[v.value] for v in in_vmem]
    plan.high_water = _covered(starts, ends)
    return plan


def _with_first(
    first: Collection[Buf],
    small: Collection[Buf],
    found: Liveness[Buf],
    in_vmem: Sequence[Live[Buf]],
    vmem: int,
    line: int,
) -> MemoryPlan:
    """Addresses in VMEM, of some buffers before the others, and of the small ones of these before all."""
    plan = MemoryPlan(lives=found)
    placed = _Placed()
    by_size = sorted((v for v in in_vmem if v.value in first), key=lambda v: (-v.value.bytes, v.first, v.value.name))
    for live in sorted(by_size, key=lambda v: v.value not in small):
        size = -(-live.value.bytes // line) * line
        taken = placed.during(live.first, live.last)
        low = live.value in small
        address = first_free(sorted(taken), size, 0, vmem, line) if low else _highest(taken, size, vmem)
        if address is None:
            plan.failures.append(live)
        else:
            plan.address[live.value] = address
            placed.add(live, address, address + size)
    _tiles(plan, [v for v in in_vmem if v.value not in first], placed, vmem, line)
    return plan


class _Placed:
    """Places in memory and the times they are taken, found by time: segments of positions list who lives in them."""

    SPAN = 512

    def __init__(self) -> None:
        self._segments: dict[int, list[tuple[Live[Buf], int, int]]] = {}

    def add(self, live: Live[Buf], start: int, end: int) -> None:
        """Take the bytes from `start` to `end` for a life."""
        for segment in range(live.first // self.SPAN, live.last // self.SPAN + 1):
            self._segments.setdefault(segment, []).append((live, start, end))

    def during(self, first: int, last: int) -> set[tuple[int, int]]:
        """Address intervals taken at some position from `first` to `last`."""
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


def _tiles(plan: MemoryPlan, tiles: list[Live[Buf]], placed: _Placed, limit: int, line: int) -> None:
    """Place tiles in order of first use, each after the last one (around the end)."""
    active: list[tuple[Live[Buf], int, int]] = []
    pointer = 0
    for live in tiles:
        size = -(-live.value.bytes // line) * line
        active = [t for t in active if t[0].last >= live.first]
        step = max(line, live.value.align)
        address = None
        for margin in MARGINS:
            taken = sorted([(a, e) for _, a, e in active] + [*placed.during(live.first - margin, live.last)])
            address = first_free(taken, size, pointer, limit, step)
            if address is not None:
                break
        if address is None:
            plan.failures.append(live)
            continue
        plan.address[live.value] = address
        active.append((live, address, address + size))
        pointer = address + size


def first_free(taken: Sequence[tuple[int, int]], size: int, pointer: int, limit: int, step: int = 1) -> int | None:
    """The first free place at or after `pointer`, else the first one of all; None: there is none.

    Args:
        taken: from where to where, in ascending order.
        size: of the place.
        pointer, limit: where to begin, and the end of the memory.
        step: places are multiples of it.
    """
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
