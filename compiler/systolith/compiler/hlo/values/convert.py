"""Between element types: rounding to a type, conversion of every pair, and arrays as files hold them."""

from __future__ import annotations

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.shape import Shape
from systolith.isa.dtypes import DType, Kind

_CARRIERS = {Kind.SIGNED: np.dtype(np.int8), Kind.UNSIGNED: np.dtype(np.uint8)}


def carrier(dtype: DType) -> np.dtype[np.generic]:
    """The numpy type that holds integers of a type, one of less than a byte in a byte; other types as stored."""
    return _CARRIERS[dtype.kind] if dtype.is_integer and dtype.bits < 8 else dtype.stored


def to_working(x: np.ndarray, dtype: DType, wide: bool = False) -> np.ndarray:
    """The array in the type that operations on `dtype` compute in.

    f64 for f64 and, if `wide`, every float; else f32 for narrower floats; complex likewise; integers of less than a
    byte in one.
    """
    if dtype.kind is Kind.FLOAT:
        return x.astype(np.float64 if wide or dtype.bits == 64 else np.float32, copy=False)
    if dtype.kind is Kind.COMPLEX:
        return x.astype(np.complex128 if wide else dtype.stored, copy=False)
    return x.astype(carrier(dtype), copy=False)


def store(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Round (floats, nearest even) or wrap (integers) a computed array to `dtype`; x has the same sort of elements."""
    if x.dtype == dtype.stored:
        return x
    with np.errstate(all="ignore"):
        if dtype.kind is Kind.SIGNED and dtype.bits < 8:
            return ((x.astype(np.int8) << (8 - dtype.bits)) >> (8 - dtype.bits)).astype(dtype.stored)
        if dtype.kind is Kind.UNSIGNED and dtype.bits < 8:
            return (x.astype(np.uint8) & ((1 << dtype.bits) - 1)).astype(dtype.stored)
        return x.astype(dtype.stored)


def round_bf16(x: np.ndarray) -> np.ndarray:
    """f32 values rounded to bf16, nearest even, still held in f32."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    result = rounded.view(np.float32).reshape(x.shape)
    return np.where(np.isnan(x), x, result)


def _to_integer(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Floats to integers: towards zero, saturating, NaN to 0."""
    signed = dtype.kind is Kind.SIGNED
    high = 2 ** (dtype.bits - 1) - 1 if signed else 2**dtype.bits - 1
    low = -(2 ** (dtype.bits - 1)) if signed else 0
    wide = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
    above, below = wide >= float(high), wide <= float(low)
    whole_type = np.int64 if signed else np.uint64
    inside = np.where(above | below, 0.0, wide).astype(whole_type)
    whole = np.where(above, np.asarray(high, whole_type), np.where(below, np.asarray(low, whole_type), inside))
    return store(whole, dtype)


def converted(x: np.ndarray, source: DType, target: DType) -> np.ndarray:
    """`convert` from one element type to another.

    Anything to pred is x != 0; floats to integers saturate; integers to integers wrap; complex to real drops the
    imaginary part.
    """
    if source == target:
        return x
    with np.errstate(all="ignore"):
        if source.kind is Kind.COMPLEX and target.kind is not Kind.COMPLEX:
            x = np.real(x) if target.kind is not Kind.PRED else (x != 0)
        if target.kind is Kind.PRED:
            return np.asarray(to_working(x, source) != 0) if x.dtype != np.bool_ else x
        if source.kind in (Kind.FLOAT, Kind.COMPLEX) and target.is_integer:
            return _to_integer(x, target)
        if source.bits < 8:
            x = to_working(x, source)
        if target.is_float and target.bits < 32:
            x = x.astype(np.float32)
        return store(x, target)


def to_file(x: np.ndarray) -> np.ndarray:
    """An array as .npz files hold it: types that numpy lacks become their unsigned bits, small integers bytes."""
    if x.dtype.kind != "V" and x.dtype.isbuiltin == 1:
        return x
    if x.dtype.name.startswith(("int", "uint")):
        return x.astype(np.int8 if x.dtype.name.startswith("int") else np.uint8)
    return x.view(f"u{x.dtype.itemsize}")


def from_file(x: np.ndarray, shape: Shape) -> np.ndarray:
    """The opposite of `to_file`, for an array of a known shape.

    Raises:
        HloError: its type or its sizes do not agree with the shape.
    """
    stored = shape.dtype.stored
    if x.dtype != stored:
        bits = x.dtype == np.dtype(f"u{stored.itemsize}") and stored.isbuiltin != 1
        if x.dtype == carrier(shape.dtype):
            x = store(x, shape.dtype)
        elif bits:
            x = x.view(stored)
        else:
            raise HloError(f"expected {shape}, got an array of {x.dtype}")
    flags = shape.dynamic or (False,) * shape.rank
    bounds = zip(x.shape, shape.dims, flags, strict=False)
    if x.ndim != shape.rank or not all(n == size or (flag and (n < size or size < 0)) for n, size, flag in bounds):
        raise HloError(f"expected {shape}, got an array of sizes {list(x.shape)}")
    return x
