"""Literals as text, both ways: `1`, `{1, -inf, nan}`, `{ { 1, 2 }, { 3, 4 } }`, `{(0, 1)}`, `( 1.5, {1, 2} )`.

Source: `ParseDenseLiteral` of `xla/hlo/parser/hlo_parser.cc` and `xla/literal.cc`.  Linear in the text and done a list
at a time, so that weights written into a module parse in reasonable time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import inf, isnan, nan, prod

import numpy as np

from systolith.compiler.hlo.ir import Literal
from systolith.compiler.hlo.lexer import MAX_NESTING, Cursor
from systolith.compiler.hlo.shape import Shape, at_shape, parse_shape
from systolith.isa.dtypes import DType, Kind

_COMMENT = re.compile(r"/\*.*?\*/|//[^\r\n]*", re.DOTALL)
_REAL = r"(?:-?nan\([^()]*\)|[^\s(){},]+)"
_PAIR = re.compile(rf"\(\s*({_REAL})\s*,\s*({_REAL})\s*\)")
_SCALAR = re.compile(rf"\(\s*{_REAL}\s*,\s*{_REAL}\s*\)|{_REAL}")
_NAN = re.compile(r"(-?)nan(?:\((0x[0-9a-fA-F]{1,16})\))?\Z")
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|(?<=-)\.\d+)(?:[eE][+-]?\d+)?\Z", re.ASCII)
_NUMBERS = re.compile(r"[\d.eE\-\s]*(?:(?<=[eE])\+[\d.eE\-\s]*)*\Z", re.ASCII)
_INTEGERS = re.compile(r"[\d\-\s]*\Z", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,20}\Z", re.ASCII)
_WORD = re.compile(r"[^\s{},]+")
_NAMED = {"inf": inf, "-inf": -inf, "nan": nan, "-nan": -nan}
_BOOLEANS = {"true": True, "false": False}
_BLANK = str.maketrans("{},", "   ")
_NO_BLANK = str.maketrans("", "", ", \t\r\n")

# Digits that XLA prints: the first number of these with which the text gives the value back.
_DIGITS: dict[str, tuple[int, ...]] = {
    "f64": (15, 17),
    "f32": (6, 9),
    "f16": (5,),
    "bf16": (4,),
    **dict.fromkeys("f8e3m4 f8e4m3 f8e4m3fn f8e4m3fnuz f8e4m3b11fnuz".split(), (3,)),
    **dict.fromkeys("f8e5m2 f8e5m2fnuz f8e8m0fnu f4e2m1fn".split(), (2,)),
}
# Bits of the mantissa, for types whose NaNs have payloads.
_MANTISSA = {"f8e3m4": 4, "f8e4m3": 3, "f8e5m2": 2, "bf16": 7, "f16": 10, "f32": 23, "f64": 52}


LEFT_OUT = "{...}"
"""XLA's text of a constant of more than ten elements, unless it is to print large constants."""
_LEFT_OUT = re.compile(r"\{\s*\.\.\.\s*\}")
_MOST_FILLED = 1 << 22
"""Elements of an array for which one value may stand: a short text takes no more memory than this."""
_MOST_EMPTY = 1000
"""Empty lists that a constant without elements is printed with; of one that has more they are left out."""


def parse_constant(cursor: Cursor, shape: Shape, left_out: bool) -> Literal | None:
    """The value of a constant at the cursor; None for one whose values are left out, if that may be and it has any.

    Raises:
        HloError: as `parse_literal`, or values are left out that may not be.
    """
    start = cursor.pos
    may_be_long = shape.is_tuple or (shape.is_array and shape.rank > 0)
    if not (may_be_long and cursor.match(_LEFT_OUT)):
        return parse_literal(cursor, shape)
    if shape.is_array and not shape.size:
        return np.empty(shape.dims, shape.dtype.stored)
    if not left_out:
        raise cursor.error("the constant's values are left out ('{...}'); print the module with large constants", start)
    return None


def parse_literal(cursor: Cursor, shape: Shape, depth: int = 0) -> Literal:
    """The literal at the cursor, which must be of `shape`.

    Raises:
        HloError: it is not a literal of that shape, or its values do not fit the element type.
    """
    start = cursor.pos
    if shape.is_tuple:
        return _parse_tuple(cursor, shape, depth)
    if not shape.is_array:
        raise cursor.error(f"there are no literals of shape {shape}", start)
    first = bool(shape.rank and shape.size and shape.dtype.kind is not Kind.COMPLEX and not cursor.at("{"))
    texts = _parse_nested(cursor, shape) if shape.rank and not first else _one_scalar(cursor)
    if len(texts) != shape.size and not first:
        raise cursor.error(f"a literal of shape {shape} has {shape.size} elements, this one {len(texts)}", start)
    try:
        values = _CONVERT[shape.dtype.kind](texts, shape.dtype)
        return _followed_by_zeros(values, shape) if first else values.reshape(shape.dims)
    except ValueError as problem:
        raise cursor.error(f"in a literal of shape {shape}: {problem}", start) from None


def _followed_by_zeros(value: np.ndarray, shape: Shape) -> np.ndarray:
    """One value as an array, as XLA reads it: its first element, and zeros."""
    if shape.size > _MOST_FILLED:
        raise ValueError(f"one value stands for at most {_MOST_FILLED} elements; use a broadcast")
    whole = np.zeros(shape.dims, shape.dtype.stored)
    whole.reshape(-1)[:1] = value
    return whole


def _parse_tuple(cursor: Cursor, shape: Shape, depth: int) -> Literal:
    if depth > MAX_NESTING:
        raise cursor.error(f"tuples nest deeper than {MAX_NESTING}")
    cursor.expect("(", f"to start a literal of shape {shape}")
    values: list[Literal] = []
    for index, element in enumerate(shape.elements):
        if index:
            cursor.expect(",", f"between the elements of a literal of shape {shape}")
        if not cursor.at("(") and at_shape(cursor):
            parse_shape(cursor)  # older texts repeat each element's shape
        values.append(parse_literal(cursor, element, depth + 1))
    cursor.expect(")", f"to end a literal of shape {shape}")
    return tuple(values)


def _one_scalar(cursor: Cursor) -> list[str]:
    found = cursor.match(_SCALAR)
    return [found.group()] if found else cursor.fail("a value")


def _parse_nested(cursor: Cursor, shape: Shape) -> list[str]:
    """Texts of the elements of a nested list, whose braces must agree with the shape; commas say nothing."""
    start = cursor.pos
    if not cursor.at("{"):
        cursor.fail(f"'{{' to start a literal of shape {shape}")
    text = _COMMENT.sub("", _extent(cursor, shape.rank if shape.size else 0))
    if "(" in text:
        texts = _SCALAR.findall(text)
        nesting = _SCALAR.sub("x", text).translate(_NO_BLANK)
    else:
        texts = text.translate(_BLANK).split()
        nesting = _WORD.sub("x", text).translate(_NO_BLANK)
    if len(texts) != shape.size:
        raise cursor.error(f"a literal of shape {shape} has {shape.size} elements, this one {len(texts)}", start)
    lists = sum(prod(shape.dims[:rank]) for rank in range(shape.rank))
    if len(nesting) != 2 * lists + shape.size or nesting != _nesting(shape.dims):
        raise cursor.error(f"braces of the literal do not agree with shape {shape}", start)
    return texts


def _extent(cursor: Cursor, rank: int) -> str:
    """The text of a nested list: up to as many closing braces as there are dimensions, if nothing is odd.

    Rank 0 is a list that has no elements: it may close with fewer braces.
    """
    text, start = cursor.text, cursor.pos
    found = re.compile(r"\}" + r"[ \t\r\n]*\}" * (rank - 1)).search(text, start) if 0 < rank <= MAX_NESTING else None
    if found:
        literal = text[start : found.end()]
        if literal.count("{") == literal.count("}"):
            cursor.pos = found.end()
            cursor.skip()
            return literal
    return cursor.balanced()


def _nesting(dims: Sequence[int]) -> str:
    """A literal with `x` for each element: `{{xxx}{xxx}}` for 2 x 3.  Called only where that many were read."""
    text = "{" + "x" * dims[-1] + "}"
    for size in reversed(dims[:-1]):
        text = "{" + text * size + "}"
    return text


def _float(text: str) -> float:
    if _NUMBER.match(text):
        return float(text)
    if text in _NAMED:
        return _NAMED[text]
    if found := _NAN.match(text):
        return -nan if found.group(1) else nan
    raise ValueError(f"expected a number, got {text[:40]!r}")


def _floats(texts: Sequence[str], dtype: DType) -> np.ndarray:
    joined = " ".join(texts)
    plain = _NUMBERS.match(joined) is not None and " ." not in joined and not joined.startswith(".")
    try:
        numbers = np.array(list(map(float if plain else _float, texts)), dtype=np.float64)
    except ValueError:
        for text in texts:
            _float(text)
        raise
    with np.errstate(over="ignore", invalid="ignore"):
        values = numbers.astype(dtype.stored)
    overflow = np.isinf(numbers) if plain else np.zeros(len(texts), dtype=bool)
    overflow |= np.isfinite(numbers) & ~np.isfinite(values.astype(np.float64))
    if overflow.any():
        raise ValueError(f"{texts[int(np.argmax(overflow))][:40]} does not fit {dtype.name}")
    return values if plain else _with_payloads(texts, values, dtype)


def _with_payloads(texts: Sequence[str], values: np.ndarray, dtype: DType) -> np.ndarray:
    """NaNs get the sign and the payload that the text gives."""
    mantissa = _MANTISSA.get(dtype.name, 0)
    for index in np.flatnonzero(np.isnan(values.astype(np.float64))).tolist():
        found = _NAN.match(texts[index])
        if not found:
            continue
        payload = int(found[2], 16) if found[2] else 1 << max(mantissa - 1, 0)
        if found[2] and (not mantissa or not 0 < payload < 1 << mantissa):
            raise ValueError(f"{texts[index]} is no NaN of {dtype.name}")
        if mantissa:
            bits = values[index : index + 1].view(f"u{dtype.size}")
            exponent = ((1 << dtype.bits - 1 - mantissa) - 1) << mantissa
            bits[0] = exponent | payload | (bool(found[1]) << dtype.bits - 1)
        elif found[1] and dtype.name == "f8e4m3fn":
            values[index : index + 1].view("u1")[0] = 0xFF
    return values


def _integers(texts: Sequence[str], dtype: DType) -> np.ndarray:
    """As in XLA 2**63 and more of 64 bits stand for the negative numbers of the same bits, and the reverse."""
    signed = dtype.kind is Kind.SIGNED
    low, high = (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if signed else (0, (1 << dtype.bits) - 1)
    for text in texts if not _INTEGERS.match(" ".join(texts)) or max(map(len, texts), default=0) > 18 else ():
        if not _INTEGER.match(text) or not -(1 << 63) <= int(text) < 1 << 64:
            raise ValueError(f"expected an integer of 64 bits, got {text[:40]!r}")
    try:
        numbers = list(map(int, texts))
    except ValueError:
        raise ValueError("expected integers") from None
    if numbers and (min(numbers) < low or max(numbers) > high):
        numbers = [n - (1 << 64) if signed and n >= 1 << 63 else n for n in numbers]
        numbers = [n + (1 << 64) if not signed and n < 0 else n for n in numbers]
        for text, number in zip(texts, numbers, strict=True):
            if not low <= number <= high:
                raise ValueError(f"{text} does not fit {dtype.name} ({low} to {high})")
    return np.array(numbers, dtype=np.int64 if signed else np.uint64).astype(dtype.stored)


def _booleans(texts: Sequence[str], dtype: DType) -> np.ndarray:
    for text in set(texts):
        if text not in _BOOLEANS and not _INTEGER.match(text):
            raise ValueError(f"expected true, false or an integer, got {text[:40]!r}")
    return np.array([_BOOLEANS[t] if t in _BOOLEANS else int(t) != 0 for t in texts], dtype=dtype.stored)


def _complexes(texts: Sequence[str], dtype: DType) -> np.ndarray:
    parts: list[str] = []
    for text in texts:
        found = _PAIR.match(text)
        if not found:
            raise ValueError(f"expected (real, imaginary), got {text[:40]!r}")
        parts += found.groups()
    return _floats(parts, dtype.part).view(dtype.stored)


_CONVERT: dict[Kind, Callable[[Sequence[str], DType], np.ndarray]] = {
    Kind.PRED: _booleans,
    Kind.SIGNED: _integers,
    Kind.UNSIGNED: _integers,
    Kind.FLOAT: _floats,
    Kind.COMPLEX: _complexes,
}


def show_literal(value: Literal, shape: Shape) -> str:
    """A literal as XLA prints it."""
    if isinstance(value, tuple):
        return "( " + ", ".join(show_literal(v, s) for v, s in zip(value, shape.elements, strict=True)) + " )"
    texts = _show_values(value, shape.dtype)
    if shape.rank == 0:
        return texts[0]
    if shape.rank == 1:
        return "{" + ", ".join(texts) + "}"
    if not texts and prod(shape.dims[:-1]) > _MOST_EMPTY:
        return LEFT_OUT
    return _show_nested(texts, shape.dims, ())


def show_shaped(value: Literal, shape: Shape) -> str:
    """A literal with its shape, in a tuple with each element's, as XLA prints it: `( s32[2]{0} {1, 2}, f32[] 3 )`."""
    if isinstance(value, tuple):
        return "( " + ", ".join(show_shaped(v, s) for v, s in zip(value, shape.elements, strict=True)) + " )"
    return f"{shape.text()} {show_literal(value, shape)}"


def _show_values(value: np.ndarray, dtype: DType) -> list[str]:
    flat = np.ascontiguousarray(value).reshape(-1)
    if dtype.kind is Kind.PRED:
        return [("true" if v else "false") if value.ndim == 0 else str(int(v)) for v in flat.tolist()]
    if dtype.is_integer:
        return list(map(str, flat.astype(np.uint64 if dtype.kind is Kind.UNSIGNED else np.int64).tolist()))
    if dtype.kind is Kind.COMPLEX:
        part = dtype.part
        texts = _show_floats(flat.view(part.stored), part)
        return [f"({real}, {imag})" for real, imag in zip(texts[::2], texts[1::2], strict=True)]
    return _show_floats(flat, dtype)


def _show_floats(flat: np.ndarray, dtype: DType) -> list[str]:
    """The fewest digits of `_DIGITS` that give the value back; the last choice in any case."""
    with np.errstate(invalid="ignore"):
        numbers: list[float] = flat.astype(np.float64).tolist()
    few, most = _DIGITS[dtype.name][0], _DIGITS[dtype.name][-1]
    texts = [f"{n:.{few}g}" for n in numbers]
    if few != most:
        with np.errstate(over="ignore"):
            short = np.array(list(map(float, texts))).astype(dtype.stored)
        for index in np.flatnonzero(short != flat).tolist():
            texts[index] = f"{numbers[index]:.{most}g}"
    for index in np.flatnonzero(~np.isfinite(numbers)).tolist():
        number = numbers[index]
        texts[index] = _show_nan(flat[index], dtype) if isnan(number) else "inf" if number > 0 else "-inf"
    return texts


def _show_nan(value: np.generic, dtype: DType) -> str:
    if dtype.bits < 8 or dtype.name == "f8e8m0fnu":
        return "nan"
    bits = int(np.asarray(value).view(f"u{dtype.size}"))
    sign = "-" if bits >> (dtype.bits - 1) else ""
    mantissa = _MANTISSA.get(dtype.name)
    if mantissa is None:
        return f"{sign}nan"
    payload = bits & ((1 << mantissa) - 1)
    return f"{sign}nan" if payload == 1 << (mantissa - 1) else f"{sign}nan({payload:#x})"


def _show_nested(texts: list[str], dims: tuple[int, ...], index: tuple[int, ...]) -> str:
    if len(index) == len(dims) - 1:
        space = " " if dims[-1] > 1 else ""
        stride = dims[-1]
        offset = 0
        for size, i in zip(dims, index, strict=False):
            offset = offset * size + i
        return "{" + space + ", ".join(texts[offset * stride : (offset + 1) * stride]) + space + "}"
    parts = ", ".join([_show_nested(texts, dims, (*index, i)) for i in range(dims[len(index)])])
    if index and len(dims) > 3:
        comment = f"/*i{len(index) - 1}={index[-1]}*/"
        return f"{{ {comment} {parts} }}" if parts else f"{{ {comment} }}"
    return f"{{ {parts} }}"
