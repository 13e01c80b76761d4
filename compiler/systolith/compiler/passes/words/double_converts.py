"""Between f64, as two words, and the other element types."""

from __future__ import annotations

from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.words.double_bits import (
    BIAS,
    FRACTION,
    LEFT,
    PLACE,
    exponent,
    is_nan,
    rounded,
    sign,
    size,
    top,
)
from systolith.compiler.passes.words.word_formulas import BITS, SIGN, WORD, Flag, Wide, Word
from systolith.isa.dtypes import F32, DType, Kind

F32_BIAS, F32_PLACE, F32_INFINITY, F32_NAN = 127, 23, 0x7F800000, 0x7FC00000
F32_SCALE = 64
"""A subnormal f32 times two to this power is normal."""
REBIAS = BIAS - F32_BIAS
DROPPED = 29
"""Bits of a fraction that f32 does not have."""


def of_float(x: Real) -> Wide:
    """Of f32: exact."""
    bits = Word.of_bits(x)
    given = bits & (SIGN - 1)
    subnormal = given.flag("LT", 1 << F32_PLACE)
    scaled = Word.of_bits(x * 2.0**F32_SCALE) & (SIGN - 1)
    normal = subnormal.choose(scaled, given)
    bias = subnormal.choose(bits.like((REBIAS - F32_SCALE) << PLACE), REBIAS << PLACE)
    bias = given.flag("GE", F32_INFINITY).choose(bits.like(2 * REBIAS << PLACE), bias)
    high = (normal >> (F32_PLACE - PLACE)) + bias
    return Wide(normal << DROPPED, given.flag("EQ", 0).choose(given, high) | (bits & SIGN))


def of_word(x: Word, negative: Word | None) -> Wide:
    """Of an integer of at most 32 bits: exact.

    Args:
        x: the integer; its sign extended if it has one.
        negative: all ones where it is below 0, else 0; None: it has no sign.
    """
    number = x if negative is None else (x ^ negative) - negative
    zeros = number.zeros
    first = number << zeros
    high = (first >> LEFT) + (((BIAS + BITS - 2) - zeros) << PLACE)
    high = number.flag("EQ", 0).choose(number, high)
    return Wide(first << (BITS - LEFT), high if negative is None else high | (negative & SIGN))


def of_wide(x: Wide, negative: Word | None) -> Wide:
    """Of a 64-bit integer: rounded to the nearest even one; arguments as of `of_word`."""
    number = x if negative is None else (x ^ negative) - Wide(negative, negative)
    zeros = number.zeros
    made = rounded(number << zeros, (BIAS + 2 * BITS - 1) - zeros)
    high = number.is_zero.choose(made.high.like(0), made.high)
    return Wide(made.low, high if negative is None else high | (negative & SIGN))


def to_float(x: Wide) -> Real:
    """To f32, rounded to the nearest even one."""
    given = exponent(x)
    mantissa = Wide(x.low, (x.high & FRACTION) | 1 << PLACE) << (F32_PLACE - PLACE)
    normal = given.most(REBIAS + 1)
    moved = mantissa.jammed((normal - given).least(2 * BITS - 1))
    odd = moved.high & 1
    up = (moved.low | (odd & moved.low.flag("EQ", SIGN).bit)).flag("GT", SIGN).bit
    made = moved.high + up + ((normal - (REBIAS + 1)) << F32_PLACE)
    made = given.flag("GT", REBIAS + 2 * F32_BIAS).choose(made.like(F32_INFINITY), made)
    return (is_nan(x).choose(made.like(F32_NAN), made) | sign(x)).as_type(F32)


def to_pred(x: Wide) -> Flag:
    """Whether it is not 0."""
    return (size(x) | x.low).flag("NE", 0)


def to_word(x: Wide, dtype: DType) -> Word:
    """To an integer type of at most 32 bits: towards zero; of what is out of range the nearest, of NaN 0."""
    given = exponent(x)
    number = top(x).high >> ((BIAS + BITS - 1) - given)
    number = given.flag("GE", BIAS + BITS).choose(number.like(WORD), number)
    number = number.where(given.test("GE", BIAS), 0)
    positive, negative = number.least(dtype.greatest), 0 - number.least(-dtype.least)
    made = x.high.flag("GE", SIGN).choose(negative, positive)
    return made.where((~is_nan(x)).i, 0)


def to_wide(x: Wide, dtype: DType) -> Wide:
    """To a 64-bit integer type, likewise."""
    given = exponent(x)
    number = top(x) >> ((BIAS + 2 * BITS - 1) - given).least(2 * BITS - 1)
    number = number.where(given.flag("GE", BIAS), number.like(0))
    negative, signed = x.high.flag("GE", SIGN), dtype.kind is Kind.SIGNED
    most, least = number.like(dtype.greatest), number.like(dtype.least & (1 << 2 * BITS) - 1)
    made = (number.like(0) - number).where(negative, number) if signed else number
    outside = given.flag("GE", BIAS + dtype.bits - signed)
    made = least.where(negative, most).where(outside, made)
    made = made if signed else least.where(negative, made)
    return made.like(0).where(is_nan(x), made)
