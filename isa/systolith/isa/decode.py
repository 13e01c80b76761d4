"""Decoding: the inverse of `encode.py`.  Reserved bits, wrong lengths and unknown codes are errors, never ignored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import cast

from systolith.isa import dtypes, encode
from systolith.isa.decode_columns import decode_columns
from systolith.isa.errors import EncodingError
from systolith.isa.instruction import Instruction, Operand, Reg, Space, Stream, Value
from systolith.isa.kernel import MAX_NEST, MAX_STREAMS, NSCALARS, Kernel, MicroOp, Section
from systolith.isa.layout import Bits, check_reserved
from systolith.isa.microops import MICROOPS
from systolith.isa.opcodes import (
    BY_CODE,
    HEADER,
    HEADER_WORDS,
    MAX_WAITS,
    NO_TOKEN,
    NREGISTERS,
    STREAM,
    STREAM_WORDS,
    TARGETS,
    Field,
    FieldKind,
)
from systolith.isa.pattern import Coord, Pattern

Words = Sequence[int]
_LAST_SPACE = max(Space)
MICROOP_BY_CODE = {m.code: m for m in MICROOPS.values()}


def _get(words: Words, bits: Bits) -> int:
    return words[bits.word] >> bits.lo & bits.most


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def _operand(word: int, is_reg: int, what: str, signed: bool = True) -> Operand:
    if not is_reg:
        return _signed(word) if signed else word
    if word >= NREGISTERS:
        raise EncodingError(f"{what}: register {word}: must be from 0 to {NREGISTERS - 1}")
    return Reg(word)


def decode_stream(words: Words, what: str = "stream") -> Stream:
    """The stream in six words.

    Raises:
        EncodingError: a code is unknown or a reserved bit is not 0.
    """
    return _stream(tuple(words), what)


@lru_cache(maxsize=1 << 14)  # half of a program's streams are like one before
def _stream(words: tuple[int, ...], what: str) -> Stream:
    v = STREAM.unpack(words, what)
    if v["space"] > _LAST_SPACE:
        raise EncodingError(f"{what}: space {v['space']}: unknown")
    base, bias0, bias1, index = (_operand(v[n], v[f"{n}_reg"], what) for n in ("base", "bias0", "bias1", "index"))
    entry: Operand = Reg(v["entry"]) if v["entry"] else 0
    return Stream(Space(v["space"]), v["pattern"], base, v["buffer"], (bias0, bias1), index, entry)


def _get_field(words: Words, f: Field, what: str) -> Value:
    at = f.value.word
    value = _get(words, f.value) if at < len(words) else 0  # no streams: nothing there
    aux = _get(words, f.aux) if f.aux else 0
    match f.kind:
        case FieldKind.UINT | FieldKind.TARGET:
            return value
        case FieldKind.SINT:
            return _signed(value)
        case FieldKind.REG:
            return Reg(value)
        case FieldKind.OPERAND:
            return _operand(value, aux, what)
        case FieldKind.CHOICE:
            return _choice(f, value, what)
        case FieldKind.STREAM:
            return decode_stream(words[at : at + STREAM_WORDS], what)
        case FieldKind.STREAMS:
            starts = range(at, at + STREAM_WORDS * aux, STREAM_WORDS)
            return tuple(decode_stream(words[i : i + STREAM_WORDS], what) for i in starts)
        case FieldKind.COUNTS:
            return _counts(words[at : at + MAX_NEST], aux, what)
        case FieldKind.SCALARS:
            return tuple(_operand(words[at + i], aux >> i & 1, what, signed=False) for i in range(NSCALARS))


def _choice(f: Field, code: int, what: str) -> str:
    for name, c in f.choices:
        if c == code:
            return name
    raise EncodingError(f"{what}: code {code}: unknown")


def _counts(words: Words, nest: int, what: str) -> tuple[int, ...]:
    if not 1 <= nest <= MAX_NEST or any(words[nest:]) or 0 in words[:nest]:
        raise EncodingError(f"{what}: {nest} of {list(words)}: 1 to {MAX_NEST}, each at least 1, the rest 0")
    return tuple(words[:nest])


def _tokens(values: dict[str, int], key: str, what: str) -> tuple[int, ...]:
    tokens = [values[f"{key}{i}"] for i in range(MAX_WAITS)]
    used = [t for t in tokens if t != NO_TOKEN]
    if tokens[: len(used)] != used:
        raise EncodingError(f"{what}: {key}s {tokens}: unused ones come last")
    return tuple(used)


def decode_instruction(words: Words) -> tuple[Instruction, int]:
    """The instruction at the start of `words`, and how many words it takes.

    Raises:
        EncodingError: unknown code, wrong length, or a reserved bit that is not 0.
    """
    if len(words) < HEADER_WORDS:
        raise EncodingError(f"instruction: {len(words)} words, needs at least {HEADER_WORDS}")
    head = HEADER.unpack(words[:HEADER_WORDS], "header")
    op = BY_CODE.get(head["opcode"])
    if op is None:
        raise EncodingError(f"opcode {head['opcode']:#04x}: unknown")
    length, streams = op.words, next((f for f in op.fields if f.kind is FieldKind.STREAMS), None)
    if streams is not None and streams.aux is not None and len(words) > streams.aux.word:
        length += STREAM_WORDS * _get(words, streams.aux)
        if length > op.words + STREAM_WORDS * MAX_STREAMS:
            raise EncodingError(f"{op.name}: {(length - op.words) // STREAM_WORDS} streams: at most {MAX_STREAMS}")
    if op.queue not in ("w", "s") and head["unit"]:
        raise EncodingError(f"{op.name}: unit {head['unit']}: must be 0")
    if head["length"] != length or len(words) < length:
        raise EncodingError(f"{op.name}: length {head['length']}, {len(words)} words there: must be {length}")
    words = words[:length]
    check_reserved(words[: op.words], op.masks, op.name)
    args = {f.name: _get_field(words, f, f"{op.name}.{f.name}") for f in op.fields}
    instr = Instruction(
        op.name,
        args,
        head["unit"],
        _tokens(head, "wait", op.name),
        _tokens(head, "signal", op.name),
        bool(head["fence"]),
    )
    return instr, length


def _one_by_one(words: Words) -> tuple[list[Instruction], dict[int, int]]:
    """Instructions, and the index of each by its word offset.

    Raises:
        EncodingError: with the word offset of the instruction that does not decode.
    """
    code: list[Instruction] = []
    index: dict[int, int] = {}
    at, size = 0, len(words)
    while at < size:
        index[at] = len(code)
        try:
            instr, length = decode_instruction(words[at : at + 256])
        except EncodingError as e:
            raise EncodingError(f"code word {at}: {e}") from None
        code.append(instr)
        at += length
    index[at] = len(code)
    return code, index


def decode_code(words: Words) -> list[Instruction]:
    """All instructions of a code section; targets become indices.

    Raises:
        EncodingError: with the word offset of the instruction that does not decode, or a target between instructions.
    """
    code, index = decode_columns(words) or _one_by_one(words)
    for n, instr in enumerate(code):
        for name in TARGETS.get(instr.op, ()):
            target = index.get(cast(int, instr.args[name]))
            if target is None:
                raise EncodingError(f"{instr.op}: {name} {instr.args[name]}: no instruction starts at this word")
            code[n] = replace(instr, args={**instr.args, name: target})
    return code


def decode_pattern(words: Words, what: str = "pattern") -> tuple[Pattern, int]:
    """The pattern at the start of `words`, and how many words it takes.

    Raises:
        EncodingError: unknown code, wrong length, or a value the pattern may not have.
    """
    if len(words) < 2:
        raise EncodingError(f"{what}: truncated")
    head = encode.PATTERN_HEADER.unpack(words[:2], what)
    n, coord_words = head["loops"], encode.COORD_WORDS + head["loops"]
    size = 2 + 2 * n + head["coords"] * coord_words
    if len(words) < size:
        raise EncodingError(f"{what}: {len(words)} words, needs {size}")
    dtype = dtypes.BY_CODE.get(head["dtype"])
    if dtype is None:
        raise EncodingError(f"{what}: element type {head['dtype']}: unknown")
    coords = []
    for at in range(2 + 2 * n, size, coord_words):
        v = encode.COORD_FIXED.unpack(words[at : at + encode.COORD_WORDS], what)
        coefs = tuple(_signed(w) for w in words[at + encode.COORD_WORDS : at + coord_words])
        offset, lo, hi, stride = (_signed(v[name]) for name in ("offset", "lo", "hi", "stride"))
        coords.append((coefs, offset, lo, hi, v["div"], stride, v["bias"] - 1))
    strides = tuple(_signed(w) for w in words[2 + n : 2 + 2 * n])
    try:
        made = tuple(Coord(*c) for c in coords)
        pattern = Pattern(dtype, tuple(words[2 : 2 + n]), strides, made, head["fill"], head["indirect"] - 1)
    except ValueError as e:
        raise EncodingError(f"{what}: {e}") from None
    return pattern, size


def _decode_microop(words: Words, what: str) -> MicroOp:
    v = encode.MICROOP.unpack(words, what)
    info = MICROOP_BY_CODE.get(v["op"])
    if info is None:
        raise EncodingError(f"{what}: micro-operation code {v['op']}: unknown")
    srcs = tuple(v[f"src{i}"] for i in range(3))
    if any(srcs[info.sources :]):
        raise EncodingError(f"{what}: {info.name}: operands {srcs}: only {info.sources} are used, the rest must be 0")
    dst = -1 if v["dst"] == encode.NO_DST else v["dst"]
    return MicroOp(info.name, dst, srcs[: info.sources], v["imm"], v["cycle"], v["slot"])


def decode_kernel(words: Words, name: str) -> tuple[Kernel, int]:
    """The kernel at the start of `words`, and how many words it takes.

    Raises:
        EncodingError: unknown code or wrong length.
    """
    what = f"kernel {name}"
    if len(words) < encode.KERNEL_WORDS:
        raise EncodingError(f"{what}: truncated")
    head = encode.KERNEL_HEADER.unpack(words[: encode.KERNEL_WORDS], what)
    at = encode.KERNEL_WORDS + head["constants"]
    nops = sum(head[f"{s}_ops"] for s in encode.SECTIONS)
    size = at + encode.MICROOP_WORDS * nops
    if len(words) < size:
        raise EncodingError(f"{what}: {len(words)} words, needs {size}")
    constants = tuple(words[encode.KERNEL_WORDS : at])
    sections = {}
    for s in encode.SECTIONS:
        end = at + encode.MICROOP_WORDS * head[f"{s}_ops"]
        ops = (_decode_microop(words[i : i + encode.MICROOP_WORDS], what) for i in range(at, end, encode.MICROOP_WORDS))
        sections[s] = Section(tuple(ops), head[f"{s}_length"])
        at = end
    kernel = Kernel(name, ii=head["ii"], constants=constants, rotating=head["rotating"], **sections)
    return kernel, size
