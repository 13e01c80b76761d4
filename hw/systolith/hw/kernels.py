"""Kernel tables of the vector unit: directory, control store and constants as words; `vpu_pkg.sv` has the layout.

A section of a kernel is rows of the control store, one a cycle of the prologue and the epilogue, one a cycle of the
initiation interval of the body.  A row has a column for each issue slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from systolith.isa.chip import Chip
from systolith.isa.dependence import slots_of
from systolith.isa.kernel import MAX_STAGES, Kernel, Section
from systolith.isa.microops import MICROOPS, Slot
from systolith.isa.timing import carried

NO_OPERAND = 255
KERNEL_WORDS = 4
MICROOP_WORDS = 2

# Columns of a row, in this order.
SLOTS = (Slot.ALU, Slot.LOAD, Slot.STORE, Slot.TRANS)


@dataclass
class KernelTables:
    """Contents of the tables, from address 0.

    Attributes:
        kernels: `KERNEL_WORDS` for each kernel.
        control: `MICROOP_WORDS` for each column of each row.
        constants: 32-bit images.
    """

    kernels: list[int] = field(default_factory=list)
    control: list[int] = field(default_factory=list)
    constants: list[int] = field(default_factory=list)


def columns(chip: Chip) -> int:
    """Issue slots, of all classes."""
    return sum(slots_of(slot, chip) for slot in SLOTS)


def _rows(section: Section, rows: int, chip: Chip) -> list[int]:
    """A section in `rows` rows; later issues start again at the first, a stage further."""
    width = columns(chip)
    first = {slot: sum(slots_of(s, chip) for s in SLOTS[:n]) for n, slot in enumerate(SLOTS)}
    words = [0] * (MICROOP_WORDS * width * rows)
    used: Counter[tuple[int, Slot]] = Counter()
    for m in section.ops:
        stage, row = divmod(m.cycle, rows)
        info = MICROOPS[m.op]
        # In the order listed, so that of two stores in one cycle the later one comes last.
        column = first[info.slot] + used[row, info.slot]
        used[row, info.slot] += 1
        srcs = (*m.srcs, *(NO_OPERAND,) * (3 - len(m.srcs)))
        at = MICROOP_WORDS * (row * width + column)
        words[at] = info.code | srcs[0] << 8 | srcs[1] << 16 | srcs[2] << 24
        words[at + 1] = max(m.dst, 0) | m.imm << 6 | stage << 14 | 1 << 20
    return words


def kernel_tables(kernels: Iterable[Kernel], chip: Chip) -> KernelTables:
    """The tables of a program's kernels.

    Raises:
        ValueError: a kernel has more iterations in flight than the hardware.
    """
    out = KernelTables()
    for k in kernels:
        stages = -(-k.body.length // k.ii)
        if stages > MAX_STAGES:
            raise ValueError(f"kernel {k.name}: {stages} iterations in flight: at most {MAX_STAGES}")
        row = len(out.control) // (MICROOP_WORDS * columns(chip))
        sections = bool(k.prologue.ops or k.epilogue.ops or carried(k))
        out.kernels += [
            k.rotating | sections << 7 | len(out.constants) << 8,
            row,
            k.ii | k.prologue.length << 16,
            k.body.length | k.epilogue.length << 16,
        ]
        out.control += _rows(k.prologue, k.prologue.length, chip)
        out.control += _rows(k.body, k.ii, chip)
        out.control += _rows(k.epilogue, k.epilogue.length, chip)
        out.constants += [c & 0xFFFFFFFF for c in k.constants]
    return out
