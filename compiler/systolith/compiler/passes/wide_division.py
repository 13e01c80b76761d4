"""Quotients of 64-bit integers, on pairs of words: long division in a loop of 64 iterations, a bit in each."""

from __future__ import annotations

from functools import partial

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.counted_loop import State, counted_loop
from systolith.compiler.passes.pairs import Pair, PairRewriter
from systolith.isa.dtypes import U32

BITS = 64


def divided(r: PairRewriter, a: Pair, b: Pair) -> tuple[Pair, Pair]:
    """Quotient and remainder, unsigned; by 0: all ones, and `a`."""
    zero = r.full(0, array(U32, a[0].dims))
    state = [*a, zero, zero, *b]
    low, high, rest_low, rest_high, *_ = counted_loop(r, r.callees, BITS, state, _bit, partial(_inside, r), "divide")
    return (low, high), (rest_low, rest_high)


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
