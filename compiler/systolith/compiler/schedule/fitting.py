"""A lowering in the order in which it runs, with addresses: loads as far ahead of their use as memory allows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from systolith.compiler.emit.assemble import line_bytes
from systolith.compiler.memory.vmem import MemoryPlan, plan_memory
from systolith.compiler.schedule.prefetch import Lookahead, prefetch
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Block, Buf, TileOp
from systolith.isa.chip import Chip

AHEAD_SHARES = (0.5, 0.3, 0.15, 0.0)
"""Part of the free VMEM that loads ahead of their use may take: tried in turn."""


@dataclass
class Fitted:
    """A lowering that fits: its scheduled operations, the loads that moved, the addresses, room for loads ahead."""

    block: Block
    moved: set[TileOp]
    plan: MemoryPlan
    ahead: float


def schedule(ctx: TileBuilder, free: int) -> Fitted:
    """Move loads ahead as far as memory allows; `free`: bytes of VMEM that no whole value takes."""
    chip = ctx.chip
    loads = max(1, chip.fifo.depth - 2)
    for part in AHEAD_SHARES:
        moved: set[TileOp] = set()
        block = prefetch(ctx.block, Lookahead(int(free * part), loads if part else 0), moved)
        plan = memory_plan(block, ctx.whole, chip)
        fitted = Fitted(block, moved, plan, part)
        if plan.failed is None:
            break
    return fitted


def memory_plan(block: Block, whole: Collection[Buf], chip: Chip) -> MemoryPlan:
    """Addresses of the buffers of operations; `whole`: those that hold whole values."""
    return plan_memory(block, whole, chip.vmem.bytes, chip.smem.bytes, line_bytes(chip))
