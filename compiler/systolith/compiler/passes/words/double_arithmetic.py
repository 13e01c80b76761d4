"""Arithmetic on f64 as formulas on two words: IEEE 754, rounded to the nearest even number.

Mantissas are integers of 64 bits whose first bit is set; what they lose below is kept in their last bit, which no
rounding reaches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.passes.counted_loop import State, counted_loop
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.words.double_bits import (
    BIAS,
    EXPONENT,
    FRACTION,
    INFINITY,
    LEFT,
    PLACE,
    QUIET,
    exponent,
    is_nan,
    is_zero,
    rounded,
    sign,
    size,
)
from systolith.compiler.passes.words.pairs import PairRewriter
from systolith.compiler.passes.words.word_formulas import BITS, SIGN, Flag, Wide, Word

GUARD = 3
"""Bits of a sum below the mantissa."""
MOST = 2 * BITS - 1
DIGIT = 27
"""Bits of a quotient that are found at a time."""
RECIPROCAL = 30
"""1 / x, of x from 1/2 to 1, is a word times two to minus this power."""
DIGITS = -(-(EXPONENT + PLACE + BITS) // DIGIT)
"""Of the longest quotient: of the greatest number by the least."""


def _mantissa(x: Wide, exponent: Word) -> Wide:
    """Of 53 bits; of a subnormal number with less."""
    return Wide(x.low, (x.high & FRACTION) | (exponent.least(1) << PLACE))


def normal(x: Wide) -> tuple[Wide, Word]:
    """A mantissa and its exponent, which may be below 1; the mantissa of 0 is 0."""
    given = exponent(x)
    mantissa = _mantissa(x, given) << LEFT
    zeros = mantissa.zeros
    return mantissa << zeros, given.most(1) - zeros


def packed(mantissa: Wide, exponent: Word) -> Wide:
    """A number without its sign, of any exponent as a signed number; of a mantissa of 0, 0."""
    small = exponent.below(1)
    moved = mantissa.jammed(small.choose(1 - exponent, 0).least(MOST))
    made = rounded(moved, small.choose(exponent.like(1), exponent))
    return Wide(made.low, mantissa.high.flag("EQ", 0).choose(mantissa.high, made.high))


def _finished(made: Wide, sign: Word, infinite: Flag, nan: Flag) -> Wide:
    """With its sign; where the result is no number, or infinite (there NaN if so)."""
    end = nan.choose(made.high.like(INFINITY | QUIET), INFINITY)
    end_or_made = Wide(infinite.choose(made.low.like(0), made.low), infinite.choose(end, made.high))
    return Wide(end_or_made.low, end_or_made.high | (sign & SIGN))


def add(x: Wide, y: Wide) -> Wide:
    """The larger one, and the other moved to its exponent."""
    swapped = Wide(x.low, size(x)).less(Wide(y.low, size(y)))
    large, small = y.where(swapped, x), x.where(swapped, y)
    highest, lower = exponent(large), exponent(small)
    first = highest.most(1)
    a = _mantissa(large, highest) << GUARD
    b = (_mantissa(small, lower) << GUARD).jammed((first - lower.most(1)).least(MOST))
    opposite = (x.high ^ y.high).sign
    total = ((a ^ opposite) + b) ^ opposite
    none, room = total.is_zero, LEFT - GUARD
    shift = total.zeros.least(first + (room - 1))
    made = rounded(total << shift, first + room - shift)
    signs = none.choose(x.high & y.high, large.high) & SIGN
    number = Wide(made.low, none.choose(made.high.like(0), made.high) | signs)
    lost = (lower.flag("EQ", EXPONENT).bit & opposite) << (PLACE - 1)
    return Wide(large.low, large.high | lost).where(highest.flag("EQ", EXPONENT), number)


def negate(x: Wide) -> Wide:
    """With the other sign."""
    return Wide(x.low, x.high ^ SIGN)


def subtract(x: Wide, y: Wide) -> Wide:
    """The sum with the other sign."""
    return add(x, negate(y))


def multiply(x: Wide, y: Wide) -> Wide:
    """The first 64 bits of the product of mantissas, and whether there are others."""
    (a, first), (b, second) = normal(x), normal(y)
    product, *rest = a.product(b)
    product = Wide(product.low | (rest[0] | rest[1]).flag("NE", 0).bit, product.high)
    over = product.high >> (BITS - 1)
    made = packed(product << (1 - over), first + second + over - BIAS)
    infinite = exponent(x).most(exponent(y)).flag("EQ", EXPONENT)
    nan = is_nan(x) | is_nan(y) | product.high.flag("EQ", 0)
    return _finished(made, x.high ^ y.high, infinite, nan)


def inverse(x: Word) -> Word:
    """2^62 / x of a word whose first bit is set, less by up to ten: that of f32, and a step by Newton."""
    given = x.as_float
    near = Word.of_float(given.like(2.0**62) / given)
    off = (1 << RECIPROCAL) - x.high_of(near)
    step = ((near >> 10) * off).of("shift-right-arithmetic", RECIPROCAL - 10)
    return near + step - 5


def _less_digit(rest: Wide, divisor: Wide, reciprocal: Word, bits: Word | int) -> tuple[Word, Wide]:
    """The remainder of a rest, moved left by up to `DIGIT` bits, and how often the divisor was taken.

    Args:
        rest: less than eight times the divisor.
        divisor: of 53 bits, its first bit set.
        reciprocal: of the divisor's first 32 bits.
        bits: by which the rest moves.
    """
    times = (rest >> (DIGIT - GUARD)).low.high_of(reciprocal) >> (DIGIT - bits)
    return times, (rest << bits) - divisor.times(times)


def _settled(rest: Wide, divisor: Wide, reciprocal: Word) -> tuple[Word, Wide]:
    """How often the divisor is in a rest of less than eight times it, and what is left."""
    times = (rest >> (DIGIT - GUARD)).low.high_of(reciprocal) >> DIGIT
    rest = rest - divisor.times(times)
    less = rest.less(divisor)
    return times + 1 - less.bit, rest.where(less, rest - divisor)


def divide(x: Wide, y: Wide) -> Wide:
    """Two digits of the quotient of mantissas, and whether there is a rest."""
    (a, first), (b, second) = normal(x), normal(y)
    reciprocal, divisor = inverse(b.high), b >> LEFT
    digit = a.high.high_of(reciprocal) >> (RECIPROCAL - DIGIT)
    rest = ((a >> LEFT) << DIGIT) - divisor.times(digit)
    second_digit, rest = _less_digit(rest, divisor, reciprocal, DIGIT)
    last, rest = _settled(rest, divisor, reciprocal)
    quotient = Wide(digit << DIGIT, digit >> (BITS - DIGIT)).plus(second_digit + last) << (MOST - 2 * DIGIT)
    quotient = Wide(quotient.low | (~rest.is_zero).bit, quotient.high)
    over = quotient.high >> (BITS - 1)
    made = packed(quotient << (1 - over), first - second + over + (BIAS - 1))
    infinite = exponent(x).flag("EQ", EXPONENT) | b.high.flag("EQ", 0)
    none = exponent(y).flag("EQ", EXPONENT) | a.high.flag("EQ", 0)
    lost = is_nan(x) | is_nan(y)
    made = Wide(none.choose(made.low.like(0), made.low), none.choose(made.high.like(0), made.high))
    return _finished(made, x.high ^ y.high, infinite | lost, lost | (infinite & none))


def remainder(r: PairRewriter, x: Wide, y: Wide) -> Wide:
    """The remainder of the mantissa when the quotient is whole; digit by digit, in a loop."""
    (a, first), (b, second) = normal(x), normal(y)
    divisor, whole = b >> LEFT, a >> LEFT
    reciprocal = inverse(b.high)
    start = whole - divisor
    rest = whole.where(whole.less(divisor), start)
    shifts = first - second
    smaller = shifts.below(0)
    shifts = smaller.choose(shifts.like(0), shifts)
    state = [w.i for w in (rest.low, rest.high, shifts, divisor.low, divisor.high, reciprocal)]
    made_low, made_high, *_ = counted_loop(r, r.callees, DIGITS, state, _next_rest, partial(_inside, r), "remainder")
    rest = Wide(Word(r, made_low), Word(r, made_high)) << LEFT
    zeros = rest.zeros
    made = packed(rest << zeros, second - zeros)
    made = Wide(made.low, made.high | sign(x))
    infinite_y = size(y).flag("EQ", INFINITY) & y.low.flag("EQ", 0)
    made = x.where(smaller | infinite_y | is_zero(x), made)
    lost = is_nan(x) | is_nan(y) | exponent(x).flag("EQ", EXPONENT) | is_zero(y)
    return Wide(made.low, lost.choose(made.high.like(INFINITY | QUIET), made.high))


def _inside(r: PairRewriter, computation: Computation) -> PairRewriter:
    return PairRewriter(r.types, computation, r.callees, entry=False)


def _next_rest(r: PairRewriter, _: Instruction, state: State) -> list[Instruction]:
    low, high, shifts, divisor_low, divisor_high, reciprocal = (Word(r, i) for i in state)
    divisor, bits = Wide(divisor_low, divisor_high), shifts.least(DIGIT)
    rest = _less_digit(Wide(low, high), divisor, reciprocal, bits)[1]
    rest = _settled(rest, divisor, reciprocal)[1]
    return [rest.low.i, rest.high.i, (shifts - bits).i, *state[3:]]


def _float(x: Wide) -> Real:
    """About a number, as f32."""
    return x.high.as_float * 2.0**BITS + x.low.as_float


def square_root(x: Wide) -> Wide:
    """By f32: its root, then the rest over twice the root so far, always a little less; the rests are exact."""
    mantissa, given = normal(x)
    number = mantissa >> (given & 1)  # 1 to 4, times 2^62
    first = number.high.as_float.of("sqrt")
    half = first.like(2.0**-13) / first
    root = Word.of_float(first * 2.0**12 - 32)  # of 28 bits
    rest = (number >> 8) - root.times(root)
    step = Word.of_float(_float(rest) * half - 1)
    rest = rest - Wide(root << 1, root >> (BITS - 1)).plus(step).times(step)
    root = root + step
    step = Word.of_float(rest.low.as_float * (half * 2.0**26) - 64)
    double = Wide(root << 27, root >> (BITS - 27)).plus(step)
    rest = Wide(rest.low.like(0), rest.low << 20) - double.times(step)
    double, made = double.plus(step), Wide(root << 26, root >> (BITS - 26)).plus(step)
    step = Word.of_float(_float(rest) * (half * 2.0**-26) - 2.0**-7)
    rest = rest - double.plus(step).times(step)
    double, made = double.plus(step << 1).plus(step.like(1)), made.plus(step)
    less = rest.less(double)
    made = made.plus(1 - less.bit) << (MOST - 53)
    exact = less & rest.is_zero | ~less & (rest - double).is_zero
    made = Wide(made.low | (~exact).bit, made.high)
    made = rounded(made, (given + BIAS) >> 1)
    own = is_zero(x) | (x.low.flag("EQ", 0) & x.high.flag("EQ", INFINITY))
    lost = is_nan(x) | x.high.flag("GE", SIGN)
    high = lost.choose(made.high.like(INFINITY | QUIET), made.high)
    return x.where(own, Wide(made.low, high))


def _integral(x: Wide, more: Callable[[Wide, Word, Wide], Wide], up: Callable[[Wide, Word], Flag]) -> Wide:
    """A whole number.

    Args:
        x: any number.
        more: of a number, the place of its unit and the bits of its fraction: what is added before these are dropped.
        up: of a number below 1 and its exponent, whether it becomes 1 and not 0.
    """
    given = exponent(x)
    unit = (BIAS + 52) - given.most(BIAS).least(BIAS + 52)
    ones = x.like((1 << 2 * BITS) - 1)
    kept = ones << unit
    fraction = kept ^ ones.low
    made = x + more(x, unit, fraction)
    made = Wide(made.low & kept.low, made.high & kept.high)
    small = Wide(x.low.like(0), sign(x) | up(x, given).choose(x.low.like(BIAS << PLACE), 0))
    made = small.where(given.flag("LT", BIAS), made)
    return x.where(given.flag("EQ", EXPONENT), made)


def _masked(x: Wide, by: Word) -> Wide:
    return Wide(x.low & by, x.high & by)


def floor(x: Wide) -> Wide:
    """The next whole number down."""

    def up(x: Wide, _: Word) -> Flag:
        return x.high.flag("GE", SIGN) & ~is_zero(x)

    return _integral(x, lambda x, _, fraction: _masked(fraction, x.high.sign), up)


def ceil(x: Wide) -> Wide:
    """The next whole number up."""

    def up(x: Wide, _: Word) -> Flag:
        return x.high.flag("LT", SIGN) & ~is_zero(x)

    return _integral(x, lambda x, _, fraction: _masked(fraction, ~x.high.sign), up)


def round_away(x: Wide) -> Wide:
    """The nearest whole number, of two the one further from 0."""

    def half(x: Wide, unit: Word, fraction: Wide) -> Wide:
        down = fraction >> 1
        return fraction - down

    return _integral(x, half, lambda _, given: given.flag("EQ", BIAS - 1))


def round_even(x: Wide) -> Wide:
    """The nearest whole number, of two the even one."""

    def half(x: Wide, unit: Word, fraction: Wide) -> Wide:
        odd = (x >> unit).low & unit.flag("NE", 0).bit
        return (fraction >> 1).plus(odd)

    return _integral(x, half, lambda x, given: given.flag("EQ", BIAS - 1) & ((x.high & FRACTION) | x.low).flag("NE", 0))
