"""The context that lowerings emit into: where values lie, fresh buffers, copies between HBM and VMEM, tile operations.

A lowering of a fusion group asks the context for the arrays of its inputs and outputs, stages boxes of them into VMEM
where they lie in HBM, and appends operations.  Buffers of VMEM live from their first write to their last use; the
memory plan gives them addresses afterwards, so that a lowering never frees one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import prod
from typing import NamedTuple

import numpy as np

from systolith.compiler.errors import CompileError, DoesNotFitError, compile_error
from systolith.compiler.explain import Decision
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.index.affine import Box
from systolith.compiler.options import Options, Plan
from systolith.compiler.plan import WHY, PlanError
from systolith.compiler.tile.arrays import chunks, dense_array, dense_like, nesting, parts, view
from systolith.compiler.tile.induction import Induction
from systolith.compiler.tile.ir import Array, Block, Buf, Dynamic, Region, TileOp, VReg
from systolith.compiler.tile.patterns import fitting, merged, stream
from systolith.isa.chip import Chip
from systolith.isa.dtypes import U32, DType
from systolith.isa.instruction import Space
from systolith.isa.program import BufferDecl, Origin, Role

FIRST_VAR = (1 << 20) + 1
"""The register of the first loop's induction variable: other registers count up from 1."""


class Sums(NamedTuple):
    """Accumulator rows of a product.

    Attributes:
        place: how many items were in the block before.
        unit: matrix unit.
        row, rows: of its accumulators: the first, and how many.
    """

    place: int
    unit: int
    row: int
    rows: int


def constant_bytes(constant: Instruction) -> bytes:
    """The elements of a constant as they lie in memory; zeros where the text leaves them out."""
    if constant.literal is None:
        return bytes(constant.shape.bytes)
    literal = np.ascontiguousarray(np.asarray(constant.literal))
    return literal.astype(constant.shape.dtype.stored, copy=False).tobytes()


@dataclass
class TileBuilder:
    """State of one lowering of a module.

    Attributes:
        chip: the target.
        options: what the user chose.
        budget: bytes of VMEM that the tiles of one group may take together (a group sizes its tiles by it).
        block: where operations are appended.
        group: the `fusion` instruction being lowered, for origins.
        region: the blocked group that it is in, if any.
        tiled: whether it is one block of several: these overlap, so that it has no tiles but for want of room.
        buffers: the buffer table so far.
        explain: what was chosen, for the user.
        donated: parameters in whose memory temporaries may lie once nothing reads them.
        whole: buffers in VMEM that hold whole values (the memory plan places them first).
        inner: those of them that only one blocked group knows.
        picked: the plan that the group being lowered is to have, by its signature; empty: the cheapest.
        trial: whether what is lowered is only looked at: then it need not be what the user's plan has.
        unit: the matrix unit of the next job.
        own_unit: that of every job of the product; None: jobs take turns.
        inductions: loops around whose trip counts are known, the outermost first.
        lasting: buffers of the states of loops around, which hold them throughout.
        scalars: the last ones that were read into registers, by where they lay: the operation, its block and place
            there.
        drawn: every name that was made unique, before and after.
        sums: every piece of accumulators that was taken.
        loop_vars: numbers of the induction variables of loops to come.
        emission: appends the operations of a product's tiles, or a copy of what others did; given what these depend on
            beside the group.  None: nothing is copied.
        plans: the plans that the last product or blocked group could have had, the cheapest first.
    """

    chip: Chip
    options: Options = field(default_factory=Options)
    budget: int = 0
    block: Block = field(default_factory=Block)
    group: Instruction | None = None
    region: Instruction | None = None
    tiled: bool = False
    buffers: list[Buf] = field(default_factory=list)
    explain: list[Decision] = field(default_factory=list)
    donated: set[Buf] = field(default_factory=set)
    whole: set[Buf] = field(default_factory=set)
    inner: set[Buf] = field(default_factory=set)
    picked: str = ""
    plans: Sequence[Plan] = ()
    inductions: list[Induction] = field(default_factory=list)
    lasting: set[Buf] = field(default_factory=set)
    scalars: dict[tuple[Buf, int, Dynamic | None, DType, str], tuple[VReg, Block, int]] = field(default_factory=dict)
    trial: bool = False
    unit: int = 0
    own_unit: int | None = None
    drawn: list[tuple[str, str]] = field(default_factory=list)
    sums: list[Sums] = field(default_factory=list)
    loop_vars: Iterator[int] = field(default_factory=lambda: count(FIRST_VAR))
    emission: Callable[[Hashable, Callable[[], None]], None] | None = None
    capacity: int = field(init=False)
    _constants: dict[tuple[DType, bytes | Instruction], Buf] = field(default_factory=dict)
    _names: dict[str, int] = field(default_factory=dict)
    _vregs: int = 0
    _acc: dict[int, Buf] = field(default_factory=dict)
    _next_row: dict[int, int] = field(default_factory=dict)
    _ring: range = field(init=False)

    def __post_init__(self) -> None:
        self.capacity = self.chip.vmem.bytes  # of VMEM
        self._ring = range(self.chip.mxu.acc_rows)

    def apart(self, group: Instruction, picked: str = "") -> TileBuilder:
        """A lowering of one group of the same module that leaves nothing here."""
        options = replace(self.options, tuner=None)
        return TileBuilder(self.chip, options, self.budget, group=group, region=self.region, picked=picked, trial=True)

    def choose(self, kind: str, texts_of: Callable[[], Sequence[str]], picked: str) -> tuple[int, str]:
        """The number of the plan that the current group is to have, of those with these texts, and why.

        Args:
            kind: of the decision.
            texts_of: makes those of the plans, the cheapest first, where a choice asks for one by its text.
            picked: what autotuning has picked, if it has.

        Raises:
            PlanError: the user's plan has another one.
        """
        if not picked and self.options.plan is None:
            return 0, "the least cycles"
        texts = texts_of()
        if picked in texts:
            return texts.index(picked), "the fastest in the simulator"
        try:
            number = self.options.plan.pick(kind, self.origin("").group, texts) if self.options.plan else None
        except PlanError:
            if not self.trial:
                raise
            number = None
        return (0, "the least cycles") if number is None else (number, WHY)

    # Names, buffers, registers.

    def fresh(self, stem: str) -> str:
        """A name that nothing else in this lowering has."""
        n = self._names.get(stem, 0)
        self._names[stem] = n + 1
        name = stem if n == 0 else f"{stem}~{n}"
        self.drawn.append((stem, name))
        return name

    def vmem(self, name: str, size: int, align: int = 4) -> Buf:
        """A new buffer in VMEM of `size` bytes.

        Raises:
            DoesNotFitError: it is larger than the chip's VMEM.
        """
        if size > self.capacity:
            what = f"a tile {name!r} of {size} bytes does not fit in the {self.capacity} bytes of VMEM"
            raise self.error(what, DoesNotFitError)
        return Buf(self.fresh(name), Space.VMEM, max(size, 1), align)

    def smem(self, name: str, size: int = 4) -> Buf:
        """A new buffer in scalar memory."""
        return Buf(self.fresh(name), Space.SMEM, size, 4)

    def hbm(
        self, name: str, role: Role, dtype: DType, dims: tuple[int, ...], number: int = -1, data: bytes = b""
    ) -> Buf:
        """A new entry of the buffer table."""
        size = prod(dims) * dtype.size
        decl = BufferDecl(self.fresh(name), role, dtype.name, dims, size, number, data)
        buf = Buf(decl.name, Space.HBM, size, 4, decl)
        self.buffers.append(buf)
        return buf

    def acc(self, unit: int) -> Buf:
        """The accumulators of MXU `unit`."""
        if unit not in self._acc:
            mxu = self.chip.mxu
            self._acc[unit] = Buf(f"acc{unit}", Space.ACC, mxu.acc_rows * mxu.cols * 4, 4, unit=unit)
        return self._acc[unit]

    def acc_rows(self, unit: int, count: int) -> int:
        """The first of `count` accumulator rows of MXU `unit`: a ring, so that what still drains is not in the way."""
        assert count <= len(self._ring), f"{count} rows of a ring of {len(self._ring)}"
        row = self._next_row.get(unit, self._ring.start)
        if row + count > self._ring.stop:
            row = self._ring.start
        self._next_row[unit] = row + count
        self.sums.append(Sums(len(self.block.items), unit, row, count))
        return row

    @property
    def ring(self) -> int:
        """Accumulator rows that the last sums took turns on; 0: all of them."""
        return len(self._ring) % self.chip.mxu.acc_rows

    def begin_ring(self, rows: int) -> None:
        """Take the next sums from so many accumulator rows of every matrix unit, in turn; 0: from all of them.

        They are next to those that were taken last.
        """
        whole = range(self.chip.mxu.acc_rows)
        last = self._ring.stop if self._ring != whole else max(self._next_row.values(), default=0)
        first = last if last + rows <= len(whole) else 0
        if rows or self._ring != whole:
            self._next_row = dict.fromkeys(range(self.chip.mxu.count), first)
        self._ring = range(first, first + rows) if rows else whole

    def begin_sums(self, row: int = 0) -> None:
        """Take the next accumulator rows of every matrix unit from `row` on: what begins so is alike."""
        self._ring = range(self.chip.mxu.acc_rows)
        self._next_row = dict.fromkeys(range(self.chip.mxu.count), row)

    def foreseen(self, rows: Sequence[int]) -> list[int]:
        """The accumulator rows that jobs of so many rows each would get from all of them, and leave nothing here."""
        before, ring, number, next_row = self.unit, self._ring, len(self.sums), self._next_row
        self._next_row = dict(next_row)
        self.begin_ring(0)
        found = [self.acc_rows(self.next_unit(), count) for count in rows]
        self.unit, self._ring, self._next_row = before, ring, next_row
        del self.sums[number:]
        return found

    def next_product(self) -> None:
        """Begin a product: of those that have a matrix unit each, the next one has the next unit."""
        if self.own_unit is not None:
            self.own_unit = (self.own_unit + 1) % self.chip.mxu.count

    def next_unit(self) -> int:
        """The matrix unit of the next job: the product's, or they take turns, from one product to the next, too."""
        if self.own_unit is not None:
            return self.own_unit
        unit, self.unit = self.unit, (self.unit + 1) % self.chip.mxu.count
        return unit

    @property
    def state(self) -> Hashable:
        """What the next group's operations depend on: the next matrix unit, and the next accumulator rows of each."""
        return self.unit, tuple(sorted(self._next_row.items()))

    def proceed(self, state: Hashable) -> None:
        """Go on from a state."""
        assert isinstance(state, tuple)
        assert not self.ring
        self.unit, rows = state
        self._next_row = dict(rows)

    @property
    def registers(self) -> int:
        """How many scalar registers there are."""
        return self._vregs

    def vreg(self) -> VReg:
        """A new virtual scalar register."""
        self._vregs += 1
        return VReg(self._vregs)

    # Operations.

    def append(self, op: TileOp) -> None:
        self.block.items.append(op)

    def append_region(self, region: Region) -> None:
        self.block.items.append(region)

    def origin(self, what: str, macs: int = 0, hlo: str = "", expected: int = -1) -> Origin:
        """Where an operation of the current group comes from; `hlo` defaults to the group's name."""
        group = self.group.name if self.group is not None else ""
        return Origin(hlo or group, self.region.name if self.region is not None else group, what, macs, expected)

    def error(self, message: str, kind: type[CompileError] = CompileError) -> CompileError:
        """An error about the current group."""
        return compile_error(self.group, message, kind) if self.group is not None else kind(message)

    # Copies.

    def array(self, name: str, dtype: DType, dims: tuple[int, ...], origin: tuple[int, ...] | None = None) -> Array:
        """A new dense array in VMEM; `origin`: the index of its first element in the value it is a box of."""
        buf = self.vmem(name, prod(dims) * dtype.size)
        return dense_array(buf, dtype, dims, origin)

    def tile(self, name: str, array: Array, box: Box) -> Array:
        """A new dense array in VMEM for a box of `array`, nested as that is."""
        made = self.array(name, array.dtype, box.dims, box.origin)
        return replace(made, strides=dense_like(box.dims, array.strides, array.dtype.size))

    def value(self, name: str, dtype: DType, dims: tuple[int, ...]) -> Array:
        """A new dense array in VMEM for a whole value."""
        array = self.array(name, dtype, dims)
        self.whole.add(array.buf)
        if self.region is not None:
            self.inner.add(array.buf)
        return array

    def table(
        self,
        name: str,
        role: Role,
        dtype: DType,
        dims: tuple[int, ...],
        number: int = -1,
        sizes: tuple[int, ...] = (),
    ) -> Array:
        """A new dense array in HBM, as an entry of the buffer table."""
        buf = self.hbm(name, role, dtype, dims, number)
        if sizes and buf.decl is not None:
            buf.decl = replace(buf.decl, sizes=sizes)
        return dense_array(buf, dtype, dims)

    def feed(self, i: Instruction, role: Role, shape: Shape, queue: int, config: str = "", data: bytes = b"") -> Array:
        """An array that a host queue moves, as a line of its elements (those of over 32 bits as words); no memory."""
        dtype, dims = shape.dtype, shape.dims
        decl = BufferDecl(i.name, role, dtype.name, dims, 0, queue, data, config=config)
        buf = Buf(self.fresh(i.name), Space.HOST, 0, decl=decl, unit=queue)
        self.buffers.append(buf)
        words = max(dtype.size // 4, 1)
        element = dtype if words == 1 else U32
        return Array(buf, element.in_memory, (prod(dims) * words,), (element.size,), (0,))

    def stack(self, name: str, dtype: DType, dims: tuple[int, ...], arrays: Sequence[Array]) -> Array:
        """Whole arrays in HBM as one with a new first dimension."""
        buf = Buf(self.fresh(name), Space.HBM, prod(dims) * dtype.size, parts=tuple(a.buf for a in arrays))
        return dense_array(buf, dtype, dims)

    def nowhere(self, name: str, dtype: DType, dims: tuple[int, ...]) -> Array:
        """An array without memory, for a value that has no contents yet."""
        return dense_array(Buf(self.fresh(name), Space.NONE, max(prod(dims) * dtype.size, 1)), dtype, dims)

    def constant(self, constant: Instruction) -> Array:
        """A constant in HBM; all that have the same bytes are one entry of the buffer table."""
        data, element = constant_bytes(constant), constant.shape.dtype
        # Of values that the text leaves out nothing says that they are the same.
        key: tuple[DType, bytes | Instruction] = (element, constant if constant.literal is None else data)
        if key not in self._constants:
            self._constants[key] = self.hbm(constant.name, Role.CONSTANT, element, constant.dims, data=data)
        return dense_array(self._constants[key], element, constant.dims)

    def copy(self, src: Array, dst: Array, what: str, hlo: str = "") -> None:
        """Append a DMA that copies `src` to `dst`: same dims, at least one of them in VMEM; of no elements, none.

        `hlo`: the instruction that it is for; by default what the group makes.
        """
        if src.dims != dst.dims or src.dtype.size != dst.dtype.size:
            raise ValueError(f"copy of {src.dtype}{src.dims} to {dst.dtype}{dst.dims}")
        if not prod(src.dims):
            return
        if src.dtype.size > U32.size:  # copies know no wider elements
            src, dst = parts(src, U32), parts(dst, U32)
        outer = nesting(src.strides if src.buf.space == Space.HBM else dst.strides)
        op, origin = "dma.load" if dst.buf.space in (Space.VMEM, Space.SMEM) else "dma.store", self.origin(what, 0, hlo)
        for loops, at in fitting(merged(outer, src.dims, (src.strides, dst.strides))):
            self.append(TileOp(op, {"src": stream(src, loops, at), "dst": stream(dst, loops, at)}, origin))

    def stage_in(self, array: Array, box: Box, what: str = "load", hlo: str = "") -> Array:
        """The box of `array` in VMEM: a view where it is there already, else loaded for `hlo` into a new buffer."""
        part = view(array, box)
        if array.buf.space in (Space.VMEM, Space.ACC):
            return part
        tile = self.tile(f"{array.buf.name}.in", array, box)
        self.copy(part, tile, what, hlo)
        return tile

    def out_tile(self, array: Array, box: Box) -> Array:
        """Where to compute a box of `array`: a view where it is in VMEM, else a new dense buffer (see `stage_out`)."""
        if array.buf.space == Space.VMEM:
            return view(array, box)
        return self.tile(f"{array.buf.name}.out", array, box)

    def move(self, src: Array, dst: Array, what: str) -> None:
        """Copy a whole array, wherever the two lie; between HBM and HBM through tiles in VMEM."""
        if Space.HBM not in (src.buf.space, dst.buf.space) or src.buf.space != dst.buf.space:
            self.copy(src, dst, what)
            return
        for box in chunks(src, max(self.budget // 2, src.dtype.size)):
            self.copy(self.stage_in(src, box, what), view(dst, box), what)

    def stage_out(self, tile: Array, array: Array, box: Box, what: str = "store") -> None:
        """Store `tile` to the box of `array`; nothing where `tile` is in the array's own buffer (see `out_tile`)."""
        if tile.buf is not array.buf:
            self.copy(tile, view(array, box), what)
