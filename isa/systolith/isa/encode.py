"""Encoding: instructions, patterns and kernels to 32-bit words, as the tables of `opcodes.py` and below say.

A pattern is a header word, the fill, a count and a stride for each loop, then for each coordinate `COORD_FIXED` and one
coefficient a loop.  A kernel is `KERNEL_HEADER`, its constants, then its micro-operations: prologue, body, epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from systolith.isa.errors import EncodingError
from systolith.isa.instruction import Instruction, Operand, Reg, Stream, Value
from systolith.isa.kernel import MAX_NEST, MAX_STREAMS, NSCALARS, Kernel, MicroOp
from systolith.isa.layout import Bits, Layout
from systolith.isa.microops import MICROOPS
from systolith.isa.opcodes import (
    HEADER,
    HEADER_WORDS,
    MAX_TOKENS,
    MAX_WAITS,
    NO_TOKEN,
    NREGISTERS,
    OPCODES,
    STREAM,
    STREAM_WORDS,
    TARGETS,
    Field,
    FieldKind,
    Opcode,
    size_words,
)
from systolith.isa.pattern import Pattern

S32 = (-(2**31), 2**31 - 1)
U32 = (0, 2**32 - 1)
MASK = 0xFFFFFFFF

PATTERN_HEADER = Layout(
    "pattern",
    Bits("dtype", 0, 4, 0),
    Bits("loops", 0, 8, 5),
    Bits("coords", 0, 11, 9),
    Bits("indirect", 0, 15, 12),  # loop + 1; 0: none
    Bits("fill", 1, 31, 0),
)
COORD_FIXED = Layout(
    "coordinate",
    Bits("bias", 0, 1, 0),  # bias + 1; 0: none
    Bits("offset", 1, 31, 0),
    Bits("lo", 2, 31, 0),
    Bits("hi", 3, 31, 0),
    Bits("div", 4, 31, 0),
    Bits("stride", 5, 31, 0),
)
KERNEL_HEADER = Layout(
    "kernel",
    Bits("constants", 0, 6, 0),
    Bits("rotating", 0, 13, 7),
    Bits("ii", 1, 15, 0),
    Bits("prologue_ops", 2, 15, 0),
    Bits("prologue_length", 2, 31, 16),
    Bits("body_ops", 3, 15, 0),
    Bits("body_length", 3, 31, 16),
    Bits("epilogue_ops", 4, 15, 0),
    Bits("epilogue_length", 4, 31, 16),
)
MICROOP = Layout(
    "micro-operation",
    Bits("op", 0, 7, 0),
    Bits("src0", 0, 15, 8),
    Bits("src1", 0, 23, 16),
    Bits("src2", 0, 31, 24),
    Bits("cycle", 1, 12, 0),
    Bits("slot", 1, 16, 13),
    Bits("imm", 1, 24, 17),
    Bits("dst", 1, 31, 25),
)
NO_DST = 127
MICROOP_WORDS = MICROOP.words
COORD_WORDS = COORD_FIXED.words
KERNEL_WORDS = KERNEL_HEADER.words

SECTIONS = ("prologue", "body", "epilogue")


def check_range(what: str, value: object, lo: int, hi: int) -> int:
    """`value`, if it is an integer from lo to hi; EncodingError otherwise."""
    if isinstance(value, int) and lo <= value <= hi:
        return int(value)
    raise EncodingError(f"{what} = {value!r}: must be an integer from {lo} to {hi}")


def _put(words: list[int], bits: Bits, value: object, what: str) -> None:
    """Or a value into its place, checked against its width."""
    if not isinstance(value, int) or not 0 <= value <= bits.most:
        raise EncodingError(f"{what} = {value!r}: must be an integer from 0 to {bits.most}")
    words[bits.word] |= value << bits.lo


def _image(value: object, what: str, limits: tuple[int, int]) -> int:
    return check_range(what, value, *limits) & MASK


def _operand(value: Operand, what: str, limits: tuple[int, int]) -> tuple[int, int]:
    """(word, 1 if it is a register)."""
    if isinstance(value, int) and limits[0] <= value <= limits[1]:
        return value & MASK, 0
    if isinstance(value, Reg):
        return check_range(f"{what}: register", value.n, 0, NREGISTERS - 1), 1
    raise EncodingError(f"{what}: operand {value!r}: must be a register, or an integer from {limits[0]} to {limits[1]}")


def encode_stream(stream: Stream, what: str = "stream") -> list[int]:
    """The six words of a stream.

    Raises:
        EncodingError: a value does not fit its field.
    """
    if not isinstance(stream, Stream):
        raise EncodingError(f"{what} = {stream!r}: must be a Stream")
    values = {"pattern": stream.pattern, "space": int(stream.space), "buffer": stream.buffer}
    values["base"], values["base_reg"] = _operand(stream.base, what, S32)
    values["bias0"], values["bias0_reg"] = _operand(stream.bias[0], what, S32)
    values["bias1"], values["bias1_reg"] = _operand(stream.bias[1], what, S32)
    values["index"], values["index_reg"] = _operand(stream.index, what, S32)
    values["entry"], is_register = _operand(stream.entry, what, (0, 0))
    if is_register and not values["entry"]:
        raise EncodingError(f"{what}: entry r0: write 0, which it reads as")
    return STREAM.pack(values, what)


def _tuple(value: Value, what: str, least: int, most: int) -> tuple[object, ...]:
    if not isinstance(value, tuple) or not least <= len(value) <= most:
        raise EncodingError(f"{what} = {value!r}: must be a tuple of {least} to {most}")
    return value


def _put_uint(words: list[int], f: Field, value: Value, what: str) -> None:
    _put(words, f.value, value, what)


def _put_sint(words: list[int], f: Field, value: Value, what: str) -> None:
    words[f.value.word] = _image(value, what, S32)


def _put_reg(words: list[int], f: Field, value: Value, what: str) -> None:
    if not isinstance(value, Reg):
        raise EncodingError(f"{what} = {value!r}: must be a register")
    check_range(f"{what}: register", value.n, 0, NREGISTERS - 1)
    _put(words, f.value, value.n, what)


def _put_operand(words: list[int], f: Field, value: Value, what: str) -> None:
    assert f.aux is not None
    words[f.value.word], flag = _operand(value, what, S32)  # type: ignore[arg-type]
    _put(words, f.aux, flag, what)


def _put_choice(words: list[int], f: Field, value: Value, what: str) -> None:
    codes = dict(f.choices)
    if not isinstance(value, str) or value not in codes:
        raise EncodingError(f"{what} = {value!r}: must be one of {', '.join(codes)}")
    _put(words, f.value, codes[value], what)


def _put_stream(words: list[int], f: Field, value: Value, what: str) -> None:
    words[f.value.word : f.value.word + STREAM_WORDS] = encode_stream(value, what)  # type: ignore[arg-type]


def _put_streams(words: list[int], f: Field, value: Value, what: str) -> None:
    assert f.aux is not None
    streams = _tuple(value, what, 0, MAX_STREAMS)
    _put(words, f.aux, len(streams), what)
    for i, s in enumerate(streams):
        at = f.value.word + STREAM_WORDS * i
        words[at : at + STREAM_WORDS] = encode_stream(s, f"{what}[{i}]")  # type: ignore[arg-type]


def _put_counts(words: list[int], f: Field, value: Value, what: str) -> None:
    assert f.aux is not None
    counts = _tuple(value, what, 1, MAX_NEST)
    _put(words, f.aux, len(counts), what)
    for i, c in enumerate(counts):
        words[f.value.word + i] = check_range(f"{what}[{i}]", c, 1, U32[1])


def _put_scalars(words: list[int], f: Field, value: Value, what: str) -> None:
    assert f.aux is not None
    flags = 0
    for i, v in enumerate(_tuple(value, what, NSCALARS, NSCALARS)):
        words[f.value.word + i], flag = _operand(v, f"{what}[{i}]", U32)  # type: ignore[arg-type]
        flags |= flag << i
    _put(words, f.aux, flags, what)


_PUT = {
    FieldKind.UINT: _put_uint,
    FieldKind.TARGET: _put_uint,
    FieldKind.SINT: _put_sint,
    FieldKind.REG: _put_reg,
    FieldKind.OPERAND: _put_operand,
    FieldKind.CHOICE: _put_choice,
    FieldKind.STREAM: _put_stream,
    FieldKind.STREAMS: _put_streams,
    FieldKind.COUNTS: _put_counts,
    FieldKind.SCALARS: _put_scalars,
}


def _tokens(tokens: tuple[object, ...], what: str) -> tuple[object, ...]:
    if len(tokens) > MAX_WAITS:
        raise EncodingError(f"{what} = {tokens}: at most {MAX_WAITS} tokens")
    for t in tokens:
        if not isinstance(t, int) or not 0 <= t < MAX_TOKENS:
            raise EncodingError(f"{what} = {tokens}: must be from 0 to {MAX_TOKENS - 1}")
    return (*tokens, *(NO_TOKEN,) * (MAX_WAITS - len(tokens)))


def check_tokens(instr: Instruction) -> None:
    """Check an instruction's tokens, as `encode_instruction` does.

    Raises:
        EncodingError: there are too many, or one is none.
    """
    if instr.waits:
        _tokens(instr.waits, "waits")
    if instr.signals:
        _tokens(instr.signals, "signals")


def _known(instr: Instruction) -> Opcode:
    op = OPCODES.get(instr.op)
    if op is None:
        raise EncodingError(f"op {instr.op!r}: no such instruction")
    return op


def encode_instruction(instr: Instruction) -> list[int]:
    """The words of an instruction; targets as they are.

    Raises:
        EncodingError: unknown op, missing or unknown argument, or a value that does not fit its field.
    """
    op = _known(instr)
    if instr.args.keys() != op.names:
        want, got = ", ".join(f.name for f in op.fields), ", ".join(instr.args)
        raise EncodingError(f"{instr.op}: arguments ({got}): must be ({want})")
    words = [0] * size_words(instr)
    values: dict[str, object] = {"opcode": op.code, "unit": instr.unit, "fence": int(instr.fence), "length": len(words)}
    values["wait0"], values["wait1"], values["wait2"], values["wait3"] = _tokens(instr.waits, "waits")
    values["signal0"], values["signal1"], values["signal2"], values["signal3"] = _tokens(instr.signals, "signals")
    if op.queue not in ("w", "s"):
        check_range(f"{instr.op}.unit", instr.unit, 0, 0)
    words[:HEADER_WORDS] = HEADER.pack(values, instr.op)
    for f in op.fields:
        _PUT[f.kind](words, f, instr.args[f.name], f"{instr.op}.{f.name}")
    return words


def encode_code(code: Sequence[Instruction]) -> list[int]:
    """The words of a program's instructions, one after another; targets, which are indices, become word addresses.

    Raises:
        EncodingError: an instruction does not fit the encoding, or a target is outside of the code.
    """
    for instr in code:
        _known(instr)
    addresses = list(accumulate(map(size_words, code), initial=0))
    words: list[int] = []
    for instr in code:
        names = TARGETS.get(instr.op)
        if names:
            at = {n: check_range(f"{instr.op}.{n}", instr.args[n], 0, len(code)) for n in names}
            instr = replace(instr, args={**instr.args, **{n: addresses[i] for n, i in at.items()}})
        words += encode_instruction(instr)
    return words


def encode_pattern(pattern: Pattern, what: str = "pattern") -> list[int]:
    """The words of a pattern.

    Raises:
        EncodingError: a value does not fit its field.
    """
    p = pattern
    head = {
        "dtype": p.dtype.code,
        "loops": len(p.counts),
        "coords": len(p.coords),
        "indirect": p.indirect + 1,
        "fill": p.fill,
    }
    words = PATTERN_HEADER.pack(head, what)
    words += [_image(c, f"{what}.counts", (1, U32[1])) for c in p.counts]
    words += [_image(s, f"{what}.strides", S32) for s in p.strides]
    for c in p.coords:
        fixed = {"bias": c.bias + 1, "div": check_range(f"{what}.div", c.div, 1, S32[1])}
        for name in ("offset", "lo", "hi", "stride"):
            fixed[name] = _image(getattr(c, name), f"{what}.{name}", S32)
        words += COORD_FIXED.pack(fixed, what)
        words += [_image(k, f"{what}.coefs", S32) for k in c.coefs]
    return words


def _encode_microop(m: MicroOp, what: str) -> list[int]:
    info = MICROOPS.get(m.op)
    if info is None:
        raise EncodingError(f"{what}: {m.op!r}: no such micro-operation")
    if len(m.srcs) != info.sources:
        raise EncodingError(f"{what}: {m.op}: {len(m.srcs)} operands, needs {info.sources}")
    values = {"op": info.code, "cycle": m.cycle, "slot": m.slot, "imm": m.imm}
    values["dst"] = NO_DST if m.dst == -1 else m.dst
    values |= {f"src{i}": (m.srcs[i] if i < len(m.srcs) else 0) for i in range(3)}
    return MICROOP.pack(values, f"{what}: {m.op}")


def encode_kernel(kernel: Kernel) -> list[int]:
    """The words of a kernel (its name is kept beside them).

    Raises:
        EncodingError: a value does not fit its field.
    """
    what = f"kernel {kernel.name}"
    head = {"constants": len(kernel.constants), "rotating": kernel.rotating, "ii": kernel.ii}
    sections = [getattr(kernel, name) for name in SECTIONS]
    for name, section in zip(SECTIONS, sections, strict=True):
        head |= {f"{name}_ops": len(section.ops), f"{name}_length": section.length}
    words = KERNEL_HEADER.pack(head, what)
    words += [_image(c, f"{what}: constant", U32) for c in kernel.constants]
    for section in sections:
        for m in section.ops:
            words += _encode_microop(m, what)
    return words
