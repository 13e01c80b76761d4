"""Instructions from tile operations: addresses, tables of patterns and kernels, registers, labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from systolith.compiler.emit.linearize import SCRATCH, Item, Jump, Label, Linear, LoopEnd, LoopHead
from systolith.compiler.emit.routines import WrittenOut, written_out
from systolith.compiler.errors import CompileError, DoesNotFitError
from systolith.compiler.tile import ir
from systolith.compiler.tile.ir import ROUTINE, Arg, Buf, Entry, Ref, TileOp, VReg
from systolith.isa.chip import Chip
from systolith.isa.instruction import Instruction, Operand, Reg, Space, Stream, Value
from systolith.isa.kernel import Kernel
from systolith.isa.pattern import Pattern
from systolith.isa.program import ENTRIES, BufferDecl, Origin, Role

NO_ORIGIN = Origin()

REGISTER_FIELDS = frozenset({"ra", "rb", "rd"})
"""Arguments that can only be registers."""


@dataclass(frozen=True)
class LinearOp:
    """An instruction of the line, before tokens.

    Attributes:
        instruction: its `target`, for jumps, is still to come.
        origin: where it comes from.
        op: the tile operation it was made of, if any (address arithmetic before it has none).
        target: label, for jumps.
        label: a label that stands here; there is no instruction then.
        loop: of a `loop` instruction, the name of its loop, whose end is still to come; without an instruction, the
            loop whose body ends here.
        routine: that stands in the place of the instruction.
    """

    instruction: Instruction | None
    origin: Origin = NO_ORIGIN
    op: TileOp | None = None
    target: str = ""
    label: str = ""
    loop: str = ""
    routine: WrittenOut | None = None


@dataclass
class Tables:
    """Pattern, kernel and buffer tables: each entry once.

    Attributes:
        entries: of the buffer table, behind those of buffers: entries of stacks.
    """

    patterns: dict[Pattern, int] = field(default_factory=dict)
    kernels: dict[Kernel, int] = field(default_factory=dict)
    buffers: dict[Buf, int] = field(default_factory=dict)
    entries: list[BufferDecl] = field(default_factory=list)
    _stacks: dict[tuple[Buf, int], int] = field(default_factory=dict)

    def pattern(self, pattern: Pattern) -> int:
        return self.patterns.setdefault(pattern, len(self.patterns))

    def kernel(self, kernel: Kernel) -> int:
        return self.kernels.setdefault(kernel, len(self.kernels))

    def has_room(self, buf: Buf, pitch: int) -> bool:
        """Whether streams name, and their offsets reach, all of a buffer as a stack of arrays of so many bytes."""
        known = (buf, pitch) in self._stacks
        entries = len(self.buffers) + len(self.entries) + (0 if known else buf.bytes // pitch)
        return entries <= ENTRIES and pitch <= ir.LARGEST

    def stack(self, buf: Buf, pitch: int) -> int:
        """The first entry of a buffer as a stack of arrays of so many bytes."""
        if (buf, pitch) not in self._stacks:
            self._stacks[buf, pitch] = len(self.buffers) + len(self.entries)
            count = buf.bytes // pitch
            for n in range(count):
                owner, offset = (buf.parts[n], 0) if buf.parts else (buf, n * pitch)
                decl = BufferDecl(f"{buf.name}[{n}]", Role.PART, "u8", (pitch,), pitch, alias=self.buffers[owner])
                self.entries.append(replace(decl, offset=offset, stack=1 if n else count))
        return self._stacks[buf, pitch]


def _too_large(buf: Buf, origin: Origin) -> CompileError:
    array = buf.parts[0] if buf.parts else buf
    assert array.decl is not None
    what = f"{array.decl.dtype}{list(array.decl.dims)} in HBM takes {array.bytes} bytes"
    why = f"an operation reaches {ir.LARGEST} bytes of an array, or of one index of its first dimension, known in a run"
    why += f", if that has up to {ENTRIES}"
    return CompileError(f"{origin.hlo or origin.group}: {what}; {why}: split it")


class Generator:
    """Makes lines of instructions.

    Args:
        linear: operations, labels and registers.
        address: of every VMEM and SMEM buffer.
        buffers: the buffer table, in order.
        chip: the target.
    """

    def __init__(self, linear: Linear, address: Mapping[Buf, int], buffers: list[Buf], chip: Chip) -> None:
        self.linear = linear
        self.chip = chip
        self.address = address
        self.tables = Tables(buffers={b: n for n, b in enumerate(buffers)})
        self.lines: list[LinearOp] = []
        self._scratch = 0
        self._streams: dict[int, Stream] = {}

    def run(self) -> list[LinearOp]:
        """All lines, in order."""
        for item in self.linear.items:
            self._item(item)
        return self.lines

    def _item(self, item: Item) -> None:
        if isinstance(item, Label):
            self.lines.append(LinearOp(None, label=item.name))
            return
        if isinstance(item, LoopEnd):
            self.lines.append(LinearOp(None, loop=item.name))
            return
        if isinstance(item, LoopHead):
            head = Instruction("loop", {"count": self._operand(item.count), "end": 0})
            self.lines.append(LinearOp(head, item.origin, loop=item.name))
            return
        if isinstance(item, Jump):
            args: dict[str, Value] = {"target": 0}
            if item.op != "jmp":
                args |= {"ra": self._register(item.ra), "rb": self._register(item.rb)}
            self.lines.append(LinearOp(Instruction(item.op, args), item.origin, None, item.target))
            return
        if item.op == ROUTINE:
            routine = written_out(item, self.chip, self.address, self.linear.registers, self.tables)
            self.lines.append(LinearOp(Instruction("sync"), item.origin, item, routine=routine))
            return
        self._scratch = 0
        args = {
            name: value if type(value) is int and name not in REGISTER_FIELDS else self._value(name, value, item)
            for name, value in item.args.items()
        }
        self.lines.append(LinearOp(Instruction(item.op, args, item.unit), item.origin, item))

    def _value(self, name: str, value: Arg | str, item: TileOp) -> Value:
        if isinstance(value, Ref):
            return self._address(value) if name == "imm" else self._stream(value, item)
        if isinstance(value, Kernel):
            return self.tables.kernel(value)
        if isinstance(value, tuple):
            return tuple([self._value(name, v, item) for v in value])  # type: ignore[return-value]
        if name in REGISTER_FIELDS:
            return self._register(value)  # type: ignore[arg-type]
        return self._operand(value) if isinstance(value, VReg) else value

    def _register(self, value: VReg | int) -> Reg:
        if isinstance(value, VReg):
            return Reg(self.linear.registers[value])
        if value != 0:
            raise ValueError(f"{value} where only a register can stand")
        return Reg(0)

    def _operand(self, value: VReg | int) -> Operand:
        return self._register(value) if isinstance(value, VReg) else value

    def _address(self, ref: Ref) -> int:
        """Byte address, without the dynamic part; of a host stream the entry that says what it moves."""
        if ref.buf is None:
            return 0
        if ref.buf.space == Space.HOST:
            return self.tables.buffers.get(ref.buf, 0)
        return ref.offset + (self.address[ref.buf] if ref.buf.space in (Space.VMEM, Space.SMEM) else 0)

    def _stream(self, ref: Ref, item: TileOp) -> Stream:
        known = self._streams.get(id(ref))
        if known is not None:
            return known
        base: Operand = self._address(ref)
        moved = self.linear.pointers[ref.pointer] if ref.pointer else ref.start
        if ref.buf is None:
            return self._coordinates(ref, moved)
        if moved is not None:
            base = self._sum(moved, self._address(ref), item.origin)
        space = ref.buf.space
        number = self.tables.buffers.get(ref.buf, 0) if space == Space.HBM else ref.buf.unit
        if isinstance(ref.dynamic, Entry) and self.tables.has_room(ref.buf, ref.dynamic.pitch):
            number = self.tables.stack(ref.buf, ref.dynamic.pitch)
        elif ref.buf.is_large:
            raise _too_large(ref.buf, item.origin)
        entry = self._register(ref.dynamic.number) if isinstance(ref.dynamic, Entry) else 0
        index = self.address[ref.index] if ref.index is not None else 0
        bias = (self._operand(ref.bias[0]), self._operand(ref.bias[1]))
        made = Stream(space, self.tables.pattern(ref.pattern), base, number, bias, index, entry)
        if moved is None and not entry:
            self._streams[id(ref)] = made  # the operations hold their streams while lines are made of them
        return made

    def _coordinates(self, ref: Ref, moved: VReg | None) -> Stream:
        """A stream of coordinates: its offset is one of its first coordinate, to which a bias adds what loops do."""
        pattern, bias = ref.pattern, (self._operand(ref.bias[0]), self._operand(ref.bias[1]))
        if ref.offset or moved is not None:
            first, *others = pattern.coords
            first = replace(first, offset=first.offset + ref.offset)
            if moved is not None:  # no coordinate has the first bias: `tile/verifier.py`
                first, bias = replace(first, bias=0), (self._register(moved), bias[1])
            pattern = replace(pattern, coords=(first, *others))
        return Stream(Space.NONE, self.tables.pattern(pattern), bias=bias)

    def _sum(self, register: VReg, constant: int, origin: Origin) -> Reg:
        """`register + constant`, in a scratch register where the constant is not 0."""
        source = self._register(register)
        if constant == 0:
            return source
        if self._scratch == len(SCRATCH):
            raise DoesNotFitError(f"{origin.group}: an operation with over {len(SCRATCH)} dynamic addresses")
        scratch = Reg(SCRATCH[self._scratch])
        self._scratch += 1
        add = Instruction("add", {"rd": scratch, "ra": source, "b": constant})
        self.lines.append(LinearOp(add, origin))
        return scratch
