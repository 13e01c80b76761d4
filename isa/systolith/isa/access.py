"""Which bytes an instruction reads and writes, for tokens and for the hazard checker: intervals, or runs at a pitch.

Both use this function, so that the compiler orders the same accesses that the checker compares.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from math import prod
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from systolith.isa.geometry import Interval, Unknown, interval, pitched
from systolith.isa.instruction import Instruction, Operand, Reg, Space, Stream
from systolith.isa.kernel import Kernel
from systolith.isa.pattern import Pattern
from systolith.isa.program import Role

if TYPE_CHECKING:
    from systolith.isa.chip import Chip
    from systolith.isa.program import Program


class Tile(IntEnum):
    """State of an MXU that instructions share as if it were memory (`buffer`: which MXU; bytes 0 to 1)."""

    SHADOW = 8
    ACTIVE = 9

    __hash__ = int.__hash__


class Access(NamedTuple):
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
            few, many = sorted((self, other), key=lambda a: a.runs)
            return few._meets_runs(many)
        ours, theirs = (a.run if a.pitch else a.hi - a.lo for a in (self, other))
        ahead = (other.lo - self.lo) % pitch
        return ahead < ours or ahead + theirs > pitch

    @property
    def runs(self) -> int:
        """How many runs there are at a pitch."""
        return -(-(self.hi - self.lo) // self.pitch)

    def _meets_runs(self, other: Access) -> bool:
        """The same for runs at another pitch: whether one of these overlaps one of those."""
        starts = np.arange(self.runs, dtype=np.int64) * self.pitch + (self.lo - other.lo)
        first = (starts - other.run) // other.pitch + 1  # of the other's runs, that ends behind the start
        last = (starts + self.run - 1) // other.pitch  # that begins before the end
        return bool((np.maximum(first, 0) <= np.minimum(last, other.runs - 1)).any())


def memory_of(buffer: int, program: Program) -> int:
    """The buffer-table entry whose memory a buffer uses: itself, or the one that it is an alias of."""
    return place_of(buffer, program)[0]


def place_of(buffer: int, program: Program) -> tuple[int, int]:
    """The buffer-table entry whose memory a buffer uses, and the bytes of that before it."""
    offset = 0
    while program.buffers[buffer].alias >= 0:
        offset += program.buffers[buffer].offset
        buffer = program.buffers[buffer].alias
    return buffer, offset


def size_of(space: Space | Tile, buffer: int, program: Program, chip: Chip) -> int:
    """Bytes of a space; HOST, LINK and tiles: the length of an access to all of it."""
    if space is Space.HBM:
        return program.buffers[buffer].bytes
    if space is Space.VMEM or space is Space.LINK:
        return chip.vmem.bytes
    if space is Space.ACC:
        return chip.mxu.acc_rows * chip.mxu.cols * 4
    return chip.smem.bytes if space is Space.SMEM else 1


def _known(operand: Operand) -> int | None:
    if isinstance(operand, Reg):
        return 0 if operand.n == 0 else None
    return operand


def _word(instr: Instruction, write: bool, chip: Chip) -> Access:
    at = _known(cast(Operand, instr.args["ra"]))
    if at is None:
        return Access(Space.SMEM, 0, 0, chip.smem.bytes, write, True)
    at += cast(int, instr.args["imm"])
    return Access(Space.SMEM, 0, at, at + 4, write)


class _Span(NamedTuple):
    """Properties of a stream that depend on its pattern alone; `fixed`: `reach` does not depend on bias operands."""

    pattern: Pattern
    fixed: bool
    reach: Interval | Unknown | None
    run: int
    pitch: int


class AccessModel:
    """Accesses of a program's instructions; caches those properties that patterns, kernels and buffers determine.

    These may be added to the program while it is in use, but not changed.
    """

    def __init__(self, program: Program, chip: Chip) -> None:
        self.program = program
        self.chip = chip
        self._spans: dict[int, _Span] = {}
        self._uses: dict[int, tuple[set[int], set[int], set[int]]] = {}

    def of(self, instr: Instruction) -> list[Access]:
        """As `accesses`."""
        op, unit, args = instr.op, instr.unit, instr.args
        if op == "lds" or op == "sts":
            return [_word(instr, op == "sts", self.chip)]
        if op == "mxu.latch":
            return [Access(Tile.SHADOW, unit, 0, 1, False), Access(Tile.ACTIVE, unit, 0, 1, True)]
        out: list[Access] = []
        if op == "mxu.load":
            out.append(Access(Tile.SHADOW, unit, 0, 1, True))
        elif op == "mxu.matmul":
            out += [Access(Tile.ACTIVE, unit, 0, 1, False), self._accumulators(instr)]
        elif op == "vpu.run":
            self._vector(instr, out)
        if "src" in args:
            self._stream(cast(Stream, args["src"]), False, out)
        if "dst" in args:
            self._stream(cast(Stream, args["dst"]), True, out)
        return out

    def _span(self, number: int) -> _Span:
        span = self._spans.get(number)
        if span is None:
            pattern = self.program.patterns[number]
            fixed = all(c.bias < 0 for c in pattern.coords)
            reach = interval(pattern) if fixed else None
            span = self._spans[number] = _Span(pattern, fixed, reach, *pitched(pattern))
        return span

    def _stream(self, stream: Stream, write: bool, out: list[Access]) -> None:
        """Append the accesses of one stream: its elements, and the index list if it has one."""
        space, buffer, before = stream.space, stream.buffer, 0
        if space is Space.NONE:
            return
        entry = _known(stream.entry)
        if entry is None:
            self._stack(stream, write, out)
            return
        pattern, fixed, reach, run, pitch = self._span(stream.pattern)
        if space is Space.HBM:
            buffer, before = place_of(buffer + entry, self.program)
        elif space is Space.VMEM or space is Space.SMEM:
            buffer = 0
        indirect = pattern.indirect >= 0
        if indirect:
            out.append(self._index_list(stream, pattern))
        if space is Space.HOST:
            # One DMA queue takes all infeeds, the other has all outfeeds: bytes go in the order of their starts.  Only
            # what a function of the host returns waits for what it is called with.
            called = write, self._role(stream)
            if called in ((True, Role.CALL), (False, Role.RETURN)):
                out.append(Access(space, buffer, 0, 1, write))
            return
        if not fixed:
            reach = interval(pattern, (_known(stream.bias[0]), _known(stream.bias[1])))
        if reach is None:
            return
        base = _known(stream.base)
        if base is None or not isinstance(reach, Interval):
            size = size_of(space, stream.buffer, self.program, self.chip)
            out.append(Access(space, buffer, before, before + size, write, True))
            return
        base += before
        # Bounds depend on no index: an indirect interval that is known is one that its coordinates bound.
        out.append(Access(space, buffer, base + reach.lo, base + reach.hi, write, indirect, run, pitch))

    def _stack(self, stream: Stream, write: bool, out: list[Access]) -> None:
        """Append the accesses of a stream to each entry that it may name."""
        for n in range(self.program.buffers[stream.buffer].stack):
            found: list[Access] = []
            self._stream(replace(stream, buffer=stream.buffer + n, entry=0), write, found)
            out += [a._replace(dynamic=True) if a.space is Space.HBM else a for a in found]

    def _role(self, stream: Stream) -> Role | None:
        """The role of the array that a host stream moves; None: nothing is said of it."""
        base, buffers = stream.base, self.program.buffers
        return buffers[base].role if isinstance(base, int) and 0 <= base < len(buffers) else None

    def _index_list(self, stream: Stream, pattern: Pattern) -> Access:
        at = _known(stream.index)
        if at is None:
            return Access(Space.VMEM, 0, 0, self.chip.vmem.bytes, False, True)
        return Access(Space.VMEM, 0, at, at + 4 * pattern.counts[pattern.indirect], False)

    def _accumulators(self, instr: Instruction) -> Access:
        mxu = self.chip.mxu
        row, width = _known(cast(Operand, instr.args["acc"])), mxu.cols * 4
        if row is None:
            return Access(Space.ACC, instr.unit, 0, mxu.acc_rows * width, True, True)
        pattern = self.program.patterns[cast(Stream, instr.args["src"]).pattern]
        rows = prod(pattern.counts[: cast(int, instr.args["row_loops"])])
        return Access(Space.ACC, instr.unit, row * width, (row + rows) * width, True)

    def _vector(self, instr: Instruction, out: list[Access]) -> None:
        """Append the accesses of a kernel's streams."""
        number = cast(int, instr.args["kernel"])
        uses = self._uses.get(number)
        if uses is None:
            uses = self._uses[number] = _kernel_uses(self.program.kernels[number])
        loads, stores, asked = uses
        for i, s in enumerate(cast(tuple[Stream, ...], instr.args["streams"])):
            if i in loads:
                self._stream(s, False, out)
            if i in stores:
                self._stream(s, True, out)
            if i in asked and (pattern := self.program.patterns[s.pattern]).indirect >= 0:
                out.append(self._index_list(s, pattern))


def _kernel_uses(kernel: Kernel) -> tuple[set[int], set[int], set[int]]:
    """(streams that the kernel loads, that it stores, of which it asks for coordinates)."""
    ops = [m for s in (kernel.prologue, kernel.body, kernel.epilogue) for m in s.ops]
    asked = {m.imm % 16 for m in ops if m.op in ("coord", "inside")}
    return {m.imm for m in ops if m.op == "ld"}, {m.imm for m in ops if m.op == "st"}, asked


class _Latest:
    """The model of the program asked for last."""

    model: AccessModel | None = None


def accesses(instr: Instruction, program: Program, chip: Chip) -> list[Access]:
    """Everything an instruction reads and writes in memory, MXU tiles included.

    Registers as operands give the whole space or buffer, marked `dynamic`; an instruction whose operands have been
    resolved (integers in their place, `ra` of lds and sts too) gives the accesses of that execution.
    """
    model = _Latest.model
    if model is None or model.program is not program or model.chip is not chip:
        model = _Latest.model = AccessModel(program, chip)
    return model.of(instr)
