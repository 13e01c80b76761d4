"""Times of operations of tile IR, the values that they wait for, and their accumulators.

Times are the closed forms of `isa/timing.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, cast

from systolith.compiler.cost.timeline import Timeline
from systolith.compiler.tile.ir import ROUTINE, Item, Ref, TileOp
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space
from systolith.isa.opcodes import OPCODES
from systolith.isa.timing import Cost, dma_cost, load_cost, matmul_cost, reduce_cost, shuffle_cost, vpu_cost

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

    @property
    def units(self) -> frozenset[int]:
        return frozenset(unit for unit, _, _ in self.sums)


class Progress:
    """Operations that run in the order in which they are given, each once what it reads is there."""

    def __init__(self) -> None:
        self._timeline = Timeline()
        self._written: dict[int, dict[Hashable, int]] = defaultdict(dict)

    def start(self, op: Timed, block: int = 0) -> int:
        """When an operation could start; `block`: the number of its block, which reads what that has written."""
        written = self._written[block]
        return self._timeline.start(op.queue, (written.get(what, 0) for what in op.reads))

    def run(self, op: Timed, start: int, block: int = 0) -> int:
        """Let an operation start; when it is done."""
        done = self._timeline.run(op.queue, start, op.cost)
        self._written[block].update(dict.fromkeys(op.writes, done))
        return done


def timed(stages: Sequence[Sequence[Item]], chip: Chip) -> list[Stage]:
    """The stages of a block."""
    return [_stage(items, chip) for items in stages]


def copies(block: Sequence[Stage], count: int, chip: Chip, turn: int, rows: Sequence[int]) -> list[list[Stage]]:
    """A block, and others like it, with the matrix units and accumulators that they would have.

    Args:
        block: the first, whose sums begin with accumulator row 0.
        count: of blocks.
        chip: the target.
        turn: matrix units from the first job of a block to that of the next one.
        rows: with which the sums of blocks begin, in turn.
    """
    return [[_copy(stage, n * turn, rows[n % len(rows)], chip) for stage in block] for n in range(count)]


def _copy(stage: Stage, turn: int, row: int, chip: Chip) -> Stage:
    """A stage so many matrix units and accumulator rows further."""
    units = chip.mxu.count
    sums = tuple(((unit + turn) % units, first + row, end + row) for unit, first, end in stage.sums)
    ops = stage.ops if not turn % units else tuple(_turned(op, turn, units) for op in stage.ops)
    return replace(stage, ops=ops, sums=sums)


def _turned(op: Timed, turn: int, units: int) -> Timed:
    """An operation so many matrix units further."""

    def place(what: Hashable) -> Hashable:
        return (what[0], (what[1] + turn) % units) if isinstance(what, tuple) else what

    queue = op.queue
    if queue[0] in "ws" and queue[1:].isdigit():
        queue = f"{queue[0]}{(int(queue[1:]) + turn) % units}"
    return replace(op, queue=queue, reads=tuple(map(place, op.reads)), writes=tuple(map(place, op.writes)))


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
