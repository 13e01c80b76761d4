"""Rewrite rules of operations on complex numbers, on their real and imaginary parts.

`passes/words/complex_functions.py` has the functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.part_views import depth_of_view
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.words import complex_functions as functions
from systolith.compiler.passes.words.pairs import PairRewriter, PairRule, Value, by_part, one, pair
from systolith.isa.dtypes import F32, PRED, DType, Kind


def _is_complex(i: Instruction) -> bool:
    return i.operands[0].shape.dtype.kind is Kind.COMPLEX


def _part(r: PairRewriter, i: Instruction) -> DType:
    """The type of the parts of a complex result, or of operands if there are such only."""
    types = (s.dtype for s in (i.shape, *(o.shape for o in i.operands)))
    return next(r.types.parts[t] for t in types if t in r.types.parts)


# Data movement and structure.


def _by_part(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    return by_part(r, i, operands, lambda _, index: one(index))


def _constant(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    literal, part = np.asarray(i.literal), _part(r, i)
    return r.constant(literal.real, part), r.constant(literal.imag, part)


def _iota(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    real = r.like(i, [], array(_part(r, i), i.dims))
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
    """Words, which are parts of parts, by way of the parts."""
    value, part = operands[0], _part(r, i)
    if isinstance(value, Instruction):
        shown = value if value.shape.dtype is part else r.emit("bitcast", value, shape=array(part, (*i.dims, 2)))
        return r.parts_along_last(shown)
    shown = r.together(value)
    return shown if i.shape.dtype is part else r.emit("bitcast", shown, shape=i.shape)


def _takes_bitcast(i: Instruction) -> bool:
    return bool(depth_of_view(i)) and min(s.dtype.bits for s in (i.shape, i.operands[0].shape)) >= F32.bits


def _convert(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    """From complex to real the imaginary part goes."""
    value = operands[0]
    if isinstance(value, Instruction):
        real = r.converted(value, _part(r, i))
        return real, r.full(0, real.shape)
    if i.shape.dtype.kind is Kind.COMPLEX:
        return r.converted(value[0], _part(r, i)), r.converted(value[1], _part(r, i))
    return r.converted(value[0], i.shape.dtype)


def _compare(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    a, b = map(pair, operands)
    shape, direction = array(PRED, i.dims), i.word("direction")
    found = [r.emit("compare", a[k], b[k], shape=shape, direction=direction) for k in (0, 1)]
    return r.emit("and" if direction == "EQ" else "or", *found)


def _product(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    """Four real products, of matrices or of images; two where one side is real."""

    def product(x: Instruction, y: Instruction) -> Instruction:
        return r.like(i, [x, y], array(_part(r, i), i.dims))

    x, y = operands
    if isinstance(x, Instruction):
        made = product(x, pair(y)[0]), product(x, pair(y)[1])
    elif isinstance(y, Instruction):
        made = product(x[0], y), product(x[1], y)
    else:
        (a, b), (c, d) = x, y
        made = (
            r.emit("subtract", product(a, c), product(b, d)),
            r.emit("add", product(a, d), product(b, c)),
        )
    return made if i.shape.dtype.kind is Kind.COMPLEX else r.converted(made[0], i.shape.dtype)


def _function(function: Callable[..., functions.Number]) -> PairRule:
    """The rule of a function of complex numbers."""

    def rule(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
        given = [(Real(r, a), Real(r, b)) for a, b in map(pair, operands)]
        real, imag = function(*given)
        return real.i, imag.i

    return PairRule(rule)


def _abs(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    a, b = pair(operands[0])
    return functions.absolute((Real(r, a), Real(r, b))).i


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
    "convert": PairRule(_convert),
    "bitcast-convert": PairRule(_same_bits, _is_complex),
    "bitcast": PairRule(_bitcast, _takes_bitcast),
    "compare": PairRule(_compare, takes=lambda i: i.word("direction") in ("EQ", "NE")),
    "dot": PairRule(_product),
    "convolution": PairRule(_product),
    "multiply": _function(functions.multiply),
    "divide": _function(functions.divide),
    "log": _function(functions.logarithm),
    "log-plus-one": _function(functions.log_plus_one),
    "exponential": _function(functions.exponential),
    "exponential-minus-one": _function(functions.exponential_minus_one),
    "sqrt": _function(functions.square_root),
    "rsqrt": _function(functions.reciprocal_root),
    "sine": _function(functions.sine),
    "cosine": _function(functions.cosine),
    "tan": _function(functions.tangent),
    "tanh": _function(functions.tangent_hyperbolic),
    "logistic": _function(functions.logistic),
    "power": _function(functions.power),
    "sign": _function(functions.sign),
    "sinh": _function(functions.sine_hyperbolic),
    "cosh": _function(functions.cosine_hyperbolic),
    "asin": _function(functions.arc_sine),
    "acos": _function(functions.arc_cosine),
    "atan": _function(functions.arc_tangent),
    "asinh": _function(functions.arc_sine_hyperbolic),
    "acosh": _function(functions.arc_cosine_hyperbolic),
    "atanh": _function(functions.arc_tangent_hyperbolic),
    "atan2": _function(functions.arc_tangent_of),
}
"""Opcode to how it is rewritten; others have no form on pairs."""
