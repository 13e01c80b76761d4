"""Elementwise operations on numpy arrays, each as its definition says.

Every operation computes in its own element type: narrow floats compute in f32 and round once to their type; operations
marked wide (the transcendentals) compute in f64 and round once, so that their error is about half an ulp.  Integers
wrap.  Integers of less than a byte compute in one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.values import complex_math
from systolith.compiler.hlo.values.bits import BIT_OPERATIONS, BitOperation
from systolith.compiler.hlo.values.convert import converted, store, to_working
from systolith.compiler.hlo.values.precision import reduce_precision, stochastic_convert
from systolith.isa.dtypes import Kind

Function = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Operation:
    """An operation on arrays of one working type.

    Attributes:
        function: takes and returns numpy arrays.
        wide: floats compute in f64, not f32.
    """

    function: Function
    wide: bool = False


def elementwise(i: Instruction, operands: Sequence[np.ndarray]) -> np.ndarray:
    """The value of an elementwise instruction; operands broadcast as numpy does."""
    special = _SPECIAL.get(i.opcode)
    if any(x.shape != o.dims and x.ndim == o.shape.rank for x, o in zip(operands, i.operands, strict=True)):
        operands = _fitted(i, operands)
    with np.errstate(all="ignore"):
        if special is not None:
            return np.asarray(special(i, *operands))
        operation = OPERATIONS.get(i.opcode)
        if operation is None:
            raise HloError(f"the evaluator does not implement {i.opcode!r}")
        source = i.operands[0].shape.dtype
        working = [to_working(x, source, operation.wide) for x in operands]
        return store(np.asarray(operation.function(*working)), i.shape.dtype)


def _fitted(i: Instruction, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Operands cut to the least of the dynamic sizes among them; of two operands, a dynamic size of 1 is repeated."""
    rank = max(x.ndim for x in operands)
    arrays = [(x, o.shape) for x, o in zip(operands, i.operands, strict=True) if x.ndim == rank]
    ends: list[int] = []
    for d in range(rank):
        sizes = {x.shape[d] for x, shape in arrays if any(shape.dynamic[d : d + 1]) or x.shape[d] != shape.dims[d]}
        if len(operands) == 2 and len(sizes) == 2:
            sizes.discard(1)
        ends.append(min(sizes, default=arrays[0][0].shape[d]))
    return [x[tuple(slice(0, n) for n in ends)] if x.ndim == rank else x for x in operands]


def _is_float(x: np.ndarray) -> bool:
    return x.dtype.kind == "f"


def _maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """NaN if either is; +0 is above -0."""
    result = np.asarray(np.maximum(a, b))
    zeros = (a == 0) & (b == 0) if _is_float(a) else np.False_
    return np.where(zeros, a + b, result) if zeros.any() else result


def _minimum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """NaN if either is; -0 is below +0."""
    result = np.asarray(np.minimum(a, b))
    zeros = (a == 0) & (b == 0) if _is_float(a) else np.False_
    return np.where(zeros, -((-a) + (-b)), result) if zeros.any() else result


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Integers truncate; x / 0 is all ones (-1); the lowest over -1 is the lowest."""
    if a.dtype.kind == "c":
        return complex_math.divide(a, b)
    if a.dtype.kind not in "iu":
        return np.asarray(np.divide(a, b))
    divisor = _safe_divisor(a, b)
    quotient: np.ndarray = (a - np.fmod(a, divisor)) // divisor
    return np.where(b == 0, ~np.zeros((), a.dtype), quotient)


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Sign of the dividend; of integers x rem 0 is x, and the lowest rem -1 is 0."""
    if a.dtype.kind not in "iu":
        return np.asarray(np.fmod(a, b))
    return np.where(b == 0, a, np.fmod(a, _safe_divisor(a, b)))


def _safe_divisor(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`b`, but 1 where the division would trap; a rem 1 is 0 and a / 1 is a, as wanted for the lowest over -1."""
    trap = b == 0
    if a.dtype.kind == "i":
        trap = trap | ((b == -1) & (a == np.iinfo(a.dtype).min))
    return np.where(trap, np.ones((), b.dtype), b)


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Integers wrap and take a (signed) exponent modulo 64, as XLA's; negative ones give 0 but for 1 and -1."""
    if a.dtype.kind not in "iu":
        return np.asarray(np.power(a, b))
    kind = a.dtype
    a, b = (x.view(f"i{x.dtype.itemsize}") for x in np.broadcast_arrays(a, b))
    result = np.ones(a.shape, a.dtype)
    square, exponent = a, np.where(b < 0, 0, b).astype(np.uint64) & np.uint64(63)
    while exponent.any():
        result = np.where(exponent & np.uint64(1), result * square, result)
        square = square * square
        exponent = exponent >> np.uint64(1)
    inverse = np.where(np.abs(a) == 1, np.where(b & 1, a, 1), 0)
    return np.where(b < 0, inverse, result).astype(a.dtype).view(kind)


def _sign(x: np.ndarray) -> np.ndarray:
    """-1, 0 or 1; zeros and NaN as they are."""
    return np.where(x == 0, x, np.sign(x)) if x.dtype.kind in "fc" else np.sign(x)


def _round_half_away(x: np.ndarray) -> np.ndarray:
    whole = np.trunc(x)
    away = np.where(np.abs(x - whole) >= 0.5, np.copysign(np.ones((), x.dtype), x), np.zeros((), x.dtype))
    return np.asarray(np.copysign(whole + away, x))


def _atan2(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Of complex numbers -i log((x + iy) / sqrt(x^2 + y^2))."""
    if x.dtype.kind != "c":
        return np.asarray(np.arctan2(y, x))
    return np.asarray(-1j * np.log((x + 1j * y) / np.sqrt(x * x + y * y)))


def _logistic(x: np.ndarray) -> np.ndarray:
    return _reciprocal(1 + np.exp(-x))


def _reciprocal(x: np.ndarray) -> np.ndarray:
    return _divide(np.ones((), x.dtype), x)


def _rsqrt(x: np.ndarray) -> np.ndarray:
    return _reciprocal(np.sqrt(x))


def _log1p(x: np.ndarray) -> np.ndarray:
    return complex_math.log1p(x) if x.dtype.kind == "c" else np.asarray(np.log1p(x))


def _expm1(x: np.ndarray) -> np.ndarray:
    return complex_math.expm1(x) if x.dtype.kind == "c" else np.asarray(np.expm1(x))


_ERF = np.frompyfunc(math.erf, 1, 1)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.asarray(_ERF(x), dtype=np.float64)


def _with_width(function: BitOperation) -> Callable[..., np.ndarray]:
    """An integer operation that needs to know the width of the type."""

    def run(i: Instruction, *operands: np.ndarray) -> np.ndarray:
        source = i.operands[0].shape.dtype
        working = [np.ascontiguousarray(to_working(x, source)) if x.ndim else to_working(x, source) for x in operands]
        return store(np.asarray(function(*working, source.bits)), i.shape.dtype)

    return run


_COMPARISONS: dict[str, Function] = {
    "EQ": np.equal, "NE": np.not_equal, "GE": np.greater_equal, "GT": np.greater, "LE": np.less_equal, "LT": np.less,
}  # fmt: skip


def total_order(x: np.ndarray) -> np.ndarray:
    """Floats as integers in the total order: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN."""
    if x.dtype.name == "float8_e8m0fnu":  # an exponent, without sign
        return np.asarray(x).view(np.uint8)
    bits = np.asarray(x).view(f"i{x.dtype.itemsize}")
    if x.dtype.name == "float4_e2m1fn":
        return np.asarray(np.where(bits & 8, ~(bits & 7), bits & 7))
    return np.asarray(bits ^ ((bits >> (8 * x.dtype.itemsize - 1)) & np.iinfo(bits.dtype).max))


def _compare(i: Instruction, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    dtype = i.operands[0].shape.dtype
    if dtype.kind is Kind.COMPLEX and i.word("direction") not in ("EQ", "NE"):
        raise HloError(f"complex numbers have no order: direction is EQ or NE, got {i.word('direction')}")
    if dtype.is_float and i.word("type", "FLOAT") == "TOTALORDER":
        a, b = total_order(a), total_order(b)
    else:
        a, b = to_working(a, dtype), to_working(b, dtype)
    return _COMPARISONS[i.word("direction")](a, b)


def _select(i: Instruction, predicate: np.ndarray, on_true: np.ndarray, on_false: np.ndarray) -> np.ndarray:
    return np.where(predicate, on_true, on_false)


def _clamp(i: Instruction, low: np.ndarray, value: np.ndarray, high: np.ndarray) -> np.ndarray:
    a, x, b = (to_working(v, i.shape.dtype) for v in (low, value, high))
    return store(_minimum(_maximum(x, a), b), i.shape.dtype)


def _convert(i: Instruction, x: np.ndarray) -> np.ndarray:
    return converted(x, i.operands[0].shape.dtype, i.shape.dtype)


def _complex(real: np.ndarray, imag: np.ndarray) -> np.ndarray:
    shape = np.broadcast_shapes(real.shape, imag.shape)
    result = np.empty(shape, np.complex64 if real.dtype.itemsize == 4 else np.complex128)
    result.real, result.imag = real, imag
    return result


def _not(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.logical_not(x) if x.dtype.kind == "b" else np.invert(x))


OPERATIONS: dict[str, Operation] = {
    "add": Operation(np.add),
    "subtract": Operation(np.subtract),
    "multiply": Operation(np.multiply),
    "divide": Operation(_divide),
    "remainder": Operation(_remainder),
    "maximum": Operation(_maximum),
    "minimum": Operation(_minimum),
    "power": Operation(_power, wide=True),
    "atan2": Operation(_atan2, wide=True),
    "and": Operation(np.bitwise_and),
    "or": Operation(np.bitwise_or),
    "xor": Operation(np.bitwise_xor),
    "not": Operation(_not),
    "negate": Operation(np.negative),
    "abs": Operation(np.abs),
    "sign": Operation(_sign),
    "floor": Operation(np.floor),
    "ceil": Operation(np.ceil),
    "round-nearest-even": Operation(np.rint),
    "round-nearest-afz": Operation(_round_half_away),
    "sqrt": Operation(np.sqrt),
    "rsqrt": Operation(_rsqrt, wide=True),
    "cbrt": Operation(np.cbrt, wide=True),
    "exponential": Operation(np.exp, wide=True),
    "exponential-minus-one": Operation(_expm1, wide=True),
    "log": Operation(np.log, wide=True),
    "log-plus-one": Operation(_log1p, wide=True),
    "logistic": Operation(_logistic, wide=True),
    "erf": Operation(_erf, wide=True),
    "sine": Operation(np.sin, wide=True),
    "cosine": Operation(np.cos, wide=True),
    "tan": Operation(np.tan, wide=True),
    "tanh": Operation(np.tanh, wide=True),
    "sinh": Operation(np.sinh, wide=True),
    "cosh": Operation(np.cosh, wide=True),
    "asin": Operation(np.arcsin, wide=True),
    "acos": Operation(np.arccos, wide=True),
    "atan": Operation(np.arctan, wide=True),
    "asinh": Operation(np.arcsinh, wide=True),
    "acosh": Operation(np.arccosh, wide=True),
    "atanh": Operation(np.arctanh, wide=True),
    "is-finite": Operation(np.isfinite),
    "real": Operation(np.real),
    "imag": Operation(np.imag),
    "complex": Operation(_complex),
}
"""Operations whose operands have one type and which need nothing but their values."""

_SPECIAL: dict[str, Callable[..., np.ndarray]] = {
    "compare": _compare,
    "select": _select,
    "clamp": _clamp,
    "convert": _convert,
    "copy": lambda i, x: x,
    "reduce-precision": reduce_precision,
    "stochastic-convert": stochastic_convert,
    **{opcode: _with_width(function) for opcode, function in BIT_OPERATIONS.items()},
}
"""Operations that read the instruction's attributes or types."""

ELEMENTWISE = frozenset({*OPERATIONS, *_SPECIAL})
