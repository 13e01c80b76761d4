"""Quotients of 64-bit integers, on pairs of words.

By a constant below 2^16, 16 bits at a time, by the chip's own quotients.  By other numbers from estimates: the first 32
bits of what is left, times a reciprocal of the divisor's first 32, are at most a part of 2^26 below the quotient, and
never above it.  So three estimates, each of what the one before left, come so near to a quotient of 64 bits that what
is left is less than twice the divisor.
"""

from __future__ import annotations

from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.words.double_arithmetic import inverse
from systolith.compiler.passes.words.pairs import Pair, PairRewriter
from systolith.compiler.passes.words.word_formulas import WORD, Wide
from systolith.isa.dtypes import U32

DIGIT = 16

ESTIMATES = 3
"""Each leaves less than 2^-26 of the quotient, and 1: of a quotient below 2^64 in the end less than 2."""


def divided(r: PairRewriter, a: Pair, b: Pair) -> tuple[Pair, Pair]:
    """Quotient and remainder, unsigned; by 0: all ones, and `a`."""
    dividend, divisor = Wide.of(r, a), Wide.of(r, b)
    shift = divisor.zeros
    reciprocal = inverse((divisor << shift).high) - 1
    rest, quotient = dividend, dividend.like(0)
    for _ in range(ESTIMATES):
        left = rest.zeros
        # Both have their first bit at the top, so 2^-62 of the product is 2^(left - shift) times the quotient.
        times = ((rest << left).high.times(reciprocal) << 1) >> (left + 63 - shift)
        rest, quotient = rest - (divisor.times(times.low) + (divisor << 32).times(times.high)), quotient + times
    less = rest.less(divisor)
    by_zero = divisor.is_zero
    quotient = quotient.where(less, quotient.plus(quotient.low.like(1)))
    quotient = quotient.like((WORD << 32) | WORD).where(by_zero, quotient)
    return quotient.pair, dividend.where(by_zero, rest.where(less, rest - divisor)).pair


def divided_by_digit(r: PairRewriter, a: Pair, divisor: int) -> tuple[Pair, Pair]:
    """Quotient and remainder, unsigned, by a number above 0 and below 2^16."""
    assert 0 < divisor < 1 << DIGIT
    low, high = a
    width, mask, by = (r.full(v, array(U32, low.dims)) for v in (DIGIT, (1 << DIGIT) - 1, divisor))
    rest, quotients = r.emit("remainder", high, by), []
    for digit in (r.emit("shift-right-logical", low, width), r.emit("and", low, mask)):
        dividend = r.emit("or", r.emit("shift-left", rest, width), digit)
        quotients.append(r.emit("divide", dividend, by))
        rest = r.emit("remainder", dividend, by)
    first, second = quotients
    quotient = r.emit("or", r.emit("shift-left", first, width), second), r.emit("divide", high, by)
    return quotient, (rest, r.full(0, array(U32, low.dims)))
