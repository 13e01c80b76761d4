"""One order for the operations of blocks that do not depend on one another: list scheduling.

A block is a list of stages, a stage a list of operations.  Within a block they keep their order; of those that may come
next, the one that can start first does, the earliest block's where several can.  Two rules make every such order right:

- A stage of a block comes after the same stage of the block before, so that what is made once for all is there.
- Stages that use matrix units exclude one another: weights and accumulators are state of the units.

Times are the closed forms of `isa/timing.py`: an operation waits for its unit and for what wrote its operands.  Loads
wait for their queue only; `schedule.py` moves them ahead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, cast

from systolith.compiler.predict import Bandwidth
from systolith.compiler.tile.ir import Buf, If, Ref, TileOp, While
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space
from systolith.isa.kernel import Kernel
from systolith.isa.opcodes import OPCODES
from systolith.isa.timing import Cost, dma_cost, load_cost, matmul_cost, reduce_cost, shuffle_cost, vpu_cost

Item = TileOp | While | If
Stage = Sequence[Item]


@dataclass(frozen=True, slots=True)
class Timed:
    """An operation, and what its time depends on.

    Attributes:
        item: it, or a region.
        queue: its queue.
        occupancy, latency: cycles.
        transfers: whether the bandwidth of HBM decides.
        reads: what it waits for: buffers, and tiles and accumulators of matrix units.
        writes: what waits for it.
    """

    item: Item
    queue: str
    occupancy: int
    latency: int
    transfers: bool
    reads: tuple[Hashable, ...]
    writes: tuple[Hashable, ...]


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
        lives: dict[tuple[int, Buf], tuple[int, int]] = {}
        for position, (b, op) in enumerate(self.ops):
            for buf in (*op.reads, *op.writes):
                if isinstance(buf, Buf) and buf.space is Space.VMEM and buf not in outside:
                    lives[b, buf] = lives.get((b, buf), (position, position))[0], position
        steps = [(first, buf.bytes) for (_, buf), (first, _) in lives.items()]
        steps += [(last + 1, -buf.bytes) for (_, buf), (_, last) in lives.items()]
        return max(accumulate(size for _, size in sorted(steps)), default=0)


def timed(stages: Sequence[Stage], chip: Chip) -> list[list[Timed]]:
    """The operations of a block with their times."""
    return [[_timed(item, chip) for item in stage] for stage in stages]


def interleave(blocks: Sequence[Sequence[Sequence[Timed]]], most: int) -> Order:
    """Put the operations of blocks in one order, in which at most so many are begun and not done."""
    order = Order()
    blocks = [block for block in blocks if block]
    line, machine = _Line(blocks, most), _Machine()
    written: list[dict[Hashable, int]] = [{} for _ in blocks]
    while choices := [(machine.start(op, written[b]), b, op) for b, op in line.next()]:
        start, b, op = min(choices, key=lambda c: c[:2])
        order.cycles = max(order.cycles, machine.run(op, start, written[b]))
        order.ops.append((b, op))
        line.advance(b)
    return order


# What comes next.


class _Line:
    """How far blocks have come.

    Attributes:
        stage, place: of the next operation of each block.
        first: the first block that is not done.
        product: the block that is in a stage with matrix units; -1: none.
    """

    def __init__(self, blocks: Sequence[Sequence[Sequence[Timed]]], most: int) -> None:
        self.blocks, self.most = blocks, most
        self.products = [[any(_is_product(op.item) for op in stage) for stage in block] for block in blocks]
        self.stage, self.place = [0] * len(blocks), [0] * len(blocks)
        self.first, self.product = 0, -1

    def next(self) -> Iterator[tuple[int, Timed]]:
        """Of each block that may go on, its number and next operation."""
        for b in range(self.first, min(self.first + self.most, len(self.blocks))):
            stage = self.stage[b]
            if stage < len(self.blocks[b]) and (self.place[b] or self._may_begin(b, stage)):
                yield b, self.blocks[b][stage][self.place[b]]

    def _may_begin(self, b: int, stage: int) -> bool:
        if self.products[b][stage] and self.product >= 0:
            return False
        if b == self.first:
            return True
        # Where the stages are not the same ones, all of them come first.
        before = stage if len(self.blocks[b - 1]) == len(self.blocks[b]) else len(self.blocks[b - 1]) - 1
        return self.stage[b - 1] > before

    def advance(self, b: int) -> None:
        """The next operation of a block is out."""
        stage = self.stage[b]
        if self.products[b][stage]:
            self.product = b
        self.place[b] += 1
        if self.place[b] == len(self.blocks[b][stage]):
            self.place[b], self.stage[b] = 0, stage + 1
            if self.product == b:
                self.product = -1
        while self.first < len(self.blocks) and self.stage[self.first] == len(self.blocks[self.first]):
            self.first += 1


def _is_product(item: Item) -> bool:
    if isinstance(item, TileOp):
        return OPCODES[item.op].queue in ("w", "s")
    blocks = item.branches if isinstance(item, If) else [item.condition, item.body]
    return any(_is_product(op) for block in blocks for op in block.ops())


# When it starts.


class _Machine:
    """When queues, and the bandwidth of HBM, are free; `written` says when what a block has written is there."""

    def __init__(self) -> None:
        self.free: dict[str, int] = defaultdict(int)
        self.bandwidth = Bandwidth()

    def start(self, op: Timed, written: dict[Hashable, int]) -> int:
        """The cycle in which an operation could start."""
        return max([self.free[op.queue], *(written.get(what, 0) for what in op.reads)])

    def run(self, op: Timed, start: int, written: dict[Hashable, int]) -> int:
        """Let it start; when it is done."""
        end = start + op.occupancy
        if op.transfers:
            end, late = self.bandwidth.take(op.queue, start, op.occupancy)
            self.free["st" if op.queue == "ld" else "ld"] += late
        self.free[op.queue] = end
        done = end + op.latency - op.occupancy
        written.update(dict.fromkeys(op.writes, done))
        return done


def _timed(item: Item, chip: Chip) -> Timed:
    if not isinstance(item, TileOp):
        return Timed(item, "seq", 1, 1, False, (), ())
    queue = OPCODES[item.op].queue
    if queue in ("w", "s"):
        queue += str(item.unit)
    rule = _COSTS.get(item.op)
    cost = rule(item.args, chip) if rule else Cost(1, 1)
    outs = _outs(item)
    refs = [r for v in item.args.values() for r in (v if type(v) is tuple else (v,)) if type(r) is Ref]
    reads = [_place(r) for r in refs if r not in outs]
    writes = [_place(r) for r in outs]
    before, after = _STATE.get(item.op, ("", ""))
    reads += [(before, item.unit)] if before else []
    writes += [(after, item.unit)] if after else []
    return Timed(item, queue, cost.occupancy, cost.latency, cost.chunks > 0, tuple(dict.fromkeys(reads)), tuple(writes))


_STATE = {"mxu.load": ("latched", "loaded"), "mxu.latch": ("loaded", "latched"), "mxu.matmul": ("", "summed")}
"""State of a matrix unit that an operation waits for, and that it makes."""


def _outs(op: TileOp) -> list[Ref]:
    """The streams that an operation writes."""
    if op.op == "vpu.run":
        kernel, streams = cast(Kernel, op.args["kernel"]), cast(tuple[Ref, ...], op.args["streams"])
        sections = (kernel.prologue, kernel.body, kernel.epilogue)
        return [streams[m.imm] for section in sections for m in section.ops if m.op == "st"]
    return [cast(Ref, op.args["dst"])] if "dst" in op.args else []


def _place(ref: Ref) -> Hashable:
    """What is waited for: a buffer, or all that a matrix unit has summed so far."""
    if ref.buf is not None and ref.buf.space is Space.ACC:
        return "summed", ref.buf.unit
    return ref.buf


def _space(ref: Ref) -> Space:
    return ref.buf.space if ref.buf is not None else Space.NONE


def _dma_cost(a: Mapping[str, Any], chip: Chip) -> Cost:
    return dma_cost(a["src"].pattern, _space(a["src"]), a["dst"].pattern, _space(a["dst"]), chip)


def _vpu_cost(a: Mapping[str, Any], chip: Chip) -> Cost:
    return vpu_cost(a["kernel"], a["counts"], a["inner"], bool(a["serial"]), [s.pattern for s in a["streams"]], chip)


_COSTS: dict[str, Callable[[Mapping[str, Any], Chip], Cost]] = {
    "mxu.load": lambda a, chip: load_cost(a["src"].pattern, a["row_loops"], chip),
    "mxu.matmul": lambda a, chip: matmul_cost(a["src"].pattern, a["row_loops"], chip),
    "vpu.run": _vpu_cost,
    "xlu.shuffle": lambda a, chip: shuffle_cost(a["src"].pattern, a["dst"].pattern, chip),
    "xlu.reduce": lambda a, chip: reduce_cost(a["src"].pattern, chip),
    "dma.load": _dma_cost,
    "dma.store": _dma_cost,
}
"""Cycles of an operation by its arguments; those of all others take one."""
