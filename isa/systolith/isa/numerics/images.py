"""32-bit register images: their types and their NaN.

A float array is *raw* where each NaN in it, whatever its bits, stands for the canonical one.  Processors differ in
the NaN that arithmetic makes, and looking for them costs a pass; so arithmetic works on raw arrays, and `canonical` is
called where bits become visible (stores, bitwise operations, select).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Bits: TypeAlias = npt.NDArray[np.uint32]
Floats: TypeAlias = npt.NDArray[np.float32]
Ints: TypeAlias = npt.NDArray[np.int32]

U32, S32, F32 = np.dtype(np.uint32), np.dtype(np.int32), np.dtype(np.float32)

CANONICAL_NAN = 0x7FC00000
NAN = np.uint32(CANONICAL_NAN)
SIGN = np.uint32(0x80000000)
MAGNITUDE = np.uint32(0x7FFFFFFF)
INFINITY = np.uint32(0x7F800000)


class Abstract:
    """Base class of symbols that stand for arrays while a function is traced (`traced.py`)."""


def array(values: Any, dtype: npt.DTypeLike | None = None) -> Any:
    """`values` as an array; a symbol as it is."""
    return values if isinstance(values, Abstract) else np.asarray(values, dtype)


def floats(bits: Array) -> Floats:
    """The same bits as f32 (no copy)."""
    return bits.view(F32)


def ints(bits: Array) -> Ints:
    """The same bits as s32 (no copy)."""
    return bits.view(S32)


def image(values: Array) -> Bits:
    """The register image of f32, s32 or u32 values (no copy)."""
    return values.view(U32)


def has_nan(values: Floats) -> bool:
    """Whether any element is a NaN: a minimum propagates them, and is the fastest pass there is."""
    if isinstance(values, Abstract):
        return True
    least = np.minimum.reduce(values, axis=None, initial=np.float32(np.inf))
    return bool(least != least)


def canonical(bits: Bits) -> Bits:
    """`bits` with every f32 NaN as 0x7FC00000; the same array if there is none."""
    values = floats(bits)
    if not has_nan(values):
        return bits
    return np.where(np.isnan(values), NAN, bits)


def choose(mask: Bits, a: Bits, b: Bits) -> Bits:
    """Bits of `a` where `mask` is all ones, of `b` where it is 0 (numpy.where stumbles over unpredictable
    conditions).
    """
    return ((a ^ b) & mask) ^ b


def mask_of(condition: Array) -> Bits:
    """All ones where the bool is true."""
    ones = condition.astype(U32)
    return np.negative(ones)


def ones_where(condition: Array) -> Bits:
    """1 where the bool is true, 0 elsewhere."""
    return condition.astype(U32)
