"""Repetitions in a program: how they differ, where their buffers can lie, and the loop that can be made of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from systolith.compiler.emit.assemble import line_bytes
from systolith.compiler.emit.linearize import pointers
from systolith.compiler.explain import Decision
from systolith.compiler.memory.liveness import Liveness
from systolith.compiler.memory.vmem import first_free
from systolith.compiler.schedule.operation_times import Progress, timed
from systolith.compiler.tile.ir import Block, Buf, Item, Loop, Ref, TileOp, VReg
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space

LEAST = 24
"""Operations that a loop must save: its scalar instructions take their place."""

SMALLEST = 1024
"""Operations of a group in which repetitions are looked for."""

LONGEST = 4096
"""Operations of a period that are looked for."""

LOOKED_AT = 4
"""Repetitions that are looked at to see how long buffers live: none that lives longer is worth a loop."""

MOST_PLACES = 16
"""Places in which the instances of a buffer take turns, at most."""

MOST_POINTERS = 12
"""Registers for addresses that the loops of a nest move, at most."""

MOST_MOVED = 4
"""Streams of an operation that move, at most: each address takes a scratch register."""


class Lives(Liveness[Buf]):
    """When operations run and buffers live: what becomes a loop runs in the order in which it was written out.

    Attributes:
        at: place of each operation in program order.
        whole: buffers that hold whole values, which stay where they are.
    """

    def __init__(self, block: Block, whole: frozenset[Buf]) -> None:
        super().__init__()
        self.whole = whole
        self.at: dict[TileOp, int] = {}
        for n, op in enumerate(block.ops()):
            self.at[op] = n
            for buf in op.buffers:
                self.use(buf, n)


class Places:
    """Where buffers lie in the memory of loops.

    Attributes:
        of: each buffer's memory, and the bytes from where that begins.
        memory: of every loop.
    """

    def __init__(self) -> None:
        self.of: dict[Buf, tuple[Buf, int]] = {}
        self.memory: list[Buf] = []

    def ref(self, ref: Ref) -> Ref:
        """A stream where it lies now."""
        if ref.buf not in self.of:
            return ref
        buf, offset = ref.buf, ref.offset
        while (place := self.of.get(buf)) is not None:
            buf, offset = place[0], offset + place[1]
        return replace(ref, buf=buf, offset=offset)


@dataclass(frozen=True)
class Form:
    """An item as it is compared with others.

    Attributes:
        key: equal for items that differ in buffers on the chip and in offsets at most; negative: like no other.
        refs: its streams, where they lie.
        size: instructions.
        item: it.
        at: place of its first operation.
        length: operations that it runs.
    """

    key: int
    refs: tuple[Ref, ...]
    size: int
    item: Item
    at: int
    length: int = 1


@dataclass(frozen=True)
class Rolled:
    """Items that are replaced by a loop.

    Attributes:
        first, end: the first of them, and the one after the last.
        loop: it.
        decision: why.
    """

    first: int
    end: int
    loop: Loop
    decision: Decision


class Repetition:
    """Repetitions of a period.

    Args:
        forms: all items.
        start: where the first repetition begins.
        end: after the last item that may belong to one.
        period: items.
        segment: places of operations between which there are no regions.
        lives: of operations and buffers.
        placed: buffers that lie in the memory of loops already, which others may have in common with this one.

    Attributes:
        count: repetitions that differ as a loop's iterations may.
        after: where others may begin: those that follow differ in another way.
        strides: of each item of a period: how far each repetition moves the offsets of its streams.
    """

    def __init__(
        self,
        forms: Sequence[Form],
        start: int,
        end: int,
        period: int,
        segment: range,
        lives: Lives,
        placed: Collection[Buf],
    ) -> None:
        self.forms, self.start, self.period, self.segment = forms, start, period, segment
        self.lives, self.placed = lives, placed
        self.strides: list[list[int]] = []
        self._next: dict[Buf, Buf] = {}
        self._before: set[Buf] = set()
        most = (end - start) // period
        self.count, self.after = most, end
        for n in range(1, most):
            unlike = self._unlike(n)
            if unlike is not None:
                self.count = n
                # Of the first two, what is before the items that are unlike cannot be of repetitions either.
                self.after = start + (unlike + 1 if n == 1 else (n - 1) * period)
                break

    def _unlike(self, n: int) -> int | None:
        """The first item of repetition n that does not follow the one before it; None: all do, and it is noted how."""
        added: dict[Buf, Buf] = {}
        at = self.start + n * self.period
        for x in range(self.period):
            strides = []
            for one, other in zip(self.forms[at - self.period + x].refs, self.forms[at + x].refs, strict=True):
                alike = one.buf is other.buf or one.offset == other.offset  # one of the two may change
                if not alike or not self._follows(one.buf, other.buf, added):
                    return x
                strides.append(other.offset - one.offset)
            if n > 1 and strides != self.strides[x]:
                return x
            if n == 1:
                self.strides.append(strides)
        self._next |= added
        self._before |= {*added.values()}
        return None

    def _follows(self, one: Buf | None, other: Buf | None, added: dict[Buf, Buf]) -> bool:
        """Whether a buffer may stand where another one stood a repetition before; notes it in `added`."""
        if one is None or other is None:
            return one is other
        known = self._next.get(one) or added.get(one)
        if known is not None:
            return known is other
        if one is not other:
            alike = (one.space, one.bytes, one.align) == (other.space, other.bytes, other.align)
            if not (alike and self._movable(one) and self._movable(other)) or self._leads(other, one, added):
                return False
        if other in self._before or other in added.values():
            return False
        added[one] = other
        return True

    def _leads(self, one: Buf, other: Buf, added: dict[Buf, Buf]) -> bool:
        """Whether a buffer follows another one some repetitions later: neither is the first, as they take turns."""
        after: Buf | None = one
        while after is not None and after is not other:
            following = self._next.get(after) or added.get(after)
            after = following if following is not after else None
        return after is other

    def _movable(self, buf: Buf) -> bool:
        inside = self.segment.start <= self.lives.first[buf] and self.lives.last[buf] < self.segment.stop
        stays = buf in self.lives.whole or buf in self.placed
        return inside and buf.space is Space.VMEM and not stays

    # The loop.

    def loop(
        self,
        variables: Iterator[int],
        places: Places,
        room: int,
        spare: int,
        chip: Chip,
        wanted: dict[Hashable, int],
    ) -> Rolled | None:
        """A loop in the place of most repetitions; None: it saves too little, or its buffers do not fit in `room`.

        Args:
            variables: numbers of induction variables to come.
            places: gets those of its buffers.
            room: bytes of VMEM.
            spare: places for each buffer more than it takes by estimate.
            chip: the target.
            wanted: places that the buffers of other repetitions took by estimate; gets those of this one.
        """
        chains = self._chains()
        least = max((self._alive(chain) for chain in chains), default=1)
        if not self._saved(least):
            return None
        turns = max(least, self._once(chip, wanted) + spare if chains else 1)
        saved = self._saved(turns)
        if not saved or turns > MOST_PLACES:
            return None
        layout = _Layout(chains, turns, self.lives, line_bytes(chip))
        if layout.apart(room) or layout.shared(room, self._trace(turns)):
            return self._made(variables, turns, saved, layout, places)
        return None

    def _chains(self) -> list[list[Buf]]:
        """Buffers that follow one another, each chain from its first."""
        found = []
        for first, after in self._next.items():
            if after is first or first in self._before:
                continue
            chain = [first]
            while (buf := self._next.get(chain[-1])) is not None:
                chain.append(buf)
            found.append(chain)
        return found

    def _alive(self, chain: Sequence[Buf]) -> int:
        """So many instances of a buffer are alive at a time, at most."""
        many = 1
        first, last = self.lives.first, self.lives.last
        while any(last[one] >= first[other] for one, other in zip(chain, chain[many:], strict=False)):
            many += 1
        return many

    def _once(self, chip: Chip, wanted: dict[Hashable, int]) -> int:
        """Places that are wanted: those of repetitions that are alike, if there were some."""
        alike = self._alike()
        if alike not in wanted:
            wanted[alike] = self._wanted(chip)
        return wanted[alike]

    def _alike(self) -> Hashable:
        """Equal for repetitions whose first ones do the same to buffers that take turns in the same way."""
        forms = self.forms[self.start : self.start + LOOKED_AT * self.period]
        numbers: dict[Buf | None, int] = {}
        bufs = tuple(numbers.setdefault(ref.buf, len(numbers)) for f in forms for ref in f.refs)
        return self.period, tuple(f.key for f in forms), bufs

    def _wanted(self, chip: Chip) -> int:
        """Places for the instances of a buffer so that no unit waits for one: as many repetitions as pass, at the pace
        of the busiest unit, from when it begins to be written until it has been read.
        """
        items = [f.item for f in self.forms[self.start : self.start + LOOKED_AT * self.period]]
        if any(isinstance(item, Loop) for item in items):
            return 1
        (stage,) = timed([items], chip)
        progress = Progress()
        work: dict[str, int] = defaultdict(int)
        latency: dict[object, int] = {}
        read: dict[object, tuple[int, int]] = {}
        for op in stage.ops:
            start = progress.start(op)
            done = progress.run(op, start)
            latency |= dict.fromkeys(op.writes, op.cost.latency)
            read |= {r: (read.get(r, (start, 0))[0], done) for r in op.reads}
            work["hbm" if op.cost.chunks else op.queue] += op.cost.occupancy
        chained = {buf for one, other in self._next.items() if one is not other for buf in (one, other)}
        own = [b for b in read if b in latency and b in chained]
        longest = max((latency[b] + read[b][1] - read[b][0] for b in own), default=0)
        return -(-longest * LOOKED_AT // max(1, *work.values()))

    def _saved(self, turns: int) -> int:
        """Instructions that a loop of so many repetitions an iteration saves; 0: too few."""
        size = sum(f.size for f in self.forms[self.start : self.start + self.period]) * turns
        saved = (self.count // turns - 2) * size
        return saved if saved >= LEAST else 0

    def _trace(self, turns: int) -> range:
        """Places of the operations of the first iteration."""
        first = self.start + turns * self.period
        body = self.forms[first : first + turns * self.period]
        return range(body[0].at, body[0].at + sum(f.length for f in body))

    def _made(self, variables: Iterator[int], turns: int, saved: int, layout: _Layout, places: Places) -> Rolled | None:
        body, var = turns * self.period, VReg(next(variables))
        first, count = self.start + body, self.count // turns - 1
        moved = Block([self._moved(first + x, turns, var) for x in range(body)])
        group = next(moved.ops()).origin.group
        loop = Loop(var, count, moved, group)
        if any(sum(bool(ref.moves) for ref in op.refs) > MOST_MOVED for op in moved.ops()):
            return None
        if pointers(loop) > MOST_POINTERS:
            return None
        lying = layout.places(group)
        places.of |= lying
        places.memory += dict.fromkeys(memory for memory, _ in lying.values())
        what = f"{count:,} iterations of {body:,} operations"
        why = f"{turns} places for each buffer" if turns > 1 else ""
        decision = Decision("repeat", group, what, why, {"operations saved": saved})
        return Rolled(first, first + count * body, loop, decision)

    def _moved(self, n: int, turns: int, var: VReg) -> Item:
        """An item of the body, whose offsets move with the loop."""
        strides = iter(self.strides[(n - self.start) % self.period])

        def move(ref: Ref) -> Ref:
            stride = next(strides) * turns
            return replace(ref, moves=((var, stride), *ref.moves)) if stride else ref

        return changed(self.forms[n].item, move, self._copied)

    def _copied(self, op: TileOp, copy: TileOp) -> None:
        self.lives.at[copy] = self.lives.at[op]


class _Layout:
    """Where the buffers of a loop lie in its memory.

    Args:
        chains: buffers that follow one another.
        turns: instances of a buffer that have places of their own.
        lives: when they live.
        line: places are multiples of it.
    """

    def __init__(self, chains: Sequence[Sequence[Buf]], turns: int, lives: Lives, line: int) -> None:
        self._chains, self._turns, self._lives = chains, turns, lives
        self._align = max((chain[0].align for chain in chains), default=line)
        self._align = -(-self._align // line) * line
        self._sizes = [-(-chain[0].bytes // self._align) * self._align for chain in chains]
        self._offsets: list[list[int]] = []

    def apart(self, room: int) -> bool:
        """Give every instance memory of its own, if there is room for that."""
        starts = np.cumsum([0, *(size for size in self._sizes for _ in range(self._turns))]).tolist()
        self._offsets = [starts[n * self._turns : (n + 1) * self._turns] for n in range(len(self._chains))]
        return bool(starts[-1] <= room)

    def shared(self, room: int, iteration: range) -> bool:
        """Let instances share memory that do not live at the same time, each next to the one before it."""
        around = len(iteration)
        arcs = []
        for c, chain in enumerate(self._chains):
            for turn in range(self._turns):
                buf = next(
                    (b for b in chain[turn :: self._turns] if self._lives.first[b] >= iteration.start), chain[turn]
                )
                first, last = self._lives.first[buf], self._lives.last[buf]
                if last - first >= around:
                    return False
                arcs.append(((first - iteration.start) % around, last - first + 1, c, turn))
        self._offsets = [[0] * self._turns for _ in self._chains]
        placed: list[tuple[int, int, int, int]] = []
        pointer = 0
        for start, length, c, turn in sorted(arcs):
            taken = sorted(
                (at, end) for s, n, at, end in placed if (s - start) % around < length or (start - s) % around < n
            )
            at = first_free(taken, self._sizes[c], pointer, room)
            if at is None:
                return False
            self._offsets[c][turn] = at
            pointer = at + self._sizes[c]
            placed.append((start, length, at, pointer))
        return self._never_twice()

    def _never_twice(self) -> bool:
        """Whether no two instances that live at the same time share memory."""
        spans = sorted(
            (
                self._lives.first[buf],
                self._lives.last[buf],
                at := self._offsets[c][n % self._turns],
                at + self._sizes[c],
            )
            for c, chain in enumerate(self._chains)
            for n, buf in enumerate(chain)
        )
        active: list[tuple[int, int, int, int]] = []
        for span in spans:
            active = [a for a in active if a[1] >= span[0]]
            if any(a[2] < span[3] and span[2] < a[3] for a in active):
                return False
            active.append(span)
        return True

    def places(self, name: str) -> dict[Buf, tuple[Buf, int]]:
        """The place of each buffer, in a new one for all."""
        if not self._chains:
            return {}
        size = max(at + size for row, size in zip(self._offsets, self._sizes, strict=True) for at in row)
        memory = Buf(f"{name}~loop{self._lives.first[self._chains[0][0]]}", Space.VMEM, size, self._align)
        bufs = [buf for chain in self._chains for buf in chain]
        self._lives.first[memory] = min(map(self._lives.first.__getitem__, bufs))
        self._lives.last[memory] = max(map(self._lives.last.__getitem__, bufs))
        return {
            buf: (memory, self._offsets[c][n % self._turns])
            for c, chain in enumerate(self._chains)
            for n, buf in enumerate(chain)
        }


def changed(item: Item, change: Callable[[Ref], Ref], note: Callable[[TileOp, TileOp], None]) -> Item:
    """An item with other streams; `note` is told of each operation that is replaced."""
    if isinstance(item, TileOp):
        made = item.with_refs(change)
        note(item, made)
        return made
    return item.with_regions([Block([changed(i, change, note) for i in region.items]) for region in item.regions])


def moved_to(block: Block, places: Places, now: dict[TileOp, TileOp]) -> Block:
    """The block with every buffer in its place; `now` gets what has become of each operation."""

    def moved(item: Item) -> Item:
        if isinstance(item, TileOp) and not any(buf in places.of for buf in item.buffers):
            return item
        return changed(item, places.ref, now.__setitem__)

    return Block([*map(moved, block.items)])
