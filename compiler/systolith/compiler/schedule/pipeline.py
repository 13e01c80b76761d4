"""One order for the operations of blocks that do not depend on one another: list scheduling.

Within a block operations keep their order; of those that may come next, the one that can start first does, the earliest
block's where several can.  Three rules make every such order right:

- A stage of a block comes after the same stage of the block before, so that what is made once for all is there.
- No product begins while another's operations on the same matrix unit are to come: weights are state of the units.
- Nor one that would sum into accumulators from which an earlier one's results are still to come.

An operation waits for its unit and for what wrote its operands.  Loads wait for their queue only;
`schedule/prefetch.py` moves them ahead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, product

from systolith.compiler.memory.liveness import Liveness
from systolith.compiler.schedule.operation_times import NO_LIMIT, Progress, Rows, Stage, Timed
from systolith.compiler.schedule.shared_places import Use, own_buffers
from systolith.compiler.tile.ir import Buf
from systolith.isa.instruction import Space

FEW = 16
"""Blocks of which no loop is made."""

LOOKED_AT = 24
"""Blocks of which the plans of a block are tried."""

PACES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5)
"""How far apart plans let blocks begin, as a ratio of how far apart they are in an order that does not repeat."""

ALIKE = 1.02
"""Cycles, as a ratio, that count as equal: then the order that makes the shorter loops is taken."""

PLACES = (1, 2, 0)
"""Places on which the buffers of blocks may take turns, 0 for as many as they have: in fewer ones loops are shorter."""


@dataclass
class Order:
    """Result.

    Attributes:
        ops: all operations, each with the number of its block.
        cycles: that they take.
        done: when each block is.
        places: so many places are enough for each buffer of the blocks; 0: they are not.
    """

    ops: list[tuple[int, Timed]] = field(default_factory=list)
    cycles: int = 0
    done: dict[int, int] = field(default_factory=dict)
    places: int = 0

    def peak(self, outside: Collection[Buf]) -> int:
        """Bytes of VMEM that the blocks' buffers take at a time; those outside are not theirs."""
        lives = Liveness[Buf]()
        for position, (_, op) in enumerate(self.ops):
            for buf in (*op.reads, *op.writes):
                if isinstance(buf, Buf) and buf.space is Space.VMEM and buf not in outside:
                    lives.use(buf, position)
        return max(lives.usage(lambda buf: buf.bytes, len(self.ops)), default=0)

    @property
    def busiest(self) -> int:
        """Cycles in which the unit is busy that has most to do."""
        busy = Counter[str]()
        for _, op in self.ops:
            busy[op.queue] += op.cost.occupancy
        return max(busy.values(), default=0)

    def append(self, block: int, op: Timed, progress: Progress, after: int = 0) -> tuple[int, int]:
        """Let an operation of a block come next, not before a time; when it starts, and when it is done."""
        start = max(progress.start(op, block), after)
        done = progress.run(op, start, block)
        self.cycles = max(self.cycles, done)
        self.done[block] = max(self.done.get(block, 0), done)
        self.ops.append((block, op))
        return start, done


def interleave(blocks: Sequence[Sequence[Stage]], most: int, depth: int = NO_LIMIT) -> Order:
    """Put the operations of blocks in one order, in which at most so many are begun and not done.

    `depth`: operations that a queue holds in front of its unit.
    """
    order = Order()
    blocks = [block for block in blocks if block]
    line, progress = _Line(blocks, most), Progress(depth)
    while choices := [(progress.start(op, b), b, op) for b, _, _, op in line.next()]:
        _, b, op = min(choices, key=lambda c: c[:2])
        order.append(b, op, progress)
        line.advance(b)
    return order


# An order that repeats.


@dataclass(frozen=True)
class _Plan:
    """When operations are wanted.

    Attributes:
        turns: of as many blocks as differ, the second one first, when each operation of each stage is wanted.
        pace: cycles from one such turn to the next.
    """

    turns: Sequence[Sequence[Sequence[int]]]
    pace: float

    def wanted(self, block: int, stage: int, place: int) -> float:
        """When an operation is; one that the planned block does not have, as one of fewer rows may, at once."""
        turn, n = divmod(block - 1, len(self.turns))
        times = self.turns[n][stage] if stage < len(self.turns[n]) else ()
        return turn * self.pace + (times[min(place, len(times) - 1)] if times else 0)


def periodic(blocks: Sequence[Sequence[Stage]], most: int, order: Order, depth: int = NO_LIMIT) -> Order:
    """An order that repeats from block to block, so that loops can be made of it; `order` where it takes longer.

    Blocks have the same plan, that of one which runs alone, and begin at the pace that they have in `order` or faster
    (modulo scheduling): of the operations that may come next, the one comes that is wanted first.  Where they take
    turns with matrix units, two have the plan of two that run alone.

    Args:
        blocks, most, depth: as for `interleave`.
        order: that `interleave` gives.
    """
    if len(blocks) < FEW:
        return order
    turns = 1 if _units(blocks[1]) == _units(blocks[2]) else 2
    starts = _starts(interleave(blocks[1 : 1 + turns], turns, depth), blocks[1 : 1 + turns], depth)
    alone = max(times[-1] for turn in starts for times in turn if times)
    pace = turns * max((order.cycles - alone) / (len(blocks) - turns), 1)
    plans = [_Plan(starts, pace * ratio) for ratio in PACES]
    first, last = blocks[:LOOKED_AT], dict(sorted(own_buffers(blocks).values()))
    ways = [(plan, _Places(last, number)) for number in PLACES for plan in plans]
    tried = [(*way, _planned(first, most, *way, depth).cycles) for way in ways]
    alike = min(cycles for *_, cycles in tried) * ALIKE
    plan, places, _ = next(each for each in tried if each[2] <= alike)
    found = _planned(blocks, most, plan, places, depth)
    return found if found.cycles <= order.cycles * ALIKE else order


def _units(block: Sequence[Stage]) -> list[frozenset[int]]:
    return [stage.units for stage in block]


def _starts(order: Order, blocks: Sequence[Sequence[Stage]], depth: int) -> list[list[list[int]]]:
    """When the operations of each stage of each block start in an order, none before the one in front of it."""
    again, progress = Order(), Progress(depth)
    every = [(b, again.append(b, op, progress)[0]) for b, op in order.ops]
    found = []
    for b, block in enumerate(blocks):
        times = accumulate((at for n, at in every if n == b), max)
        found.append([[next(times) for _ in stage.ops] for stage in block])
    return found


@dataclass(frozen=True)
class _Places:
    """Places of the buffers of blocks.

    Attributes:
        last: of operations that write a buffer first, the last one that uses it.
        number: a block does not write a buffer before the block so many in front of it has used its own; 0: it may.
    """

    last: Mapping[Use, Use]
    number: int

    def allows(self, line: _Line, block: int, at: Use) -> bool:
        """Whether an operation of a block may come."""
        before = block - self.number
        return not self.number or before < 0 or line.at(before) > self.last.get(at, _NONE)

    def free(self, done: Mapping[tuple[int, Use], int], block: int, at: Use) -> int:
        """When the buffer is free that an operation of a block writes; `done`: when last uses are."""
        return done.get((block - self.number, self.last[at]), 0) if self.number and at in self.last else 0


_NONE = (-1, -1)


def _planned(blocks: Sequence[Sequence[Stage]], most: int, plan: _Plan, places: _Places, depth: int) -> Order:
    """Blocks in the order in which a plan wants their operations, as far as these may come."""
    order, line, progress = Order(places=places.number), _Line(blocks, most), Progress(depth)
    last, done = {*places.last.values()}, dict[tuple[int, Use], int]()
    while choices := [*line.next()]:
        free = [each for each in choices if places.allows(line, each[0], each[1:3])]
        b, k, n, op = min(free or choices, key=lambda each: (plan.wanted(*each[:3]), each[0]))
        _, end = order.append(b, op, progress, places.free(done, b, (k, n)))
        if (k, n) in last:
            done[b, (k, n)] = end
        line.advance(b)
    assert len(order.ops) == sum(len(stage.ops) for block in blocks for stage in block)
    return order


# What comes next.


class _Line:
    """How far blocks have come.

    Attributes:
        stage, place: of the next operation of each block.
        first: the first block that is not done.
        products: matrix units, by the block whose stage has operations on them to come.
        sums: accumulators in use, by the block whose stage has begun to use them.
    """

    def __init__(self, blocks: Sequence[Sequence[Stage]], most: int) -> None:
        self.blocks, self.most = blocks, most
        self.stage, self.place = [-1] * len(blocks), [0] * len(blocks)
        self.first = 0
        self.products: dict[int, frozenset[int]] = {}
        self.sums: dict[int, tuple[Rows, ...]] = {}
        for b in range(len(blocks)):
            self._next_stage(b)

    def next(self) -> Iterator[tuple[int, int, int, Timed]]:
        """Of each block that may go on, its number, those of its stage and next operation, and this."""
        for b in range(self.first, min(self.first + self.most, len(self.blocks))):
            stage, place = self.stage[b], self.place[b]
            if stage < len(self.blocks[b]) and (place or self._may_begin(b, stage)):
                yield b, stage, place, self.blocks[b][stage].ops[place]

    def at(self, b: int) -> tuple[int, int]:
        """The numbers of a block's stage and of its next operation there."""
        return self.stage[b], self.place[b]

    def _may_begin(self, b: int, stage: int) -> bool:
        new = self.blocks[b][stage]
        if new.products:
            if any(new.units & units for units in self.products.values()):
                return False
            if any(_overlap(new.sums, used) for used in self.sums.values()):
                return False
        if b == self.first:
            return True
        # Where the stages are not the same ones, all of them come first.
        before = stage if len(self.blocks[b - 1]) == len(self.blocks[b]) else len(self.blocks[b - 1]) - 1
        return self.stage[b - 1] > before

    def advance(self, b: int) -> None:
        """The next operation of a block is out."""
        stage = self.blocks[b][self.stage[b]]
        self.place[b] += 1
        if self.place[b] < stage.products:
            self.products[b] = stage.units
        else:
            self.products.pop(b, None)
        if stage.products:
            self.sums[b] = stage.sums
        if self.place[b] == len(stage.ops):
            self._next_stage(b)
            self.sums.pop(b, None)

    def _next_stage(self, b: int) -> None:
        """A block is at its next stage with operations."""
        self.place[b], self.stage[b] = 0, self.stage[b] + 1
        while self.stage[b] < len(self.blocks[b]) and not self.blocks[b][self.stage[b]].ops:
            self.stage[b] += 1
        while self.first < len(self.blocks) and self.stage[self.first] >= len(self.blocks[self.first]):
            self.first += 1


def _overlap(some: Sequence[Rows], others: Sequence[Rows]) -> bool:
    return any(a[0] == b[0] and a[1] < b[2] and b[1] < a[2] for a, b in product(some, others))
