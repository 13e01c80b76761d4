"""Groups that are alike: one is lowered, the others are copies of it, over other buffers and under other names.

Layers of a module have groups that are alike, and so have compilations of one module for several chips.  Lowering a
group depends on its operations, on how its arrays lie, on the room for its tiles, on what the matrix units do next, and
on the fields of the chip that it reads, which are on record (`isa/chip_reads.py`).  Names decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import cast

from systolith.compiler.cost.room import Room
from systolith.compiler.lower.alike import Source
from systolith.compiler.lower.group_template import Lowered, Note
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Block, Buf
from systolith.isa.chip import Chip
from systolith.isa.chip_reads import Known

KEPT = 1_000_000
"""Operations of groups that are kept to be copied.  A training step of GPT-2 small has over 400,000, all lowered in
turn, and once more where a loop of one group has no place beside the others.
"""


class GroupCopies:
    """What was lowered of a module, for any chip."""

    def __init__(self) -> None:
        self._known: Known[Lowered | None] = Known(KEPT, lambda kept: 1 if kept is None else 1 + len(kept.items))

    def lower(self, ctx: TileBuilder, source: Source, more: Hashable, lower: Callable[[], Note]) -> Note:
        """Append the operations of a group.

        Args:
            ctx: where to.
            source: the group.
            more: what its lowering depends on besides.
            lower: lowers it by the context's chip; gives what is to be known of it besides what the context knows, None
                if that cannot be said of a copy, too.

        Returns:
            The same.
        """
        here = list[Lowered | None]()

        def make(chip: Chip) -> Lowered | None:
            outer, ctx.chip = ctx.chip, chip
            try:
                here.append(_lowered(ctx, source, lower))
            finally:
                ctx.chip = outer
            return here[0]

        def fits(kept: Lowered | None) -> bool:
            return kept is None or kept.room is None or kept.room.serves(ctx.budget)

        # Blocks in the making take turns by the accumulators that they have; in all else these are alike.
        state = ctx.state if source.in_blocks else None
        found = self._known.get((source.key, more, state), ctx.chip, make, fits)
        if here:
            return None if found is None else found.note
        if found is None or found.largest > ctx.capacity or found.template is None or not found.template.fits(ctx):
            return lower()
        found.template.copy(ctx, source)
        return found.note


def _lowered(ctx: TileBuilder, source: Source, lower: Callable[[], Note]) -> Lowered | None:
    start, drawn, decided = len(ctx.block.items), len(ctx.drawn), len(ctx.explain)
    taken, before = len(ctx.sums), (len(ctx.whole), len(ctx.buffers), ctx.registers)
    room, budget = None, ctx.budget
    if source.asks_for_room:
        room = Room(budget)
        ctx.budget = cast(int, room)
    try:
        note = lower()
    finally:
        ctx.budget = budget
    if note is None or (len(ctx.buffers), ctx.registers) != before[1:]:
        return None
    items = ctx.block.items[start:]
    whole = inner = frozenset[Buf]()
    if len(ctx.whole) > before[0]:
        bufs = {b for op in Block([*items]).ops() for b in op.buffers}
        whole, inner = frozenset(bufs & ctx.whole), frozenset(bufs & ctx.inner)
    return Lowered(
        source=source,
        note=note,
        items=items,
        drawn=ctx.drawn[drawn:],
        explain=ctx.explain[decided:],
        sums=[] if source.in_blocks else [s._replace(place=s.place - start) for s in ctx.sums[taken:]],
        ring=ctx.ring,
        room=room,
        state=ctx.state,
        row_bytes=ctx.chip.mxu.cols * 4,
        units=ctx.chip.mxu.count,
        whole=whole,
        inner=inner,
    )
