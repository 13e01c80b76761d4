"""Random instructions of each unit."""

from __future__ import annotations

from math import prod

from systolith.hw.fuzz.builder import Builder, args
from systolith.hw.fuzz.kernels import Shape, random_kernel
from systolith.hw.fuzz.patterns import host_pattern, loops_of
from systolith.hw.fuzz.places import Cell
from systolith.hw.fuzz.tree import Step
from systolith.isa.dtypes import DTYPES, DType, Kind
from systolith.isa.instruction import Instruction, Operand, Space, Stream
from systolith.isa.kernel import NSCALARS
from systolith.isa.opcodes import REDUCE_FUNCTIONS, queue_of
from systolith.isa.pattern import MAX_LOOPS


def _reducible(function: str) -> tuple[DType, ...]:
    kind = {"f32": Kind.FLOAT, "s32": Kind.SIGNED, "u32": Kind.UNSIGNED}.get(function.rpartition(".")[2])
    if kind is None:
        return NARROW
    return tuple(t for t in NARROW if t.kind is kind or (t.kind is Kind.PRED and kind is not Kind.FLOAT))


NARROW = tuple(t for t in DTYPES.values() if t.bits <= 32 and t.kind is not Kind.COMPLEX)
BY_SIZE = {size: tuple(t for t in NARROW if t.size == size) for size in (1, 2, 4)}
WORDS = BY_SIZE[4]
FLOATS = tuple(t for t in NARROW if t.is_float)
INTEGERS = tuple(DTYPES[n] for n in ("s8", "u8", "s4", "u4", "pred"))
REDUCTIONS = tuple((f, t) for f in REDUCE_FUNCTIONS for t in _reducible(f))
"""Functions of `xlu.reduce` with the types that they take."""
KERNELS = 1500
"""How many different kernels there are."""

_SIZES = (1, 2, 3, 4, 6, 7, 8, 12, 16, 18, 24, 32, 36, 48, 64, 80, 96, 128)


class Units:
    """Writes instructions into a builder.

    Attributes:
        taken: bytes that the program takes from each infeed queue.
    """

    def __init__(self, builder: Builder) -> None:
        self.b = builder
        self.draw = builder.draw
        self.chip = builder.chip
        self.taken = [0] * self.chip.host.queues

    def _step(self, instr: Instruction) -> Step:
        """The next instruction, now and then with a fence that nothing needs."""
        step = self.b.step(instr)
        step.fence = self.draw.chance(0.07)
        return step

    # Transfers.

    def _elements(self, dtype: DType, *cells: Cell) -> int:
        most = min(16 if self.b.trips > 3 else 128, min(c.room for c in cells) // dtype.size)
        return self.draw.pick([n for n in _SIZES if n <= max(most, 1)])

    def _types(self) -> tuple[DType, DType]:
        """Two types of one size."""
        size = self.draw.pick((1, 2, 4))
        return self.draw.pick(BY_SIZE[size]), self.draw.pick(BY_SIZE[size])

    def _counts(self, elements: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Loops of both sides of a copy."""
        first = loops_of(self.draw, elements)
        return first, first if self.draw.chance(0.5) else loops_of(self.draw, elements)

    def _copy(self, op: str, src: Cell, dst: Cell) -> Step:
        a, b = self._types()
        counts = self._counts(self._elements(a, src, dst))
        same = src.space is dst.space
        streams = (
            self.b.stream(src, a, counts[0], indirect=not same or self.draw.chance(0.3)),
            self.b.stream(dst, b, counts[1], indirect=not same or self.draw.chance(0.3)),
        )
        return self._step(Instruction(op, args(src=streams[0], dst=streams[1])))

    def load(self) -> Step | None:
        """dma.load."""
        draw, places = self.draw, self.b.places
        kinds = ("copy", "infeed", "table", "lists")
        kind = draw.weighted(kinds, (16, 2 if self.chip.host.queues else 0, 1, 1))
        if kind in ("table", "lists"):
            return self._words(kind)
        dst = places.cell(draw.weighted((Space.VMEM, Space.SMEM), (5, 1)))
        if kind == "infeed":
            return self._infeed(dst)
        src = places.other(draw.weighted((Space.HBM, Space.VMEM, Space.SMEM), (8, 2, 2)), dst)
        return None if src is None else self._copy("dma.load", src, dst)

    def store(self) -> Step | None:
        """dma.store."""
        draw, places = self.draw, self.b.places
        src = places.cell(draw.weighted((Space.VMEM, Space.SMEM), (5, 1)))
        weights = (8, 2, 2, 2 if self.chip.link.count else 0, 2 if self.chip.host.queues else 0)
        to = draw.weighted((Space.HBM, Space.VMEM, Space.SMEM, Space.LINK, Space.HOST), weights)
        if to is Space.HOST:
            return self._outfeed(src)
        dst = places.other(to, src)
        return None if dst is None else self._copy("dma.store", src, dst)

    def _words(self, kind: str) -> Step:
        """Words of the table to SMEM, or index lists to VMEM: nothing else is ever there."""
        places = self.b.places
        src, dst = (places.table_source, places.table) if kind == "table" else (places.lists_source, places.lists)
        count = self.draw.between(1, dst.room // 4)
        dtype = DTYPES["u32" if kind == "table" else "s32"]
        pattern = self.b.pattern(host_pattern(dtype, (count,)))
        streams = []
        for cell in (src, dst):
            words = cell.room // 4 - count
            base = self.b.operand(cell.lo + 4 * self.draw.below(words + 1)).operand
            streams.append(Stream(cell.space, pattern, base, cell.number))
        return self._step(Instruction("dma.load", args(src=streams[0], dst=streams[1])))

    def _host(self, dtype: DType, counts: tuple[int, ...]) -> Stream:
        pattern = self.b.pattern(host_pattern(dtype, counts))
        return Stream(Space.HOST, pattern, 0, self.draw.below(self.chip.host.queues))

    def _infeed(self, dst: Cell) -> Step:
        a, b = self._types()
        counts = self._counts(self._elements(a, dst))
        src = self._host(a, counts[0])
        self.taken[src.buffer] += prod(counts[0]) * a.size * self.b.trips
        return self._step(Instruction("dma.load", args(src=src, dst=self.b.stream(dst, b, counts[1], indirect=True))))

    def _outfeed(self, src: Cell) -> Step:
        a, b = self._types()
        counts = self._counts(self._elements(a, src))
        stream = self.b.stream(src, a, counts[0], indirect=True)
        return self._step(Instruction("dma.store", args(src=stream, dst=self._host(b, counts[1]))))

    # XLU.

    def shuffle(self) -> Step | None:
        """xlu.shuffle."""
        src = self.b.places.cell(Space.VMEM)
        dst = self.b.places.other(Space.VMEM, src)
        return None if dst is None else self._copy("xlu.shuffle", src, dst)

    def reduce(self) -> Step | None:
        """xlu.reduce."""
        draw = self.draw
        src = self.b.places.cell(Space.VMEM)
        dst = self.b.places.other(Space.VMEM, src)
        if dst is None:
            return None
        function, a = draw.pick(REDUCTIONS)
        b = draw.pick([t for t in NARROW if t.is_float == a.is_float])
        rows = draw.pick((1, 2, 3, 5, 8, 12, 16))
        outer = loops_of(draw, rows, MAX_LOOPS - 1)
        counts = (*outer, draw.between(1, self.chip.vpu.lanes)) if rows > 1 or draw.chance(0.5) else (self._row(),)
        streams = (
            self.b.stream(src, a, counts, indirect=draw.chance(0.3)),
            self.b.stream(dst, b, loops_of(draw, rows) if len(counts) > 1 else (1,), indirect=draw.chance(0.3)),
        )
        return self._step(Instruction("xlu.reduce", args(src=streams[0], dst=streams[1], function=function)))

    def _row(self) -> int:
        return self.draw.between(1, self.chip.vpu.lanes)

    # VPU.

    def run(self) -> Step:
        """vpu.run with a random kernel."""
        draw, chip = self.draw, self.chip
        shape = random_kernel(draw.below(KERNELS), chip)
        nest = draw.weighted((1, 2, 3, 4, 5, 6), (6, 5, 3, 2, 2, 2))
        # Accesses that take long make long instructions, behind which everything else waits.
        most = max(2, min(6, 12 // max(len(shape.stored) + len(shape.loads), 1)))
        if self.b.trips < 4 and draw.chance(0.1):
            most = 20
        counts = tuple(draw.split(draw.between(1 + (most > 2), most), nest))
        inner = draw.below(nest + 1)
        cells: dict[int, Cell] = {}
        streams = tuple(self._vectors(shape, n, counts, cells) for n in range(shape.streams))
        scalars = tuple(self._scalar() for _ in range(NSCALARS))
        values = args(kernel=self.b.kernel(shape.kernel), counts=counts, inner=inner, serial=int(draw.chance(0.1)))
        instr = Instruction("vpu.run", {**values, "scalars": scalars, "streams": streams})
        if self._may_meet(shape, cells) and not self.b.independent(instr):
            instr.args["serial"] = 1
        return self._step(instr)

    def _scalar(self) -> Operand:
        return self.b.scratch() if self.draw.chance(0.3) else self.draw.image()

    def _vectors(self, shape: Shape, n: int, nest: tuple[int, ...], cells: dict[int, Cell]) -> Stream:
        """Stream n of a kernel; one that is stored to mostly shares no cell with others."""
        draw, v = self.draw, self.chip.vpu
        vector = (v.sublanes, v.lanes) if draw.chance(0.5) else (draw.between(1, v.sublanes), draw.between(1, v.lanes))
        counts = (*nest, *vector)
        used = n in shape.loads or n in shape.stores
        if not used and draw.chance(0.6):
            return self.b.nowhere(draw.pick(NARROW), counts, shape.coords[n])
        space = draw.weighted((Space.VMEM, Space.ACC), (3, 1))
        cell = self._apart(space, n in shape.stores, shape, cells)
        cells[n] = cell
        # Narrow types hide many bits of a stored value.
        words = space is Space.ACC or (n in shape.stores and draw.chance(0.6))
        dtype = draw.pick(WORDS if words else NARROW)
        return self.b.stream(cell, dtype, counts, indirect=True, coords=shape.coords[n])

    def _apart(self, space: Space, stored: bool, shape: Shape, cells: dict[int, Cell]) -> Cell:
        others = [c for n, c in cells.items() if stored or n in shape.stores]
        every = self.b.places.cells[space]
        free = [c for c in every if all(c.apart(o) for o in others)]
        return self.draw.pick(free or every)

    def _may_meet(self, shape: Shape, cells: dict[int, Cell]) -> bool:
        """Whether iterations may load or store elements that others store, as far as cells tell."""
        both = [(n, m) for n in shape.stores for m in shape.loads | shape.stores if n != m]
        again = len(shape.stored) > len(shape.stores) or bool(shape.loads & shape.stores)
        return again or any(not cells[n].apart(cells[m]) for n, m in both)

    # MXU.

    def weights(self, unit: int, integer: bool) -> Step:
        """mxu.load."""
        draw, m = self.draw, self.chip.mxu
        transpose = int(draw.chance(0.4))
        rows, row = (m.cols, m.rows) if transpose else (m.rows, m.cols)
        src, row_loops = self._rows(rows, row, integer)
        values = args(src=src, row_loops=row_loops, transpose=transpose, part=self._part(), integer=int(integer))
        return self._step(Instruction("mxu.load", values, unit))

    def latch(self, unit: int) -> Step:
        """mxu.latch."""
        return self._step(Instruction("mxu.latch", {}, unit))

    def matmul(self, unit: int, integer: bool) -> Step:
        """mxu.matmul."""
        draw, m = self.draw, self.chip.mxu
        acc = draw.pick([c for c in self.b.places.cells[Space.ACC] if c.number == unit])
        width = m.cols * 4
        most = acc.room // width
        src, row_loops = self._rows(draw.pick((1, 2, 5, most)), m.rows, integer)
        rows = prod(self.b.program.patterns[src.pattern].counts[:row_loops])
        first = draw.below(most - rows + 1)
        row = self.b.operand(acc.lo // width + first, most - rows - first)
        values = args(src=src, row_loops=row_loops, acc=row.operand, accumulate=int(draw.chance(0.5)))
        values |= args(part=self._part(), integer=int(integer))
        return self._step(Instruction("mxu.matmul", values, unit))

    def _part(self) -> int:
        return self.draw.weighted((0, 1, 2), (3, 1, 1))

    def _rows(self, rows: int, row: int, integer: bool) -> tuple[Stream, int]:
        """(stream, row_loops) of at most `rows` rows of at most `row` elements."""
        draw = self.draw
        cell = self.b.places.cell(Space.VMEM)
        full = draw.chance(0.4)
        outer = loops_of(draw, rows if full else draw.between(1, rows), 4) if draw.chance(0.9) else ()
        inner = loops_of(draw, row if full else draw.between(1, row), 4) if draw.chance(0.9) else ()
        counts = outer + inner or (1,)
        dtype = draw.pick(INTEGERS if integer else FLOATS)
        # The array's integer mode has no other operands than the values of its types.
        return self.b.stream(cell, dtype, counts, own_fill=integer), len(outer)

    # Both arms of an alternative.

    def other(self, instr: Instruction) -> Instruction:
        """The other arm of an instruction that is not the MXU's; it touches no more."""
        draw = self.draw
        if draw.chance(0.35):
            return Instruction("nop", {"queue": queue_of(instr)})
        if instr.op == "vpu.run" and draw.chance(0.5):
            return Instruction(instr.op, {**instr.args, "scalars": tuple(self._scalar() for _ in range(NSCALARS))})
        return instr
