"""Blocks whose buffers share places: each has its values where the block before it had its own, or the one before that.

So blocks do not only repeat, they are the same but for what they load and store, and a loop of them is also the same as
another one further on.  Loads have buffers of their own, so that they can run ahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from systolith.compiler.schedule.operation_times import Stage, Timed
from systolith.compiler.tile.ir import Buf, Item, Ref, TileOp
from systolith.isa.instruction import Space

Use = tuple[int, int]
"""An operation of a block: the numbers of its stage, and of itself there."""


def own_buffers(blocks: Sequence[Sequence[Stage]]) -> dict[Buf, tuple[Use, Use]]:
    """The buffers that the second block has in the place of others of the third one: their first use, and the last."""
    block, after = blocks[1:3]
    shared = {buf for stage in after for op in stage.ops for buf in _on_chip(op)}
    found: dict[Buf, tuple[Use, Use]] = {}
    for k, stage in enumerate(block):
        for n, op in enumerate(stage.ops):
            for buf in _on_chip(op):
                if buf not in shared:
                    found[buf] = found.get(buf, ((k, n),))[0], (k, n)
    return found


def sharing(blocks: Sequence[Sequence[Stage]], ops: Sequence[tuple[int, Timed]], places: int, room: int) -> list[Item]:
    """The operations of blocks in an order, on the buffers of a few blocks: those of others are in their places.

    Args:
        blocks: their stages.
        ops: the operations, each with the number of its block.
        places: so many blocks, from the second on, have the buffers of all, in turn.
        room: bytes of VMEM that these may take.
    """
    if not places:
        return [op.item for _, op in ops]
    loaded = {buf for _, op in ops if op.queue == "ld" for buf in op.writes}
    own = [buf for buf in own_buffers(blocks) if buf not in loaded]
    if sum(buf.bytes for buf in own) * places > room:
        return [op.item for _, op in ops]
    place: dict[Buf, Buf] = {}
    for n, block in enumerate(blocks):
        typical = blocks[1 + (n - 1) % places]
        same = {mine: there for mine, there in _pairs(blocks[1], typical) if mine in own}
        for mine, other in _pairs(blocks[1], block):
            if mine in same and other not in loaded and (other.bytes, other.align) == (mine.bytes, mine.align):
                place.setdefault(other, same[mine])
    for mine in _not_in_turn(ops, place):
        place = {buf: where for buf, where in place.items() if where is not mine}
    return [_moved(op.item, place) for _, op in ops]


def _pairs(typical: Sequence[Stage], block: Sequence[Stage]) -> Iterator[tuple[Buf, Buf]]:
    """Buffers on the chip that the same operations of two blocks use; one that has more begins with these."""
    for mine, other in zip(typical, block, strict=False):
        for one, two in zip(mine.ops[::-1], other.ops[::-1], strict=False):
            yield from zip(_on_chip(one), _on_chip(two), strict=False)


def _on_chip(op: Timed) -> list[Buf]:
    refs = op.item.refs if isinstance(op.item, TileOp) else []
    return [ref.buf for ref in refs if ref.buf is not None and ref.buf.space is Space.VMEM]


def _not_in_turn(ops: Sequence[tuple[int, Timed]], place: dict[Buf, Buf]) -> set[Buf]:
    """Places that a block would use when another one's values are there."""
    found = set[Buf]()
    user: dict[Buf, tuple[int, Buf]] = {}
    for block, op in ops:
        for buf in _on_chip(op):
            mine = place.get(buf)
            if mine is None:
                continue
            before = user.get(mine, (block, buf))
            if before[0] > block or (before[1] is not buf and before[0] == block):
                found.add(mine)
            user[mine] = block, buf
    return found


def _moved(item: Item, place: dict[Buf, Buf]) -> Item:
    if not isinstance(item, TileOp) or not any(buf in place for buf in item.buffers):
        return item
    return item.with_refs(lambda ref: _ref(ref, place))


def _ref(ref: Ref, place: dict[Buf, Buf]) -> Ref:
    index = ref.index if ref.index is None else place.get(ref.index, ref.index)
    return replace(ref, buf=place.get(ref.buf, ref.buf), index=index) if ref.buf is not None else ref
