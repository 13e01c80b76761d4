"""Times of operations of tile IR, the values that they wait for, and their accumulators.

Times are the closed forms of `isa/timing.py`.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, cast

from systolith.compiler.cost.timeline import Timeline
from systolith.compiler.tile.ir import ROUTINE, Buf, Item, Ref, TileOp
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space
from systolith.isa.opcodes import OPCODES
from systolith.isa.timing import Cost, dma_cost, load_cost, matmul_cost, reduce_cost, shuffle_cost, vpu_cost

NO_LIMIT = sys.maxsize

Rows = tuple[int, int, int]
"""Accumulator rows: matrix unit, the first, and the one after the last."""


@dataclass(frozen=True, slots=True)
class Timed:
    """An operation, and what its time depends on.

    Attributes:
        item: it, or a region.
        queue: its queue.
        cost: its time.
        reads: what it waits for: buffers, and tiles and sums of matrix units.
        writes: what waits for it.
    """

    item: Item
    queue: str
    cost: Cost
    reads: tuple[Hashable, ...]
    writes: tuple[Hashable, ...]


@dataclass(frozen=True)
class Stage:
    """Operations of one group of one block.

    Attributes:
        ops: in their order.
        products: so many, from the first on, until the last that uses a matrix unit; 0: none does.
        sums: accumulators that hold its sums.
        units: matrix units that it uses.
    """

    ops: tuple[Timed, ...]
    products: int = 0
    sums: tuple[Rows, ...] = ()

    @cached_property
    def units(self) -> frozenset[int]:
        return frozenset(unit for unit, _, _ in self.sums)


class Progress:
    """Operations that run in the order in which they are given, each once what it reads is there.

    Args:
        depth: operations that a queue holds in front of its unit: while one is full, none is issued.
    """

    def __init__(self, depth: int = NO_LIMIT) -> None:
        self._timeline = Timeline()
        self._written: dict[int, dict[Hashable, int]] = defaultdict(dict)
        self._on_chip: dict[Hashable, int] = {}
        self._depth, self._issued = depth, 0
        self._starts: dict[str, deque[int]] = defaultdict(deque)

    def start(self, op: Timed, block: int = 0) -> int:
        """When an operation could start.

        `block`: the number of its block, which reads what that has written, and buffers in VMEM that any has.
        """
        written, on_chip = self._written[block], self._on_chip
        needed = ((on_chip if _is_on_chip(what) else written).get(what, 0) for what in op.reads)
        return max(self._timeline.start(op.queue, needed), self._issue(op.queue))

    def run(self, op: Timed, start: int, block: int = 0) -> int:
        """Let an operation start; when it is done."""
        self._issued = self._issue(op.queue)
        starts = self._starts[op.queue]
        starts.append(start)
        if len(starts) > self._depth:
            starts.popleft()
        done = self._timeline.run(op.queue, start, op.cost)
        for what in op.writes:
            (self._on_chip if _is_on_chip(what) else self._written[block])[what] = done
        return done

    def _issue(self, queue: str) -> int:
        """When the next operation of a queue could be issued."""
        starts = self._starts[queue]
        return max(self._issued, starts[0]) if len(starts) == self._depth else self._issued


def _is_on_chip(what: Hashable) -> bool:
    return type(what) is Buf and what.space is Space.VMEM


def timed(stages: Sequence[Sequence[Item]], chip: Chip) -> list[Stage]:
    """The stages of a block."""
    return [_stage(items, chip) for items in stages]


def copies(
    block: Sequence[Sequence[Stage]],
    count: int,
    chip: Chip,
    turn: int,
    rows: Sequence[int],
    outside: Collection[Buf] = (),
) -> list[list[Stage]]:
    """A block, and others like it, with the matrix units, accumulators and buffers that they would have.

    Args:
        block: the first, whose sums begin with accumulator row 0; in blocks itself, these.
        count: of blocks.
        chip: the target.
        turn: matrix units from the first job of a block to that of the next one.
        rows: with which the sums of blocks begin, in turn.
        outside: buffers that they have in common.
    """
    made = []
    for n in range(count):
        own = _Own(n * turn % chip.mxu.count, chip.mxu.count, outside)
        made += [[own.stage(stage, rows[n % len(rows)]) for stage in inner] for inner in block]
    return made


class _Own:
    """The operations of a block with buffers of their own.

    Args:
        turn: so many matrix units further.
        units: of the chip.
        outside: buffers that stay.
    """

    def __init__(self, turn: int, units: int, outside: Collection[Buf]) -> None:
        self._turn, self._units = turn, units
        self._made: dict[Hashable, Hashable] = {buf: buf for buf in outside}

    def stage(self, stage: Stage, row: int) -> Stage:
        """A stage, its sums so many accumulator rows further."""
        sums = tuple((self._unit(unit), first + row, end + row) for unit, first, end in stage.sums)
        return replace(stage, ops=tuple(map(self._op, stage.ops)), sums=sums)

    def _op(self, op: Timed) -> Timed:
        queue = op.queue
        if queue[0] in "ws" and queue[1:].isdigit():
            queue = f"{queue[0]}{self._unit(int(queue[1:]))}"
        reads, writes = tuple(map(self._place, op.reads)), tuple(map(self._place, op.writes))
        return replace(op, queue=queue, reads=reads, writes=writes)

    def _unit(self, unit: int) -> int:
        return (unit + self._turn) % self._units

    def _place(self, what: Hashable) -> Hashable:
        if what not in self._made:
            if isinstance(what, tuple):
                self._made[what] = what[0], self._unit(what[1])
            else:
                self._made[what] = replace(what) if isinstance(what, Buf) and what.space is Space.VMEM else what
        return self._made[what]


def _stage(items: Sequence[Item], chip: Chip) -> Stage:
    products = max((n + 1 for n, item in enumerate(items) if _is_product(item)), default=0)
    sums = (rows for item in items if _is_product(item) for rows in _sums(item, chip))
    return Stage(tuple(_timed(item, chip) for item in items), products, tuple(_merged(sums)))


def _is_product(item: Item) -> bool:
    if isinstance(item, TileOp):
        return item.op == ROUTINE or OPCODES[item.op].queue in ("w", "s")
    return any(_is_product(op) for region in item.regions for op in region.ops())


def _sums(item: Item, chip: Chip) -> list[Rows]:
    """Accumulators that an operation changes; of a region, or where a register says which, all."""
    if isinstance(item, TileOp):
        if item.op == ROUTINE:
            return [(unit, 0, chip.mxu.acc_rows) for unit in range(chip.mxu.count)]
        if item.op != "mxu.matmul":
            return []
        first, rows = item.args["acc"], cast(int, item.args["row_loops"])
        if isinstance(first, int):
            return [(item.unit, first, first + prod(cast(Ref, item.args["src"]).pattern.counts[:rows]))]
    return [(unit, 0, chip.mxu.acc_rows) for unit in range(chip.mxu.count)]


def _merged(rows: Iterable[Rows]) -> list[Rows]:
    """The same rows, those that touch as one."""
    found: list[Rows] = []
    for unit, first, end in sorted(set(rows)):
        if found and found[-1][0] == unit and first <= found[-1][2]:
            found[-1] = unit, found[-1][1], max(end, found[-1][2])
        else:
            found.append((unit, first, end))
    return found


def _timed(item: Item, chip: Chip) -> Timed:
    if not isinstance(item, TileOp):
        return Timed(item, "seq", _ONE, (), ())
    queue = OPCODES[item.op].queue if item.op != ROUTINE else "seq"
    if queue in ("w", "s"):
        queue += str(item.unit)
    rule = _COSTS.get(item.op)
    cost = rule(item.args, chip) if rule else _ONE
    outs = item.written
    reads = [_place(r) for r in item.refs if r not in outs]
    writes = [_place(r) for r in outs]
    before, after = _STATE.get(item.op, ("", ""))
    reads += [(before, item.unit)] if before else []
    writes += [(after, item.unit)] if after else []
    return Timed(item, queue, cost, tuple(dict.fromkeys(reads)), tuple(writes))


def cost_of(op: TileOp, chip: Chip) -> Cost:
    """The time of an operation."""
    return _timed(op, chip).cost


_STATE = {"mxu.load": ("latched", "loaded"), "mxu.latch": ("loaded", "latched"), "mxu.matmul": ("", "summed")}
"""State of a matrix unit that an operation waits for, and that it makes."""


def _place(ref: Ref) -> Hashable:
    """The resource that a stream depends on: a buffer, or all sums of a matrix unit so far."""
    if ref.buf is not None and ref.buf.space is Space.ACC:
        return "summed", ref.buf.unit
    return ref.buf


def _space(ref: Ref) -> Space:
    return ref.buf.space if ref.buf is not None else Space.NONE


def _dma_cost(a: Mapping[str, Any], chip: Chip) -> Cost:
    return dma_cost(a["src"].pattern, _space(a["src"]), a["dst"].pattern, _space(a["dst"]), chip)


def _vpu_cost(a: Mapping[str, Any], chip: Chip) -> Cost:
    return vpu_cost(a["kernel"], a["counts"], a["inner"], bool(a["serial"]), [s.pattern for s in a["streams"]], chip)


_ONE = Cost(1, 1)

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
