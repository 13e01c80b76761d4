"""Which bytes an instruction reads and writes, for tokens and for the hazard checker: intervals, or runs at a pitch.

Both use this function, so that what the compiler orders and what the checker demands are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from systolith.isa.geometry import Bias, Interval, interval, pitched
from systolith.isa.instruction import Instruction, Operand, Reg, Space, Stream
from systolith.isa.pattern import Pattern

if TYPE_CHECKING:
    from systolith.isa.chip import Chip
    from systolith.isa.program import Program


class Tile(IntEnum):
    """State of an MXU that instructions share as if it were memory (`buffer`: which MXU; bytes 0 to 1)."""

    SHADOW = 8
    ACTIVE = 9


@dataclass(frozen=True, slots=True)
class Access:
    """Bytes lo to hi - 1 of a space, or of every `pitch` bytes from lo on the first `run`.

    Attributes:
        space: memory, or an MXU's tile.
        buffer: HBM: buffer-table entry (of buffers that share memory, the first); ACC and tiles: MXU; HOST: queue;
            LINK: link.
        write: written (it may be read, too).
        dynamic: an operand is a register or an index list: the interval is all that it may be.
        run, pitch: bytes; a pitch of 0 is an interval without gaps.
    """

    space: Space | Tile
    buffer: int
    lo: int
    hi: int
    write: bool
    dynamic: bool = False
    run: int = 0
    pitch: int = 0

    def meets(self, other: Access) -> bool:
        """Whether the two share a byte."""
        same = self.space == other.space and self.buffer == other.buffer
        if not same or self.lo >= other.hi or other.lo >= self.hi:
            return False
        pitch = self.pitch or other.pitch
        if not pitch:
            return True
        if self.pitch and other.pitch and self.pitch != other.pitch:
            return bool(np.intersect1d(self._bytes(), other._bytes()).size)
        ours, theirs = (a.run if a.pitch else a.hi - a.lo for a in (self, other))
        ahead = (other.lo - self.lo) % pitch
        return ahead < ours or ahead + theirs > pitch

    def _bytes(self) -> npt.NDArray[np.int64]:
        starts = np.arange(self.lo, self.hi, self.pitch, dtype=np.int64)
        return np.add.outer(starts, np.arange(self.run, dtype=np.int64)).ravel()


def memory_of(buffer: int, program: Program) -> int:
    """The buffer-table entry whose memory a buffer uses: itself, or what it is an alias of."""
    while program.buffers[buffer].alias >= 0:
        buffer = program.buffers[buffer].alias
    return buffer


def size_of(space: Space | Tile, buffer: int, program: Program, chip: Chip) -> int:
    """Bytes of a space; HOST, LINK and tiles: what an access to all of it is said to touch."""
    if space is Space.HBM:
        return program.buffers[buffer].bytes
    sizes: dict[Space | Tile, int] = {
        Space.VMEM: chip.vmem.bytes,
        Space.LINK: chip.vmem.bytes,
        Space.SMEM: chip.smem.bytes,
        Space.ACC: chip.mxu.acc_rows * chip.mxu.cols * 4,
    }
    return sizes.get(space, 1)


def _known(operand: Operand) -> int | None:
    if isinstance(operand, Reg):
        return 0 if operand.n == 0 else None
    return operand


def stream_accesses(stream: Stream, write: bool, program: Program, chip: Chip) -> Iterator[Access]:
    """What one stream touches: its elements, and the index list if it has one."""
    pattern = program.patterns[stream.pattern]
    space = stream.space
    if space is Space.NONE:
        return
    buffer = memory_of(stream.buffer, program) if space is Space.HBM else stream.buffer
    if space in (Space.VMEM, Space.SMEM):
        buffer = 0
    if pattern.indirect >= 0:
        yield _index_list(stream, pattern, chip)
    if space is Space.HOST:
        # A queue is used up in order, whatever is read.
        yield Access(space, buffer, 0, 1, True)
        return
    span = interval(pattern, _bias(stream, pattern))
    if span is None:
        return
    base = _known(stream.base)
    if base is None or not isinstance(span, Interval):
        yield Access(space, buffer, 0, size_of(space, stream.buffer, program, chip), write, True)
        return
    # Bounds depend on no index: an indirect interval that is known is one that its coordinates bound.
    yield Access(space, buffer, base + span.lo, base + span.hi, write, pattern.indirect >= 0, *pitched(pattern))


def _bias(stream: Stream, pattern: Pattern) -> Bias:
    if all(c.bias < 0 for c in pattern.coords):
        return (0, 0)
    return (_known(stream.bias[0]), _known(stream.bias[1]))


def _index_list(stream: Stream, pattern: Pattern, chip: Chip) -> Access:
    at = _known(stream.index)
    if at is None:
        return Access(Space.VMEM, 0, 0, chip.vmem.bytes, False, True)
    return Access(Space.VMEM, 0, at, at + 4 * pattern.counts[pattern.indirect], False)


def _word(instr: Instruction, write: bool, chip: Chip) -> Access:
    at = _known(cast(Operand, instr.args["ra"]))
    if at is None:
        return Access(Space.SMEM, 0, 0, chip.smem.bytes, write, True)
    at += cast(int, instr.args["imm"])
    return Access(Space.SMEM, 0, at, at + 4, write)


def _accumulators(instr: Instruction, program: Program, chip: Chip) -> Access:
    pattern = program.patterns[cast(Stream, instr.args["src"]).pattern]
    row = _known(cast(Operand, instr.args["acc"]))
    width = chip.mxu.cols * 4
    if row is None:
        return Access(Space.ACC, instr.unit, 0, chip.mxu.acc_rows * width, True, True)
    rows = prod(pattern.counts[: cast(int, instr.args["row_loops"])])
    return Access(Space.ACC, instr.unit, row * width, (row + rows) * width, True)


def _kernel_uses(instr: Instruction, program: Program) -> tuple[set[int], set[int], set[int]]:
    """(streams that the kernel loads, that it stores, of which it asks for coordinates)."""
    kernel = program.kernels[cast(int, instr.args["kernel"])]
    ops = [m for s in (kernel.prologue, kernel.body, kernel.epilogue) for m in s.ops]
    asked = {m.imm % 16 for m in ops if m.op in ("coord", "inside")}
    return {m.imm for m in ops if m.op == "ld"}, {m.imm for m in ops if m.op == "st"}, asked


def accesses(instr: Instruction, program: Program, chip: Chip) -> list[Access]:
    """Everything an instruction reads and writes in memory, MXU tiles included.

    Registers as operands give the whole space or buffer, marked `dynamic`; an instruction whose operands have been
    resolved (integers in their place, `ra` of lds and sts too) gives what that execution touches.
    """
    op, unit, args = instr.op, instr.unit, instr.args
    if op == "lds" or op == "sts":
        return [_word(instr, op == "sts", chip)]
    if op == "mxu.latch":
        return [Access(Tile.SHADOW, unit, 0, 1, False), Access(Tile.ACTIVE, unit, 0, 1, True)]
    out: list[Access] = []
    if op == "mxu.load":
        out.append(Access(Tile.SHADOW, unit, 0, 1, True))
    elif op == "mxu.matmul":
        out += [Access(Tile.ACTIVE, unit, 0, 1, False), _accumulators(instr, program, chip)]
    elif op == "vpu.run":
        loads, stores, asked = _kernel_uses(instr, program)
        for i, s in enumerate(cast(tuple[Stream, ...], args["streams"])):
            for write in [False] * (i in loads) + [True] * (i in stores):
                out += stream_accesses(s, write, program, chip)
            if i in asked and program.patterns[s.pattern].indirect >= 0:
                out.append(_index_list(s, program.patterns[s.pattern], chip))
    if "src" in args:
        out += stream_accesses(cast(Stream, args["src"]), False, program, chip)
    if "dst" in args:
        out += stream_accesses(cast(Stream, args["dst"]), True, program, chip)
    return out
