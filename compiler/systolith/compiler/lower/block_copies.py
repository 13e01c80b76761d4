"""Blocks that differ only in where their parts of operands and results begin: one is lowered, the others are copies.

The block that is copied is lowered with buffers of its own in place of those whose parts it reads and writes; a copy
has the real ones, its offsets moved, and fresh buffers for everything that the block makes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from systolith.compiler.memory.vmem import ON_CHIP
from systolith.compiler.schedule.operation_times import Stage, Timed
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import ROUTINE, Array, Buf, Ref, TileOp, VReg
from systolith.isa.instruction import Space
from systolith.isa.opcodes import OPCODES
from systolith.isa.program import Role


@dataclass
class Template:
    """A block to be copied.

    Attributes:
        ctx: where copies get their buffers.
        number: of the block.
        moves: for each buffer that stands for a real one: that, and the bytes from one block's part to the next one's.
        shared: buffers of the chip that hold the same for all blocks.
        blocks: the block, once it is lowered; in blocks itself, these.
        after: the state of `ctx` then.
    """

    ctx: TileBuilder
    number: int
    moves: dict[Buf, tuple[Buf, int]] = field(default_factory=dict)
    shared: set[Buf] = field(default_factory=set)
    blocks: Sequence[Sequence[Stage]] = ()
    after: Hashable = None

    def part(self, whole: Array, part: Array, d: int | None, size: int) -> Array:
        """A block's part of an operand or result, over a buffer that stands for its own; `d`: the blocked dimension."""
        if d is None:
            self.shared.add(whole.buf)
            return part
        stand_in = replace(part.buf)
        self.moves[stand_in] = part.buf, size * whole.strides[d]
        return replace(part, buf=stand_in)

    def lowered(self, blocks: Sequence[Sequence[Stage]]) -> None:
        """The block is lowered."""
        self.blocks, self.after = blocks, self.ctx.state

    @property
    def copies(self) -> bool:
        """Whether copies of its operations do what those of another block would; memory in HBM is in the way."""
        bufs = {buf for op in _ops(self.blocks) for buf in cast(TileOp, op.item).buffers}
        on_chip = (*ON_CHIP, Space.ACC)
        return can_be_copied(self.blocks) and all(
            b in self.moves or b in self.shared or b.space in on_chip or _is_given(b) for b in bufs
        )

    def copy(self, number: int) -> list[list[Stage]]:
        """The block of another number, with the same matrix units and accumulators, which are next."""
        made: dict[Buf, Buf] = {}
        self.ctx.proceed(self.after)
        return [[self._stage(stage, number - self.number, made) for stage in block] for block in self.blocks]

    def _stage(self, stage: Stage, n: int, made: dict[Buf, Buf]) -> Stage:
        return replace(stage, ops=tuple(self._timed(op, n, made) for op in stage.ops))

    def _timed(self, op: Timed, n: int, made: dict[Buf, Buf]) -> Timed:
        item = cast(TileOp, op.item).with_refs(lambda ref: self._ref(ref, n, made))
        reads, writes = (tuple(self._place(what, made) for what in places) for places in (op.reads, op.writes))
        return replace(op, item=item, reads=reads, writes=writes)

    def _ref(self, ref: Ref, n: int, made: dict[Buf, Buf]) -> Ref:
        if ref.buf is None:
            return ref
        step = self.moves[ref.buf][1] if ref.buf in self.moves else 0
        index = None if ref.index is None else self._buf(ref.index, made)
        return Ref(self._buf(ref.buf, made), ref.pattern, ref.offset + n * step, ref.dynamic, ref.bias, index)

    def _place(self, what: Hashable, made: dict[Buf, Buf]) -> Hashable:
        return self._buf(what, made) if isinstance(what, Buf) else what

    def _buf(self, buf: Buf, made: dict[Buf, Buf]) -> Buf:
        if buf in self.moves:
            return self.moves[buf][0]
        if buf in self.shared or buf.space not in ON_CHIP:
            return buf
        if buf not in made:
            made[buf] = replace(buf, name=self.ctx.fresh(buf.name.partition("~")[0]))
            if buf in self.ctx.whole:
                self.ctx.whole.add(made[buf])
                self.ctx.inner.add(made[buf])
        return made[buf]


def can_be_copied(blocks: Sequence[Sequence[Stage]]) -> bool:
    """Whether there is nothing in a block that copies cannot have: scalar operands, regions, operations of SEQ.

    Where its operands and results are may be known in the run only: no operation of a block says where.
    """
    return all(isinstance(op.item, TileOp) and _is_plain(op.item) for op in _ops(blocks))


def _ops(blocks: Sequence[Sequence[Stage]]) -> Iterator[Timed]:
    return (op for block in blocks for stage in block for op in stage.ops)


def _is_plain(op: TileOp) -> bool:
    if op.op == ROUTINE or OPCODES[op.op].queue == "seq":
        return False
    return not any(type(v) is VReg for value in op.args.values() for v in (value if type(value) is tuple else (value,)))


def _is_given(buf: Buf) -> bool:
    """Whether a buffer in HBM is one that all blocks read as it is."""
    return buf.decl is not None and buf.decl.role in (Role.PARAMETER, Role.CONSTANT)
