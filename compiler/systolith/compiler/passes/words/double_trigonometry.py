"""Sine, cosine and tangent of f64 as formulas on two words, of numbers of any size (the reduction by Payne and Hanek).

Bits of 2 / pi from where they matter, times the mantissa, are the quadrant and its fraction.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import factorial

from systolith.compiler.passes.words.double_bits import BIAS, EXPONENT, INFINITY, QUIET, exponent
from systolith.compiler.passes.words.double_extended import Extended, series
from systolith.compiler.passes.words.word_formulas import BITS, WORD, Flag, Wide, Word

PRECISION = 1300
"""Bits of pi."""


def _arctangent(inverse: int) -> int:
    """Of 1 over an integer."""
    power = total = (1 << PRECISION + 32) // inverse
    n, sign = 1, -1
    while power:
        power //= inverse * inverse
        n += 2
        total += sign * (power // n)
        sign = -sign
    return total


PI = Fraction(4 * (4 * _arctangent(5) - _arctangent(239)), 1 << PRECISION + 32)

WINDOW = 6
"""Words of 2 / pi that are multiplied: the mantissa is below 2^64, the fraction has up to 61 zeros in front."""
AHEAD = 3
"""Words of zeros in front of the table, so that small numbers find their window there."""
FIRST = BITS * AHEAD - 65
"""At an exponent of e a window starts at bit e + FIRST: what is above is a multiple of 4."""
LAST = (EXPONENT - BIAS + FIRST) // BITS + WINDOW + 1
TWO_OVER_PI = [
    int(2 / PI * (1 << BITS * (LAST - AHEAD))) >> BITS * (LAST - 1 - k) & WORD if k >= AHEAD else 0 for k in range(LAST)
]

SINE = [Fraction(1, factorial(2 * k + 3)) for k in range(9)]
COSINE = [Fraction(1, factorial(2 * k + 2)) for k in range(10)]


@dataclass(frozen=True)
class _Angle:
    """An angle as a number of quarter turns and a rest between -pi/4 and pi/4.

    Attributes:
        turns: modulo 4.
        rest: with its sign.
    """

    turns: Word
    rest: Extended


def _window(place: Word) -> list[Word]:
    """Words of 2 / pi from a bit on, the first ones first."""
    words: list[int | Word] = list(TWO_OVER_PI)
    index = place >> 5
    for bit in reversed(range(6)):
        step = 1 << bit
        odd = ((index >> bit) & 1).flag("NE", 0)
        count = min(WINDOW + step, len(words))
        words = [_either(odd, words[k + step] if k + step < len(words) else 0, words[k]) for k in range(count)]
    found = [place.like(w) for w in words]
    left = place & (BITS - 1)
    back = BITS - left
    return [(found[k] << left) | (found[k + 1] >> back) for k in range(WINDOW)]


def _either(flag: Flag, yes: int | Word, no: int | Word) -> int | Word:
    if isinstance(yes, int) and yes == no:
        return yes
    like = flag.bit.like
    return flag.choose(like(yes), like(no))


def _column(*terms: Word) -> tuple[Word, Word]:
    """A sum of words, and how often it went over."""
    total, over = terms[0], terms[0].like(0)
    for term in terms[1:]:
        total = total + term
        over = over + total.flag("LT", term).bit
    return total, over


def _turned(x: Extended) -> _Angle:
    """The angle of a number without its sign, below 1/2 as it is."""
    v = _window(x.exponent + (FIRST & WORD))[::-1]
    a, b = x.mantissa.low, x.mantissa.high
    lows = [(a * v[k]) for k in range(2, 6)], [(b * v[k]) for k in range(1, 5)]
    highs = [a.high_of(v[k]) for k in range(1, 5)], [b.high_of(v[k]) for k in range(4)]
    found: list[Word] = []
    over: tuple[Word, ...] = ()
    for terms in zip(*highs, *lows, strict=True):
        total, more = _column(*terms, *over)
        found.append(total)
        over = (more,)
    turns = found[3] >> (BITS - 2)
    first, second = Wide(found[2], found[3]) << 2, Wide(found[0], found[1]) << 2
    first = Wide(first.low | (found[1] >> (BITS - 2)), first.high)
    beyond = first.high.sign
    first, second = first ^ beyond, second ^ beyond
    zeros = first.zeros
    far = second >> (2 * BITS - zeros)
    mantissa = first << zeros
    mantissa = Wide(mantissa.low | far.low, mantissa.high | far.high)
    rest = Extended(beyond, mantissa, x.exponent.like(WORD) - zeros)
    rest = rest * rest.like(PI / 2)
    small = x.exponent.below(-1 & WORD)
    return _Angle(small.choose(turns.like(0), turns - beyond), x.size().where(small, rest))


def _sine_and_cosine(r: Extended) -> tuple[Extended, Extended]:
    """Of a rest: r (1 - r^2/6 + ...) and 1 - r^2/2 + ..."""
    size = r.fraction()
    square = size.scaled(size)
    ones = square.low.like(WORD)
    sine = r.times_fraction(square.scaled(series(square, SINE, ones)), ones)
    cosine = r.like(1).times_fraction(square.scaled(series(square, COSINE, ones)), ones)
    return sine, cosine


def _ended(x: Wide, made: Extended) -> Wide:
    """Of infinities and NaN, NaN."""
    number, lost = made.double(), exponent(x).flag("EQ", EXPONENT)
    return Wide(number.low, lost.choose(number.high.like(INFINITY | QUIET), number.high))


def _of_turns(angle: _Angle, turns: Word) -> Extended:
    """The sine of a rest and some quarter turns."""
    sine, cosine = _sine_and_cosine(angle.rest)
    made = cosine.where((turns & 1).flag("NE", 0), sine)
    return made.with_sign(made.sign ^ (turns << (BITS - 2)))


def sine(x: Wide) -> Wide:
    """The sine."""
    number = Extended.of(x)
    angle = _turned(number.size())
    made = _of_turns(angle, angle.turns)
    return _ended(x, made.with_sign(made.sign ^ x.high))


def cosine(x: Wide) -> Wide:
    """The cosine."""
    angle = _turned(Extended.of(x).size())
    return _ended(x, _of_turns(angle, angle.turns + 1))


def tangent(x: Wide) -> Wide:
    """The sine over the cosine; after an odd number of quarter turns the opposite of the cosine over the sine."""
    angle = _turned(Extended.of(x).size())
    sine, cosine = _sine_and_cosine(angle.rest)
    odd = (angle.turns & 1).flag("NE", 0)
    over, under = cosine.where(odd, sine), sine.where(odd, cosine)
    made = over / under
    return _ended(x, made.with_sign(made.sign ^ x.high ^ (angle.turns << (BITS - 1))))
