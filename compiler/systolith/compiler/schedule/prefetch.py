"""Schedule: loads move ahead in program order, so that transfers run while earlier work computes.

Every queue runs ahead on its own, but SEQ issues in program order: a load behind operations whose queue is full
waits with them.  So within a segment without control flow each load is issued ahead of its use, as far as the bytes
and the depth of the load queue allow.  Loads keep their order.  A loop of tiles is passed as a whole; in its body
nothing moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from systolith.compiler.schedule.segments import Segment, by_segments
from systolith.compiler.tile.ir import Block, Buf, Loop, Ref, TileOp, registers_of
from systolith.isa.instruction import Space


@dataclass(frozen=True)
class Lookahead:
    """How far loads run ahead.

    Attributes:
        bytes: of VMEM that loads ahead of their place may take.
        loads: how many.
        less: bytes up to which loads of some groups may join these.
    """

    bytes: int
    loads: int
    less: Mapping[str, int] = field(default_factory=dict)

    def of(self, group: str) -> int:
        """Bytes up to which loads of a group may be ahead."""
        return self.less.get(group, self.bytes)


def prefetch(block: Block, ahead: Lookahead, moved: set[TileOp]) -> Block:
    """The block with loads moved ahead; those that moved are added to `moved`."""
    return by_segments(block, lambda ops: _segment(ops, ahead, moved))


@dataclass(frozen=True)
class _Load:
    """A load that may move: the operation, its place, the place after which it may stand, its bytes."""

    op: TileOp
    place: int
    after: int
    bytes: int


def _segment(ops: Segment, ahead: Lookahead, moved: set[TileOp]) -> Segment:
    loads = _loads(ops)
    if not loads or not ahead.loads:
        return ops
    out: list[TileOp | Loop] = []
    issued = passed = bytes_ahead = 0
    for place, op in enumerate(ops):
        while issued < len(loads):
            load = loads[issued]
            fits = bytes_ahead + load.bytes <= ahead.of(load.op.origin.group) and issued - passed < ahead.loads
            if load.after >= place or not (fits or load.place <= place):
                break
            out.append(load.op)
            if load.place > place:
                moved.add(load.op)
            bytes_ahead += load.bytes
            issued += 1
        if passed < len(loads) and loads[passed].place == place:
            bytes_ahead -= loads[passed].bytes
            passed += 1
            continue
        out.append(op)
    return out


def _loads(ops: Segment) -> list[_Load]:
    """Loads from HBM to VMEM that no loop moves: their order is kept, so `after` never decreases."""
    used: dict[Buf, int] = {}
    set_at: dict[object, int] = {}
    found: list[_Load] = []
    floor = -1
    for place, op in enumerate(ops):
        if isinstance(op, Loop):
            used |= {buf: place for inner in op.body.ops() for buf in inner.buffers}
            continue
        load = _is_load(op)
        if load:
            # `used` holds no loads from HBM buffers, so what it has for the source may have written it; the list of
            # indices where the load goes is read.
            floor = max(floor, *(used.get(buf, -1) for buf in op.buffers))
            src = cast(Ref, op.args["src"])
            floor = max([floor, *(set_at.get(r, -1) for r in registers_of(src.dynamic))])
            found.append(_Load(op, place, floor, src.pattern.elements * src.pattern.dtype.size))
        if "rd" in op.args:
            set_at[op.args["rd"]] = place
        for buf in op.buffers:
            if not (load and buf.space == Space.HBM):
                used[buf] = place
    return found


def _is_load(op: TileOp) -> bool:
    if op.op != "dma.load":
        return False
    src, dst = cast(Ref, op.args["src"]), cast(Ref, op.args["dst"])
    if src.buf is None or dst.buf is None or dst.dynamic is not None or src.moves or dst.moves:
        return False
    return src.buf.space == Space.HBM and dst.buf.space == Space.VMEM and src.index is None
