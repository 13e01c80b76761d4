"""Literals as text, both ways: `1`, `{1, -inf, nan}`, `{ { 1, 2 }, { 3, 4 } }`, `{(0, 1)}`, `(1.5, {1, 2})`.

Linear in the text and done a list at a time, so that weights written into a module parse in reasonable time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import inf, isinf, nan

import numpy as np

from systolith.compiler.hlo.ir import Literal
from systolith.compiler.hlo.lexer import MAX_NESTING, Cursor
from systolith.compiler.hlo.shape import Shape
from systolith.isa.dtypes import DType, Kind

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_SCALAR = re.compile(r"\(\s*[^(){},]+,\s*[^(){},]+\)|-?nan\([^()]*\)|[^\s(){},]+")
_COMPLEX = re.compile(r"\(\s*([^\s,]+)\s*,\s*([^\s,]+)\s*\)")
_NAN = re.compile(r"(-?)nan(?:\((0x[0-9a-fA-F]+)\))?\Z")
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")
_HEX = re.compile(r"[+-]?0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*(?:[pP][+-]?\d+)?\Z")
_WHOLE = re.compile(r"[+-]?(?:\d{1,20}|0[xX][0-9a-fA-F]{1,16})\Z")
_NAMED = {"inf": inf, "+inf": inf, "-inf": -inf, "nan": nan, "-nan": -nan}
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}

# Digits that XLA prints: the first number of these with which the text gives the value back.
_DIGITS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("f64", "c128"), (15, 17)),
    **dict.fromkeys(("f32", "c64"), (6, 9)),
    "f16": (5,),
    "bf16": (4,),
    **dict.fromkeys(("f8e4m3fn", "f8e4m3fnuz"), (3,)),
    **dict.fromkeys(("f8e5m2", "f8e5m2fnuz"), (2,)),
}


def parse_literal(cursor: Cursor, shape: Shape, depth: int = 0) -> Literal:
    """The literal at the cursor, which must be of `shape`.

    Raises:
        HloError: it is not a literal of that shape, or its values do not fit the element type.
    """
    if shape.is_tuple:
        return _parse_tuple(cursor, shape, depth)
    start = cursor.pos
    if shape.rank == 0:
        texts = _one_scalar(cursor)
    else:
        texts = _parse_nested(cursor, shape)
    if len(texts) != shape.size:
        raise cursor.error(f"a literal of shape {shape} has {shape.size} elements, this one {len(texts)}", start)
    try:
        return _CONVERT[shape.dtype.kind](texts, shape.dtype).reshape(shape.dims)
    except ValueError as problem:
        raise cursor.error(f"in a literal of shape {shape}: {problem}", start) from None


def _parse_tuple(cursor: Cursor, shape: Shape, depth: int) -> Literal:
    if depth > MAX_NESTING:
        raise cursor.error(f"tuples nest deeper than {MAX_NESTING}")
    cursor.expect("(", f"to start a literal of shape {shape}")
    values: list[Literal] = []
    for index, element in enumerate(shape.elements):
        if index:
            cursor.expect(",", f"between the elements of a literal of shape {shape}")
        if cursor.at_shape() and not cursor.at("("):
            cursor.shape()  # older texts repeat each element's shape
        values.append(parse_literal(cursor, element, depth + 1))
    cursor.expect(")", f"to end a literal of shape {shape}")
    return tuple(values)


def _one_scalar(cursor: Cursor) -> list[str]:
    found = cursor.match(_SCALAR)
    if not found:
        cursor.fail("a value")
    return [found.group()]


def _parse_nested(cursor: Cursor, shape: Shape) -> list[str]:
    """Texts of the elements of a nested list, whose nesting must agree with the shape."""
    start = cursor.pos
    if not cursor.at("{"):
        cursor.fail(f"'{{' to start a literal of shape {shape}")
    text = _COMMENT.sub("", cursor.balanced())
    inner = text.strip("{} \t\r\n")
    if inner == "...":
        raise cursor.error("the constant's values were left out ('...'); print it with large constants", start)
    texts = _SCALAR.findall(text)
    if len(texts) == shape.size and shape.size > 0:
        commas = re.sub(r"\s+", "", _SCALAR.sub("", text))
        if commas != _nesting(shape.dims):
            raise cursor.error(f"braces or commas of the literal do not agree with shape {shape}", start)
    elif texts and shape.size == 0:
        raise cursor.error(f"a literal of shape {shape} has no elements, this one {len(texts)}", start)
    return texts


def _nesting(dims: Sequence[int]) -> str:
    """Braces and commas of a literal: `{{,},{,}}` for 2 x 2.  Called only where that many elements were read."""
    text = ""
    for size in reversed(dims):
        text = "{" + ",".join([text] * size) + "}"
    return text


def _float(text: str) -> float:
    if _DECIMAL.match(text):
        return float(text)
    if text in _NAMED:
        return _NAMED[text]
    if _HEX.match(text):
        return float.fromhex(text)
    if found := _NAN.match(text):
        return -nan if found.group(1) else nan
    raise ValueError(f"expected a number, got {text[:40]!r}")


def _floats(texts: Sequence[str], dtype: DType) -> np.ndarray:
    numbers = np.array([_float(t) for t in texts], dtype=np.float64)
    with np.errstate(over="ignore"):
        values = numbers.astype(dtype.stored)
    overflow = np.isfinite(numbers) & ~np.isfinite(values.astype(np.float64))
    if overflow.any():
        raise ValueError(f"{texts[int(np.argmax(overflow))]} does not fit {dtype.name}")
    return _with_payloads(texts, values, dtype)


def _with_payloads(texts: Sequence[str], values: np.ndarray, dtype: DType) -> np.ndarray:
    """NaNs get the sign and the payload that the text gives."""
    for index in np.flatnonzero(np.isnan(values.astype(np.float64))).tolist():
        found = _NAN.match(texts[index])
        if found and (found.group(1) or found.group(2)) and dtype.bits >= 16:
            bits = values[index : index + 1].view(f"u{dtype.size}")
            mantissa = _MANTISSA[dtype.name]
            if found.group(2):
                bits[0] = (int(bits[0]) >> mantissa << mantissa) | (int(found.group(2), 16) & ((1 << mantissa) - 1))
            sign = 1 << (dtype.bits - 1)
            bits[0] = (int(bits[0]) & (sign - 1)) | (sign if found.group(1) else 0)
    return values


_MANTISSA = {"bf16": 7, "f16": 10, "f32": 23, "f64": 52}


def _integers(texts: Sequence[str], dtype: DType) -> np.ndarray:
    signed = dtype.kind is Kind.SIGNED
    low, high = (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if signed else (0, (1 << dtype.bits) - 1)
    numbers: list[int] = []
    for text in texts:
        if not _WHOLE.match(text):
            raise ValueError(f"expected an integer, got {text[:40]!r}")
        number = int(text, 0) if "x" in text.lower() else int(text)
        if not low <= number <= high:
            raise ValueError(f"{text} does not fit {dtype.name} ({low} to {high})")
        numbers.append(number)
    return np.array(numbers, dtype=np.int64 if signed else np.uint64).astype(dtype.stored)


def _booleans(texts: Sequence[str], dtype: DType) -> np.ndarray:
    for text in texts:
        if text not in _BOOLEANS:
            raise ValueError(f"expected true, false, 1 or 0, got {text[:40]!r}")
    return np.array([_BOOLEANS[t] for t in texts], dtype=dtype.stored)


def _complexes(texts: Sequence[str], dtype: DType) -> np.ndarray:
    values = np.zeros(len(texts), dtype=dtype.stored)
    for index, text in enumerate(texts):
        found = _COMPLEX.match(text)
        real, imag = (found.group(1), found.group(2)) if found else (text, "0")
        values[index] = complex(_float(real), _float(imag))
    return values


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
        return "(" + ", ".join(show_literal(v, s) for v, s in zip(value, shape.elements, strict=True)) + ")"
    texts = _show_values(value, shape.dtype)
    if shape.rank == 0:
        return texts[0]
    if shape.rank == 1:
        return "{" + ", ".join(texts) + "}"
    return _show_nested(texts, shape.dims, ())


def _show_values(value: np.ndarray, dtype: DType) -> list[str]:
    flat = np.ascontiguousarray(value).reshape(-1)
    if dtype.kind is Kind.PRED:
        return [("true" if v else "false") if value.ndim == 0 else str(int(v)) for v in flat]
    if dtype.is_integer:
        return [str(int(v)) for v in flat]
    if dtype.kind is Kind.COMPLEX:
        return [f"({_show_float(v.real, dtype)}, {_show_float(v.imag, dtype)})" for v in flat]
    return [_show_float(v, dtype) for v in flat]


def _show_float(value: np.generic, dtype: DType) -> str:
    number = float(value)
    if number != number:
        return _show_nan(value, dtype)
    if isinf(number):
        return "inf" if number > 0 else "-inf"
    choices = _DIGITS[dtype.name]
    with np.errstate(over="ignore"):
        for digits in choices[:-1]:
            text = f"{number:.{digits}g}"
            if type(value)(float(text)) == value:
                return text
    return f"{number:.{choices[-1]}g}"


def _show_nan(value: np.generic, dtype: DType) -> str:
    mantissa = _MANTISSA.get(dtype.name)
    if mantissa is None:
        return "nan"
    bits = int(np.asarray(value).view(f"u{dtype.size}"))
    sign = "-" if bits >> (dtype.bits - 1) else ""
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
    comment = f"/*i{len(index) - 1}={index[-1]}*/ " if index and len(dims) > 3 else ""
    parts = [_show_nested(texts, dims, (*index, i)) for i in range(dims[len(index)])]
    return "{ " + comment + ", ".join(parts) + " }"
