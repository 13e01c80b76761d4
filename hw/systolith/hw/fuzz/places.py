"""Where a random program's data lie: cells of the memories, and their contents before the run."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from systolith.hw.fuzz.case import Piece
from systolith.hw.fuzz.draw import Draw
from systolith.hw.fuzz.patterns import INDEX_RANGE, LIST_WORDS
from systolith.isa.chip import Chip
from systolith.isa.instruction import Space
from systolith.isa.program import BufferDecl, Program, Role

TABLE_VALUES = (0, 1, 2, 3)
"""Values of the tables' words: SEQ reads them from SMEM and uses them as operands."""
TABLE_WORDS = 16


@dataclass(frozen=True)
class Cell:
    """Bytes lo to hi - 1 of a space; `number`: buffer, MXU, queue or link."""

    space: Space
    number: int
    lo: int
    hi: int

    @property
    def room(self) -> int:
        return self.hi - self.lo

    def apart(self, other: Cell) -> bool:
        """Whether they share no byte."""
        same = (self.space, self.number) == (other.space, other.number)
        return not same or self.hi <= other.lo or other.hi <= self.lo


def table_words(draw: Draw, count: int) -> bytes:
    return np.array(TABLE_VALUES, np.uint32)[draw.generator.integers(0, len(TABLE_VALUES), count)].tobytes()


def list_words(draw: Draw, count: int) -> bytes:
    return draw.generator.integers(INDEX_RANGE[0], INDEX_RANGE[1] + 1, count, np.int32).tobytes()


class Places:
    """The cells of a program, its buffers, and the initial contents of both.

    Attributes:
        cells: by space, for arbitrary data.
        scratch: SMEM that only SEQ uses.
        table, table_source: words from `TABLE_VALUES`, in SMEM and in HBM.
        lists, lists_source: index lists, in VMEM and in HBM.
        pieces: contents of the memories before the run.
    """

    def __init__(self, draw: Draw, chip: Chip, program: Program) -> None:
        self.draw, self.chip, self.program = draw, chip, program
        self.pieces: list[Piece] = []
        self.lists = self._lists()
        self.cells: dict[Space, list[Cell]] = {
            Space.VMEM: self._vmem(),
            Space.SMEM: self._smem(),
            Space.HBM: self._hbm(),
            Space.ACC: self._accumulators(),
            Space.LINK: [self._link(n) for n in range(chip.link.count)],
        }
        self.table_source = self._buffer("table", table_words(draw, LIST_WORDS), Role.CONSTANT)
        self.lists_source = self._buffer("lists", list_words(draw, LIST_WORDS), Role.CONSTANT)

    def cell(self, space: Space) -> Cell:
        """A cell of a space."""
        return self.draw.pick(self.cells[space])

    def other(self, space: Space, cell: Cell) -> Cell | None:
        """A cell that shares nothing with another one; None: there is none."""
        found = [c for c in self.cells[space] if c.apart(cell)]
        return self.draw.pick(found) if found else None

    def _fill(self, cell: Cell) -> Cell:
        self.pieces.append(Piece(cell.space, cell.number, cell.lo, self.draw.data(cell.room).tobytes()))
        return cell

    def _lists(self) -> Cell:
        lo = 4 * self.draw.below(self.chip.vmem.bytes // 32)
        self.pieces.append(Piece(Space.VMEM, 0, lo, list_words(self.draw, LIST_WORDS)))
        return Cell(Space.VMEM, 0, lo, lo + 4 * LIST_WORDS)

    def _vmem(self) -> list[Cell]:
        """Few cells, whose users wait for each other, or many; some overlap."""
        draw, size = self.draw, self.chip.vmem.bytes
        count, most = draw.weighted((4, 8, 16), (2, 3, 4)), min(1536, size // 20)
        at = self.lists.hi + draw.below(size // 4)
        cells: list[Cell] = []
        for _ in range(count):
            room = draw.between(most // 2, most)
            if cells and draw.chance(0.15):
                at -= draw.between(1, room // 3)
            elif draw.chance(0.3):
                at += draw.below((size - at) // 8 + 1)
            if at + room > size:
                break
            cells.append(self._fill(Cell(Space.VMEM, 0, at, at + room)))
            at += room
        return cells

    def _smem(self) -> list[Cell]:
        size = self.chip.smem.bytes
        self.scratch = Cell(Space.SMEM, 0, 0, 64)
        self.table = Cell(Space.SMEM, 0, 64, 64 + 4 * TABLE_WORDS)
        self.pieces.append(Piece(Space.SMEM, 0, 64, table_words(self.draw, TABLE_WORDS)))
        rest = size - self.table.hi
        ends = [self.table.hi, self.table.hi + rest // 3, self.table.hi + 2 * rest // 3, size]
        return [self._fill(Cell(Space.SMEM, 0, lo, min(hi, lo + 512))) for lo, hi in pairwise(ends)]

    def _buffer(self, name: str, data: bytes, role: Role, alias: int = -1) -> Cell:
        number = len(self.program.buffers)
        constant = data if role is Role.CONSTANT else b""
        self.program.buffers.append(BufferDecl(name, role, "u8", (len(data),), len(data), -1, constant, alias))
        if role is not Role.CONSTANT and alias < 0:
            self.pieces.append(Piece(Space.HBM, number, 0, data))
        return Cell(Space.HBM, number, 0, len(data))

    def _hbm(self) -> list[Cell]:
        draw = self.draw
        cells = []
        for n in range(draw.between(2, 4)):
            data = draw.data(draw.between(300, 3000)).tobytes()
            cells.append(self._buffer(f"b{n}", data, draw.pick((Role.TEMP, Role.TEMP, Role.CONSTANT))))
        if draw.chance(0.3):
            first = cells[0]
            cells.append(self._buffer("other", bytes(first.room - draw.below(200)), Role.TEMP, first.number))
        return cells

    def _accumulators(self) -> list[Cell]:
        m, cells = self.chip.mxu, []
        width = m.cols * 4
        for unit in range(m.count):
            row = 2 * self.draw.below((m.acc_rows - min(m.acc_rows, 48)) // 2 + 1)
            for _ in range(3):
                rows = min(16, m.acc_rows // 3 // 2 * 2)
                cells.append(Cell(Space.ACC, unit, row * width, (row + rows) * width))
                row += rows
        return cells

    def _link(self, number: int) -> Cell:
        size = self.chip.vmem.bytes
        lo = self.draw.below(size - 1024 if size > 1024 else 1)
        return Cell(Space.LINK, number, lo, min(lo + 1024, size))
