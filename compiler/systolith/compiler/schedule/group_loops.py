"""Loops of one group: made of what repeats in it (`reroll.py`), and kept where they take no longer.

A group is looked at by itself, as soon as it is lowered.  Its cycles with loops and without are predicted of its first
operations.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import inf
from typing import NamedTuple

from systolith.compiler.cost.timeline import NEAR
from systolith.compiler.errors import DoesNotFitError
from systolith.compiler.explain import Alternative, Decision
from systolith.compiler.memory.shares import Shares
from systolith.compiler.schedule.fitting import Predicted, ahead, predicted
from systolith.compiler.schedule.prefetch import Lookahead, prefetch
from systolith.compiler.schedule.reroll import Keys, Rerolled, reroll
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Block, Buf, Item, Loop
from systolith.isa.instruction import Space

LOOP_SHARES = (0.9, 0.6, 0.3, 0.0)
"""Part of the free VMEM that the buffers of a loop may take: the first with which the module fits; 0: no loops."""


USUAL_LOOPS = Shares(LOOP_SHARES, LOOP_SHARES[0])
"""Every group has the largest share."""

NO_LOOPS = Shares(LOOP_SHARES, 0.0)
"""What repeats in a group stays written out."""

WORTH = 0.75
"""Part of the operations that a group with loops may have: to see what larger ones take is not worth the time."""

ITERATIONS = 8
"""Iterations of loops that are predicted of a whole group."""

STRETCHED = 1.15
"""So many times longer a whole group may take, by its busiest unit, than its first operations."""


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

VERY_LONG = 65_536
"""Operations beyond which a group written out takes longer to compile than most modules do."""

NEAR_IN_VERY_LONG_ONES = 1.025
"""So many times the cycles written out count as equal there, if loops leave few enough operations."""

LEFT_IN_VERY_LONG_ONES = 0.5
"""Part of the operations that is few enough."""


@dataclass(frozen=True)
class Choice:
    """How a group has its loops.

    Attributes:
        way: how they are made; None: it is written out.
        share: part of the free VMEM that their buffers may take.
        cycles: predicted if it is written out, if that was asked for.
        rejected: loops that take longer.
    """

    way: Way | None
    share: float = 0.0
    cycles: int = 0
    rejected: tuple[Alternative, ...] = ()


class GroupLoops:
    """The loops of one group.

    Args:
        ctx: where it was lowered.
        items: of it.
        fixed: buffers that hold something before or after it.
        free: bytes of VMEM that no whole value takes.
    """

    def __init__(self, ctx: TileBuilder, items: Sequence[Item], fixed: Collection[Buf], free: int) -> None:
        self._ctx, self._items, self._fixed, self._free = ctx, items, fixed, free
        self._first = items[:LOOKED_AT]
        self._long = len(items) > LOOKED_AT
        self._near = NEAR_IN_LONG_ONES if self._long else NEAR
        self._keys = Keys()
        self._known: dict[tuple[int, Way, float], Rerolled | None] = {}

    def choice(self, share: float) -> Choice:
        """The first way to make loops by which the group takes no longer.

        Of a long group the first operations are looked at, in which outer loops may not repeat often enough. So the
        whole of it with loops, cut short, has to keep its busiest unit as busy; where none does, the best are chosen.

        `share`: part of the free VMEM that the buffers of a loop may take.
        """
        shares = (share, *(less for less in LOOP_SHARES if 0 < less < share)) if self._long else (share,)
        rejected: list[Alternative] = []
        found: list[tuple[float, Choice]] = []
        slow = set[Way]()  # with less room they are no faster
        for less, way in product(shares, WAYS):
            if way == WAYS[0] and (not self._repeats(less) or (less < share and not found)):
                break
            if way in slow or (found and found[-1][0] == inf and found[-1][1].share == less):
                continue  # in another way they have no more place
            before = len(rejected)
            expected = self._expected(way, less, rejected)
            if expected is None:
                slow |= {way} if len(rejected) > before else set()
                continue
            taken = self._taken(way, less) if self._long else expected
            if taken <= expected * (STRETCHED if self._long else 1):
                return Choice(way, less)
            found.append((taken, Choice(way, less)))
        if found:
            return min(found, key=lambda each: each[0])[1]
        cycles = round(self._written.total) if rejected and self._written is not None else 0
        return Choice(None, share, cycles, tuple(rejected))

    def made(self, choice: Choice) -> Rerolled:
        """The operations of the group as was chosen."""
        found = self._rolled(self._items, choice.way, choice.share) if choice.way is not None else None
        if found is not None:
            for memory in found.memory:
                memory.name = self._ctx.fresh(memory.name.partition("~")[0] + ".loop")
            return found
        found = Rerolled(Block([*self._items]))
        if choice.rejected:
            group, numbers = next(found.block.ops()).origin.group, {"cycles": choice.cycles}
            found.decisions.append(Decision("repeat", group, "written out", "", numbers, choice.rejected))
        return found

    @cached_property
    def _written(self) -> Predicted | None:
        """Cycles of the first operations written out."""
        return self._cycles(Block([*self._first]))

    def _repeats(self, share: float) -> bool:
        """Whether there are loops."""
        return any(self._rolled(items, WAYS[0], share) is not None for items in (self._first, self._items))

    def _expected(self, way: Way, share: float, rejected: list[Alternative]) -> float | None:
        """Cycles of the first operations over those of their busiest unit, written out where nothing repeats in them.

        None: with loops, which are noted, they take longer, or there is no place for them.
        """
        looped = self._rolled(self._first, way, share)
        if looped is None:
            return _stretched(self._written) if self._long else None
        cycles = self._cycles(looped.block)
        if cycles is None:
            return None
        busy = cycles.total <= cycles.busiest * self._near
        written = None if busy else self._written
        if written is not None and not self._is_near(cycles.total / written.total, looped, way, share):
            many = sum(isinstance(item, Loop) for item in looped.block.items)
            rejected.append(Alternative(f"{many} loops", "slower", {"cycles": round(cycles.total)}))
            return None
        return _stretched(cycles)

    def _is_near(self, ratio: float, first: Rerolled, way: Way, share: float) -> bool:
        """Whether so many times the cycles written out count as equal; `first`: the first operations with loops."""
        if ratio <= (max(self._near, NEAR_IF_FAR_FEWER) if _left(first, self._first) <= FAR_FEWER else self._near):
            return True
        if len(self._items) <= VERY_LONG or ratio > NEAR_IN_VERY_LONG_ONES:
            return False
        return _left(self._rolled(self._items, way, share), self._items) <= LEFT_IN_VERY_LONG_ONES

    def _taken(self, way: Way, share: float) -> float:
        """Cycles of all operations with loops over those of their busiest unit; infinite: they have no place."""
        looped = self._rolled(self._items, way, share)
        return _stretched(self._cycles(Block([*map(_cut, looped.block.items)]))) if looped is not None else inf

    def _rolled(self, items: Sequence[Item], way: Way, share: float) -> Rerolled | None:
        """With loops; None: with hardly fewer operations."""
        key = len(items), way, share
        if key not in self._known:
            room = int(self._free * share)
            block = prefetch(Block([*items]), Lookahead(room // 2, way.ahead), set())
            ctx = self._ctx
            found = reroll(block, self._fixed, room, ctx.chip, way.spare, numbers=ctx.loop_vars, keys=self._keys)
            worth = found.decisions and sum(1 for _ in found.block.ops()) <= len(items) * WORTH
            self._known[key] = found if worth else None
        return self._known[key]

    def _cycles(self, block: Block) -> Predicted | None:
        """Predicted cycles; None: there are too few scalars or tokens, or no place for its buffers.

        Whole values that it does not use have their places beside it.
        """
        used = {buf for op in block.ops() for buf in op.buffers if buf.space is Space.VMEM} & self._ctx.whole
        taken = self._ctx.chip.vmem.bytes - self._free - sum(buf.bytes for buf in used)
        fitted = ahead(self._ctx, block, self._free, max(0, taken))
        try:
            return None if fitted.plan.failed is not None else predicted(self._ctx, fitted)
        except DoesNotFitError:
            return None


def _left(looped: Rerolled | None, items: Sequence[Item]) -> float:
    """Part of the operations that loops leave."""
    return 1 if looped is None else sum(1 for _ in looped.block.ops()) / len(items)


def _stretched(cycles: Predicted | None) -> float:
    """Cycles over those of the busiest unit; infinite: there are none."""
    return cycles.total / max(cycles.busiest, 1) if cycles is not None else inf


def _cut(item: Item) -> Item:
    """A loop of a few iterations instead of many."""
    if isinstance(item, Loop) and isinstance(item.count, int):
        return replace(item, count=min(item.count, ITERATIONS))
    return item
