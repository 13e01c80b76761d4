"""The error function of f64 as formulas on two words: a polynomial for each quarter, and a series near 0."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from math import factorial

from systolith.compiler.passes.words.double_bits import BIAS, PLACE, is_nan
from systolith.compiler.passes.words.double_extended import Extended, series
from systolith.compiler.passes.words.double_functions import NAN, ONE, chosen, chosen_word, ended
from systolith.compiler.passes.words.double_trigonometry import PI
from systolith.compiler.passes.words.word_formulas import BITS, SIGN, WORD, Wide, Word

POINT = 61
"""Bits below the point of signed numbers of 64 bits."""
END = 6
"""From here on the function is 1 as f64."""
PARTS = 4
"""Of 1; each has a polynomial."""
DEGREE = 20
SHORT = 2
"""Bits by which coefficients of one word are less than 2^-32, so that sums are, too."""


def _polynomial(start: Fraction) -> list[Fraction]:
    """Taylor's coefficients of erf(start + t / 4)."""
    with localcontext() as context:
        context.prec = 60
        x = Decimal(start.numerator) / start.denominator
        slope = 2 / (Decimal(PI.numerator) / PI.denominator).sqrt() * (-x * x).exp()
        value = term = x
        n = 0
        while term > Decimal(10) ** -50:
            n += 1
            term = term * 2 * x * x / (2 * n + 1)
            value += term
        found = [value * slope]
        before, last = Decimal(0), slope
        for k in range(1, DEGREE):
            found.append(last / factorial(k) / PARTS**k)
            before, last = last, -2 * x * last - 2 * (k - 1) * before
    return [Fraction(v) for v in found]


POLYNOMIALS = [_polynomial(Fraction(k, PARTS)) for k in range(END * PARTS)]
NEAR = [Fraction(1, (2 * k + 3) * factorial(k + 1)) for k in range(12)]
with localcontext() as context:
    context.prec = 60
    SLOPE = Fraction(2 / (Decimal(PI.numerator) / PI.denominator).sqrt())


def _signed_product(x: Wide, y: Wide) -> Wide:
    """The high half of a fraction times a signed number."""
    negative = y.high.sign
    return x.scaled(y) - Wide(x.low & negative, x.high & negative)


def _by_parts(x: Extended) -> Extended:
    """From 1/4 to 6."""
    fixed = x.mantissa >> 2 - x.exponent
    part, t = fixed.high >> (POINT - BITS - 2), fixed << (2 * BITS - POINT + 2)
    made: Wide | None = None
    short: Word | None = None
    for k in reversed(range(DEGREE)):
        numbers = [round(p[k] * (1 << POINT)) for p in POLYNOMIALS]
        if not any(numbers):
            continue
        if made is None and all(abs(n) < 1 << (BITS - SHORT) for n in numbers):
            number = chosen_word(part, [n & WORD for n in numbers])
            short = number if short is None else number + _short_product(t.high, short)
            continue
        number_wide = chosen(part, [n & (1 << 2 * BITS) - 1 for n in numbers])
        if made is None and short is not None:
            made = Wide(short, short.sign)
        made = number_wide if made is None else number_wide + _signed_product(t, made)
    assert made is not None, "the first coefficients are two words"
    zeros = made.zeros
    return Extended(x.sign, made << zeros, 2 - zeros)


def _short_product(x: Word, y: Word) -> Word:
    """The high half of a fraction times a signed number."""
    return x.high_of(y) - (x & y.sign)


def erf(x: Wide) -> Wide:
    """Near 0: 2 x / sqrt(pi) (1 - x^2/3 + x^4/10 - ...)."""
    number = Extended.of(x)
    size = number.fraction()
    square, ones = size.scaled(size), size.low.like(WORD)
    near = number.times_fraction(square.scaled(series(square, NEAR, ones, 4)), ones)
    near = near * near.like(SLOPE)
    made = near.where(number.exponent.below(-2 & WORD), _by_parts(number)).double()
    large = (x.high & (SIGN - 1)).flag("GE", (BIAS + 2 << PLACE) | 1 << (PLACE - 1))
    found = ended(made, (is_nan(x), NAN), (large, ONE))
    return Wide(found.low, found.high | (x.high & SIGN))
