"""VPU kernels: straight-line micro-operations on vector registers, statically modulo-scheduled.

An instruction `vpu.run` names a kernel and a loop nest of up to six loops (counts n0 .. n5), of which the innermost
`inner` ones form the inner loop.  It means:

    for each index of the outer loops:
        prologue                          (once; inner indices 0)
        for each index of the inner loops:
            body
        epilogue                          (once; inner indices 0)

Each micro-operation works on whole vector registers of sublanes x lanes 32-bit elements.  A stream's pattern has its
own loops: its last two are the sublane and the lane loop (counts at most sublanes and lanes), those before them are
the nest's loops, outermost first, as many as the nest has.

Body iterations are independent except for registers that the body reads before it writes them ("carried"): they keep
their value from one iteration to the next, in loop order, and the prologue gives them their first.  In serial mode
(`serial` of the instruction) an iteration also sees the memory stores of those before it.  Otherwise an iteration must
not load what another one stores, and of two micro-operations not both may store to one address in different iterations
(hostile mode reports either); loading and storing the same element in one is fine.

Operand numbers: 0..63 vector registers, 64..127 the kernel's constants, 128..131 the instruction's scalar operands
(constants and scalars are broadcast to every lane).
"""

from __future__ import annotations

from dataclasses import dataclass

CONST0 = 64
SCALAR0 = 128
NREGS = 64
NCONSTS = 64
NSCALARS = 4
MAX_STREAMS = 12
MAX_NEST = 6
MAX_STAGES = 64  # iterations of a body in flight: each has loop indices of its own


@dataclass(frozen=True)
class MicroOp:
    """One micro-operation.

    Attributes:
        op: name in the micro-operation table (`microops.py`).
        dst: vector register written; -1: none (stores).
        srcs: operand numbers, as many as the table says.
        imm: stream number for ld, st, coord; coordinate number * 16 + stream number for coord.
        cycle: issue cycle within the section, 0 to length - 1 (body: of iteration 0; iteration i issues at
            cycle + i * ii).
        slot: issue slot within its class, 0 to slots - 1.
    """

    op: str
    dst: int
    srcs: tuple[int, ...] = ()
    imm: int = 0
    cycle: int = 0
    slot: int = 0


@dataclass(frozen=True)
class Section:
    """Micro-operations in issue order and the cycles they take until the last result is there."""

    ops: tuple[MicroOp, ...] = ()
    length: int = 0


@dataclass(frozen=True)
class Kernel:
    """A kernel: three sections, the initiation interval of the body, its constants.

    Attributes:
        name: for people; unique in a program.
        body: run every iteration, a new one started every `ii` cycles.
        ii: initiation interval in cycles, at least 1.
        prologue, epilogue: run once an outer iteration; empty where nothing is carried.
        constants: 32-bit images.
        rotating: registers below this number rotate: in iteration i of the body, register v is physical register
            (v + i) mod rotating.  Those from here on are static: carried registers, and values that one section leaves
            for another.  A rotating register is written before it is read, in each section; in the prologue and the
            epilogue it does not rotate.
    """

    name: str
    body: Section
    ii: int = 1
    prologue: Section = Section()
    epilogue: Section = Section()
    constants: tuple[int, ...] = ()
    rotating: int = 0
