"""Inverse trigonometric and hyperbolic functions of f64 as formulas on two words."""

from __future__ import annotations

from fractions import Fraction

from systolith.compiler.passes.words.double_arithmetic import square_root
from systolith.compiler.passes.words.double_bits import (
    BIAS,
    EXPONENT,
    INFINITY,
    PLACE,
    QUIET,
    exponent,
    is_nan,
    is_zero,
    size,
)
from systolith.compiler.passes.words.double_extended import WHOLE, Extended, series
from systolith.compiler.passes.words.double_functions import LN2, chosen, log1p_extended, log_extended
from systolith.compiler.passes.words.double_trigonometry import PI
from systolith.compiler.passes.words.word_formulas import SIGN, WORD, Flag, Wide, Word

EIGHTHS = 8
"""Parts of the quotients from 0 to 1; of the middle of each the arctangent is a constant."""
SMALL = 16
"""Below 1 / 16 the quotient is as good as one less such a middle."""
ARCTANGENT = [Fraction(1, 2 * k + 3) for k in range(9)]


def _arctangent(x: Fraction) -> Fraction:
    """Of a number below 1: by Euler's series, to 2^-80."""
    y, total, term = x * x / (1 + x * x), Fraction(0), x / (1 + x * x)
    n = 0
    while term > Fraction(1, 1 << 80):
        total += term
        n += 1
        term = Fraction(int(term * y * (1 << 120)) * 2 * n, (2 * n + 1) << 120)
    return total


MIDDLES = [round(_arctangent(Fraction(2 * k + 1, 2 * EIGHTHS)) * WHOLE) for k in range(EIGHTHS)]


def _angle(y: Extended, x: Extended) -> Extended:
    """The angle of a point, neither coordinate negative, from 0 to pi / 2; of two zeros 0.

    With t the smaller over the larger one and c near t: atan(c) + atan((t - c) / (1 + c t)).
    """
    same = y.exponent.flag("EQ", x.exponent)
    swapped = x.exponent.below(y.exponent) | (same & x.mantissa.less(y.mantissa))
    low, high = x.where(swapped, y), y.where(swapped, x)
    ratio = (low.mantissa.high >> (high.exponent - low.exponent)).as_float / high.mantissa.high.as_float
    middle = Word.of_float(ratio * EIGHTHS).least(EIGHTHS - 1)
    near = Flag(ratio.r, ratio.test("LT", 1 / SMALL)) | high.mantissa.is_zero
    c = Extended.of_fraction(Wide(middle.like(0), (middle << 1) + 1), low.sign.like(0)).moved(32 - 4)
    over, under = low.where(near, low - high * c), high.where(near, high + low * c)
    s = over / under
    fraction = s.fraction()
    square, ones = fraction.scaled(fraction), middle.like(WORD)
    rest = s.times_fraction(square.scaled(series(square, ARCTANGENT, ones, 7)), ones)
    start = Extended.of_fraction(chosen(middle, MIDDLES), low.sign.like(0))
    made = low.where(high.mantissa.is_zero, rest.where(near, start + rest))
    return (made.like(PI / 2) - made).where(swapped, made)


def _infinite(x: Wide) -> Flag:
    return x.low.flag("EQ", 0) & size(x).flag("EQ", INFINITY)


def _coordinate(x: Wide, other: Wide) -> Extended:
    """The size of a coordinate; 0 beside an infinite one if it is not."""
    number = Extended.of(x).size()
    nothing = _infinite(other) & ~_infinite(x)
    none = Extended(number.sign, number.mantissa.like(0), number.exponent.like(-2 * BIAS & WORD))
    return none.where(nothing, number)


def _lost(made: Wide, lost: Flag) -> Wide:
    """NaN where a test holds."""
    return Wide(made.low, lost.choose(made.high.like(INFINITY | QUIET), made.high))


def atan2(y: Wide, x: Wide) -> Wide:
    """The angle of a point."""
    angle = _angle(_coordinate(y, x), _coordinate(x, y))
    angle = (angle.like(PI) - angle).where(x.high.flag("GE", SIGN), angle)
    return _lost(angle.with_sign(y.high).double(), is_nan(x) | is_nan(y))


def atan(x: Wide) -> Wide:
    """The angle of a point at 1."""
    return atan2(x, Wide(x.low.like(0), x.high.like(BIAS << PLACE)))


def _beside(x: Extended) -> Extended:
    """The root of 1 - x^2, rounded to f64."""
    return Extended.of(square_root(((x.like(1) - x) * (x + x.like(1))).double()))


def _outside(x: Wide) -> Flag:
    """Whether the size is above 1, or it is no number."""
    return exponent(x).flag("GE", BIAS) & ~(x.low.flag("EQ", 0) & size(x).flag("EQ", BIAS << PLACE))


def asin(x: Wide) -> Wide:
    """The angle of x and the root of 1 - x^2."""
    number = Extended.of(x).size()
    return _lost(_angle(number, _beside(number)).with_sign(x.high).double(), _outside(x))


def acos(x: Wide) -> Wide:
    """The angle of the root of 1 - x^2 and x."""
    number = Extended.of(x).size()
    angle = _angle(_beside(number), number)
    angle = (angle.like(PI) - angle).where(x.high.flag("GE", SIGN), angle)
    return _lost(angle.with_sign(x.high.like(0)).double(), _outside(x))


LARGE = 30
"""From 2^30 on x^2 + 1 and x^2 - 1 are x^2."""


def _root(x: Extended) -> Extended:
    return Extended.of(square_root(x.double()))


def asinh(x: Wide) -> Wide:
    """Log(1 + |x| + x^2 / (1 + sqrt(1 + x^2))); of large ones log(2 |x|)."""
    number = Extended.of(x).size()
    square, one = number * number, number.like(1)
    near = log1p_extended(number + square / (one + _root(one + square)))
    far = log_extended(number.moved(1), LN2, Fraction(1))
    made = far.where(exponent(x).flag("GE", BIAS + LARGE), near).with_sign(x.high).double()
    own = is_zero(x) | exponent(x).flag("EQ", EXPONENT)
    return x.where(own, made)


def acosh(x: Wide) -> Wide:
    """With t = x - 1: log(1 + t + sqrt(2 t + t^2)); of large ones log(2 x)."""
    number = Extended.of(x)
    t = number - number.like(1)
    near = log1p_extended(t + _root(t * (t + t.like(2))))
    far = log_extended(number.moved(1), LN2, Fraction(1))
    made = far.where(exponent(x).flag("GE", BIAS + LARGE), near).double()
    one = x.low.flag("EQ", 0) & x.high.flag("EQ", BIAS << PLACE)
    made = Wide(one.choose(made.low.like(0), made.low), one.choose(made.high.like(0), made.high))
    below = x.high.flag("LT", BIAS << PLACE) | x.high.flag("GE", SIGN)
    return x.where(_infinite(x) & x.high.flag("LT", SIGN), _lost(made, below | is_nan(x)))
