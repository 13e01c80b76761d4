"""The objects that a program is made of, before encoding: operands, streams, instructions.

The opcodes, their fields and bit positions are declared in `opcodes.py`; these are only the values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


class Space(IntEnum):
    """Where a stream's addresses point.  `buffer` of the stream says which one, where there are several."""

    NONE = 0  # no memory: the pattern is there for its coordinates
    HBM = 1  # buffer: entry of the buffer table
    VMEM = 2
    SMEM = 3
    ACC = 4  # buffer: which MXU's accumulators
    HOST = 5  # buffer: which infeed (read) or outfeed (write) queue
    LINK = 6  # buffer: which link to another chip; addresses are in the remote VMEM

    __hash__ = int.__hash__  # equal to an integer, and hashed often


@dataclass(frozen=True, slots=True)
class Reg:
    """A scalar register of the sequencer, r0 to r31; r0 reads as 0.  Read when SEQ issues the instruction."""

    n: int


Operand = int | Reg


@dataclass(frozen=True, slots=True)
class Stream:
    """One port of an instruction: a space, a pattern of the pattern table, and run-time operands.

    Attributes:
        space: memory.
        pattern: number in the program's pattern table.
        base: byte offset in the space (for ACC: row * cols * 4).
        buffer: buffer-table entry, MXU, queue or link, by `space`.
        bias: added to the coordinates that ask for it.
        index: VMEM byte address of the index list, for indirect patterns.
        entry: HBM: a register, by whose value `buffer` is a later entry of its stack; 0: it is `buffer`.
    """

    space: Space
    pattern: int
    base: Operand = 0
    buffer: int = 0
    bias: tuple[Operand, Operand] = (0, 0)
    index: Operand = 0
    entry: Operand = 0


Value = Operand | str | Stream | tuple[Stream, ...] | tuple[Operand, ...]


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        op: name in the opcode table, such as `mxu.matmul`.
        unit: which MXU, for mxu.*; 0 otherwise.
        args: field name to value, as the opcode table declares them.
        waits: tokens decremented, all at once, before it starts (at most 4).
        signals: tokens incremented when it retires (at most 4).
        fence: start only when every earlier instruction of the same queue has retired.
    """

    op: str
    args: dict[str, Value] = field(default_factory=dict)
    unit: int = 0
    waits: tuple[int, ...] = ()
    signals: tuple[int, ...] = ()
    fence: bool = False
