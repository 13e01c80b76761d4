"""A lowering in the order in which it runs, with addresses: loads as far ahead of their use as memory allows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from systolith.compiler.emit.assemble import assemble, line_bytes
from systolith.compiler.memory.vmem import MemoryPlan, plan_memory
from systolith.compiler.schedule.early_kernels import Cut, start_early
from systolith.compiler.schedule.predict import predict
from systolith.compiler.schedule.prefetch import Lookahead, prefetch
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Block, Buf, TileOp, While
from systolith.isa.chip import Chip

AHEAD_SHARES = (0.5, 0.3, 0.15, 0.05, 0.0)
"""Part of the free VMEM that loads ahead of their use may take: a group has the first with which everything fits."""

ROUNDS = 12
"""So many times groups are given less room before no load runs ahead."""


class Predicted(NamedTuple):
    """Predicted cycles: all, and those of the unit that has most to do."""

    total: float
    busiest: float


@dataclass
class Fitted:
    """A lowering in order.

    Attributes:
        block: its operations.
        moved: loads that moved ahead.
        plan: addresses, if it fits.
        ahead: part of the free VMEM that loads ahead of their use may take.
        less: that of groups which have less.
        cut: kernels whose parts start early.
        cycles: as predicted, once `predicted` has been asked.
    """

    block: Block
    moved: set[TileOp]
    plan: MemoryPlan
    ahead: float
    less: Mapping[str, float] = field(default_factory=dict)
    cut: Cut = field(default_factory=dict)
    cycles: Predicted | None = None

    @property
    def is_usual(self) -> bool:
        """Whether loads of all groups may take the largest share."""
        return self.ahead == AHEAD_SHARES[0] and not self.less


def schedule(ctx: TileBuilder, free: int) -> Fitted:
    """Move loads ahead as far as memory allows, and let kernels start early in parts if loads are as far ahead so.

    Args:
        ctx: what was lowered.
        free: bytes of VMEM that no whole value takes.
    """
    block, cut = start_early(ctx.block, ctx.chip)

    def in_parts(share: float, less: Mapping[str, float]) -> Fitted | None:
        early = _ordered(ctx, block, free, 0, share, less)
        early.cut = cut
        return early if early.plan.failed is None else None

    early = in_parts(AHEAD_SHARES[0], {}) if cut else None  # most fit at once
    if early is not None:
        return early
    fitted = ahead(ctx, ctx.block, free)
    if cut and fitted.plan.failed is None and not fitted.is_usual:
        return in_parts(fitted.ahead, fitted.less) or fitted
    return fitted


def predicted(ctx: TileBuilder, fitted: Fitted) -> Predicted:
    """Cycles of what fits, as its program's; of loops of unknown length, one iteration counts.

    Raises:
        DoesNotFitError: it takes more scalars or tokens than there are.
    """
    if fitted.cycles is None:
        program = assemble("", fitted.block, ctx.buffers, fitted.plan, ctx.chip).program
        turns = turns_of(fitted.block)
        work: dict[str, float] = defaultdict(float)
        total = 0.0
        for group, p in predict(program, ctx.chip).items():
            total += p.cycles * turns[group]
            for unit, cycles in p.work.items():
                work[unit] += cycles * turns[group]
        fitted.cycles = Predicted(total, max(work.values(), default=0))
    return fitted.cycles


def turns_of(block: Block) -> Counter[str]:
    """How often the loops around each group's operations run."""
    found: Counter[str] = Counter()
    todo = [(block, 1)]
    while todo:
        region, turns = todo.pop()
        for item in region.items:
            if isinstance(item, TileOp):
                found[item.origin.group] = turns
            else:
                inside = turns * (item.trip_count or 1) if isinstance(item, While) else turns
                todo += [(inner, inside) for inner in item.regions]
    return found


def ahead(ctx: TileBuilder, block: Block, free: int, taken: int = 0) -> Fitted:
    """A block of what was lowered, with loads ahead as far as memory allows.

    Groups whose loads are in the way of a buffer that has no place are given less room for them.

    Args:
        ctx: what was lowered.
        block: all of it, or a part.
        free: bytes of VMEM that no whole value takes.
        taken: bytes of VMEM that others have while it runs.
    """
    usual, *_, least = AHEAD_SHARES
    less: dict[str, float] = {}

    def tried(share: float) -> Fitted:
        return _ordered(ctx, block, free, taken, share, less)

    first = fitted = tried(usual)
    if first.plan.failed is None:
        return first
    last = tried(least)
    if last.plan.failed is not None:
        return last  # what lies between hardly ever fits then
    for _ in range(ROUNDS):
        shares = {group: less.get(group, usual) for group in _in_the_way(fitted)}
        smaller = {
            group: next(s for s in AHEAD_SHARES if s < share) for group, share in shares.items() if share > least
        }
        if not smaller:
            break
        less |= smaller
        fitted = tried(usual)
        if fitted.plan.failed is None:
            return fitted
    return last


def _ordered(ctx: TileBuilder, block: Block, free: int, taken: int, share: float, less: Mapping[str, float]) -> Fitted:
    """A block whose loads run ahead in a share of the free VMEM, `less` for those of some groups; it may not fit."""
    moved: set[TileOp] = set()
    loads = max(1, ctx.chip.fifo.depth - 2) if share else 0
    rooms = {group: int(free * part) for group, part in less.items()}
    order = prefetch(block, Lookahead(int(free * share), loads, rooms), moved)
    return Fitted(order, moved, memory_plan(order, ctx.whole, ctx.chip, taken), share, dict(less))


def _in_the_way(fitted: Fitted) -> set[str]:
    """Groups of loads ahead whose buffers live where a buffer without a place finds memory fullest."""
    lives, fullest = fitted.plan.lives, fitted.plan.fullest()
    ranges = (
        (op.origin.group, lives.first[buf], lives.last[buf])
        for op in fitted.moved
        for buf in op.buffers
        if buf in lives.first
    )
    return {group for group, start, end in ranges if bisect_left(fullest, start) < bisect_right(fullest, end)}


def memory_plan(block: Block, whole: Collection[Buf], chip: Chip, taken: int = 0) -> MemoryPlan:
    """Addresses of the buffers of operations.

    Args:
        block: the operations.
        whole: buffers that hold whole values.
        chip: the target.
        taken: bytes of VMEM that others have.
    """
    return plan_memory(block, whole, chip.vmem.bytes - taken, chip.smem.bytes, line_bytes(chip))
