"""Quotients of 64-bit integers, on pairs of words, by long division.

A bit at a time in a loop of 64 iterations; by a constant below 2^16, 16 bits at a time, by the chip's own quotients.
"""

from __future__ import annotations

from functools import partial

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.counted_loop import State, counted_loop
from systolith.compiler.passes.words.pairs import Pair, PairRewriter
from systolith.isa.dtypes import U32

BITS = 64
DIGIT = 16


def divided(r: PairRewriter, a: Pair, b: Pair) -> tuple[Pair, Pair]:
    """Quotient and remainder, unsigned; by 0: all ones, and `a`."""
    zero = r.full(0, array(U32, a[0].dims))
    state = [*a, zero, zero, *b]
    low, high, rest_low, rest_high, *_ = counted_loop(r, r.callees, BITS, state, _bit, partial(_inside, r), "divide")
    return (low, high), (rest_low, rest_high)


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


def _inside(r: PairRewriter, computation: Computation) -> PairRewriter:
    return PairRewriter(r.types, computation, r.callees, entry=False)


def _bit(r: PairRewriter, _: Instruction, state: State) -> list[Instruction]:
    """Shift the dividend's first bit into the remainder; take the divisor from it if it is no less."""
    low, high, rest_low, rest_high, b_low, b_high = state
    one, last = r.full(1, low.shape), r.full(31, low.shape)

    def top(word: Instruction) -> Instruction:
        return r.emit("shift-right-logical", word, last)

    def shifted(word: Instruction, bit: Instruction) -> Instruction:
        return r.emit("or", r.emit("shift-left", word, one), bit)

    over = r.emit("compare", top(rest_high), one, direction="EQ")
    rest_high, rest_low = shifted(rest_high, top(rest_low)), shifted(rest_low, top(high))
    same = r.emit(
        "and",
        r.emit("compare", rest_high, b_high, direction="EQ"),
        r.emit("compare", rest_low, b_low, direction="GE"),
    )
    enough = r.emit("or", r.emit("or", over, r.emit("compare", rest_high, b_high, direction="GT")), same)
    borrow = r.emit("convert", r.emit("compare", rest_low, b_low, direction="LT"), shape=low.shape)
    less_high = r.emit("subtract", r.emit("subtract", rest_high, b_high), borrow)
    less_low = r.emit("subtract", rest_low, b_low)
    bit = r.emit("convert", enough, shape=low.shape)
    return [
        shifted(low, bit),
        shifted(high, top(low)),
        r.emit("select", enough, less_low, rest_low),
        r.emit("select", enough, less_high, rest_high),
        b_low,
        b_high,
    ]
