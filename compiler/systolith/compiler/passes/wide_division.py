"""Quotients of 64-bit integers, on pairs of words: long division in a loop of 64 iterations, a bit in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from systolith.compiler.hlo.ir import Computation, Instruction
from systolith.compiler.hlo.shape import array, tuple_of
from systolith.compiler.passes.pairs import Pair, PairRewriter
from systolith.isa.dtypes import PRED, S32, U32

BITS = 64

State = Sequence[Instruction]


def divided(r: PairRewriter, a: Pair, b: Pair) -> tuple[Pair, Pair]:
    """Quotient and remainder, unsigned; by 0: all ones, and `a`."""
    zero = r.full(0, array(U32, a[0].dims))
    low, high, rest_low, rest_high, *_ = _repeated(r, [*a, zero, zero, *b], _bit)
    return (low, high), (rest_low, rest_high)


def _bit(r: PairRewriter, state: State) -> list[Instruction]:
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


def _repeated(
    r: PairRewriter, state: State, step: Callable[[PairRewriter, State], list[Instruction]]
) -> list[Instruction]:
    """The state after a step for each bit."""
    shape = tuple_of([array(S32), *(s.shape for s in state)])

    def computation(stem: str, make: Callable[[PairRewriter, list[Instruction]], Instruction]) -> Computation:
        given = Instruction("state", "parameter", shape, number=0)
        made = Computation(r.callees.name(stem), [given])
        inside = PairRewriter(r.types, made, r.callees, entry=False)
        parts = [inside.emit("get-tuple-element", given, index=k) for k in range(len(shape.elements))]
        root = make(inside, parts)
        made.instructions, made.root = [given, *inside.made], root
        r.callees.add(made)
        return made

    def body(inside: PairRewriter, parts: list[Instruction]) -> Instruction:
        count, *values = parts
        return inside.emit("tuple", inside.emit("add", count, inside.constant(1, S32)), *step(inside, values))

    def condition(inside: PairRewriter, parts: list[Instruction]) -> Instruction:
        return inside.emit("compare", parts[0], inside.constant(BITS, S32), shape=array(PRED), direction="LT")

    first = r.emit("tuple", r.constant(0, S32), *state)
    test, once = computation("divide.condition", condition), computation("divide.body", body)
    done = r.emit("while", first, shape=shape, condition=test, body=once)
    return [r.emit("get-tuple-element", done, index=k + 1) for k in range(len(state))]
