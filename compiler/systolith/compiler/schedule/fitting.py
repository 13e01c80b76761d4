"""A lowering in the order in which it runs, with addresses: loads as far ahead of their use as memory allows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from systolith.compiler.emit.assemble import assemble, line_bytes
from systolith.compiler.memory.vmem import MemoryPlan, plan_memory
from systolith.compiler.schedule.predict import predict
from systolith.compiler.schedule.prefetch import Lookahead, prefetch
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Block, Buf, TileOp
from systolith.isa.chip import Chip

AHEAD_SHARES = (0.5, 0.3, 0.15, 0.05, 0.0)
"""Part of the free VMEM that loads ahead of their use may take: tried in turn."""


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
        cycles: as predicted, once `predicted` has been asked.
    """

    block: Block
    moved: set[TileOp]
    plan: MemoryPlan
    ahead: float
    cycles: Predicted | None = None


def schedule(ctx: TileBuilder, free: int) -> Fitted:
    """Move loads ahead as far as memory allows.

    Args:
        ctx: what was lowered.
        free: bytes of VMEM that no whole value takes.
    """
    return ahead(ctx, ctx.block, free)


def predicted(ctx: TileBuilder, fitted: Fitted) -> Predicted:
    """Cycles of what fits, as its program's.

    Raises:
        DoesNotFitError: it takes more scalars or tokens than there are.
    """
    if fitted.cycles is None:
        program = assemble("", fitted.block, ctx.buffers, fitted.plan, ctx.chip).program
        predictions = predict(program, ctx.chip).values()
        work: dict[str, float] = defaultdict(float)
        for p in predictions:
            for unit, cycles in p.work.items():
                work[unit] += cycles
        fitted.cycles = Predicted(sum(p.cycles for p in predictions), max(work.values(), default=0))
    return fitted.cycles


def ahead(ctx: TileBuilder, block: Block, free: int) -> Fitted:
    """A block of what was lowered, with loads ahead as far as memory allows."""
    chip = ctx.chip
    loads = max(1, chip.fifo.depth - 2)

    def tried(part: float) -> Fitted:
        moved: set[TileOp] = set()
        order = prefetch(block, Lookahead(int(free * part), loads if part else 0), moved)
        return Fitted(order, moved, memory_plan(order, ctx.whole, chip), part)

    most, *parts, least = AHEAD_SHARES
    first = tried(most)
    if first.plan.failed is None:
        return first
    last = tried(least)
    if last.plan.failed is not None:
        return last  # what lies between hardly ever fits then
    fitting = (fitted for fitted in map(tried, parts) if fitted.plan.failed is None)
    return next(fitting, last)


def memory_plan(block: Block, whole: Collection[Buf], chip: Chip, go_on: bool = False) -> MemoryPlan:
    """Addresses of the buffers of operations; `whole`: those that hold whole values; `go_on`: see `plan_memory`."""
    return plan_memory(block, whole, chip.vmem.bytes, chip.smem.bytes, line_bytes(chip), go_on)
