"""The instructions: one declaration of every opcode, its queue, and the place of every field in its words.

`Instruction(op, args={...}, unit=..., waits=..., signals=..., fence=...)`; `args` holds exactly the fields below:

    li                      rd: Reg, imm: int
    add sub mul ... remu    rd: Reg, ra: Reg, b: int | Reg
    lds                     rd: Reg, ra: Reg, imm: int       SMEM word at ra + imm bytes
    sts                     rb: Reg, ra: Reg, imm: int
    beq bne blt bge ...     ra: Reg, rb: Reg, target: int    target: index in Program.code; encoded, a word address
    jmp                     target: int
    loop                    count: int | Reg, end: int       body: the next instruction to end - 1
    sync, halt              (none)
    trap                    code: int
    nop                     queue: str                       "vpu", "w0", ...: only waits and signals there
    dma.load, dma.store     src: Stream, dst: Stream
    mxu.load                src: Stream, row_loops: int, transpose: 0|1, part: 0|1|2, integer: 0|1
    mxu.latch               (none)
    mxu.matmul              src: Stream, row_loops: int, acc: int | Reg, accumulate: 0|1, part: 0|1|2, integer: 0|1
    vpu.run                 kernel: int, counts: 1 to 6 ints, inner: int (0 to len(counts)), serial: 0|1,
                            scalars: exactly 4 of int | Reg (32-bit images, 0 to 2**32 - 1), streams: 0 to 12 Streams
    xlu.shuffle             src: Stream, dst: Stream
    xlu.reduce              src: Stream, dst: Stream, function: str        a name of REDUCE_FUNCTIONS

Integers are s32 (-2**31 to 2**31 - 1) unless said otherwise.  The encoding is 32-bit words: a header, a word of four
waits, a word of four signals (0xFF: none), then the fields.  No width depends on a chip.  Bits that no field names are
reserved and zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from systolith.isa.instruction import Instruction, Reg, Stream
from systolith.isa.kernel import MAX_NEST, NSCALARS
from systolith.isa.layout import Bits, Layout, check_layout, masks_of

if TYPE_CHECKING:
    from systolith.isa.chip import Chip

MAX_TOKENS = 255
NO_TOKEN = 0xFF
MAX_WAITS = 4
MAX_UNITS = 8
NREGISTERS = 32
MAX_LOOP_NEST = 8
HEADER_WORDS = 3
STREAM_WORDS = 6


class FieldKind(StrEnum):
    """The kind of value in a field, and so how its bits are used."""

    UINT = "unsigned"
    SINT = "signed 32-bit"
    REG = "register"
    OPERAND = "signed 32-bit or register"
    CHOICE = "name"
    STREAM = "stream"
    STREAMS = "streams"
    COUNTS = "counts"
    SCALARS = "32-bit images or registers"
    TARGET = "code address"


_WORDS = {FieldKind.STREAM: STREAM_WORDS, FieldKind.COUNTS: MAX_NEST, FieldKind.SCALARS: NSCALARS}


@dataclass(frozen=True)
class Field:
    """A field of an instruction.

    Attributes:
        name: key in `Instruction.args`.
        kind: of its value.
        value: its bits; for streams, counts and scalars: the first of its words (the whole word).
        aux: further bits: OPERAND, SCALARS: which are registers; STREAMS, COUNTS: how many.
        doc: one line.
        choices: for CHOICE: name to code.
    """

    name: str
    kind: FieldKind
    value: Bits
    aux: Bits | None = None
    doc: str = ""
    choices: tuple[tuple[str, int], ...] = ()

    @property
    def words(self) -> int:
        """Words that `value` takes (for STREAMS, of none: they come last)."""
        return _WORDS.get(self.kind, 1)


@dataclass(frozen=True)
class Opcode:
    """An instruction of the set.

    Attributes:
        name: as `Instruction.op` says it.
        code: number in the header.
        queue: `seq`, `ld`, `st`, `vpu`, `xlu`; `w` and `s` have the unit's number appended; `arg`: the field `queue`.
        fields: in order of their names in assembly.
        doc: one line.
        words: length without streams of a STREAMS field.
        masks: of each of these words, the bits that have a meaning.
        names: of the fields.
        retires_alone: it retires at start + latency, not in order; a token that it signals, only its like signal.
    """

    name: str
    code: int
    queue: str
    fields: tuple[Field, ...]
    doc: str
    words: int
    masks: tuple[int, ...]
    names: frozenset[str]
    retires_alone: bool = False


HEADER = Layout(
    "header",
    Bits("opcode", 0, 7, 0),
    Bits("unit", 0, 10, 8),
    Bits("fence", 0, 11, 11),
    Bits("length", 0, 19, 12),
    *(Bits(f"wait{i}", 1, 8 * i + 7, 8 * i) for i in range(MAX_WAITS)),
    *(Bits(f"signal{i}", 2, 8 * i + 7, 8 * i) for i in range(MAX_WAITS)),
)

STREAM = Layout(
    "stream",
    Bits("pattern", 0, 19, 0),
    Bits("space", 0, 22, 20),
    Bits("base_reg", 0, 23, 23),
    Bits("bias0_reg", 0, 24, 24),
    Bits("bias1_reg", 0, 25, 25),
    Bits("index_reg", 0, 26, 26),
    Bits("buffer", 1, 15, 0),
    Bits("entry", 1, 20, 16),
    Bits("base", 2, 31, 0),
    Bits("bias0", 3, 31, 0),
    Bits("bias1", 4, 31, 0),
    Bits("index", 5, 31, 0),
)

QUEUE_CODES: dict[str, int] = {
    "seq": 0,
    "ld": 1,
    "st": 2,
    "vpu": 3,
    "xlu": 4,
    **{f"{q}{i}": 8 + 2 * i + n for i in range(MAX_UNITS) for n, q in enumerate("ws")},
}

REDUCE_FUNCTIONS: dict[str, int] = {
    "add.f32": 0,
    "min.f32": 1,
    "max.f32": 2,
    "mul.f32": 3,
    "add.s32": 4,
    "min.s32": 5,
    "max.s32": 6,
    "mul.s32": 7,
    "min.u32": 8,
    "max.u32": 9,
    "and": 10,
    "or": 11,
    "xor": 12,
}


def _whole(name: str, word: int) -> Bits:
    return Bits(name, word, 31, 0)


def _uint(name: str, word: int, hi: int, lo: int, doc: str) -> Field:
    return Field(name, FieldKind.UINT, Bits(name, word, hi, lo), doc=doc)


def _reg(name: str, lo: int, doc: str) -> Field:
    return Field(name, FieldKind.REG, Bits(name, 3, lo + 4, lo), doc=doc)


def _operand(name: str, word: int, flag: tuple[int, int], doc: str) -> Field:
    return Field(name, FieldKind.OPERAND, _whole(name, word), Bits(f"{name}_reg", flag[0], flag[1], flag[1]), doc)


def _stream(name: str, word: int, doc: str) -> Field:
    return Field(name, FieldKind.STREAM, _whole(name, word), doc=doc)


def _sint(name: str, word: int, doc: str) -> Field:
    return Field(name, FieldKind.SINT, _whole(name, word), doc=doc)


RD, RA, RB = (_reg("rd", 0, "result"), _reg("ra", 5, "first operand"), _reg("rb", 0, "second operand, or value stored"))
# The shadow is free again once the switch is on its way: streams before it need not have drained.
RETIRE_ALONE = frozenset({"mxu.latch"})
TARGET = Field("target", FieldKind.TARGET, _whole("target", 4), doc="where to go on")
ALU = (RD, RA, _operand("b", 4, (3, 10), "second operand"))
BRANCH = (RA, RB, TARGET)
COPY = (_stream("src", 3, "source"), _stream("dst", 9, "destination"))
ROW_LOOPS = _uint("row_loops", 3, 3, 0, "how many loops of the pattern, from the outermost, count rows")
PART = _uint("part", 3, 6, 5, "which part of the operands' bf16 split, 0 to 2")
INTEGER = _uint("integer", 3, 7, 7, "1: s32 sums of s8 or u8 products; 0: floating point")

_ALU_ROWS = {
    0x10: ("add", "rd = ra + b"),
    0x11: ("sub", "rd = ra - b"),
    0x12: ("mul", "rd = low word of ra * b"),
    0x13: ("mulhu", "rd = high word of ra * b, unsigned"),
    0x14: ("and", "rd = ra & b"),
    0x15: ("or", "rd = ra | b"),
    0x16: ("xor", "rd = ra ^ b"),
    0x17: ("shl", "rd = ra << (b mod 32)"),
    0x18: ("shr", "rd = ra >> (b mod 32), logical"),
    0x19: ("sra", "rd = ra >> (b mod 32), arithmetic"),
    0x1A: ("slt", "rd = ra < b, signed"),
    0x1B: ("sltu", "rd = ra < b, unsigned"),
    0x1C: ("min", "rd = the lesser, signed"),
    0x1D: ("max", "rd = the greater, signed"),
    0x1E: ("divu", "rd = ra / b, unsigned; all ones where b is 0"),
    0x1F: ("remu", "rd = ra mod b, unsigned; ra where b is 0"),
}
_BRANCH_ROWS = {
    0x20: ("beq", "branch if ra = rb"),
    0x21: ("bne", "branch if ra is not rb"),
    0x22: ("blt", "branch if ra < rb, signed"),
    0x23: ("bge", "branch if ra >= rb, signed"),
    0x24: ("bltu", "branch if ra < rb, unsigned"),
    0x25: ("bgeu", "branch if ra >= rb, unsigned"),
}
_VPU_RUN = (
    _uint("kernel", 3, 15, 0, "number in the kernel table"),
    Field("counts", FieldKind.COUNTS, _whole("counts", 4), Bits("nest", 3, 21, 19), "trip counts, outermost first"),
    _uint("inner", 3, 18, 16, "how many of the loops, from the innermost, form the inner loop"),
    _uint("serial", 3, 22, 22, "1: an iteration sees the stores of those before it"),
    Field("scalars", FieldKind.SCALARS, _whole("scalars", 10), Bits("scalars_reg", 3, 26, 23), "scalar operands"),
    Field("streams", FieldKind.STREAMS, _whole("streams", 14), Bits("nstreams", 3, 30, 27), "the kernel's streams"),
)


def _rows() -> Iterator[tuple[int, str, str, tuple[Field, ...], str]]:
    yield 0x00, "halt", "seq", (), "end of the program"
    yield 0x01, "trap", "seq", (_uint("code", 3, 15, 0, "reported to the host"),), "stop with an error code"
    yield 0x02, "sync", "seq", (), "SEQ itself waits and signals"
    queue = Field("queue", FieldKind.CHOICE, Bits("queue", 3, 7, 0), doc="queue", choices=tuple(QUEUE_CODES.items()))
    yield 0x03, "nop", "arg", (queue,), "goes through a queue only to wait and to signal"
    yield 0x04, "li", "seq", (RD, _sint("imm", 4, "value")), "rd = imm"
    address = _sint("imm", 4, "byte offset")
    yield 0x05, "lds", "seq", (RD, RA, address), "rd = SMEM word at ra + imm"
    yield 0x06, "sts", "seq", (RB, RA, address), "SMEM word at ra + imm = rb"
    yield 0x07, "jmp", "seq", (Field("target", FieldKind.TARGET, _whole("target", 3), doc="where to go on"),), "jump"
    end = Field("end", FieldKind.TARGET, _whole("end", 5), doc="what follows the body")
    count = _operand("count", 4, (3, 0), "trip count; none where it is 0 or negative")
    yield 0x08, "loop", "seq", (count, end), "repeat the instructions that follow, up to end - 1, count times"
    yield from ((code, name, "seq", ALU, doc) for code, (name, doc) in _ALU_ROWS.items())
    yield from ((code, name, "seq", BRANCH, doc) for code, (name, doc) in _BRANCH_ROWS.items())
    yield 0x40, "dma.load", "ld", COPY, "copy from HBM, HOST, SMEM or VMEM to VMEM or SMEM"
    yield 0x41, "dma.store", "st", COPY, "copy from VMEM or SMEM to HBM, HOST, LINK, VMEM or SMEM"
    transpose = _uint("transpose", 3, 4, 4, "1: rows of the pattern are columns of the tile")
    load = (_stream("src", 4, "weights"), ROW_LOOPS, transpose, PART, INTEGER)
    yield 0x50, "mxu.load", "w", load, "weight tile into the shadow registers; the rest of the tile is zero"
    yield 0x51, "mxu.latch", "s", (), "the shadow tile becomes active; it retires at start + latency, not in order"
    acc = _operand("acc", 4, (3, 8), "accumulator row of the first row")
    accumulate = _uint("accumulate", 3, 4, 4, "1: add to the accumulator; 0: to +0")
    matmul = (_stream("src", 5, "rows of M x K"), ROW_LOOPS, acc, accumulate, PART, INTEGER)
    yield 0x52, "mxu.matmul", "s", matmul, "stream rows through the active tile into the accumulators"
    yield 0x60, "vpu.run", "vpu", _VPU_RUN, "run a kernel over a loop nest"
    yield 0x70, "xlu.shuffle", "xlu", COPY, "copy elements in pattern order"
    codes = tuple(REDUCE_FUNCTIONS.items())
    function = Field("function", FieldKind.CHOICE, Bits("function", 3, 7, 0), doc="combining function", choices=codes)
    reduce = (_stream("src", 4, "source"), _stream("dst", 10, "destination"), function)
    yield 0x71, "xlu.reduce", "xlu", reduce, "combine along the innermost loop of src"


def _parts(fields: tuple[Field, ...]) -> Iterator[Bits]:
    for f in fields:
        if f.kind is not FieldKind.STREAMS:
            yield from (Bits(f.name, f.value.word + i, f.value.hi, f.value.lo) for i in range(f.words))
        if f.aux:
            yield f.aux


def _build() -> dict[str, Opcode]:
    table: dict[str, Opcode] = {}
    for code, name, queue, fields, doc in _rows():
        words = check_layout(name, _parts(fields), HEADER_WORDS)
        for f in fields:
            if f.kind is FieldKind.STREAMS and f.value.word != words:
                raise ValueError(f"{name}: field {f.name}: at word {f.value.word}, not last")
        if name in table or any(o.code == code for o in table.values()) or code > 0xFF:
            raise ValueError(f"{name}: code {code:#x} or name is there already")
        masks = masks_of([*HEADER, *_parts(fields)], words)
        names = frozenset(f.name for f in fields)
        table[name] = Opcode(name, code, queue, fields, doc, words, masks, names, name in RETIRE_ALONE)
    return table


OPCODES: dict[str, Opcode] = _build()
BY_CODE: dict[int, Opcode] = {o.code: o for o in OPCODES.values()}
ALU_OPS: tuple[str, ...] = tuple(name for name, _ in _ALU_ROWS.values())
BRANCH_OPS: tuple[str, ...] = tuple(name for name, _ in _BRANCH_ROWS.values())


_targets = {o.name: [f.name for f in o.fields if f.kind is FieldKind.TARGET] for o in OPCODES.values()}
TARGETS = {op: names for op, names in _targets.items() if names}
"""The fields of an opcode that are places in the code; opcodes without any are not in it."""


def size_words(instr: Instruction) -> int:
    """Length of an encoded instruction in 32-bit words."""
    op = OPCODES[instr.op]
    streams = instr.args.get("streams", ())
    return op.words + STREAM_WORDS * (len(streams) if isinstance(streams, tuple) else 0)


def queue_of(instr: Instruction) -> str:
    """Name of the queue an instruction goes through: `seq`, `ld`, `st`, `w0`, `s0`, ..., `vpu`, `xlu`."""
    queue = OPCODES[instr.op].queue
    if queue == "arg":
        return str(instr.args["queue"])
    return f"{queue}{instr.unit}" if queue in ("w", "s") else queue


def queues(chip: Chip) -> tuple[str, ...]:
    """Names of a chip's queues, SEQ first."""
    mxus = tuple(f"{q}{i}" for i in range(chip.mxu.count) for q in "ws")
    return ("seq", "ld", "st", *mxus, "vpu", "xlu")


def registers_of(instr: Instruction) -> list[Reg]:
    """Every scalar register that an instruction names, results included; streams' operands too."""
    found: list[Reg] = []
    for value in instr.args.values():
        if type(value) is not int:
            _collect_registers(value, found)
    return found


def _collect_registers(value: object, found: list[Reg]) -> None:
    if isinstance(value, Stream):
        b0, b1 = value.bias
        value = (value.base, b0, b1, value.index, value.entry)
    if isinstance(value, tuple):
        for v in value:
            if type(v) is not int:
                _collect_registers(v, found)
    elif isinstance(value, Reg):
        found.append(value)
