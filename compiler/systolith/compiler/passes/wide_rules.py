"""Rewrite rules of operations on 64-bit integers, on their low and high words of u32.

Shifts rely on HLO's: by the width or more they give 0, or the sign; amounts are unsigned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from systolith.compiler.hlo.attributes import SliceDim
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.passes.algebraic_arithmetic import splat
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import F32, PRED, S32, U32, Kind

Pair = tuple[Instruction, Instruction]
Value = Instruction | Pair
"""An array of at most 32 bits an element, or the low and the high word of one of 64 bits."""

Rule = Callable[[Rewriter, Instruction, Sequence[Value]], Value]
Amount = int | Instruction

WORD = (1 << 32) - 1


@dataclass(frozen=True)
class Wide:
    """How an opcode is rewritten.

    Attributes:
        rule: makes what stands for an instruction, of what stands for its operands.
        takes: whether the rule is for this instruction; None: for every one of the opcode.
    """

    rule: Rule
    takes: Callable[[Instruction], bool] | None = None


def is_wide(shape: Shape) -> bool:
    """Whether it is an array of 64-bit integers."""
    return shape.is_array and shape.dtype.is_integer and shape.dtype.bits == 64


def _pair(value: Value) -> Pair:
    assert not isinstance(value, Instruction), f"{value} is not of 64 bits"
    return value


def _one(value: Value) -> Instruction:
    assert isinstance(value, Instruction), f"{value} is of 64 bits"
    return value


def _zero(r: Rewriter, like: Instruction) -> Instruction:
    return r.full(0, array(U32, like.dims))


def _number(r: Rewriter, value: int, like: Instruction) -> Instruction:
    return r.full(value, array(like.shape.dtype, like.dims))


def _bit(r: Rewriter, direction: str, a: Instruction, b: Instruction) -> Instruction:
    """1 where a comparison of words holds, else 0."""
    return r.emit("convert", _compared(r, direction, a, b), shape=array(U32, a.dims))


def _compared(r: Rewriter, direction: str, a: Instruction, b: Instruction) -> Instruction:
    return r.emit("compare", a, b, direction=direction)


# Words one by one.


def _by_word(r: Rewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    """The same operation on each word; 64-bit operands of what is narrow, and those after the data, are indices."""
    data = _DATA.get(i.opcode, len(operands))
    rest = [_index(r, i.operands[k], v) for k, v in enumerate(operands) if k >= data]
    if not is_wide(i.shape):
        return r.like(i, [*map(_one, operands[:data]), *rest], i.shape)
    words = []
    for w in (0, 1):
        taken = [v if isinstance(v, Instruction) else v[w] for v in operands[:data]]
        words.append(r.like(i, [*taken, *rest], array(U32, i.dims)))
    return words[0], words[1]


_DATA = {"dynamic-slice": 1, "dynamic-update-slice": 2, "gather": 1}
"""How many operands are data; the others are indices."""


def _index(r: Rewriter, i: Instruction, value: Value) -> Instruction:
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


def _iota(r: Rewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    low = r.like(i, [], array(U32, i.dims))
    return low, _zero(r, low)


def _constant(r: Rewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    bits = np.asarray(i.literal).astype(np.uint64)
    return r.constant(bits & np.uint64(WORD), U32), r.constant(bits >> np.uint64(32), U32)


# Arithmetic.


def _add(r: Rewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    (a, high_a), (b, high_b) = map(_pair, operands)
    low = r.emit("add", a, b)
    return low, r.emit("add", r.emit("add", high_a, high_b), _bit(r, "LT", low, a))


def _minus(r: Rewriter, x: Pair, y: Pair) -> Pair:
    (a, high_a), (b, high_b) = x, y
    high = r.emit("subtract", r.emit("subtract", high_a, high_b), _bit(r, "LT", a, b))
    return r.emit("subtract", a, b), high


def _subtract(r: Rewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    a, b = map(_pair, operands)
    return _minus(r, a, b)


def _negated(r: Rewriter, x: Pair) -> Pair:
    zero = _zero(r, x[0])
    return _minus(r, (zero, zero), x)


def _negate(r: Rewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    return _negated(r, _pair(operands[0]))


def _is_negative(r: Rewriter, x: Pair) -> Instruction:
    high = r.emit("bitcast-convert", x[1], shape=array(S32, x[1].dims))
    return _compared(r, "LT", high, _number(r, 0, high))


def _chosen(r: Rewriter, p: Instruction, a: Pair, b: Pair) -> Pair:
    low, high = (r.emit("select", p, a[w], b[w]) for w in (0, 1))
    return low, high


def _abs(r: Rewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    x = _pair(operands[0])
    return x if i.shape.dtype.kind is Kind.UNSIGNED else _chosen(r, _is_negative(r, x), _negated(r, x), x)


def _multiply(r: Rewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    """The high word of a product of low words comes from products of 16-bit halves."""
    (a, high_a), (b, high_b) = map(_pair, operands)
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


def _less(r: Rewriter, direction: str, a: Pair, b: Pair, signed: bool) -> Instruction:
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


def _compare(r: Rewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    a, b = map(_pair, operands)
    return _less(r, i.word("direction"), a, b, _is_signed(i))


def _extreme(direction: str) -> Rule:
    def rule(r: Rewriter, i: Instruction, operands: Sequence[Value]) -> Value:
        a, b = map(_pair, operands)
        return _chosen(r, _less(r, direction, a, b, _is_signed(i)), a, b)

    return rule


def _popcnt(r: Rewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    low, high = _pair(operands[0])
    return r.emit("add", r.emit("popcnt", low), r.emit("popcnt", high)), _zero(r, low)


def _clz(r: Rewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    low, high = _pair(operands[0])
    zero = _zero(r, low)
    below = r.emit("add", r.emit("count-leading-zeros", low), _number(r, 32, low))
    return r.emit("select", _compared(r, "EQ", high, zero), below, r.emit("count-leading-zeros", high)), zero


# Shifts.


def _amount(r: Rewriter, i: Instruction, value: Value) -> Amount:
    """By how much, at most 64; a number where it is the same constant everywhere."""
    literal = splat(i.operands[1])
    if literal is not None:
        return min(int(literal.astype(np.uint64)), 64)
    low, high = _pair(value)
    return r.emit("select", _compared(r, "EQ", high, _zero(r, high)), low, _number(r, 64, low))


def _shifted(r: Rewriter, opcode: str, x: Instruction, amount: Amount) -> Instruction | None:
    """A word moved; None where a constant amount leaves nothing of it."""
    if isinstance(amount, Instruction):
        return r.emit(opcode, x, amount)
    return r.emit(opcode, x, _number(r, amount, x)) if 0 <= amount < 32 else None


def _less_32(r: Rewriter, amount: Amount) -> Amount:
    return r.emit("subtract", amount, _number(r, 32, amount)) if isinstance(amount, Instruction) else amount - 32


def _from_32(r: Rewriter, amount: Amount) -> Amount:
    return r.emit("subtract", _number(r, 32, amount), amount) if isinstance(amount, Instruction) else 32 - amount


def _joined(r: Rewriter, like: Instruction, *words: Instruction | None) -> Instruction:
    found = [w for w in words if w is not None]
    return reduce(lambda a, b: r.emit("or", a, b), found) if found else _zero(r, like)


def _moved(r: Rewriter, near: Instruction, far: Instruction, amount: Amount, opcode: str, back: str) -> Pair:
    """The word that bits leave through the end, and the one that they enter from the other."""
    across = [_shifted(r, back, far, _from_32(r, amount)), _shifted(r, opcode, far, _less_32(r, amount))]
    entered = _joined(r, near, _shifted(r, opcode, near, amount), *across)
    return entered, _joined(r, far, _shifted(r, opcode, far, amount))


def _shift_left(r: Rewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    low, high = _pair(operands[0])
    high, low = _moved(r, high, low, _amount(r, i, operands[1]), "shift-left", "shift-right-logical")
    return low, high


def _shift_right_logical(r: Rewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    low, high = _pair(operands[0])
    return _moved(r, low, high, _amount(r, i, operands[1]), "shift-right-logical", "shift-left")


def _shift_right_arithmetic(r: Rewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    """Of the sign every amount leaves something, so what crosses words by 32 or more is chosen, not joined."""
    opcode, (low, high) = "shift-right-arithmetic", _pair(operands[0])
    amount = _amount(r, i, operands[1])
    n = amount if isinstance(amount, Instruction) else _number(r, amount, low)
    width = _number(r, 32, low)
    crossed = r.emit("shift-left", high, r.emit("subtract", width, n))
    near = r.emit("or", r.emit("shift-right-logical", low, n), crossed)
    far = r.emit(opcode, high, r.emit("subtract", n, width))
    return r.emit("select", _compared(r, "LT", n, width), near, far), r.emit(opcode, high, n)


# Other types.


def _convert(r: Rewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    x, source, target = operands[0], i.operands[0].shape.dtype, i.shape.dtype
    if is_wide(i.operands[0].shape):
        pair = _pair(x)
        if is_wide(i.shape):
            return pair
        if target is PRED:
            return _compared(r, "NE", r.emit("or", *pair), _zero(r, pair[0]))
        return _to_float(r, pair, source.kind is Kind.SIGNED) if target is F32 else r.like(i, [pair[0]], i.shape)
    low = r.emit("convert", _one(x), shape=array(U32, i.dims))
    if source.kind is not Kind.SIGNED:
        return low, _zero(r, low)
    return low, r.emit("shift-right-arithmetic", low, _number(r, 31, low))


def _takes_convert(i: Instruction) -> bool:
    """Of integers and predicates, and to f32."""
    source, target = i.operands[0].shape.dtype, i.shape.dtype
    return not source.is_float and source.kind is not Kind.COMPLEX and (target is F32 or _is_integral(i.shape))


def _is_integral(shape: Shape) -> bool:
    return shape.dtype.is_integer or shape.dtype is PRED


def _to_float(r: Rewriter, x: Pair, signed: bool) -> Instruction:
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


def _bitcast_convert(r: Rewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    """Between 64-bit integers nothing changes; two 32-bit elements of a last dimension are the words."""
    value = operands[0]
    if not isinstance(value, Instruction):
        if is_wide(i.shape):
            return value
        last = (*i.operands[0].dims, 1)
        both = r.emit(
            "concatenate",
            *(r.emit("reshape", w, shape=array(U32, last)) for w in value),
            shape=array(U32, i.dims),
            dimensions=(len(last) - 1,),
        )
        return both if i.shape.dtype is U32 else r.emit("bitcast-convert", both, shape=i.shape)
    words = r.emit("bitcast-convert", value, shape=array(U32, value.dims))
    found = []
    for w in (0, 1):
        part = (*(SliceDim(0, n) for n in i.dims), SliceDim(w, w + 1))
        found.append(r.emit("reshape", r.emit("slice", words, slice=part), shape=array(U32, i.dims)))
    return found[0], found[1]


def _takes_bitcast(i: Instruction) -> bool:
    narrow = [s.dtype.bits for s in (i.shape, i.operands[0].shape) if not is_wide(s)]
    return not narrow or narrow == [32]


_BY_WORD = (
    "and or xor not select broadcast reshape transpose slice reverse copy concatenate pad dynamic-slice"
    " dynamic-update-slice gather"
).split()
RULES: dict[str, Wide] = {
    **dict.fromkeys(_BY_WORD, Wide(_by_word)),
    "iota": Wide(_iota),
    "constant": Wide(_constant, lambda i: i.literal is not None),
    "add": Wide(_add),
    "subtract": Wide(_subtract),
    "negate": Wide(_negate),
    "abs": Wide(_abs),
    "multiply": Wide(_multiply),
    "compare": Wide(_compare),
    "maximum": Wide(_extreme("GE")),
    "minimum": Wide(_extreme("LE")),
    "popcnt": Wide(_popcnt),
    "count-leading-zeros": Wide(_clz),
    "shift-left": Wide(_shift_left),
    "shift-right-logical": Wide(_shift_right_logical),
    "shift-right-arithmetic": Wide(_shift_right_arithmetic),
    "convert": Wide(_convert, _takes_convert),
    "bitcast-convert": Wide(_bitcast_convert, _takes_bitcast),
}
"""Opcode to how it is rewritten; others have no form on pairs."""
