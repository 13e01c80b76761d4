"""Segments: operations, and loops of tiles, without control flow between them.  Queues are joined around them alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from systolith.compiler.tile.ir import ROUTINE, Block, Item, Loop, TileOp

Segment = Sequence[TileOp | Loop]


def by_segments(block: Block, change: Callable[[Segment], Segment]) -> Block:
    """The block with its segments changed, and those of its regions; a loop of tiles is passed as a whole."""
    out = Block()
    segment: list[TileOp | Loop] = []
    for item in block.items:
        if isinstance(item, TileOp | Loop) and not _ends_segment(item):
            segment.append(item)
            continue
        out.items += change(segment)
        segment = []
        if isinstance(item, TileOp):
            out.items.append(item)
        else:
            out.items.append(item.with_regions([by_segments(region, change) for region in item.regions]))
    out.items += change(segment)
    return out


def _ends_segment(item: Item) -> bool:
    return item.source if isinstance(item, Loop) else isinstance(item, TileOp) and item.op == ROUTINE
