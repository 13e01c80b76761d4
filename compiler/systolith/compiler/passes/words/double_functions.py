"""Functions of f64 as formulas on two words: fixed-point series on 64 bits, off by less than two units of f64."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from math import factorial

from systolith.compiler.passes.words.double_bits import (
    BIAS,
    EXPONENT,
    INFINITY,
    PLACE,
    QUIET,
    exponent,
    is_nan,
    is_zero,
    sign,
    size,
)
from systolith.compiler.passes.words.double_extended import POINT, Extended, series
from systolith.compiler.passes.words.word_formulas import BITS, SIGN, WORD, Flag, Wide, Word

DIGITS = 80
with localcontext() as context:
    context.prec = DIGITS
    LN2 = Fraction(Decimal(2).ln())
LOG2_E = 1 / LN2

STEPS = 4
"""Bits of an exponent's fraction whose powers of two are constants."""
WIDE_EXPONENT = 10
"""From 2^10 on, powers of e are infinite or 0."""


def _power_table() -> list[int]:
    with localcontext() as context:
        context.prec = DIGITS
        root = Fraction(Decimal(2) ** (Decimal(1) / (1 << STEPS)))
    return [round(root**k * (1 << POINT)) for k in range(1 << STEPS)]


POWERS = _power_table()
EXP2 = [(LN2 / (1 << STEPS)) ** k / factorial(k) for k in range(1, 12)]
"""2^(x / 16) = 1 + x c1 + x^2 c2 + ..."""


def chosen(index: Word, table: Sequence[int]) -> Wide:
    """An entry of a table of 64-bit numbers."""
    low, high = (chosen_word(index, [number >> k & WORD for number in table]) for k in (0, BITS))
    return Wide(low, high)


def chosen_word(index: Word, table: Sequence[int]) -> Word:
    """An entry of a table of words; beyond its end, any."""
    values, bit = [index.like(number) for number in table], 0
    while len(values) > 1:
        odd = ((index >> bit) & 1).flag("NE", 0)
        last = values[-1:] if len(values) % 2 else []
        values = [odd.choose(b, a) for a, b in zip(values[:-1:2], values[1::2], strict=True)] + last
        bit += 1
    return values[0]


def _power_of_two(fraction: Wide, whole: Word) -> Extended:
    """Two to the power of a whole number, signed, and a fraction."""
    start = chosen(fraction.high >> (BITS - STEPS), POWERS)
    rest = fraction << STEPS
    grown = rest.scaled(series(rest, EXP2))
    return Extended(whole.like(0), start + start.scaled(grown), whole)


def _in_twos(x: Extended) -> tuple[Word, Wide]:
    """A number over ln 2 as a whole number, rounded down, and a fraction, of numbers below 2^10; to 2^-62."""
    factor = round(LOG2_E * (1 << 95))
    small, middle, large = (x.exponent.like(factor >> k & WORD) for k in (0, BITS, 2 * BITS))
    low, high = x.mantissa.low, x.mantissa.high
    one, two, top = low.times(large), high.times(middle), high.times(large)
    last, over = one.low, one.low.like(0)
    for term in (two.low, low.high_of(middle), high.high_of(small)):
        last = last + term
        over = over + last.flag("LT", term).bit
    top = top.plus(one.high).plus(two.high).plus(over)
    return _split(top, last, x.exponent + 2, x.sign.sign)


def _split(number: Wide, last: Word, left: Word, negative: Word) -> tuple[Word, Wide]:
    """A number below the point and 32 bits after it, moved left by some bits, signed, as a whole number and a fraction.

    Args:
        number, last: 96 bits.
        left: how far they move; less than 32, and any negative number.
        negative: all ones for what is to be the opposite, else 0.
    """
    right = left.below(0)
    up = right.choose(left.like(0), left)
    down = right.choose(0 - left, 0).least(POINT)
    back = BITS - up
    fraction = Wide((number.low << up) | (last >> back), (number.high << up) | (number.low >> back)) >> down
    whole = (number.high >> back) ^ negative
    whole = whole + (fraction.is_zero.bit & negative)
    return whole, (fraction ^ negative) - Wide(negative, negative)


def _exp(x: Extended) -> Extended:
    whole, fraction = _in_twos(x)
    return _power_of_two(fraction, whole)


EXPM1 = [Fraction(1, factorial(k)) for k in range(2, 11)]
SMALL = 8
"""Below 2^-8, functions that are about x there are x times a series."""


def _expm1(x: Extended) -> Extended:
    """Near 0: x (1 + x/2 + x^2/6 + ...)."""
    size, negative = x.fraction(), x.sign.sign
    near = x.times_fraction(size.scaled(series(size, EXPM1, negative, SMALL)), negative)
    return near.where(x.exponent.below(-SMALL & WORD), _exp(x) - x.like(1))


ATANH = [Fraction(1, 2 * k + 1) for k in range(1, 16)]
ROOT_2 = 0xB504F334
"""The first word of the root of 2."""


def _log_near_one(less: Extended, more: Extended) -> Extended:
    """The logarithm of m between the roots of 1/2 and 2, of f = m - 1 and m + 1.

    With s = f / (m + 1) it is 2 s (1 + q), q = s^2 / 3 + s^4 / 5 + ..., or f - s (f - 2 q): f has no error.
    """
    s = less / more
    size = s.fraction()
    square = size.scaled(size)
    grown = Extended.of_fraction(square.scaled(series(square, ATANH, None, 5)), s.sign.like(0)).moved(1)
    return less - s.times(less - grown)


def _near_one(x: Extended) -> tuple[Word, Extended, Extended]:
    """A positive number as a power of two and m between the roots of 1/2 and 2: the exponent, m - 1 and m + 1."""
    m = x.mantissa
    large = m.high.flag("GE", ROOT_2)
    half = m >> 1
    less = (m.like(0) - m).where(large, m << 1)
    signs = large.choose(x.exponent.like(SIGN), 0)
    top = half.high + large.choose(x.exponent.like(SIGN), SIGN >> 1)
    more = Extended(x.exponent.like(0), Wide(half.low, top), 1 - large.bit)
    return x.exponent + large.bit, Extended.of_fraction(less, signs), more


def _whole(x: Word) -> Extended:
    """A signed number."""
    negative = x.sign
    return Extended.of_fraction(Wide(x.like(0), (x ^ negative) - negative), x).moved(BITS)


def log_extended(x: Extended, unit: Fraction, of_e: Fraction) -> Extended:
    """A logarithm of a positive number: those of 2 and of e are given."""
    power, less, more = _near_one(x)
    rest = _log_near_one(less, more)
    rest = rest if of_e == 1 else rest.times(rest.like(of_e))
    whole = _whole(power)
    whole = whole if unit == 1 else whole * whole.like(unit)
    return rest.where(power.flag("EQ", 0), whole + rest)


def log1p_extended(x: Extended) -> Extended:
    """Log(1 + x): near 0 the mantissa of 1 + x would lose digits."""
    near = _log_near_one(x, x + x.like(2))
    return near.where(x.exponent.below(-2 & WORD), log_extended(x + x.like(1), LN2, Fraction(1)))


# Functions of f64: where the result is known by itself (of NaN, infinities, what is out of range) that is chosen.


def ended(made: Wide, *ends: tuple[Flag, int]) -> Wide:
    """A result, but where a test holds a high word; the first test counts."""
    low, high = made.low, made.high
    for flag, word in reversed(ends):
        low, high = flag.choose(low.like(0), low), flag.choose(high.like(word), high)
    return Wide(low, high)


NAN, ONE, MINUS = INFINITY | QUIET, BIAS << PLACE, SIGN


def _is_negative(x: Wide) -> Flag:
    return x.high.flag("GE", SIGN)


def _beyond(x: Wide, bits: int) -> Flag:
    """Whether the size is 2^bits or more."""
    return exponent(x).flag("GE", BIAS + bits)


def exponential(x: Wide) -> Wide:
    """E to the power of x."""
    large = _beyond(x, WIDE_EXPONENT)
    return ended(_exp(Extended.of(x)).double(), (is_nan(x), NAN), (large & _is_negative(x), 0), (large, INFINITY))


def exponential_minus_one(x: Wide) -> Wide:
    """Exp(x) - 1."""
    large = _beyond(x, WIDE_EXPONENT)
    made = _expm1(Extended.of(x)).double()
    return ended(made, (is_nan(x), NAN), (large & _is_negative(x), MINUS | ONE), (large, INFINITY))


def _of_positive(x: Wide, made: Wide, zero: Flag, negative: Flag) -> Wide:
    """A logarithm: of infinity infinity, of nothing minus infinity."""
    infinite = x.low.flag("EQ", 0) & x.high.flag("EQ", INFINITY)
    return ended(made, (zero, MINUS | INFINITY), (is_nan(x) | negative, NAN), (infinite, INFINITY))


def log(x: Wide) -> Wide:
    """The natural logarithm."""
    made = log_extended(Extended.of(x), LN2, Fraction(1)).double()
    return _of_positive(x, made, is_zero(x), _is_negative(x))


def log_plus_one(x: Wide) -> Wide:
    """Log(1 + x)."""
    made = log1p_extended(Extended.of(x)).double()
    lost = _is_negative(x) & _beyond(x, 0)
    return _of_positive(x, made, x.low.flag("EQ", 0) & x.high.flag("EQ", MINUS | ONE), lost)


def logistic(x: Wide) -> Wide:
    """1 / (1 + exp(-x))."""
    large, number = _beyond(x, WIDE_EXPONENT), Extended.of(x)
    one = number.like(1)
    made = one / (one + _exp(-number))
    return ended(made.double(), (is_nan(x), NAN), (large & _is_negative(x), 0), (large, ONE))


def _odd(x: Wide, made: Extended, large: Flag, end: int) -> Wide:
    """A result with the sign of the operand."""
    found = ended(made.double(), (is_nan(x), NAN), (large, end))
    return Wide(found.low, (found.high & (SIGN - 1)) | sign(x))


def tanh(x: Wide) -> Wide:
    """With e = exp(2 |x|) - 1: e / (e + 2)."""
    grown = _expm1(Extended.of(x).size().moved(1))
    return _odd(x, grown / (grown + grown.like(2)), _beyond(x, 5), ONE)


def sinh(x: Wide) -> Wide:
    """With e = exp(|x|) - 1: (e + e / (e + 1)) / 2."""
    grown = _expm1(Extended.of(x).size())
    made = (grown + grown / (grown + grown.like(1))).moved(-1)
    return _odd(x, made, _beyond(x, WIDE_EXPONENT), INFINITY)


def cosh(x: Wide) -> Wide:
    """With e = exp(|x|): (e + 1 / e) / 2."""
    grown = _exp(Extended.of(x).size())
    made = (grown + grown.like(1) / grown).moved(-1)
    return ended(made.double(), (is_nan(x), NAN), (_beyond(x, WIDE_EXPONENT), INFINITY))


def atanh(x: Wide) -> Wide:
    """Log(1 + 2 |x| / (1 - |x|)) / 2."""
    number = Extended.of(x).size()
    made = log1p_extended((number / (number.like(1) - number)).moved(1)).moved(-1)
    one = x.low.flag("EQ", 0) & size(x).flag("EQ", ONE)
    found = _odd(x, made, one, INFINITY)
    return ended(found, (_beyond(x, 0) & ~one, NAN))


def cbrt(x: Wide) -> Wide:
    """Two to the power of a third of the logarithm."""
    number = Extended.of(x)
    third = log_extended(number, Fraction(1), LOG2_E) * number.like(Fraction(1, 3))
    made = _two_to(third)
    own = is_zero(x) | _beyond(x, EXPONENT - BIAS)
    return x.where(own, _odd(x, made, is_nan(x), NAN))


def _two_to(x: Extended) -> Extended:
    """Two to the power of a number below 2^12."""
    whole, fraction = _split(x.mantissa, x.sign.like(0), x.exponent + 1, x.sign.sign)
    return _power_of_two(fraction, whole)


def power(x: Wide, y: Wide) -> Wide:
    """Two to the power of y log2 |x|; ends as C has them."""
    base, factor = Extended.of(x), Extended.of(y)
    product = factor.times(log_extended(base, Fraction(1), LOG2_E))
    down = _is_negative(Wide(x.low, product.sign))
    huge = ~product.exponent.below(11) & ~product.mantissa.is_zero
    unit = (BIAS + 52) - exponent(y).least(BIAS + 52)
    bits = Wide(y.low, (y.high & ((1 << PLACE) - 1)) | 1 << PLACE)
    below = ((bits >> unit.least(POINT)) << unit.least(POINT)) - bits
    is_whole = (below.is_zero & _beyond(y, 0)) | is_zero(y)
    is_odd = is_whole & _beyond(y, 0) & ~_beyond(y, 53) & ((bits >> unit.least(POINT)).low & 1).flag("NE", 0)
    negative = is_odd & _is_negative(x)
    none, end = size(x) | x.low, x.low.flag("EQ", 0) & size(x).flag("EQ", INFINITY)
    far = y.low.flag("EQ", 0) & size(y).flag("EQ", INFINITY)
    one = x.low.flag("EQ", 0) & size(x).flag("EQ", ONE)
    up = (none.flag("EQ", 0) & _is_negative(y)) | (end & ~_is_negative(y))
    nothing = (none.flag("EQ", 0) & ~_is_negative(y)) | (end & _is_negative(y))
    inside = _is_negative(Wide(x.low, base.exponent)) ^ _is_negative(y)
    made = ended(
        _two_to(product).double(),
        (is_zero(y) | (one & ~_is_negative(x)), ONE),
        (is_nan(x) | is_nan(y), NAN),
        (far & one, ONE),
        (far & inside, 0),
        (far, INFINITY),
        (up, INFINITY),
        (nothing, 0),
        (_is_negative(x) & ~is_whole, NAN),
        (huge & down, 0),
        (huge, INFINITY),
    )
    return Wide(made.low, made.high | (negative & ~is_nan(y)).bit << (BITS - 1))
