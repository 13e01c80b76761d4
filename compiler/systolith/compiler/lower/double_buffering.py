"""Double buffering of infeeds: loops whose iterations overlap, so that the host sends one item while another is used.

The body of a `while` becomes two iterations with buffers of their own, one after the other, in a `Loop`.  The first two
iterations and the last two are written out around it, so that each iteration of the loop finds the queues as every
other one does, and tokens carry the order over its edge (`emit/loops.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from systolith.compiler.hlo.ir import Computation
from systolith.compiler.lower.lowering import Lowering
from systolith.compiler.memory.vmem import ON_CHIP
from systolith.compiler.ops.table import Family, family
from systolith.compiler.tile.ir import Block, Buf, Loop, Ref, TileOp

FEWEST = 8
"""Iterations of a loop that is worth it: four are written out."""

LARGEST = 256
"""Operations of its body at most: of a long iteration the wait at its end is a small part."""

SHARE = 8
"""Its buffers take at most this part of VMEM once."""


def takes_items(body: Computation) -> bool:
    """Whether an iteration takes or puts something for the host."""
    return any(family(i) is Family.HOST for i in body.instructions)


def double_buffered(
    lowering: Lowering, body: list[TileOp], count: int, outside: Collection[Buf], name: str
) -> list[TileOp | Loop] | None:
    """The iterations of a loop, overlapping; None: it is too short, or too large.

    Args:
        lowering: of the loop.
        body: operations of an iteration.
        count: of iterations.
        outside: buffers that the body shares with what is around it, and with other iterations.
        name: of the loop.
    """
    ctx = lowering.ctx
    own = _own(body, outside)
    if count < FEWEST or len(body) > LARGEST or sum(b.bytes for b in own) * SHARE > ctx.chip.vmem.bytes:
        return None
    other: dict[Buf, Buf] = {}
    for buf in own:
        made = other[buf] = replace(buf, name=ctx.fresh(buf.name))
        for members in (ctx.whole, ctx.inner):
            if buf in members:
                members.add(made)
        if buf in lowering.owners:
            lowering.owners[made] = lowering.owners[buf]
    odd = _copy(body, other) if count % 2 else []
    loop = Loop(ctx.vreg(), count // 2 - 2, Block([*body, *_copy(body, other)]), name)
    edge = [[*_copy(body, {}), *_copy(body, other)] for _ in range(2)]
    return [*odd, *edge[0], loop, *edge[1]]


def _own(body: list[TileOp], outside: Collection[Buf]) -> list[Buf]:
    """Buffers on the chip that an iteration writes before it reads them, and nothing else uses."""
    found: dict[Buf, bool] = {}
    for op in body:
        written = {ref.buf for ref in op.written}
        for buf in op.buffers:
            if buf.space in ON_CHIP and buf not in outside:
                found.setdefault(buf, buf in written)
    return [buf for buf, fresh in found.items() if fresh]


def _copy(body: list[TileOp], other: Mapping[Buf, Buf]) -> list[TileOp]:
    """The operations again, with other buffers."""

    def renamed(ref: Ref) -> Ref:
        buf = None if ref.buf is None else other.get(ref.buf, ref.buf)
        return replace(ref, buf=buf, index=None if ref.index is None else other.get(ref.index, ref.index))

    return [op.with_refs(renamed) for op in body]
