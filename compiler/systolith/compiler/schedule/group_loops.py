"""Loops of one group: made of what repeats in it (`reroll.py`), and kept where they take no longer.

A group is looked at by itself, as soon as it is lowered.  Its cycles with loops and without are predicted of its first
operations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from systolith.compiler.cost.timeline import NEAR
from systolith.compiler.errors import DoesNotFitError
from systolith.compiler.explain import Alternative, Decision
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.schedule.fitting import Predicted, ahead, predicted
from systolith.compiler.schedule.prefetch import Lookahead, prefetch
from systolith.compiler.schedule.reroll import Rerolled, reroll
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Block, Buf, Item, Loop

LOOP_SHARES = (0.9, 0.6, 0.3, 0.0)
"""Part of the free VMEM that the buffers of a loop may take: the first with which the module fits; 0: no loops."""


@dataclass(frozen=True)
class LoopShares:
    """Which of `LOOP_SHARES` each group has.

    Attributes:
        usual: of groups that `less` does not name.
        less: of those of which loops had no place.
    """

    usual: float = LOOP_SHARES[0]
    less: Mapping[Instruction, float] = field(default_factory=dict)

    def of(self, group: Instruction) -> float:
        """That of a group."""
        return self.less.get(group, self.usual)

    def lowered(self, taken: Mapping[Instruction, float]) -> LoopShares | None:
        """The next share for some groups by which their loops, which take such a part now, take less.

        None: they all have the smallest one.
        """
        limits = {group: min(part, self.of(group)) for group, part in taken.items()}
        smaller = {group: [share for share in LOOP_SHARES if share < limit] for group, limit in limits.items()}
        less = {group: shares[0] for group, shares in smaller.items() if shares}
        return LoopShares(self.usual, {**self.less, **less}) if less else None


USUAL_LOOPS = LoopShares()
"""Every group has the largest share."""

NO_LOOPS = LoopShares(0.0)
"""What repeats in a group stays written out."""

WORTH = 0.75
"""Part of the operations that a group with loops may have: to see what larger ones take is not worth the time."""


class Way(NamedTuple):
    """How loops are made.

    Attributes:
        ahead: loads are so many loads ahead of their place.
        spare: places for each buffer beyond those that it takes by estimate.
    """

    ahead: int
    spare: int


WAYS = (Way(0, 0), Way(2, 0), Way(0, 1))
"""Tried in turn."""

LOOKED_AT = 6144
"""Operations of a group whose cycles are predicted."""

NEAR_IN_LONG_ONES = 1.005
"""So many times the cycles written out count as equal in groups that are longer than that."""

FAR_FEWER = 0.25
"""Part of the operations up to which a group with loops has far fewer of them."""

NEAR_IF_FAR_FEWER = 1.01
"""So many times the cycles written out count as equal there: a few are lost where a loop begins and ends."""


@dataclass(frozen=True)
class Choice:
    """How a group has its loops.

    Attributes:
        way: how they are made; None: it is written out.
        cycles: predicted if it is written out, if that was asked for.
        rejected: loops that take longer.
    """

    way: Way | None
    cycles: int = 0
    rejected: tuple[Alternative, ...] = ()


class GroupLoops:
    """The loops of a group.

    Args:
        ctx: where it was lowered.
        fixed: buffers that hold something before or after it.
        free: bytes of VMEM that no whole value takes.
        share: part of these that the buffers of a loop may take.
    """

    def __init__(self, ctx: TileBuilder, fixed: Collection[Buf], free: int, share: float) -> None:
        self._ctx, self._fixed, self._free, self._room = ctx, fixed, free, int(free * share)

    def choice(self, items: Sequence[Item]) -> Choice:
        """The first way to make loops of a group by which it takes no longer."""
        first = items[:LOOKED_AT]
        near = NEAR if len(first) == len(items) else NEAR_IN_LONG_ONES
        written: Predicted | None = None
        rejected: list[Alternative] = []
        for way in WAYS:
            looped = self._rolled(first, way)
            cycles = self._cycles(looped.block) if looped is not None else None
            if looped is None and way == WAYS[0]:
                break  # nothing repeats
            if looped is None or cycles is None:
                continue
            few = sum(1 for _ in looped.block.ops()) <= len(first) * FAR_FEWER
            limit = max(near, NEAR_IF_FAR_FEWER) if few else near
            if cycles.total <= cycles.busiest * near:
                return Choice(way)
            written = written or self._cycles(Block([*first]))
            if written is None or cycles.total <= written.total * limit:
                return Choice(way)
            many = sum(isinstance(item, Loop) for item in looped.block.items)
            rejected.append(Alternative(f"{many} loops", "slower", {"cycles": round(cycles.total)}))
        return Choice(None, round(written.total) if written is not None else 0, tuple(rejected))

    def made(self, items: Sequence[Item], choice: Choice) -> Rerolled:
        """The operations of the group as was chosen."""
        found = self._rolled(items, choice.way) if choice.way is not None else None
        if found is not None:
            for memory in found.memory:
                memory.name = self._ctx.fresh(memory.name.partition("~")[0] + ".loop")
            return found
        found = Rerolled(Block([*items]))
        if choice.rejected:
            group, numbers = next(found.block.ops()).origin.group, {"cycles": choice.cycles}
            found.decisions.append(Decision("repeat", group, "written out", "", numbers, choice.rejected))
        return found

    def _rolled(self, items: Sequence[Item], way: Way) -> Rerolled | None:
        """With loops; None: with hardly fewer operations."""
        block = prefetch(Block([*items]), Lookahead(self._room // 2, way.ahead), set())
        found = reroll(block, self._fixed, self._room, self._ctx.chip, way.spare, numbers=self._ctx.loop_vars)
        worth = found.decisions and sum(1 for _ in found.block.ops()) <= len(items) * WORTH
        return found if worth else None

    def _cycles(self, block: Block) -> Predicted | None:
        """Predicted cycles; None: there are too few scalars or tokens, or no place for its buffers."""
        fitted = ahead(self._ctx, block, self._free)
        try:
            return None if fitted.plan.failed is not None else predicted(self._ctx, fitted)
        except DoesNotFitError:
            return None
