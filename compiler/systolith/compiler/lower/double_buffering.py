"""Double buffering: loops whose iterations have one of two sets of buffers, so that one loads while another computes.

The body of a `while` becomes two iterations, one after the other.  What an iteration makes for itself lies in buffers
of its own.  A part of the state that an iteration renews whole lies in two buffers in turn: while the old one is stored
the next one is made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from systolith.compiler.lower.lowered import LoweredGroup
from systolith.compiler.lower.lowering import Lowering
from systolith.compiler.memory.vmem import ON_CHIP
from systolith.compiler.tile.ir import Arg, Array, Block, Buf, Item, Loop, Ref, TileOp
from systolith.compiler.tile.repeated import repeated
from systolith.isa.instruction import Space
from systolith.isa.opcodes import OPCODES

FEWEST = 6
"""Iterations of a loop that is worth it: two or three are written out."""

LARGEST = 256
"""Operations of its body at most: in a long iteration there is enough to do besides."""

SHARE = 8
"""Its buffers take at most this part of VMEM once."""

_MEMORIES = (Space.HBM, Space.HOST, Space.LINK)


def double_buffered(
    lowering: Lowering, body: list[TileOp], count: int, outside: Collection[Buf], name: str
) -> list[TileOp | Loop] | None:
    """The iterations of a loop that moves data to or from other memories.

    None: it does not, is too short, or too large.

    Args:
        lowering: of the loop; its records become those of both iterations.
        body: operations of an iteration.
        count: of iterations.
        outside: buffers that the body shares with what is around it, and with other iterations.
        name: of the loop.
    """
    if not any(ref.buf.space in _MEMORIES for op in body for ref in op.refs if ref.buf is not None):
        return None
    own, renewed = _own(body, outside), _renewed(body, outside)
    buffers = sum(b.bytes for b in (*own, *renewed))
    if count < FEWEST or len(body) > LARGEST or buffers * SHARE > lowering.ctx.chip.vmem.bytes:
        return None
    other = {buf: _another(lowering, buf) for buf in own}
    here = {buf: buf for buf in renewed}
    there = {buf: _another(lowering, buf) for buf in renewed}
    ways = [_Buffers({}, here, there, renewed), _Buffers(other, there, here, renewed)]
    ways += [_Buffers(other, here, here, renewed)] * (count % 2)
    records = [(r, _numbers(r, body)) for r in lowering.records]
    marked = {numbers[-1] for _, numbers in records if numbers and all(_is_scalar(body[n]) for n in numbers)}
    turns = [_Turn.of(way, body if n == 0 else _again(lowering, body), marked) for n, way in enumerate(ways)]
    lowering.records = [made for r, numbers in records for made in _copies(r, numbers, turns)]
    one, two, *odd = turns
    pair: list[Item] = [*one.scalars, *two.scalars, *one.places.values(), *two.places.values()]
    alone = [op for turn in odd for op in (*turn.scalars, *turn.places.values())]
    held = (*other, *other.values(), *there.values())
    return [*alone, Loop(lowering.ctx.vreg(), count // 2, Block(pair), name, source=True, held=held)]


@dataclass(frozen=True)
class _Buffers:
    """Where an iteration has what lies in the buffers of the body.

    Attributes:
        own: what it makes for itself.
        before, after: parts of the state, before and after they are renewed.
        renewed: the number of the operation that does it.
    """

    own: Mapping[Buf, Buf]
    before: Mapping[Buf, Buf]
    after: Mapping[Buf, Buf]
    renewed: Mapping[Buf, int]

    def at(self, place: int, buf: Buf | None) -> Buf | None:
        """What an operation of a number reads, or the one before it wrote."""
        if buf is None:
            return None
        if buf in self.renewed:
            return (self.before if place <= self.renewed[buf] else self.after)[buf]
        return self.own.get(buf, buf)

    def op(self, n: int, op: TileOp) -> TileOp:
        """Operation number `n` in these buffers."""

        def moved(ref: Ref, written: bool) -> Ref:
            return replace(ref, buf=self.at(n + written, ref.buf), index=self.at(n, ref.index))

        args: dict[str, Arg] = {}
        for name, value in op.args.items():
            if isinstance(value, Ref):
                args[name] = moved(value, name == "dst")
            elif name == "streams":
                streams = enumerate(cast(tuple[Ref, ...], value))
                args[name] = tuple(moved(ref, k in op.stored) for k, ref in streams)
            else:
                args[name] = value
        return TileOp(op.op, args, op.origin, op.unit)

    def arrays(self, named: Sequence[tuple[str, Array]], place: int) -> tuple[tuple[str, Array], ...]:
        """Arrays that lie in buffers of the body."""
        return tuple((name, replace(a, buf=cast(Buf, self.at(place, a.buf)))) for name, a in named)


@dataclass(frozen=True)
class _Turn:
    """An iteration: operations of the sequencer, and the others: loads move ahead of nothing that sets their addresses.

    Attributes:
        way: its buffers.
        scalars: operations that come first; none where it reads scalars from memory.
        places: the others by their numbers in the body, and what stands where scalars of a group without others were.
    """

    way: _Buffers
    scalars: list[TileOp]
    places: dict[int, TileOp]

    @staticmethod
    def of(way: _Buffers, body: Sequence[TileOp], marked: Collection[int]) -> _Turn:
        """The iteration of a body in some buffers; the places of `marked` scalars are kept, for checks."""
        made = {n: way.op(n, op) for n, op in enumerate(body)}
        if any(op.op == "lds" for op in body):
            return _Turn(way, [], made)
        scalars = {n: op for n, op in made.items() if _is_scalar(op)}
        marks = {n: TileOp("sync", {}, scalars[n].origin) for n in marked}
        places = {n: marks.get(n, op) for n, op in made.items() if n in marks or n not in scalars}
        return _Turn(way, list(scalars.values()), places)


def _is_scalar(op: TileOp) -> bool:
    return OPCODES[op.op].queue == "seq"


def _numbers(record: LoweredGroup, body: Sequence[TileOp]) -> list[int]:
    """The numbers in the body of a group's operations."""
    there = set(record.ops)
    return [n for n, op in enumerate(body) if op in there]


def _copies(record: LoweredGroup, numbers: Sequence[int], turns: Sequence[_Turn]) -> Iterator[LoweredGroup]:
    """A record for each iteration that is written out, if it is of the body."""
    if not numbers:
        yield record
        return
    for turn in turns:
        own = [n for n in numbers if n in turn.places]
        inputs, outputs = (
            turn.way.arrays(named, at) for named, at in ((record.inputs, own[0]), (record.outputs, own[-1] + 1))
        )
        yield LoweredGroup(record.group, [turn.places[n] for n in own], inputs, outputs)


def _another(lowering: Lowering, buf: Buf) -> Buf:
    """A buffer like another one."""
    ctx = lowering.ctx
    made = replace(buf, name=ctx.fresh(buf.name))
    for members in (ctx.whole, ctx.inner):
        if buf in members:
            members.add(made)
    if buf in lowering.owners:
        lowering.owners[made] = lowering.owners[buf]
    return made


def _again(lowering: Lowering, body: Sequence[TileOp]) -> list[TileOp]:
    """The operations with registers of their own."""
    return [op for op in repeated(Block([*body]), lowering.ctx.vreg, {}).items if isinstance(op, TileOp)]


def _own(body: Sequence[TileOp], outside: Collection[Buf]) -> list[Buf]:
    """Buffers on the chip that an iteration writes before it reads them, and nothing else uses."""
    found: dict[Buf, bool] = {}
    for op in body:
        written = {ref.buf for ref in op.written}
        for buf in op.buffers:
            if buf.space in ON_CHIP and buf not in outside:
                found.setdefault(buf, buf in written)
    return [buf for buf, fresh in found.items() if fresh]


def _renewed(body: Sequence[TileOp], outside: Collection[Buf]) -> dict[Buf, int]:
    """Buffers of the state that one operation writes, all of it; with its number."""
    writers: dict[Buf, list[tuple[int, Ref]]] = {}
    for n, op in enumerate(body):
        for ref in op.written:
            if ref.buf is not None and ref.buf in outside and ref.buf.space is Space.VMEM:
                writers.setdefault(ref.buf, []).append((n, ref))
    return {buf: n for buf, ((n, ref), *more) in writers.items() if not more and _covers(ref, buf)}


def _covers(ref: Ref, buf: Buf) -> bool:
    """Whether a stream is every byte of a buffer, each once."""
    p = ref.pattern
    if ref.offset or ref.dynamic is not None or ref.moves or p.coords or p.indirect >= 0:
        return False
    size = p.dtype.size
    for stride, n in sorted(zip(p.strides, p.counts, strict=True)):
        if n > 1 and stride != size:
            return False
        size *= n
    return size == buf.bytes
