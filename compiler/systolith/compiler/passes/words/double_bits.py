"""The form of f64: sign, exponent of 11 bits, fraction of 52, as formulas on two words."""

from __future__ import annotations

from systolith.compiler.passes.words.word_formulas import SIGN, Flag, Wide, Word

EXPONENT, FRACTION = 0x7FF, (1 << 20) - 1
"""In the high word, moved by `PLACE`; the fraction has as many bits there as this."""
PLACE = 20
BIAS = 1023
INFINITY = EXPONENT << PLACE
QUIET = 1 << (PLACE - 1)
LEFT = 11
"""Bits above a mantissa of 53."""


def size(x: Wide) -> Word:
    """The high word without the sign."""
    return x.high & (SIGN - 1)


def sign(x: Wide) -> Word:
    """The sign alone."""
    return x.high & SIGN


def exponent(x: Wide) -> Word:
    """The exponent with its bias."""
    return (x.high >> PLACE) & EXPONENT


def is_nan(x: Wide) -> Flag:
    """Whether it is no number."""
    return (size(x) | x.low.flag("NE", 0).bit).flag("GT", INFINITY)


def is_zero(x: Wide) -> Flag:
    """Whether it is 0, of either sign."""
    return (size(x) | x.low).flag("EQ", 0)


def order(x: Wide) -> Wide:
    """An unsigned number that has the total order of floats."""
    negative = x.high.sign
    return Wide(x.low ^ negative, x.high ^ (negative | SIGN))


def top(x: Wide) -> Wide:
    """The mantissa of a normal number, its first bit the first of 64."""
    moved = x << LEFT
    return Wide(moved.low, moved.high | SIGN)


def rounded(mantissa: Wide, exponent: Word) -> Wide:
    """A number without its sign, rounded to the nearest even one.

    Args:
        mantissa: whose first bit, of 64, counts 2^(exponent - bias); where the exponent is 1 it need not be set.
        exponent: from 1 on; beyond the greatest, infinity.
    """
    kept = mantissa >> LEFT
    rest = mantissa.low & ((1 << LEFT) - 1)
    up = (rest + (kept.low & 1)).flag("GT", 1 << (LEFT - 1)).bit
    made = kept.plus(up)
    high = made.high + ((exponent - 1) << PLACE)
    return Wide(high.flag("GE", INFINITY).choose(made.low.like(0), made.low), high.least(INFINITY))
