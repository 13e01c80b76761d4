"""Element formats: memory to register image (`widen`), register image to memory (`narrow`).

Memory is handled as unsigned integers of the element's size (`raw_type`), because numpy's own conversions quiet NaNs on
some machines and not on others.

Narrowing of floats rounds to nearest even; values too large become the format's overflow value (an infinity, or NaN
for f8e4m3fn and the fnuz formats).  A NaN keeps its sign and the top bits of its payload (the quiet bit is set if
those are all 0), so that narrowing a widened value gives the same bits; f8e4m3fn has one NaN for each sign, the fnuz
formats one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from systolith.isa.dtypes import BF16, F16, DType, Kind
from systolith.isa.errors import SystolithError
from systolith.isa.numerics.images import (
    F32,
    INFINITY,
    U32,
    Array,
    Bits,
    Floats,
    floats,
    has_nan,
    image,
)

_RAW: dict[int, np.dtype[Any]] = {
    **{n: np.dtype(f"u{n}") for n in (1, 2, 4, 8)},
    16: np.dtype("V16"),
}
_TOP = np.uint32(0xFFFF0000)


def raw_type(dtype: DType) -> np.dtype[Any]:
    """Numpy's unsigned integer of the element's size."""
    return _RAW[dtype.size]


def _refuse(dtype: DType) -> SystolithError:
    return SystolithError(f"element type {dtype}: {dtype.size} bytes do not fit a 32-bit register")


def widen(array: Array, dtype: DType) -> Bits:
    """Register images of elements in memory.

    Args:
        array: elements as `dtype.stored` or as unsigned integers of its size.
        dtype: their type.

    Returns:
        uint32 array of the same shape: floats as f32, signed integers as s32, unsigned ones and pred as u32.  For
        4-byte types it is a view.

    Raises:
        SystolithError: the type is wider than a register.
    """
    if dtype.size > 4:
        raise _refuse(dtype)
    raw = array if array.dtype is _RAW[dtype.size] else array.view(_RAW[dtype.size])
    return raw if dtype.size == 4 else _widening(dtype)(raw)


def narrow(bits: Bits, dtype: DType) -> Array:
    """Elements, as unsigned integers of the type's size, from register images: the inverse of `widen`, rounding.

    Integers take the low bits (s4, u4: the low 4, extended within the byte), pred is x != 0.

    Raises:
        SystolithError: the type is wider than a register.
    """
    if dtype.size > 4:
        raise _refuse(dtype)
    return bits if dtype.size == 4 else _narrowing(dtype)(bits)


def round_to(bits: Bits, dtype: DType) -> Bits:
    """f32 images rounded to a narrower float type and widened again."""
    return _round_bf16(bits) if dtype is BF16 else widen(narrow(bits, dtype), dtype)


def fill_of(fill: int, dtype: DType) -> tuple[int, bool]:
    """The unsigned integer in memory that widens to the image `fill`, and whether there is one (else the nearest)."""
    bits = np.full(1, fill & 0xFFFFFFFF, U32)
    stored = narrow(bits, dtype)
    return int(stored[0]), int(widen(stored, dtype)[0]) == int(bits[0])


@lru_cache(maxsize=64)
def _widening(dtype: DType) -> Callable[[Array], Bits]:
    if dtype.kind is Kind.PRED:
        return lambda raw: (raw != 0).astype(U32)
    if dtype is BF16:
        return lambda raw: np.left_shift(raw, np.uint32(16), dtype=U32)
    if dtype is F16:
        return _widen_f16
    if dtype.is_float:
        table = _table(dtype)
        return lambda raw: table[raw]
    if dtype.bits == 4:
        flip = np.uint8(8 if dtype.kind is Kind.SIGNED else 0)
        return lambda raw: image((((raw & np.uint8(15)) ^ flip).astype(np.int32)) - np.int32(flip))
    if dtype.kind is Kind.UNSIGNED:
        return lambda raw: raw.astype(U32)
    signed = np.dtype(f"i{dtype.size}")
    return lambda raw: image(raw.view(signed).astype(np.int32))


def _table(dtype: DType) -> Bits:
    """f32 images of all 256 patterns of an 8-bit float; NaNs with sign and payload at the top."""
    codes = np.arange(256, dtype=np.uint8)
    values = codes.view(dtype.stored).astype(np.float32)
    table = image(values).copy()
    nan = np.isnan(values)
    table[nan] = (0x7FC00000 | (codes[nan].astype(np.uint32) >> 7 << 31)).astype(np.uint32)
    if dtype.name == "f8e5m2":
        payload = codes[nan].astype(np.uint32)
        table[nan] = (payload >> 7 << 31) | INFINITY | ((payload & 3) << 21)
    elif dtype.name.endswith("fnuz"):
        table[nan] = 0x7FC00000
    return table


def _widen_f16(raw: Array) -> Bits:
    out = image(raw.view(np.float16).astype(np.float32))
    if has_nan(floats(out)):
        wide = raw.astype(np.uint32)
        payload = ((wide & 0x8000) << 16) | INFINITY | ((wide & 0x3FF) << 13)
        out = np.where(np.isnan(floats(out)), payload, out)
    return out


@lru_cache(maxsize=64)
def _narrowing(dtype: DType) -> Callable[[Bits], Array]:
    if dtype.kind is Kind.PRED:
        return lambda bits: (bits != 0).view(np.uint8)
    if dtype is BF16:
        return lambda bits: (_round_bf16(bits) >> np.uint32(16)).astype(np.uint16)
    if dtype is F16:
        return _narrow_f16
    if dtype.is_float:
        return lambda bits: _narrow_f8(bits, dtype)
    raw = raw_type(dtype)
    if dtype.bits == 4:
        flip = np.uint8(8 if dtype.kind is Kind.SIGNED else 0)
        return lambda bits: ((bits.astype(np.uint8) & np.uint8(15)) ^ flip) - flip
    return lambda bits: bits.astype(raw)


def _round_bf16(bits: Bits) -> Bits:
    out: Bits = bits >> np.uint32(16)
    out &= np.uint32(1)
    out += bits
    out += np.uint32(0x7FFF)
    out &= _TOP
    if has_nan(floats(bits)):
        kept = bits & _TOP
        kept |= np.where(kept & np.uint32(0x7F0000), np.uint32(0), np.uint32(0x400000))
        out = np.where(np.isnan(floats(bits)), kept, out)
    return out


def _narrow_f16(bits: Bits) -> Array:
    with np.errstate(all="ignore"):
        out = floats(bits).astype(np.float16).view(np.uint16)
    if has_nan(floats(bits)):
        kept = (bits >> np.uint32(13)) & np.uint32(0x3FF)
        kept |= np.where(kept == 0, np.uint32(0x200), np.uint32(0))
        kept |= ((bits >> np.uint32(16)) & np.uint32(0x8000)) | np.uint32(0x7C00)
        out = np.where(np.isnan(floats(bits)), kept.astype(np.uint16), out)
    return out


def _narrow_f8(bits: Bits, dtype: DType) -> Array:
    with np.errstate(all="ignore"):
        out = floats(bits).astype(dtype.stored).view(np.uint8)
    if has_nan(floats(bits)):
        sign = ((bits >> np.uint32(24)) & np.uint32(0x80)).astype(np.uint8)
        if dtype.name == "f8e5m2":
            kept = ((bits >> np.uint32(21)) & np.uint32(3)).astype(np.uint8)
            nan = sign | np.uint8(0x7C) | np.where(kept == 0, np.uint8(2), kept)
        else:
            nan = np.full_like(out, 0x80) if dtype.name.endswith("fnuz") else sign | np.uint8(0x7F)
        out = np.where(np.isnan(floats(bits)), nan, out)
    return out


def to_f32(array: Array, dtype: DType) -> Floats:
    """Elements in memory as f32 values: widened, and integers converted (exact up to 24 bits)."""
    bits = widen(array, dtype)
    if dtype.is_float:
        return floats(bits)
    return (bits.view(np.int32) if dtype.kind is Kind.SIGNED else bits).astype(F32)
