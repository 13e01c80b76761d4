"""Rewrite rules of operations on 64-bit integers, on their low and high words of u32, and of moving such words.

Shifts rely on HLO's: by the width or more they give 0, or the sign; amounts are unsigned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

import numpy as np

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.passes.part_views import is_view_of_parts
from systolith.compiler.passes.simplify.algebraic_arithmetic import splat
from systolith.compiler.passes.words.pairs import (
    Pair,
    PairRewriter,
    PairRule,
    Value,
    by_part,
    one,
    pair,
)
from systolith.compiler.passes.words.wide_division import DIGIT, divided, divided_by_digit
from systolith.isa.dtypes import F32, PRED, S32, U32, Kind

Amount = int | Instruction
Rule = Callable[[PairRewriter, Instruction, Sequence[Value]], Value]

WORD = (1 << 32) - 1


def is_wide(shape: Shape) -> bool:
    """Whether it is an array of 64-bit integers or of f64."""
    return shape.is_array and shape.dtype.bits == 64 and shape.dtype.kind is not Kind.COMPLEX


def _zero(r: PairRewriter, like: Instruction) -> Instruction:
    return r.full(0, array(U32, like.dims))


def _number(r: PairRewriter, value: int, like: Instruction) -> Instruction:
    return r.full(value, array(like.shape.dtype, like.dims))


def _bit(r: PairRewriter, direction: str, a: Instruction, b: Instruction) -> Instruction:
    """1 where a comparison of words holds, else 0."""
    return r.emit("convert", _compared(r, direction, a, b), shape=array(U32, a.dims))


def _compared(r: PairRewriter, direction: str, a: Instruction, b: Instruction) -> Instruction:
    return r.emit("compare", a, b, direction=direction)


# Words one by one.


def _by_word(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    return by_part(r, i, operands, partial(_index, r))


def _index(r: PairRewriter, i: Instruction, value: Value) -> Instruction:
    """An index as it is, or cut to the values of s32, which clamps it no further than the operation does."""
    if isinstance(value, Instruction):
        return value
    low, high = value
    most = r.full(WORD >> 1, low.shape)
    if i.shape.dtype.kind is Kind.SIGNED:
        fits = _compared(r, "EQ", high, r.emit("shift-right-arithmetic", low, _number(r, 31, low)))
        outside = r.emit("select", _is_negative(r, value), r.full(1 << 31, low.shape), most)
    else:
        fits = r.emit("and", _compared(r, "EQ", high, _zero(r, high)), _compared(r, "LE", low, most))
        outside = most
    return r.emit("convert", r.emit("select", fits, low, outside), shape=array(S32, low.dims))


def _iota(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    low = r.like(i, [], array(U32, i.dims))
    return low, _zero(r, low)


def _constant(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    same = splat(i)
    bits = np.asarray(i.literal if same is None else same).view(np.uint64)
    low, high = r.constant(bits & np.uint64(WORD), U32), r.constant(bits >> np.uint64(32), U32)
    return (low, high) if same is None else _spread(r, (low, high), i)


# Arithmetic.


def _add(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    (a, high_a), (b, high_b) = map(pair, operands)
    low = r.emit("add", a, b)
    return low, r.emit("add", r.emit("add", high_a, high_b), _bit(r, "LT", low, a))


def _minus(r: PairRewriter, x: Pair, y: Pair) -> Pair:
    (a, high_a), (b, high_b) = x, y
    high = r.emit("subtract", r.emit("subtract", high_a, high_b), _bit(r, "LT", a, b))
    return r.emit("subtract", a, b), high


def _subtract(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    a, b = map(pair, operands)
    return _minus(r, a, b)


def _negated(r: PairRewriter, x: Pair) -> Pair:
    zero = _zero(r, x[0])
    return _minus(r, (zero, zero), x)


def _negate(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    return _negated(r, pair(operands[0]))


def _is_negative(r: PairRewriter, x: Pair) -> Instruction:
    high = r.emit("bitcast-convert", x[1], shape=array(S32, x[1].dims))
    return _compared(r, "LT", high, _number(r, 0, high))


def _chosen(r: PairRewriter, p: Instruction, a: Pair, b: Pair) -> Pair:
    low, high = (r.emit("select", p, a[w], b[w]) for w in (0, 1))
    return low, high


def _abs(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    x = pair(operands[0])
    return x if i.shape.dtype.kind is Kind.UNSIGNED else _chosen(r, _is_negative(r, x), _negated(r, x), x)


def _multiply(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    """The high word of a product of low words comes from products of 16-bit halves."""
    (a, high_a), (b, high_b) = map(pair, operands)
    half, mask = _number(r, 16, a), _number(r, 0xFFFF, a)

    def op(opcode: str, x: Instruction, y: Instruction) -> Instruction:
        return r.emit(opcode, x, y)

    def top(x: Instruction) -> Instruction:
        return op("shift-right-logical", x, half)

    a0, b0, a1, b1 = op("and", a, mask), op("and", b, mask), top(a), top(b)
    first = op("add", op("multiply", a1, b0), top(op("multiply", a0, b0)))
    second = op("add", op("multiply", a0, b1), op("and", first, mask))
    carried = op("add", op("multiply", a1, b1), op("add", top(first), top(second)))
    crossed = op("add", op("multiply", a, high_b), op("multiply", high_a, b))
    return op("multiply", a, b), op("add", carried, crossed)


EXPONENT_BITS = 6
"""Bits of an exponent that count, as in XLA."""


def _power(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    """By squaring, a bit of the exponent each, which is signed; a negative one gives 0, but for the bases 1 and -1."""
    base, exponent = map(pair, operands)
    zero, one = _zero(r, base[0]), _number(r, 1, base[0])
    result, square = (one, zero), base
    for bit in range(EXPONENT_BITS):
        digit = r.emit("and", r.emit("shift-right-logical", exponent[0], _number(r, bit, one)), one)
        times = pair(_multiply(r, i, (result, square)))
        result = _chosen(r, _compared(r, "NE", digit, zero), times, result)
        if bit < EXPONENT_BITS - 1:
            square = pair(_multiply(r, i, (square, square)))
    odd = _compared(r, "NE", r.emit("and", exponent[0], one), zero)
    alone = r.emit("and", _compared(r, "EQ", _size(r, base)[0], one), _compared(r, "EQ", _size(r, base)[1], zero))
    inverse = _chosen(r, alone, _chosen(r, odd, base, (one, zero)), (zero, zero))
    return _chosen(r, _is_negative(r, exponent), inverse, result)


def _mulhi(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    """The high words of the product of four words; a negative factor counts 2^64 more."""
    x, y = map(pair, operands)
    (a, high_a), (b, high_b) = x, y

    def high(one: Instruction, other: Instruction) -> Instruction:
        return r.emit("mulhi", one, other)

    def summed(terms: Sequence[Instruction]) -> Pair:
        """A sum of words, and how often it went over."""
        total, over = terms[0], _zero(r, terms[0])
        for term in terms[1:]:
            before, total = total, r.emit("add", total, term)
            over = r.emit("add", over, _bit(r, "LT", total, before))
        return total, over

    crossed = [r.emit("multiply", a, high_b), r.emit("multiply", high_a, b)]
    over = summed([high(a, b), *crossed])[1]
    low, carried = summed([r.emit("multiply", high_a, high_b), high(a, high_b), high(high_a, b), over])
    made: Pair = low, r.emit("add", high(high_a, high_b), carried)
    if i.shape.dtype.kind is Kind.SIGNED:
        for factor, other in ((x, y), (y, x)):
            made = _chosen(r, _is_negative(r, factor), _minus(r, made, other), made)
    return made


def _less(r: PairRewriter, direction: str, a: Pair, b: Pair, signed: bool) -> Instruction:
    """An order: that of the high words, and where they are equal, of the low ones."""
    if direction in ("EQ", "NE"):
        words = [_compared(r, direction, a[w], b[w]) for w in (0, 1)]
        return r.emit("and" if direction == "EQ" else "or", *words)
    highs = a[1], b[1]
    if signed:
        highs = (
            r.emit("bitcast-convert", a[1], shape=array(S32, a[1].dims)),
            r.emit("bitcast-convert", b[1], shape=array(S32, b[1].dims)),
        )
    same = r.emit("and", _compared(r, "EQ", a[1], b[1]), _compared(r, direction, a[0], b[0]))
    return r.emit("or", _compared(r, f"{direction[0]}T", *highs), same)


def _is_signed(i: Instruction) -> bool:
    return i.operands[0].shape.dtype.kind is Kind.SIGNED


def _compare(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    a, b = map(pair, operands)
    return _less(r, i.word("direction"), a, b, _is_signed(i))


def _extreme(direction: str) -> Rule:
    def rule(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
        a, b = map(pair, operands)
        return _chosen(r, _less(r, direction, a, b, _is_signed(i)), a, b)

    return rule


def _popcnt(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    low, high = pair(operands[0])
    return r.emit("add", r.emit("popcnt", low), r.emit("popcnt", high)), _zero(r, low)


def _clz(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    low, high = pair(operands[0])
    zero = _zero(r, low)
    below = r.emit("add", r.emit("count-leading-zeros", low), _number(r, 32, low))
    return r.emit("select", _compared(r, "EQ", high, zero), below, r.emit("count-leading-zeros", high)), zero


def _divided(r: PairRewriter, i: Instruction, a: Pair, b: Pair) -> tuple[Pair, Pair]:
    """Quotient and remainder of two numbers without their signs."""
    if _is_signed(i):
        a, b = _size(r, a), _size(r, b)
    divisor = splat(i.operands[1])
    if divisor is not None and 0 < abs(int(divisor)) < 1 << DIGIT:
        return divided_by_digit(r, a, abs(int(divisor)))
    return divided(r, a, b)


def _divide(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    """By 0: all ones."""
    a, b = map(pair, operands)
    quotient = _divided(r, i, a, b)[0]
    if not _is_signed(i):
        return quotient
    opposite = r.emit("xor", _is_negative(r, a), _is_negative(r, b))
    signed = _chosen(r, opposite, _negated(r, quotient), quotient)
    ones = r.full(WORD, a[0].shape)
    return _chosen(r, _is_zero(r, b), (ones, ones), signed)


def _remainder(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    """Of the dividend's sign; by 0: the dividend."""
    a, b = map(pair, operands)
    rest = _divided(r, i, a, b)[1]
    return _chosen(r, _is_negative(r, a), _negated(r, rest), rest) if _is_signed(i) else rest


def _size(r: PairRewriter, x: Pair) -> Pair:
    """The absolute value, unsigned."""
    return _chosen(r, _is_negative(r, x), _negated(r, x), x)


def _is_zero(r: PairRewriter, x: Pair) -> Instruction:
    return _compared(r, "EQ", r.emit("or", *x), _zero(r, x[0]))


def _sign(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    x = pair(operands[0])
    zero = _zero(r, x[0])
    size = r.emit("convert", r.emit("not", _is_zero(r, x)), shape=x[0].shape), zero
    if i.shape.dtype.kind is Kind.UNSIGNED:
        return size
    ones = r.full(WORD, x[0].shape)
    return _chosen(r, _is_negative(r, x), (ones, ones), size)


def _spread(r: PairRewriter, x: Pair, like: Instruction) -> Pair:
    """A pair of scalars, repeated; another one as it is."""
    if x[0].dims == like.dims:
        return x
    shape = array(U32, like.dims)
    return r.spread(x[0], shape), r.spread(x[1], shape)


def _clamp(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    signed = i.shape.dtype.kind is Kind.SIGNED
    low, x, high = (_spread(r, pair(v), i) for v in operands)
    x = _chosen(r, _less(r, "GT", low, x, signed), low, x)
    return _chosen(r, _less(r, "LT", high, x, signed), high, x)


# Shifts.


def _amount(r: PairRewriter, i: Instruction, value: Value) -> Amount:
    """By how much, at most 64; a number where it is the same constant everywhere."""
    literal = splat(i.operands[1])
    if literal is not None:
        return min(int(literal.astype(np.uint64)), 64)
    low, high = pair(value)
    return r.emit("select", _compared(r, "EQ", high, _zero(r, high)), low, _number(r, 64, low))


def _shifted(r: PairRewriter, opcode: str, x: Instruction, amount: Amount) -> Instruction | None:
    """A word moved; None where a constant amount leaves nothing of it."""
    if isinstance(amount, Instruction):
        return r.emit(opcode, x, amount)
    return r.emit(opcode, x, _number(r, amount, x)) if 0 <= amount < 32 else None


def _less_32(r: PairRewriter, amount: Amount) -> Amount:
    return r.emit("subtract", amount, _number(r, 32, amount)) if isinstance(amount, Instruction) else amount - 32


def _from_32(r: PairRewriter, amount: Amount) -> Amount:
    return r.emit("subtract", _number(r, 32, amount), amount) if isinstance(amount, Instruction) else 32 - amount


def _joined(r: PairRewriter, like: Instruction, *words: Instruction | None) -> Instruction:
    found = [w for w in words if w is not None]
    return reduce(lambda a, b: r.emit("or", a, b), found) if found else _zero(r, like)


def _moved(r: PairRewriter, near: Instruction, far: Instruction, amount: Amount, opcode: str, back: str) -> Pair:
    """The word that bits leave through the end, and the one that they enter from the other."""
    across = [_shifted(r, back, far, _from_32(r, amount)), _shifted(r, opcode, far, _less_32(r, amount))]
    entered = _joined(r, near, _shifted(r, opcode, near, amount), *across)
    return entered, _joined(r, far, _shifted(r, opcode, far, amount))


def _shift_left(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    low, high = pair(operands[0])
    high, low = _moved(r, high, low, _amount(r, i, operands[1]), "shift-left", "shift-right-logical")
    return low, high


def _shift_right_logical(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    low, high = pair(operands[0])
    return _moved(r, low, high, _amount(r, i, operands[1]), "shift-right-logical", "shift-left")


def _shift_right_arithmetic(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    """Of the sign every amount leaves something, so what crosses words by 32 or more is chosen, not joined."""
    opcode, (low, high) = "shift-right-arithmetic", pair(operands[0])
    amount = _amount(r, i, operands[1])
    n = amount if isinstance(amount, Instruction) else _number(r, amount, low)
    width = _number(r, 32, low)
    crossed = r.emit("shift-left", high, r.emit("subtract", width, n))
    near = r.emit("or", r.emit("shift-right-logical", low, n), crossed)
    far = r.emit(opcode, high, r.emit("subtract", n, width))
    return r.emit("select", _compared(r, "LT", n, width), near, far), r.emit(opcode, high, n)


# Other types.


def _convert(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    x, source, target = operands[0], i.operands[0].shape.dtype, i.shape.dtype
    if is_wide(i.operands[0].shape):
        words = pair(x)
        if is_wide(i.shape):
            return words
        if target is PRED:
            return _compared(r, "NE", r.emit("or", *words), _zero(r, words[0]))
        if target.is_float:
            made = _to_float(r, words, source.kind is Kind.SIGNED)
            return made if target is F32 else r.emit("convert", made, shape=i.shape)
        return r.like(i, [words[0]], i.shape)
    if source.is_float:
        return _from_float(r, one(x), i.shape.dtype.kind is Kind.SIGNED)
    low = r.emit("convert", one(x), shape=array(U32, i.dims))
    if source.kind is not Kind.SIGNED:
        return low, _zero(r, low)
    return low, r.emit("shift-right-arithmetic", low, _number(r, 31, low))


def _takes_convert(i: Instruction) -> bool:
    """Of and to all but complex numbers."""
    narrow = [s.dtype for s in (i.shape, i.operands[0].shape) if not is_wide(s)]
    return all(t.bits <= 32 and t.kind is not Kind.COMPLEX for t in narrow)


def _to_float(r: PairRewriter, x: Pair, signed: bool) -> Instruction:
    """Rounded once: the first 32 bits from the leading one on, the last of them set if any bit after them is."""
    negative = _is_negative(r, x) if signed else None
    low, high = _chosen(r, negative, _negated(r, x), x) if negative is not None else x
    floats = array(F32, low.dims)
    zeros = r.emit("count-leading-zeros", high)
    left = r.emit("subtract", _number(r, 32, low), zeros)
    first = r.emit("or", r.emit("shift-left", high, zeros), r.emit("shift-right-logical", low, left))
    sticky = _bit(r, "NE", r.emit("shift-left", low, zeros), _zero(r, low))
    mantissa = r.emit("convert", r.emit("or", first, sticky), shape=floats)
    exponent = r.emit("shift-left", r.emit("add", left, _number(r, 127, low)), _number(r, 23, low))
    size = r.emit("multiply", mantissa, r.emit("bitcast-convert", exponent, shape=floats))
    return size if negative is None else r.emit("select", negative, r.emit("negate", size), size)


def _from_float(r: PairRewriter, x: Instruction, signed: bool) -> Pair:
    """Towards zero; of what is out of range the nearest, of NaN 0."""
    if x.shape.dtype is not F32:
        x = r.emit("convert", x, shape=array(F32, x.dims))
    bits = r.emit("bitcast-convert", x, shape=array(U32, x.dims))
    zero = _zero(r, bits)
    exponent = r.emit("and", r.emit("shift-right-logical", bits, _number(r, 23, bits)), _number(r, 255, bits))
    mantissa = r.emit("or", r.emit("and", bits, _number(r, (1 << 23) - 1, bits)), _number(r, 1 << 23, bits))
    up = r.emit("subtract", exponent, _number(r, 127 + 23, bits))  # beyond 31 of what is to move down
    down = r.emit("shift-right-logical", mantissa, r.emit("subtract", zero, up))
    high, low = _moved(r, zero, mantissa, up, "shift-left", "shift-right-logical")
    small = _compared(r, "LT", exponent, _number(r, 127 + 23, bits))
    size = _chosen(r, small, (down, zero), (low, high))
    ones, sign = _number(r, WORD, bits), _number(r, 1 << 31, bits)
    negative = _compared(r, "NE", r.emit("and", bits, sign), zero)
    large = _compared(r, "GE", exponent, _number(r, 127 + (63 if signed else 64), bits))
    if signed:
        least, most = (zero, sign), (ones, _number(r, WORD >> 1, bits))
        ends, size = _chosen(r, negative, least, most), _chosen(r, negative, _negated(r, size), size)
    else:
        ends, size = (ones, ones), size
    made = _chosen(r, large, ends, size)
    if not signed:
        made = _chosen(r, negative, (zero, zero), made)
    nan = _compared(r, "NE", x, x)
    return _chosen(r, nan, (zero, zero), made)


def _bitcast_convert(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    """Between 64-bit types nothing changes; two 32-bit elements of a last dimension are the words."""
    value = operands[0]
    if not isinstance(value, Instruction):
        if is_wide(i.shape):
            return value
        if i.shape.dtype.kind is Kind.COMPLEX:
            return r.whole_of(value, i.shape)
        both = r.together(value)
        return both if i.shape.dtype is U32 else r.emit("bitcast-convert", both, shape=i.shape)
    if value.shape.dtype.kind is Kind.COMPLEX:
        return r.parts_along_last(r.emit("bitcast", value, shape=array(U32, (*i.dims, 2))))
    return r.parts_along_last(r.emit("bitcast-convert", value, shape=array(U32, value.dims)))


def _takes_bitcast(i: Instruction) -> bool:
    narrow = [s.dtype.bits for s in (i.shape, i.operands[0].shape) if not is_wide(s)]
    return not narrow or narrow == [32]


MOVING: dict[str, PairRule] = {
    **dict.fromkeys(
        "select broadcast reshape transpose slice reverse copy concatenate pad gather dynamic-slice"
        " dynamic-update-slice".split(),
        PairRule(_by_word),
    ),
    "constant": PairRule(_constant, lambda i: i.literal is not None),
    "bitcast-convert": PairRule(_bitcast_convert, _takes_bitcast),
    "bitcast": PairRule(_bitcast_convert, is_view_of_parts),
}
"""Opcode to how it is rewritten, of words that mean anything."""

RULES: dict[str, PairRule] = {
    **dict.fromkeys(("and", "or", "xor", "not"), PairRule(_by_word)),
    "iota": PairRule(_iota),
    "add": PairRule(_add),
    "subtract": PairRule(_subtract),
    "negate": PairRule(_negate),
    "abs": PairRule(_abs),
    "multiply": PairRule(_multiply),
    "mulhi": PairRule(_mulhi),
    "power": PairRule(_power),
    "compare": PairRule(_compare),
    "divide": PairRule(_divide),
    "remainder": PairRule(_remainder),
    "sign": PairRule(_sign),
    "clamp": PairRule(_clamp),
    "maximum": PairRule(_extreme("GE")),
    "minimum": PairRule(_extreme("LE")),
    "popcnt": PairRule(_popcnt),
    "count-leading-zeros": PairRule(_clz),
    "shift-left": PairRule(_shift_left),
    "shift-right-logical": PairRule(_shift_right_logical),
    "shift-right-arithmetic": PairRule(_shift_right_arithmetic),
    "convert": PairRule(_convert, _takes_convert),
}
"""Opcode to how it is rewritten, of integers; others have no form on pairs."""
