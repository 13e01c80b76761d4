"""Tile IR: the machine's instructions over symbolic buffers, in structured regions.

It differs from a program in four ways: bases are `Ref`s to buffers without addresses, patterns and kernels stand in the
operations themselves, scalar registers are virtual, and control flow is nested regions instead of branches.  There
are no tokens: they are derived after addresses are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

from systolith.isa.dtypes import DType
from systolith.isa.instruction import Space
from systolith.isa.kernel import Kernel
from systolith.isa.pattern import Pattern
from systolith.isa.program import BufferDecl, GroupInfo, Origin

LARGEST = 1 << 31
"""Bytes of a buffer in HBM that instructions reach: their offsets are s32."""


@dataclass(eq=False)
class Buf:
    """A piece of memory that the memory plan gives an address.

    Attributes:
        name: unique in the module.
        space: VMEM, SMEM or HBM (an entry of the buffer table); ACC: `bytes` = rows * cols * 4 of MXU `unit`.
        bytes: size.
        align: bytes.
        decl: for HBM: its buffer-table entry.
        unit: for ACC: which MXU.
        shares: for HBM: the buffer whose memory it uses; None: it has its own.
        parts: buffers that it is a stack of; it has no entry in the buffer table then.
    """

    name: str
    space: Space
    bytes: int
    align: int = 4
    decl: BufferDecl | None = None
    unit: int = 0
    shares: Buf | None = None
    parts: tuple[Buf, ...] = ()

    @property
    def memory(self) -> Buf:
        """The buffer that owns the memory."""
        return self if self.shares is None else self.shares.memory

    @property
    def is_large(self) -> bool:
        """Whether offsets do not reach all of it."""
        return self.space is Space.HBM and (self.bytes > LARGEST or bool(self.parts))


@dataclass(frozen=True)
class VReg:
    """A virtual scalar register."""

    n: int

    def __str__(self) -> str:
        return f"${self.n}"


Scalar = int | VReg


@dataclass(frozen=True)
class Entry:
    """A place in an array that is a stack of arrays of as many bytes: in HBM, which offsets may not reach all of.

    Attributes:
        number: of the array, in a register.
        pitch: bytes of each.
        offset: a further byte offset in a register; None: none.
    """

    number: VReg
    pitch: int
    offset: VReg | None = None


Dynamic = VReg | Entry
"""A place that only the run knows: a byte offset in a register, or an entry of a stack."""


def registers_of(place: Dynamic | None) -> tuple[VReg, ...]:
    """The registers that a place depends on."""
    parts = (place.number, place.offset) if isinstance(place, Entry) else (place,)
    return tuple(r for r in parts if r is not None)


Moves = tuple[tuple[VReg, int], ...]
"""Bytes by which each iteration of loops moves an address: (induction variable, bytes), the outermost loop first."""

Pointer = tuple[VReg | None, Moves]
"""An address that loops move: a register with the bytes from where it starts, if there is one, and how it moves."""


@dataclass(frozen=True)
class Ref:
    """A stream before addresses: pattern over a buffer.

    Attributes:
        buf: buffer; None for Space.NONE (coordinates only).
        pattern: the address generator's program.
        offset: bytes added to the buffer's address; without a buffer, what is added to the first coordinate.
        dynamic: where it is besides, which only the run knows; None: nothing.
        bias: bias operands.
        index: the buffer that holds the index list (offset 0), for indirect patterns.
        moves: further bytes by the loops around it.
    """

    buf: Buf | None
    pattern: Pattern
    offset: int = 0
    dynamic: Dynamic | None = None
    bias: tuple[Scalar, Scalar] = (0, 0)
    index: Buf | None = None
    moves: Moves = ()

    @property
    def pointer(self) -> Pointer | None:
        """Its address in loops; None: these do not move it."""
        return (self.start, self.moves) if self.moves else None

    @property
    def start(self) -> VReg | None:
        """A further byte offset in a register, added by a SEQ instruction when lowered."""
        return self.dynamic.offset if isinstance(self.dynamic, Entry) else self.dynamic


Arg = int | str | VReg | Ref | Kernel | tuple[Ref, ...] | tuple[Scalar, ...] | tuple[str, ...]


ROUTINE = "routine"
"""The operation that is no instruction: a routine (`isa/routines.py`), with queues joined before and after it.

Its arguments: `call` (a `Signature`) and `text`; the names that it calls places by, in the order of `operands`,
`results` and `scratch`, which are Refs to all of their bytes; and as many registers as it names.
"""


@dataclass(eq=False)
class TileOp:
    """One instruction: `op` and arguments as in the opcode table, with Refs for streams and a Kernel for its number.

    Or a `ROUTINE`.
    """

    op: str
    args: dict[str, Arg]
    origin: Origin
    unit: int = 0

    @property
    def refs(self) -> list[Ref]:
        """Its streams."""
        return [r for v in self.args.values() for r in (v if type(v) is tuple else (v,)) if type(r) is Ref]

    @property
    def stored(self) -> list[int]:
        """Numbers of the streams that a kernel stores."""
        kernel = cast(Kernel, self.args["kernel"])
        return [m.imm for part in (kernel.prologue, kernel.body, kernel.epilogue) for m in part.ops if m.op == "st"]

    @property
    def written(self) -> list[Ref]:
        """The streams that it writes."""
        if self.op == "vpu.run":
            streams = cast(tuple[Ref, ...], self.args["streams"])
            return [streams[n] for n in self.stored]
        if self.op == ROUTINE:
            return [*cast(tuple[Ref, ...], self.args["results"]), *cast(tuple[Ref, ...], self.args["scratch"])]
        return [cast(Ref, self.args["dst"])] if "dst" in self.args else []

    def with_refs(self, change: Callable[[Ref], Ref]) -> TileOp:
        """The same with other streams."""
        args: dict[str, Arg] = {}
        for name, value in self.args.items():
            if type(value) is Ref:
                args[name] = change(value)
            elif type(value) is tuple:
                args[name] = tuple(change(v) if type(v) is Ref else v for v in value)  # type: ignore[assignment]
            else:
                args[name] = value
        return TileOp(self.op, args, self.origin, self.unit)

    @cached_property
    def buffers(self) -> list[Buf]:
        """Every buffer that it names, index lists and parts of stacks included."""
        named = [buf for ref in self.refs for buf in (ref.buf, ref.index) if buf is not None]
        return named + [part for buf in named for part in buf.parts]


@dataclass(eq=False)
class Block:
    """Items in program order."""

    items: list[Item] = field(default_factory=list)

    def ops(self) -> Iterator[TileOp]:
        """All operations below, in program order."""
        stack = list(reversed(self.items))
        while stack:
            item = stack.pop()
            if isinstance(item, TileOp):
                yield item
            else:
                for block in reversed(item.regions):
                    stack.extend(reversed(block.items))

    def loops(self) -> Iterator[Loop]:
        """The loops below that repeat tiles and are in no other such one, in program order."""
        stack = list(reversed(self.items))
        while stack:
            item = stack.pop()
            if isinstance(item, Loop) and not item.source:
                yield item
            elif not isinstance(item, TileOp):
                stack.extend(inner for block in reversed(item.regions) for inner in reversed(block.items))


@dataclass(eq=False)
class While:
    """Run `condition`; while register `predicate` is not 0, run `body` and `condition` again."""

    condition: Block
    predicate: VReg
    body: Block
    name: str = ""
    trip_count: int | None = None

    @property
    def operand(self) -> Scalar:
        """The scalar that says what runs."""
        return self.predicate

    @property
    def regions(self) -> list[Block]:
        """The blocks in it, in program order."""
        return [self.condition, self.body]

    def with_regions(self, regions: Sequence[Block]) -> While:
        """The same with other blocks, in this order."""
        condition, body = regions
        return replace(self, condition=condition, body=body)


@dataclass(eq=False)
class Loop:
    """Run `body` `count` times: the machine's `loop`.

    Iterations overlap: a buffer that is written anew in each of them waits only for those who still use it.

    Attributes:
        var: the induction variable, 0 in the first iteration: what `Ref.moves` and operands name.
        count: of iterations; a register: known only at run time.
        body: what is repeated.
        name: of the group.
        source: whether it is a loop of the source, in which loads move ahead as they do outside; one that repeats tiles
            of a group has them in order.
        held: buffers that live throughout, so that none has the memory of another.
    """

    var: VReg
    count: Scalar
    body: Block
    name: str = ""
    source: bool = False
    held: tuple[Buf, ...] = ()

    @property
    def operand(self) -> Scalar:
        """The scalar that says what runs."""
        return self.count

    @property
    def regions(self) -> list[Block]:
        """The blocks in it, in program order."""
        return [self.body]

    def with_regions(self, regions: Sequence[Block]) -> Loop:
        """The same with other blocks, in this order."""
        (body,) = regions
        return replace(self, body=body)


@dataclass(eq=False)
class If:
    """Run branch number `index` (unsigned; the last one where it is out of range)."""

    index: VReg
    branches: list[Block]
    name: str = ""

    @property
    def operand(self) -> Scalar:
        """The scalar that says what runs."""
        return self.index

    @property
    def regions(self) -> list[Block]:
        """The blocks in it, in program order."""
        return self.branches

    def with_regions(self, regions: Sequence[Block]) -> If:
        """The same with other blocks, in this order."""
        return replace(self, branches=[*regions])


Region = While | Loop | If


Item = TileOp | Region


def nest(block: Block) -> int:
    """How many `Loop`s of a block lie in each other at most."""
    regions = [(item, max(map(nest, item.regions))) for item in block.items if not isinstance(item, TileOp)]
    return max((isinstance(item, Loop) + deepest for item, deepest in regions), default=0)


@dataclass(frozen=True)
class Array:
    """A box of an HLO value's elements in a buffer.

    Element idx (in the value's own index space) of the box lies at
    `offset + sum_d (idx[d] - origin[d]) * strides[d]` bytes from the buffer's start (plus `dynamic`).

    Attributes:
        buf: buffer.
        dtype: element type in memory.
        dims: size of the box.
        strides: bytes.
        origin: the value's index of the box's first element (all 0 for a whole array).
        offset: bytes.
        dynamic: as of `Ref`.
    """

    buf: Buf
    dtype: DType
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    origin: tuple[int, ...]
    offset: int = 0
    dynamic: Dynamic | None = None


@dataclass(eq=False)
class GroupRecord:
    """Where a group's operands lie before its first operation, and its results after its last.

    Attributes:
        name: of the group.
        first, last: operations, both of one block; the group's others are between them.
        inputs, outputs: each with the name of its HLO value.
    """

    name: str
    first: TileOp
    last: TileOp
    inputs: tuple[tuple[str, Array], ...]
    outputs: tuple[tuple[str, Array], ...]


@dataclass(eq=False)
class TileModule:
    """A module in tile IR, with everything that a program is made of.

    Attributes:
        name: of the module.
        block: its operations.
        chip, chip_digest: name and digest of the chip that it is for; empty: by hand, for any chip.
        buffers: in HBM, in the order of the buffer table: owners of memory before those that share it.
        whole: buffers in VMEM that hold whole values.
        groups: for reports; cycles that are predicted from the code are not in them yet.
        records: for checks.
        lines: of the text that it was read from, where its items stand; empty: it was lowered.
    """

    name: str
    block: Block
    chip: str = ""
    chip_digest: str = ""
    buffers: list[Buf] = field(default_factory=list)
    whole: set[Buf] = field(default_factory=set)
    groups: list[GroupInfo] = field(default_factory=list)
    records: list[GroupRecord] = field(default_factory=list)
    lines: dict[Item, int] = field(default_factory=dict)
