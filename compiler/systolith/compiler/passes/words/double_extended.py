"""Floats with mantissas of 64 bits, as formulas: what functions of f64 are computed in.

Products, sums and quotients are off by at most some units of 2^-63.  There are no infinities and no NaN: functions see
to these themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from systolith.compiler.passes.words.double_arithmetic import inverse, normal, packed
from systolith.compiler.passes.words.double_bits import BIAS
from systolith.compiler.passes.words.word_formulas import BITS, SIGN, WORD, Flag, Wide, Word

POINT = 63
"""Bits of a mantissa below its first one."""
WHOLE = 1 << 2 * BITS
"""1, of fractions of 64 bits."""


@dataclass(frozen=True)
class Extended:
    """A number.

    Attributes:
        sign: its last bit.
        mantissa: of 64 bits, the first one set; or 0.
        exponent: signed: the mantissa's first bit counts 2^exponent.
    """

    sign: Word
    mantissa: Wide
    exponent: Word

    @classmethod
    def of(cls, x: Wide) -> Extended:
        """Of f64: exact."""
        mantissa, exponent = normal(x)
        return cls(x.high, mantissa, exponent - BIAS)

    @classmethod
    def of_fraction(cls, x: Wide, sign: Word) -> Extended:
        """Of 64 bits below the point."""
        zeros = x.zeros
        return cls(sign, x << zeros, x.low.like(-1 & WORD) - zeros)

    def double(self) -> Wide:
        """As f64, rounded."""
        made = packed(self.mantissa, self.exponent + BIAS)
        return Wide(made.low, made.high | (self.sign & SIGN))

    def like(self, number: Fraction | int) -> Extended:
        """A number as an array of this shape."""
        size, exponent = abs(Fraction(number)), 0
        while size >= 2:
            size, exponent = size / 2, exponent + 1
        while 0 < size < 1:
            size, exponent = size * 2, exponent - 1
        word = self.exponent.like
        return Extended(
            word(SIGN if number < 0 else 0), self.mantissa.like(round(size * (1 << POINT))), word(exponent & WORD)
        )

    def __neg__(self) -> Extended:
        return replace(self, sign=self.sign ^ SIGN)

    def size(self) -> Extended:
        """The absolute value."""
        return replace(self, sign=self.sign.like(0))

    def with_sign(self, sign: Word) -> Extended:
        """With another sign."""
        return replace(self, sign=sign)

    def moved(self, by: int) -> Extended:
        """Times a power of two."""
        return replace(self, exponent=self.exponent + (by & WORD))

    def where(self, flag: Flag, other: Extended) -> Extended:
        """This where a test holds, else the other."""
        mantissa = self.mantissa.where(flag, other.mantissa)
        return Extended(flag.choose(self.sign, other.sign), mantissa, flag.choose(self.exponent, other.exponent))

    def __mul__(self, other: Extended) -> Extended:
        product = self.mantissa.scaled(other.mantissa)
        return _scaled(product, self.sign ^ other.sign, self.exponent + other.exponent + 1)

    def times(self, other: Extended) -> Extended:
        """The product, rounded to the nearest."""
        product, following, _ = self.mantissa.product(other.mantissa)
        over = product.high >> (BITS - 1)
        kept = (product << (1 - over)).plus((following >> (BITS - 1)) & (1 - over))
        mantissa = kept.plus((following << (1 - over)) >> (BITS - 1))
        mantissa = kept.where(mantissa.high.flag("LT", kept.high), mantissa)
        return Extended(self.sign ^ other.sign, mantissa, self.exponent + other.exponent + over)

    def times_fraction(self, part: Wide, negative: Word | None) -> Extended:
        """Times 1 and a fraction; where `negative` is all ones, times 1 less a fraction below 1/2."""
        half = part >> 1
        factor, exponent = Wide(half.low, half.high | SIGN), self.exponent + 1
        if negative is not None:
            less, below = part.like(0) - part, negative.flag("NE", 0)
            factor = part.like((1 << 2 * BITS) - 1).where(part.is_zero, less).where(below, factor)
            exponent = exponent - below.bit
        return _scaled(self.mantissa.scaled(factor), self.sign, exponent)

    def __add__(self, other: Extended) -> Extended:
        later = self.exponent.flag("EQ", other.exponent) & self.mantissa.less(other.mantissa)
        swapped = self.exponent.below(other.exponent) | later
        large, small = other.where(swapped, self), self.where(swapped, other)
        distance = (large.exponent - small.exponent).least(POINT - 1) + 1
        opposite = (self.sign ^ other.sign).sign
        total = (((large.mantissa >> 1) ^ opposite) + small.mantissa.jammed(distance)) ^ opposite
        zeros = total.zeros
        return Extended(large.sign, total << zeros, large.exponent + 1 - zeros)

    def __sub__(self, other: Extended) -> Extended:
        return self + -other

    def __truediv__(self, other: Extended) -> Extended:
        """By the reciprocal, from 30 bits on: 1 / b = r / (1 - d) with d = 1 - b r."""
        divisor = other.mantissa
        near = Wide(divisor.low.like(0), inverse(divisor.high) << 1)
        off = divisor.like(1 << POINT) - divisor.scaled(near)
        square = (off << 25).high
        off = off.plus(square.high_of(square) >> 17)
        quotient = self.mantissa.scaled(near + (near.scaled(off) << 1))
        return _scaled(quotient, self.sign ^ other.sign, self.exponent - other.exponent)

    def fraction(self) -> Wide:
        """The absolute value of a number below 1: its first 64 bits below the point."""
        return self.mantissa >> (-1 & WORD) - self.exponent


def _scaled(product: Wide, sign: Word, exponent: Word) -> Extended:
    """Of a product's first 64 bits, of which the first or the second is set; the first counts 2^exponent."""
    over = product.high >> (BITS - 1)
    return Extended(sign, product << (1 - over), exponent + over - 1)


def series(x: Wide, coefficients: Sequence[Fraction], negative: Word | None = None, zeros: int = 0) -> Wide:
    """c0 + c1 x + c2 x^2 ... of a fraction x; where `negative` is all ones, of -x.

    All coefficients are from 0 on and below 1, and so is the result; x is below 2^-zeros.  Of terms that are below
    2^-32, by their coefficients or by x, one word is computed: the last or the first.
    """
    digits = [round(c * WHOLE) for c in coefficients]
    digits = digits[: next((n for n, d in enumerate(digits) if not d >> zeros * n), len(digits))]
    short: Word | None = None
    made: Wide | None = None
    for n, digit in reversed([*enumerate(digits)]):
        by_x = zeros * n >= BITS
        if made is None and (by_x or digit <= WORD):
            word = x.low.like(digit >> BITS if by_x else digit)
            short = word if short is None else word + _signed(short.high_of(x.high), negative)
            continue
        if made is None and short is not None:
            none = short.like(0)
            made = Wide(none, short) if zeros * (n + 1) >= BITS else Wide(short, none)
        number = x.like(digit)
        if made is None:
            made = number
            continue
        term = made.scaled(x)
        made = number + (term if negative is None else (term ^ negative) - Wide(negative, negative))
    assert made is not None, "the first coefficient is two words"
    return made


def _signed(term: Word, negative: Word | None) -> Word:
    return term if negative is None else (term ^ negative) - negative
