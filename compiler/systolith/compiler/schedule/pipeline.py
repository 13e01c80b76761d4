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

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise, product

from systolith.compiler.cost.timeline import NEAR
from systolith.compiler.memory.liveness import Liveness
from systolith.compiler.schedule.operation_times import Progress, Rows, Stage, Timed
from systolith.compiler.tile.ir import Buf
from systolith.isa.instruction import Space

FEW = 16
"""Blocks of which no loop is made."""


@dataclass
class Order:
    """Result.

    Attributes:
        ops: all operations, each with the number of its block.
        cycles: that they take.
    """

    ops: list[tuple[int, Timed]] = field(default_factory=list)
    cycles: int = 0

    def peak(self, outside: Collection[Buf]) -> int:
        """Bytes of VMEM that the blocks' buffers take at a time; those outside are not theirs."""
        lives = Liveness[tuple[int, Buf]]()
        for position, (b, op) in enumerate(self.ops):
            for buf in (*op.reads, *op.writes):
                if isinstance(buf, Buf) and buf.space is Space.VMEM and buf not in outside:
                    lives.use((b, buf), position)
        return max(lives.usage(lambda value: value[1].bytes, len(self.ops)), default=0)


def interleave(blocks: Sequence[Sequence[Stage]], most: int) -> Order:
    """Put the operations of blocks in one order, in which at most so many are begun and not done."""
    order = Order()
    blocks = [block for block in blocks if block]
    line, progress = _Line(blocks, most), Progress()
    while choices := [(progress.start(op, b), b, op) for b, op in line.next()]:
        at, b, op = min(choices, key=lambda c: c[:2])
        order.cycles = max(order.cycles, progress.run(op, at, b))
        order.ops.append((b, op))
        line.advance(b)
    return order


def periodic(blocks: Sequence[Sequence[Stage]], most: int, order: Order, accumulated: Collection[Buf] = ()) -> Order:
    """An order that repeats from block to block, so that loops can be made of it; `order` where it takes longer.

    Within a block, operations are as far apart as in a block that runs alone; blocks follow one another at the pace
    that they have in `order`, but no faster than lets `most` of them be begun (modulo scheduling).  Few blocks, and
    those with products, stay in `order`, too.

    Args:
        blocks, most: as for `interleave`.
        order: that `interleave` gives.
        accumulated: buffers that every block reads and writes, one block after another.
    """
    if len(blocks) < FEW or any(stage.products for block in blocks for stage in block):
        return order
    flat = [[op for stage in block for op in stage.ops] for block in blocks]
    alone = [_starts(ops) for ops in flat[:2]]
    if any(len(ops) != len(alone[min(n, 1)]) for n, ops in enumerate(flat)):
        return order
    pace = max((order.cycles - alone[1][-1]) // (len(blocks) - 1), -(-alone[1][-1] // most), 1)
    places = [(at + n * pace, n, k) for n in range(len(blocks)) for k, at in enumerate(alone[min(n, 1)])]
    found, progress = Order([(n, flat[n][k]) for _, n, k in sorted(places)]), Progress()
    if any(a > b for buf in accumulated for a, b in pairwise(n for n, op in found.ops if buf in op.reads + op.writes)):
        return order
    for n, op in found.ops:
        found.cycles = max(found.cycles, progress.run(op, progress.start(op, n), n))
    return found if found.cycles <= order.cycles * NEAR else order


def _starts(ops: Sequence[Timed]) -> list[int]:
    """When operations start that run alone, none of them before the one in front of it."""
    progress, starts = Progress(), []
    for op in ops:
        starts.append(progress.start(op))
        progress.run(op, starts[-1])
    return [*accumulate(starts, max)]


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
        self.stage, self.place = [0] * len(blocks), [0] * len(blocks)
        self.first = 0
        self.products: dict[int, frozenset[int]] = {}
        self.sums: dict[int, tuple[Rows, ...]] = {}

    def next(self) -> Iterator[tuple[int, Timed]]:
        """Of each block that may go on, its number and next operation."""
        for b in range(self.first, min(self.first + self.most, len(self.blocks))):
            stage = self.stage[b]
            if stage < len(self.blocks[b]) and (self.place[b] or self._may_begin(b, stage)):
                yield b, self.blocks[b][stage].ops[self.place[b]]

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
        if self.place[b] <= stage.products:
            self.products[b] = stage.units if self.place[b] < stage.products else frozenset()
            self.sums[b] = stage.sums
        if self.place[b] == len(stage.ops):
            self.place[b], self.stage[b] = 0, self.stage[b] + 1
            self.sums.pop(b, None)
        while self.first < len(self.blocks) and self.stage[self.first] == len(self.blocks[self.first]):
            self.first += 1


def _overlap(some: Sequence[Rows], others: Sequence[Rows]) -> bool:
    return any(a[0] == b[0] and a[1] < b[2] and b[1] < a[2] for a, b in product(some, others))
