"""Integer operations that depend on the width of the type: shifts, counts of bits, the high half of a product.

Types of less than a byte come in a byte, sign- or zero-extended.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

BitOperation = Callable[..., np.ndarray]
"""From working arrays and the width of the type in bits to a working array."""


def _unsigned(x: np.ndarray) -> np.ndarray:
    return x.view(f"u{x.dtype.itemsize}")


def _masked(x: np.ndarray, bits: int) -> np.ndarray:
    """The low `bits` bits, as unsigned numbers."""
    return np.asarray(_unsigned(x) & np.asarray((1 << bits) - 1, dtype=f"u{x.dtype.itemsize}"))


def _shift_left(x: np.ndarray, amount: np.ndarray, bits: int) -> np.ndarray:
    """0 where the amount, as an unsigned number, is the width or more."""
    fits = _unsigned(amount) < bits
    return np.where(fits, x << np.where(fits, amount, 0).astype(x.dtype), np.zeros((), x.dtype))


def _shift_right_arithmetic(x: np.ndarray, amount: np.ndarray, bits: int) -> np.ndarray:
    """All sign bits where the amount, as an unsigned number, is the width or more."""
    fits = _unsigned(amount) < bits
    signed = x.view(f"i{x.dtype.itemsize}")
    if bits < 8:
        signed = (signed << (8 - bits)) >> (8 - bits)
    return np.asarray((signed >> np.where(fits, amount, bits - 1).astype(signed.dtype)).view(x.dtype))


def _shift_right_logical(x: np.ndarray, amount: np.ndarray, bits: int) -> np.ndarray:
    """0 where the amount, as an unsigned number, is the width or more."""
    fits = _unsigned(amount) < bits
    unsigned = _masked(x, bits)
    shifted = unsigned >> np.where(fits, amount, 0).astype(unsigned.dtype)
    return np.where(fits, shifted, np.zeros((), unsigned.dtype)).view(x.dtype)


def _population(x: np.ndarray, bits: int) -> np.ndarray:
    return np.asarray(np.bitwise_count(_masked(x, bits)))


def _leading_zeros(x: np.ndarray, bits: int) -> np.ndarray:
    smeared = _masked(x, bits)
    for shift in (1, 2, 4, 8, 16, 32):
        if shift < bits:
            smeared = smeared | (smeared >> np.asarray(shift, dtype=smeared.dtype))
    return np.asarray(bits - np.bitwise_count(smeared))


def _high_product(a: np.ndarray, b: np.ndarray, bits: int) -> np.ndarray:
    """The upper half of the product of twice the width."""
    signed = a.dtype.kind == "i"
    if bits <= 32:
        wide = np.dtype(np.int64 if signed else np.uint64)
        return np.asarray((a.astype(wide) * b.astype(wide)) >> wide.type(bits)).astype(a.dtype)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    x, y = a.view(np.uint64), b.view(np.uint64)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = x1 * y0 + ((x0 * y0) >> half)
    high = x1 * y1 + (middle >> half) + ((x0 * y1 + (middle & low)) >> half)
    if signed:  # a negative factor counts 2^64 too much
        high = high - np.where(a < 0, y, 0).astype(np.uint64) - np.where(b < 0, x, 0).astype(np.uint64)
    return np.asarray(high).view(a.dtype)


BIT_OPERATIONS: dict[str, BitOperation] = {
    "shift-left": _shift_left,
    "shift-right-arithmetic": _shift_right_arithmetic,
    "shift-right-logical": _shift_right_logical,
    "popcnt": _population,
    "count-leading-zeros": _leading_zeros,
    "mulhi": _high_product,
}
"""Opcode to function."""
