"""Arithmetic on Python's exact fractions: slow, and independent of numpy's."""

from __future__ import annotations

import struct
from fractions import Fraction

NAN = 0x7FC00000
INF = 0x7F800000


def value(bits: int) -> float:
    """The f32 with these bits, as a Python float (exact)."""
    return float(struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0])


def round_fraction(x: Fraction, mantissa: int, least: int, most: int) -> Fraction | None:
    """Round to nearest even: `mantissa` bits after the leading one, exponents from `least`; None: beyond `most`."""
    if x == 0:
        return Fraction(0)
    exponent = least
    size = abs(x)
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - mantissa)
    rounded = round(x / unit) * unit  # Python rounds halves to even
    return None if abs(rounded) >= Fraction(2) ** (most + 1) else rounded


def to_bits(x: Fraction, negative_zero: bool = False) -> int:
    """Bits of x rounded to f32; an exact zero is -0 if asked for, and a result that underflows keeps its sign."""
    rounded = round_fraction(x, 23, -126, 127)
    sign = 0x80000000 if x < 0 or (x == 0 and negative_zero) else 0
    if rounded is None:
        return sign | INF
    if rounded == 0:
        return sign
    return int(struct.unpack("<I", struct.pack("<f", float(rounded)))[0])


def fma(a: int, b: int, c: int) -> int:
    """A * b + c of f32 bits, rounded once; NaNs canonical."""
    x, y, z = value(a), value(b), value(c)
    special = x * y + z  # exact enough to tell infinities and NaNs from the rest
    if special != special or any(abs(v) == float("inf") for v in (x, y, z)):
        return NAN if special != special else (INF if special > 0 else INF | 0x80000000)
    product = Fraction(x) * Fraction(y)
    total = product + Fraction(z)
    negative = bool((a ^ b) >> 31) and bool(c >> 31) and product == 0 and z == 0
    return to_bits(total, negative)


def dot(rows: list[int], column: list[int]) -> int:
    """The matrix unit's sum down a column: from +0, one fused multiply-add a step."""
    total = 0
    for a, b in zip(rows, column, strict=True):
        total = fma(a, b, total)
    return total
