"""Memory plan: an address in VMEM or SMEM for every buffer, from liveness over the regions.

Buffers that hold whole values are placed first: small ones at the bottom, then the others, the largest ones first, at
the top.  Tiles follow in program order, each at the next free place after the one before it, so that consecutive tiles
differ in address and transfers run ahead.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

from systolith.compiler.memory.liveness import Live, Liveness
from systolith.compiler.tile.ir import Block, Buf, If, Loop, TileOp
from systolith.isa.instruction import Space

MARGINS = (256, 32, 0)
"""Operations for which tiles keep away from the place of a value after its last use, if they can: what is loaded there
would wait for that use.
"""


LONG = 720
"""A buffer that lives through so many operations is placed like a whole value: among tiles it would be in the way.

With 512 and less, loops of 12 heads of attention over 2,048 positions wait for places; with 1,024, attention's gradient
and a layer of BERT over 2,048 positions are what they are with 720.
"""


SMALL = 64
"""A whole value of up to this part of VMEM lies at the bottom: a place below a large one, which does not live as long,
would divide the room of tiles.
"""


ROUNDS = 3
"""So often tiles without a place are placed before the others; the last time, all that are as large and as lasting."""

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

    A buffer used both inside and outside a loop lives through the whole loop, and so does what the loop holds; another
    one used only inside is written there before it is read, in each iteration.

    Args:
        block: the program.
        spaces: of the buffers.
        before: buffers that hold something when it starts; they live from -1.
        after: buffers that are needed when it has ended; they live until `END`, and throughout if it never uses them.
    """
    found = Liveness(dict.fromkeys(before, -1), dict.fromkeys(before, -1))
    loops: list[LoopSpan] = []
    for position, op in positions(block, loops):
        for buf in op.buffers:
            if buf.space in spaces:
                found.use(buf, position)
    for span in loops:
        for buf in span.held:
            if buf in found.first:
                found.first[buf] = min(found.first[buf], span.start)
                found.last[buf] = max(found.last[buf], span.end - 1)
    for buf in after:
        found.first.setdefault(buf, -1)
        found.last[buf] = END
    around = _Loops((span.start, span.end) for span in loops)
    for buf, first in found.first.items():
        last = found.last[buf]
        if (loop := around.outermost(first, last)) is not None:
            found.first[buf] = loop[0]
        if (loop := around.outermost(last, first)) is not None:
            found.last[buf] = loop[1] - 1
    return found


class _Loops:
    """Loops, which nest, found by a position in them.

    Args:
        spans: of each the first position, and the one after its last.
    """

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._spans = sorted(spans, key=lambda s: (s[0], -s[1]))
        self._starts = [start for start, _ in self._spans]
        self._parents: list[int] = []
        inside: list[int] = []
        for n, (start, _) in enumerate(self._spans):
            while inside and self._spans[inside[-1]][1] <= start:
                inside.pop()
            self._parents.append(inside[-1] if inside else -1)
            inside.append(n)

    def outermost(self, position: int, other: int) -> tuple[int, int] | None:
        """The outermost of the loops that a position is in and another one is not."""
        found = None
        n = bisect_right(self._starts, position) - 1
        while n >= 0:
            start, end = self._spans[n]
            if start <= other < end:
                break
            if position < end:
                found = start, end
            n = self._parents[n]
        return found


class LoopSpan(NamedTuple):
    """The first position of a loop, the one after its last, and buffers that live in all of it."""

    start: int
    end: int
    held: tuple[Buf, ...]


def positions(block: Block, loops: list[LoopSpan], start: int = 0) -> Generator[tuple[int, TileOp], None, int]:
    """Operations with their positions in program order, where regions take one too; returns the end.

    Args:
        block: a program, or a region of it.
        loops: those of the block are added here.
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
                loops.append(LoopSpan(first, at, item.held if isinstance(item, Loop) else ()))
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
    tried = [_with_first(first, small, found, in_vmem, vmem, line)]
    for rounds in range(ROUNDS):
        failed = [v for v in tried[-1].failures if v.last - v.first >= LASTING]
        if failed and rounds == ROUNDS - 1:  # and those like them, which take each other's room
            least = min(v.value.bytes for v in failed)
            failed = [v for v in in_vmem if v.value.bytes >= least and v.last - v.first >= LASTING]
        helped = {v.value for v in failed if v.value.align <= line} - first
        if not helped:
            break
        first |= helped
        tried.append(_with_first(first, small, found, in_vmem, vmem, line))
    plan = min(tried, key=lambda p: len(p.failures))
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
    """Places in memory and the times they are taken, found by time.

    Segments of positions list who lives in them.  They are the longer, the longer those live: a life is in two of them
    at most, so that looking for those of a long time takes no longer than there are.
    """

    SPAN = 9  # 512 positions

    def __init__(self) -> None:
        self._levels: dict[int, defaultdict[int, list[tuple[int, int, int, int]]]] = {}
        self._all: list[tuple[int, int, int, int]] = []

    def add(self, live: Live[Buf], start: int, end: int) -> None:
        """Take the bytes from `start` to `end` for a life."""
        entry = live.first, live.last, start, end
        shift = max(self.SPAN, (live.last - live.first).bit_length())
        segments = self._levels.setdefault(shift, defaultdict(list))
        for segment in range(live.first >> shift, (live.last >> shift) + 1):
            segments[segment].append(entry)
        self._all.append(entry)

    def during(self, first: int, last: int) -> set[tuple[int, int]]:
        """Address intervals taken at some position from `first` to `last`."""
        found = set[tuple[int, int]]()
        for shift, segments in self._levels.items():
            for segment in range(first >> shift, (last >> shift) + 1):
                if segment in segments:
                    found.update((a, e) for f, t, a, e in segments[segment] if f <= last and first <= t)
        return found

    def sweep(self, margin: int) -> _Sweep:
        """The same for times that begin one after another."""
        return _Sweep(sorted(self._all), margin)


Place = tuple[int, int, int, int]
"""Where something begins and ends in memory, and its first and last position."""


class _Sweep:
    """Places that are taken, by address, looked at from one time to the next.

    Args:
        entries: from which to which position a place is taken, and its addresses; in their order.
        margin: positions after its last one for which a place is remembered.
    """

    def __init__(self, entries: Sequence[tuple[int, int, int, int]], margin: int) -> None:
        self._entries, self._margin, self._begun = entries, margin, 0
        self._places: list[Place] = []
        self._ends: list[tuple[int, Place]] = []

    def take(self, place: Place, margin: int = 0) -> None:
        """Remember a place until so many positions after its last one."""
        insort(self._places, place)
        heappush(self._ends, (place[3] + margin, place))

    def advance(self, first: int, last: int) -> None:
        """Go on to what lives from `first`, which never decreases, to `last`."""
        entries = self._entries
        while self._begun < len(entries) and entries[self._begun][0] <= last:
            begin, end, start, stop = entries[self._begun]
            self.take((start, stop, begin, end), self._margin)
            self._begun += 1
        while self._ends and self._ends[0][0] < first:
            _, place = heappop(self._ends)
            del self._places[bisect_left(self._places, place)]

    def free(self, size: int, since: int, until: int, pointer: int, limit: int, step: int) -> int | None:
        """The first place of a size, a multiple of `step`, that is free from one position to another: at or after
        `pointer`, else the first one of all; None: there is none.
        """
        places = self._places
        for start in (pointer, 0):
            first = bisect_left(places, (start,))
            reach = max((e for _, e, f, t in places[:first] if e > start and f <= until and t >= since), default=start)
            behind = ((a, e) for a, e, f, t in islice(places, first, None) if f <= until and t >= since)
            at = _free_from(reach, behind, size, step)
            if at + size <= limit:
                return at
        return None


def _highest(taken: Iterable[tuple[int, int]], size: int, limit: int) -> int | None:
    top = limit
    for start, end in sorted(taken, key=lambda t: -t[1]):
        if top - end >= size:
            return top - size
        top = min(top, start)
    return top - size if top >= size else None


def _tiles(plan: MemoryPlan, tiles: list[Live[Buf]], placed: _Placed, limit: int, line: int) -> None:
    """Place tiles in order of first use, each after the last one (around the end)."""
    taken = placed.sweep(MARGINS[0])
    pointer = 0
    for live in tiles:
        size = -(-live.value.bytes // line) * line
        taken.advance(live.first, live.last)
        step = max(line, live.value.align)
        found = (taken.free(size, live.first - margin, live.last, pointer, limit, step) for margin in MARGINS)
        address = next((at for at in found if at is not None), None)
        if address is None:
            plan.failures.append(live)
            continue
        plan.address[live.value] = address
        pointer = address + size
        taken.take((address, pointer, live.first, live.last))


def first_free(taken: Sequence[tuple[int, int]], size: int, pointer: int, limit: int, step: int = 1) -> int | None:
    """The first free place at or after `pointer`, else the first one of all; None: there is none.

    Args:
        taken: from where to where, in ascending order.
        size: of the place.
        pointer, limit: where to begin, and the end of the memory.
        step: places are multiples of it.
    """
    for start in (pointer, 0):
        at = _free_from(start, taken, size, step)
        if at + size <= limit:
            return at
    return None


def _free_from(at: int, taken: Iterable[tuple[int, int]], size: int, step: int) -> int:
    """The first free place at or after `at`, arguments as for `first_free`; behind all that is taken there is room."""
    at = -(-at // step) * step
    for a, e in taken:
        if e > at:
            if a - at >= size:
                break
            at = max(at, -(-e // step) * step)
    return at


def _covered(starts: list[int], ends: list[int]) -> int:
    """Bytes that are used at some time."""
    total = reach = 0
    for start, end in sorted(zip(starts, ends, strict=True)):
        if end > reach:
            total += end - max(start, reach)
            reach = end
    return total
