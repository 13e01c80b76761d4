"""Shape rules of elementwise operations."""

from __future__ import annotations

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.opcodes import ELEMENTWISE_BINARY, ELEMENTWISE_UNARY
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.hlo.shape_rules import Infer, listed, operand_shapes, require, same_dims
from systolith.isa.dtypes import DTYPES, PRED, DType, Kind


def _kinds(*kinds: Kind) -> frozenset[Kind]:
    return frozenset(kinds)


_NUMBERS = _kinds(Kind.SIGNED, Kind.UNSIGNED, Kind.FLOAT, Kind.COMPLEX)
_INTEGERS = _kinds(Kind.SIGNED, Kind.UNSIGNED)
_BITWISE = _kinds(Kind.PRED, Kind.SIGNED, Kind.UNSIGNED)
_FLOATS = _kinds(Kind.FLOAT)
_ANALYTIC = _kinds(Kind.FLOAT, Kind.COMPLEX)
_ORDERED = _kinds(Kind.PRED, Kind.SIGNED, Kind.UNSIGNED, Kind.FLOAT, Kind.COMPLEX)

# Sorts of element that an elementwise operation takes.
_ALLOWED: dict[str, frozenset[Kind]] = {
    **dict.fromkeys("add multiply maximum minimum".split(), _ORDERED),
    **dict.fromkeys("subtract divide power negate abs sign".split(), _NUMBERS),
    "remainder": _kinds(Kind.SIGNED, Kind.UNSIGNED, Kind.FLOAT),
    **dict.fromkeys("and or xor not".split(), _BITWISE),
    **dict.fromkeys("shift-left shift-right-arithmetic shift-right-logical".split(), _INTEGERS),
    **dict.fromkeys(("popcnt", "count-leading-zeros"), _INTEGERS),
    **dict.fromkeys(
        """exponential exponential-minus-one log log-plus-one logistic rsqrt sqrt sine cosine tan tanh cosh sinh acos
        acosh asin asinh atanh atan2""".split(),
        _ANALYTIC,
    ),
    **dict.fromkeys(
        "cbrt ceil floor round-nearest-afz round-nearest-even is-finite erf complex reduce-precision".split(), _FLOATS
    ),
}  # fmt: skip


def _check_kind(i: Instruction, dtype: DType) -> None:
    allowed = _ALLOWED.get(i.opcode)
    if allowed is not None and dtype.kind not in allowed:
        raise HloError(f"takes {' or '.join(sorted(allowed))} elements, got {dtype}")


def _elementwise(i: Instruction) -> Shape:
    shape = same_dims(i)
    shapes = operand_shapes(i)
    require(len({s.dtype for s in shapes}) == 1, f"operands have one element type, got {listed(shapes)}")
    _check_kind(i, shape.dtype)
    return shape


def _typed_elementwise(dtype: DType) -> Infer:
    """Elementwise, with another element type."""
    return lambda i: array(dtype, _elementwise(i).dims)


_PART = {"c64": "f32", "c128": "f64"}
_WHOLE = {"f32": "c64", "f64": "c128"}


def _real_part(i: Instruction) -> Shape:
    """abs, real, imag: a complex number gives a real one."""
    shape = _elementwise(i)
    return array(DTYPES[_PART.get(shape.dtype.name, shape.dtype.name)], shape.dims)


def _complex(i: Instruction) -> Shape:
    shape = _elementwise(i)
    require(shape.dtype.name in _WHOLE, f"takes f32 or f64 elements, got {shape.dtype}")
    return array(DTYPES[_WHOLE[shape.dtype.name]], shape.dims)


def _convert(i: Instruction) -> Shape:
    return array(i.shape.dtype, same_dims(i).dims)


def _copy(i: Instruction) -> Shape:
    return i.operands[0].shape


def _select(i: Instruction) -> Shape:
    condition, on_true, on_false = operand_shapes(i)
    require(on_true.same(on_false), f"both choices have one shape, got {on_true} and {on_false}")
    require(condition.is_array and condition.dtype == PRED, f"the predicate is pred, got {condition}")
    fits = condition.rank == 0 or condition.dims == on_true.dims
    require(fits, f"predicate {condition} is a scalar or fits {on_true}")
    return on_true


def _clamp(i: Instruction) -> Shape:
    low, value, high = operand_shapes(i)
    for bound in (low, high):
        require(bound.dtype == value.dtype, f"bounds have the element type of {value}, got {bound}")
        require(bound.rank == 0 or bound.dims == value.dims, f"bound {bound} is a scalar or fits {value}")
    return value


_DIRECTIONS = frozenset("EQ NE GE GT LE LT".split())


def _compare(i: Instruction) -> Shape:
    require(i.word("direction") in _DIRECTIONS, f"direction is one of {', '.join(sorted(_DIRECTIONS))}")
    return array(PRED, _elementwise(i).dims)


ELEMENTWISE_RULES: dict[str, Infer] = {
    **dict.fromkeys((ELEMENTWISE_UNARY | ELEMENTWISE_BINARY) - {"stochastic-convert", "bitcast-convert"}, _elementwise),
    **dict.fromkeys(("abs", "real", "imag"), _real_part),
    "is-finite": _typed_elementwise(PRED),
    "complex": _complex,
    "convert": _convert,
    "copy": _copy,
    "select": _select,
    "clamp": _clamp,
    "compare": _compare,
}
"""Opcode to rule."""
