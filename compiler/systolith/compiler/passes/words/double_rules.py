"""Rewrite rules of operations on f64, on the two words of its bits.

Results are those of IEEE 754, rounded to the nearest even number; of a NaN only that it is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.words import double_arithmetic as arithmetic
from systolith.compiler.passes.words import double_converts as converts
from systolith.compiler.passes.words import double_functions as functions
from systolith.compiler.passes.words import double_inverses as inverses
from systolith.compiler.passes.words import double_trigonometry as trigonometry
from systolith.compiler.passes.words.double_bits import BIAS, INFINITY, PLACE, is_nan, is_zero, order, sign, size
from systolith.compiler.passes.words.double_erf import erf
from systolith.compiler.passes.words.pairs import PairRewriter, PairRule, Value, one, pair
from systolith.compiler.passes.words.word_formulas import Flag, Wide, Word
from systolith.isa.dtypes import DTYPES, F32, PRED, U32, Kind

F64 = DTYPES["f64"]


def is_double(shape: Shape) -> bool:
    """Whether it is an array of f64."""
    return shape.is_array and shape.dtype is F64


def on_doubles(i: Instruction) -> bool:
    """Whether an instruction takes or gives f64."""
    return is_double(i.shape) or any(is_double(o.shape) for o in i.operands)


def _function(function: Callable[..., Wide | Flag]) -> PairRule:
    """The rule of a function of numbers; scalars among them are repeated."""

    def rule(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
        given = []
        for words in map(pair, operands):
            if words[0].dims != i.dims:
                words = r.spread(words[0], array(U32, i.dims)), r.spread(words[1], array(U32, i.dims))
            given.append(Wide.of(r, words))
        made = function(*given)
        return made.i if isinstance(made, Flag) else made.pair

    return PairRule(rule)


def _abs(x: Wide) -> Wide:
    return Wide(x.low, size(x))


def _sign(x: Wide) -> Wide:
    """Of zeros and NaN themselves."""
    own = is_zero(x) | is_nan(x)
    return x.where(own, Wide(x.low.like(0), sign(x) | BIAS << PLACE))


def _reciprocal_root(x: Wide) -> Wide:
    """Rounded twice."""
    one = Wide(x.low.like(0), x.high.like(BIAS << PLACE))
    return arithmetic.divide(one, arithmetic.square_root(x))


def _is_finite(x: Wide) -> Flag:
    return size(x).flag("LT", INFINITY)


def _maximum(x: Wide, y: Wide) -> Wide:
    """NaN if either is; +0 is above -0."""
    return x.where(is_nan(x) | ~(is_nan(y) | order(x).less(order(y))), y)


def _minimum(x: Wide, y: Wide) -> Wide:
    return x.where(is_nan(x) | ~(is_nan(y) | order(y).less(order(x))), y)


def _clamp(low: Wide, x: Wide, high: Wide) -> Wide:
    return _minimum(_maximum(low, x), high)


def _compare(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    x, y = (Wide.of(r, pair(v)) for v in operands)
    direction = i.word("direction")
    if i.word("type", "FLOAT") == "TOTALORDER":
        return _compared(direction, x, y).i
    zeros = (((x.high | y.high) << 1) | x.low | y.low).flag("EQ", 0)
    same = _compared("EQ", x, y) if direction in ("EQ", "NE") else _compared(direction, x, y)
    made = same & ~zeros if direction in ("LT", "GT") else same | zeros
    made = made & ~(is_nan(x) | is_nan(y))
    return (~made if direction == "NE" else made).i


def _compared(direction: str, x: Wide, y: Wide) -> Flag:
    """In total order."""
    if direction in ("EQ", "NE"):
        same = x.low.flag("EQ", y.low) & x.high.flag("EQ", y.high)
        return same if direction == "EQ" else ~same
    a, b = (x, y) if direction in ("LT", "GE") else (y, x)
    less = order(a).less(order(b))
    return less if direction in ("LT", "GT") else ~less


def _convert(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    source, target = i.operands[0].shape.dtype, i.shape.dtype
    if source == target:
        return operands[0]
    if source is F64:
        x = Wide.of(r, pair(operands[0]))
        if target is PRED:
            return converts.to_pred(x).i
        if target.is_float:
            return converts.to_float(x).converted(target).i
        return (
            converts.to_wide(x, target).pair
            if target.bits == 64
            else r.converted(converts.to_word(x, target).i, target)
        )
    if source.is_float:
        return converts.of_float(Real(r, one(operands[0])).converted(F32)).pair
    signed = source.kind is Kind.SIGNED
    if source.bits == 64:
        number = Wide.of(r, pair(operands[0]))
        return converts.of_wide(number, number.high.sign if signed else None).pair
    word = Word(r, one(operands[0])).converted(U32)
    return converts.of_word(word, word.sign if signed else None).pair


def _remainder(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    x, y = (Wide.of(r, pair(v)) for v in operands)
    return arithmetic.remainder(r, x, y).pair


def _reduce_precision(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    """The bits, as an integer, to the nearest number of few mantissa bits; beyond the exponents infinity or 0."""
    x = Wide.of(r, pair(operands[0]))
    exponents, fraction = i.integer("exponent_bits"), i.integer("mantissa_bits")
    made = Wide(x.low, size(x))
    if fraction < 52:
        dropped = 52 - fraction
        odd = (made >> dropped).low & 1
        made = (((made + made.like((1 << dropped - 1) - 1)).plus(odd)) >> dropped) << dropped
    if exponents < 11:
        bias = (1 << (exponents - 1)) - 1
        field = made.high >> PLACE
        zero, infinite = made.like(0), made.like(INFINITY << 32)
        made = infinite.where(field.flag("GT", BIAS + bias), made)
        made = zero.where(field.flag("LE", BIAS - bias), made)
    return x.where(is_nan(x), Wide(made.low, made.high | sign(x))).pair


def _takes_convert(i: Instruction) -> bool:
    return all(s.dtype.kind is not Kind.COMPLEX for s in (i.shape, i.operands[0].shape))


def _iota(r: PairRewriter, i: Instruction, operands: Sequence[Value]) -> Value:
    return converts.of_word(Word(r, r.like(i, [], array(U32, i.dims))), None).pair


RULES: dict[str, PairRule] = {
    "iota": PairRule(_iota),
    "negate": _function(arithmetic.negate),
    "abs": _function(_abs),
    "sign": _function(_sign),
    "add": _function(arithmetic.add),
    "subtract": _function(arithmetic.subtract),
    "multiply": _function(arithmetic.multiply),
    "divide": _function(arithmetic.divide),
    "remainder": PairRule(_remainder),
    "sqrt": _function(arithmetic.square_root),
    "exponential": _function(functions.exponential),
    "exponential-minus-one": _function(functions.exponential_minus_one),
    "log": _function(functions.log),
    "log-plus-one": _function(functions.log_plus_one),
    "logistic": _function(functions.logistic),
    "tanh": _function(functions.tanh),
    "sinh": _function(functions.sinh),
    "cosh": _function(functions.cosh),
    "atanh": _function(functions.atanh),
    "cbrt": _function(functions.cbrt),
    "power": _function(functions.power),
    "sine": _function(trigonometry.sine),
    "cosine": _function(trigonometry.cosine),
    "tan": _function(trigonometry.tangent),
    "atan2": _function(inverses.atan2),
    "atan": _function(inverses.atan),
    "asin": _function(inverses.asin),
    "acos": _function(inverses.acos),
    "asinh": _function(inverses.asinh),
    "acosh": _function(inverses.acosh),
    "erf": _function(erf),
    "rsqrt": _function(_reciprocal_root),
    "floor": _function(arithmetic.floor),
    "ceil": _function(arithmetic.ceil),
    "round-nearest-even": _function(arithmetic.round_even),
    "round-nearest-afz": _function(arithmetic.round_away),
    "is-finite": _function(_is_finite),
    "maximum": _function(_maximum),
    "minimum": _function(_minimum),
    "clamp": _function(_clamp),
    "compare": PairRule(_compare),
    "reduce-precision": PairRule(_reduce_precision),
    "convert": PairRule(_convert, _takes_convert),
}
"""Opcode to how it is rewritten where it takes or gives f64; what has no row moves words."""
