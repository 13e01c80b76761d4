"""A lowering in the order in which it runs, with addresses: loads as far ahead of their use as memory allows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from systolith.compiler.cost.timeline import NEAR
from systolith.compiler.emit.assemble import assemble, line_bytes
from systolith.compiler.errors import DoesNotFitError
from systolith.compiler.explain import Alternative, Decision
from systolith.compiler.memory.vmem import MemoryPlan, plan_memory
from systolith.compiler.schedule.predict import predict
from systolith.compiler.schedule.prefetch import Lookahead, prefetch
from systolith.compiler.schedule.reroll import Rerolled, reroll
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Block, Buf, Loop, TileOp
from systolith.isa.chip import Chip

AHEAD_SHARES = (0.5, 0.3, 0.15, 0.0)
"""Part of the free VMEM that loads ahead of their use may take: tried in turn."""

LOOP_SHARE = 0.9
"""Part of the free VMEM that the buffers of a loop may take."""

WORTH = 0.75
"""Part of the operations that a program with loops may have: to see what larger ones take is not worth the time."""

SPARE = (0, 1)
"""Places for each buffer of a loop beyond those that it takes by estimate: tried in turn."""


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
        loops: what was made of repetitions.
        cycles: as predicted, once `predicted` has been asked.
    """

    block: Block
    moved: set[TileOp]
    plan: MemoryPlan
    ahead: float
    loops: Rerolled = field(default_factory=lambda: Rerolled(Block()))
    cycles: Predicted | None = None

    def operation(self, op: TileOp) -> TileOp:
        """The operation that one of the lowering has become."""
        return self.loops.now.get(op, op)


def schedule(ctx: TileBuilder, free: int) -> Fitted:
    """Make loops of what repeats, unless that takes longer, and move loads ahead as far as memory allows.

    Args:
        ctx: what was lowered.
        free: bytes of VMEM that no whole value takes.
    """
    plain: tuple[Fitted, float] | None = None
    written = sum(1 for _ in ctx.block.ops())
    rejected: list[Alternative] = []
    for spare in SPARE:
        rolled = reroll(ctx.block, ctx.whole - ctx.inner, int(free * LOOP_SHARE), ctx.chip, spare)
        if not rolled.decisions or sum(1 for _ in rolled.block.ops()) > written * WORTH:
            break
        looped = _ahead(ctx, rolled, free)
        if looped.plan.failed is not None:
            break
        try:
            cycles = predicted(ctx, looped)
        except DoesNotFitError:
            break
        if cycles.total <= cycles.busiest * NEAR:
            return looped
        if plain is None:
            plain = _plain(ctx, free)
        if cycles.total <= plain[1] * NEAR:
            return looped
        many = sum(isinstance(item, Loop) for item in rolled.block.items)
        rejected.append(Alternative(f"{many} loops", "slower", {"cycles": round(cycles.total)}))
    if plain is None:
        return _ahead(ctx, Rerolled(ctx.block), free)
    if rejected:
        numbers = {"cycles": round(plain[1])}
        plain[0].loops.decisions.append(Decision("repeat", "", "written out", "", numbers, tuple(rejected)))
    return plain[0]


def _plain(ctx: TileBuilder, free: int) -> tuple[Fitted, float]:
    """The lowering, without loops, and its predicted cycles."""
    fitted = _ahead(ctx, Rerolled(ctx.block), free)
    return fitted, float("inf") if fitted.plan.failed is not None else predicted(ctx, fitted).total


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


def _ahead(ctx: TileBuilder, loops: Rerolled, free: int) -> Fitted:
    """Move loads ahead as far as memory allows."""
    chip = ctx.chip
    loads = max(1, chip.fifo.depth - 2)
    for part in AHEAD_SHARES:
        moved: set[TileOp] = set()
        block = prefetch(loops.block, Lookahead(int(free * part), loads if part else 0), moved, loops.fixed)
        plan = memory_plan(block, ctx.whole, chip)
        fitted = Fitted(block, moved, plan, part, loops)
        if plan.failed is None:
            break
    return fitted


def memory_plan(block: Block, whole: Collection[Buf], chip: Chip) -> MemoryPlan:
    """Addresses of the buffers of operations; `whole`: those that hold whole values."""
    return plan_memory(block, whole, chip.vmem.bytes, chip.smem.bytes, line_bytes(chip))
