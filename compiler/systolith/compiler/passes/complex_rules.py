"""Rewrite rules of operations on complex numbers, on their real and imaginary parts.

Quotients, and infinities in them, are as C99 (annex G) and XLA have them.  Other functions are the formulas below,
which keep the digits of both parts; where a part overflows on the way, results follow from IEEE 754.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.pairs import PairRewriter, PairRule, Value, by_part, is_view_of_parts, one, pair
from systolith.compiler.passes.real_expression import Real
from systolith.isa.dtypes import DTYPES, F32, PRED, S32, Kind

Number = tuple[Real, Real]


def _is_complex(i: Instruction) -> bool:
    return i.operands[0].shape.dtype.kind is Kind.COMPLEX


# Data movement and structure.


def _by_part(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    return by_part(r, i, operands, lambda _, index: one(index))


def _constant(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    literal = np.asarray(i.literal)
    return r.constant(literal.real, F32), r.constant(literal.imag, F32)


def _iota(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    real = r.like(i, [], array(F32, i.dims))
    return real, r.full(0, real.shape)


def _made(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    return one(operands[0]), one(operands[1])


def _real(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    return pair(operands[0])[0]


def _imag(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    return pair(operands[0])[1]


def _same_bits(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    return operands[0]


def _bitcast(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    value = operands[0]
    return r.parts_along_last(value) if isinstance(value, Instruction) else r.together(value)


def _convert(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    """From complex to real the imaginary part goes."""
    value = operands[0]
    if isinstance(value, Instruction):
        real = r.converted(value, F32)
        return real, r.full(0, real.shape)
    if i.shape.dtype.kind is Kind.COMPLEX:
        return value
    return r.converted(value[0], i.shape.dtype)


def _takes_convert(i: Instruction) -> bool:
    """Of and to c64, all other numbers but f64: 64-bit integers become pairs after complex numbers do."""
    types = {i.shape.dtype, i.operands[0].shape.dtype}
    return not types & {DTYPES["f64"], DTYPES["c128"]}


def _compare(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    a, b = map(pair, operands)
    shape, direction = array(PRED, i.dims), i.word("direction")
    found = [r.emit("compare", a[k], b[k], shape=shape, direction=direction) for k in (0, 1)]
    return r.emit("and" if direction == "EQ" else "or", *found)


def _product(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    """Four real products, of matrices or of images."""

    def product(x: Instruction, y: Instruction) -> Instruction:
        return r.like(i, [x, y], array(F32, i.dims))

    (a, b), (c, d) = map(pair, operands)
    return r.emit("subtract", product(a, c), product(b, d)), r.emit("add", product(a, d), product(b, c))


# Arithmetic.


def _multiply(x: Number, y: Number) -> Number:
    (a, b), (c, d) = x, y
    return a * c - b * d, a * d + b * c


def _divide(x: Number, y: Number) -> Number:
    """Scaled by the larger part of the divisor; then what annex G has for infinities and zeros."""
    (a, b), (c, d) = x, y
    wide = c.of("abs").test("GE", d.of("abs"))
    ratio = (d / c).where(wide, c / d)
    under = (c + d * ratio).where(wide, c * ratio + d)
    real = ((a + b * ratio).where(wide, a * ratio + b)) / under
    imag = ((b - a * ratio).where(wide, b * ratio - a)) / under
    r = a.r

    def both(op: str, p: Instruction, q: Instruction) -> Instruction:
        return r.emit(op, p, q)

    lost = both("and", real.test("NE", real), imag.test("NE", imag))
    zero = both("and", c.test("EQ", 0.0), d.test("EQ", 0.0))
    number = both("or", a.test("EQ", a), b.test("EQ", b))
    by_zero = both("and", lost, both("and", zero, number))
    infinite_x, infinite_y = (both("or", _infinite(p), _infinite(q)) for p, q in (x, y))
    finite_x, finite_y = (both("and", _finite(p), _finite(q)) for p, q in (x, y))
    signed = _with_sign(c.like(float("inf")), c)
    large, small = both("and", infinite_x, finite_y), both("and", infinite_y, finite_x)
    ends = (_boxed(a), _boxed(b)), (_boxed(c), _boxed(d))
    (p, q), (s, t) = ends
    inf = c.like(float("inf"))
    for test, value_real, value_imag in (
        (both("and", lost, small), (a * s + b * t) * 0.0, (b * s - a * t) * 0.0),
        (both("and", lost, large), inf * (p * c + q * d), inf * (q * c - p * d)),
        (by_zero, signed * a, signed * b),
    ):
        real, imag = value_real.where(test, real), value_imag.where(test, imag)
    return real, imag


def _infinite(x: Real) -> Instruction:
    return x.of("abs").test("EQ", float("inf"))


def _finite(x: Real) -> Instruction:
    return x.of("abs").test("LT", float("inf"))


def _with_sign(size: Real, sign: Real) -> Real:
    """A size that is no NaN, with a sign, of zeros too."""
    return (-size).where(_is_negative(sign), size)


def _is_negative(x: Real) -> Instruction:
    """Whether the sign is set, of zeros too."""
    bits = x.r.emit("bitcast-convert", x.i, shape=array(S32, x.i.dims))
    return x.r.emit("compare", bits, x.r.full(0, bits.shape), shape=array(PRED, x.i.dims), direction="LT")


def _boxed(x: Real) -> Real:
    """1 for an infinity, else 0, with its sign."""
    return _with_sign(x.like(1.0).where(_infinite(x), 0.0), x)


def _size(z: Number) -> Real:
    """The absolute value: no overflow or underflow on the way."""
    x, y = (part.of("abs") for part in z)
    most, least = x.of("maximum", y), x.of("minimum", y)
    ratio = (least / most).where(most.test("GT", 0.0), 0.0)
    return most.where(_infinite(most), most * (ratio * ratio + 1.0).of("sqrt"))


def _log(z: Number) -> Number:
    x, y = (part.of("abs") for part in z)
    most, least = x.of("maximum", y), x.of("minimum", y)
    ratio = (least / most).where(most.test("GT", 0.0), 0.0)
    whole = most.of("log")
    return whole.where(_infinite(most), whole + (ratio * ratio).of("log-plus-one") * 0.5), z[1].of("atan2", z[0])


def _log_plus_one(z: Number) -> Number:
    """Near 0 the sum with 1 would lose digits."""
    x, y = z
    near = _size(z).test("LT", 0.5)
    real = ((x * (x + 2.0) + y * y).of("log-plus-one") * 0.5).where(near, _log((x + 1.0, y))[0])
    return real, y.of("atan2", x + 1.0)


def _exponential(z: Number) -> Number:
    x, y = z
    factor, real_axis = x.of("exponential"), y.test("EQ", 0.0)
    return factor.where(real_axis, factor * y.of("cosine")), y.where(real_axis, factor * y.of("sine"))


def _exponential_minus_one(z: Number) -> Number:
    x, y = z
    half, less = (y * 0.5).of("sine"), x.of("exponential-minus-one")
    real_axis = y.test("EQ", 0.0)
    real = less * y.of("cosine") - half * half * 2.0
    return less.where(real_axis, real), y.where(real_axis, x.of("exponential") * y.of("sine"))


def _root(z: Number) -> Number:
    """Of the square root, the real part and the size of the imaginary one: with r the root of half the sum of the size
    and |x|, these are r and |y| / 2r, or the reverse where x is negative.
    """
    x, y = z[0], z[1].of("abs")
    quarter = _size((x * 0.25, y * 0.25))
    root = (quarter + x.of("abs") * 0.25).of("sqrt") * 2.0**0.5
    other = root.where(root.test("EQ", 0.0), y * 0.5 / root)
    right, infinite = x.test("GE", 0.0), _infinite(y)
    real, imag = root.where(right, other), other.where(right, root)
    return y.where(infinite, real), y.where(infinite, imag)


def _square_root(z: Number) -> Number:
    """As in XLA the sign of a zero imaginary part does not matter."""
    real, imag = _root(z)
    return real, (-imag).where(z[1].test("LT", 0.0), imag)


def _reciprocal_root(z: Number) -> Number:
    """As in XLA the sign of a zero imaginary part matters."""
    real, imag = _root(z)
    return _divide((real.like(1.0), real.like(0.0)), (real, _with_sign(imag, z[1])))


def _hyperbolic(x: Real) -> tuple[Real, Real]:
    """Hyperbolic sine and cosine."""
    up, down = x.of("exponential-minus-one"), (-x).of("exponential-minus-one")
    return (up - down) * 0.5, (up + down) * 0.5 + 1.0


def _cosine(z: Number) -> Number:
    x, (sinh, cosh) = z[0], _hyperbolic(z[1])
    return x.of("cosine") * cosh, -(x.of("sine") * sinh)


def _sine(z: Number) -> Number:
    x, (sinh, cosh) = z[0], _hyperbolic(z[1])
    return x.of("sine") * cosh, x.of("cosine") * sinh


def _tangent_hyperbolic(z: Number) -> Number:
    """With e = exp(-2 |x|): _sign(x) (1 - e^2) and 2 e sin(2 y), over (1 - e)^2 + 4 e cos(y)^2."""
    x, y = z
    across = x.of("abs") * -2.0
    small, less, cos = across.of("exponential"), across.of("exponential-minus-one"), y.of("cosine")
    under = less * less + small * cos * cos * 4.0
    real = _with_sign(-(across * 2.0).of("exponential-minus-one") / under, x)
    imag = small * y.of("sine") * cos * 4.0 / under
    end = _infinite(x)
    return _with_sign(x.like(1.0), x).where(end, real), x.like(0.0).where(end, y.where(y.test("EQ", 0.0), imag))


def _tangent(z: Number) -> Number:
    """-i tanh(i z)."""
    real, imag = _tangent_hyperbolic((-z[1], z[0]))
    return imag, -real


def _logistic(z: Number) -> Number:
    real, imag = _exponential((-z[0], -z[1]))
    return _divide((real.like(1.0), real.like(0.0)), (real + 1.0, imag))


def _power(a: Number, b: Number) -> Number:
    """exp(b _log(a)); of 0: 1 to the power of 0, else 0."""
    real, imag = _exponential(_multiply(b, _log(a)))
    r = real.r
    base, exponent = (r.emit("and", *(p.test("EQ", 0.0) for p in z)) for z in (a, b))
    either = r.emit("or", base, exponent)
    return real.like(1.0).where(exponent, real.like(0.0).where(base, real)), imag.like(0.0).where(either, imag)


def _sign(z: Number) -> Number:
    """Z over its size; zeros as they are."""
    r, whole = z[0].r, _size(z)
    zero = r.emit("and", *(p.test("EQ", 0.0) for p in z))
    return z[0].where(zero, z[0] / whole), z[1].where(zero, z[1] / whole)


def _function(function: Callable[..., Number]) -> PairRule:
    """The rule of a function of complex numbers."""

    def rule(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
        given = [(Real(r, a), Real(r, b)) for a, b in map(pair, operands)]
        real, imag = function(*given)
        return real.i, imag.i

    return PairRule(rule)


def _abs(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    a, b = pair(operands[0])
    return _size((Real(r, a), Real(r, b))).i


_BY_PART = (
    "add subtract negate select broadcast reshape transpose slice reverse copy concatenate pad dynamic-slice"
    " dynamic-update-slice gather"
).split()
RULES: dict[str, PairRule] = {
    **dict.fromkeys(_BY_PART, PairRule(_by_part)),
    "constant": PairRule(_constant, lambda i: i.literal is not None),
    "iota": PairRule(_iota),
    "complex": PairRule(_made),
    "real": PairRule(_real),
    "imag": PairRule(_imag),
    "abs": PairRule(_abs),
    "convert": PairRule(_convert, _takes_convert),
    "bitcast-convert": PairRule(_same_bits, _is_complex),
    "bitcast": PairRule(_bitcast, is_view_of_parts),
    "compare": PairRule(_compare),
    "dot": PairRule(_product),
    "convolution": PairRule(_product),
    "multiply": _function(_multiply),
    "divide": _function(_divide),
    "log": _function(_log),
    "log-plus-one": _function(_log_plus_one),
    "exponential": _function(_exponential),
    "exponential-minus-one": _function(_exponential_minus_one),
    "sqrt": _function(_square_root),
    "rsqrt": _function(_reciprocal_root),
    "sine": _function(_sine),
    "cosine": _function(_cosine),
    "tan": _function(_tangent),
    "tanh": _function(_tangent_hyperbolic),
    "logistic": _function(_logistic),
    "power": _function(_power),
    "sign": _function(_sign),
}
"""Opcode to how it is rewritten; others have no form on pairs."""
