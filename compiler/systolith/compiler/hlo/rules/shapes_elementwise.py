"""Shape rules of elementwise operations."""

from __future__ import annotations

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.opcodes import ELEMENTWISE_BINARY, ELEMENTWISE_UNARY
from systolith.compiler.hlo.rules.shape_rules import (
    Infer,
    arrays,
    dims_agree,
    flags_of,
    higher_precision,
    listed,
    require,
    require_kind,
    retyped,
    sized,
    types_agree,
)
from systolith.compiler.hlo.shape import UNBOUNDED, Shape
from systolith.isa.dtypes import DTYPES, PRED, Kind


def _kinds(*kinds: Kind) -> frozenset[Kind]:
    return frozenset(kinds)


_ANY = frozenset(Kind)
_NUMBERS = _ANY - {Kind.PRED}
_INTEGERS = _kinds(Kind.SIGNED, Kind.UNSIGNED)
_FLOATS = _kinds(Kind.FLOAT)
_ANALYTIC = _kinds(Kind.FLOAT, Kind.COMPLEX)

# Sorts of element that an elementwise operation takes.
_ALLOWED: dict[str, frozenset[Kind]] = {
    **dict.fromkeys("subtract divide power negate".split(), _NUMBERS),
    **dict.fromkeys(("abs", "sign"), _NUMBERS - {Kind.UNSIGNED}),
    "remainder": _NUMBERS - {Kind.COMPLEX},
    **dict.fromkeys("and or xor not".split(), _INTEGERS | {Kind.PRED}),
    **dict.fromkeys("shift-left shift-right-arithmetic shift-right-logical".split(), _INTEGERS),
    **dict.fromkeys(("popcnt", "count-leading-zeros", "mulhi"), _INTEGERS),
    **dict.fromkeys(
        """exponential exponential-minus-one log log-plus-one logistic rsqrt sqrt sine cosine tan tanh cosh sinh acos
        acosh asin asinh atan atanh atan2 real imag""".split(),
        _ANALYTIC,
    ),
    **dict.fromkeys(
        "cbrt ceil floor round-nearest-afz round-nearest-even is-finite erf complex reduce-precision".split(), _FLOATS
    ),
}  # fmt: skip


def _elementwise(i: Instruction) -> Shape:
    """Operands of one shape, and of one element type but for the precision of floats."""
    shapes = [o.shape for o in i.operands]
    first = shapes[0]
    if first.element is None:
        raise HloError(f"operands are arrays, got {listed(shapes)}")
    for other in shapes[1:]:
        if other is not first:
            first = _merge(first, other, shapes)
    allowed = _ALLOWED.get(i.opcode)
    if allowed is not None and first.dtype.kind not in allowed:
        require_kind(first.dtype, allowed)
    return first


def _merge(a: Shape, b: Shape, shapes: list[Shape]) -> Shape:
    """The result shape of two operands: of two sizes the bounded one, of two floats the more precise."""
    if a.element is None or b.element is None:
        raise HloError(f"operands are arrays, got {listed(shapes)}")
    if a.dims == b.dims and a.element is b.element and not b.dynamic:
        return a
    require(dims_agree(a.dims, b.dims), f"operands have equal sizes, got {listed(shapes)}")
    require(types_agree(a.element, b.element), f"operands have one element type, got {listed(shapes)}")
    pairs = zip(a.dims, b.dims, flags_of(a), flags_of(b), strict=True)
    merged = [_merge_size(*pair) for pair in pairs]
    return sized(higher_precision(a.element, b.element), [n for n, _ in merged], [flag for _, flag in merged])


def _merge_size(a: int, b: int, a_dynamic: bool, b_dynamic: bool) -> tuple[int, bool]:
    if a == b:
        return a, a_dynamic or b_dynamic
    return (b, b_dynamic) if a == UNBOUNDED else (a, a_dynamic)


_WHOLE = {"f32": "c64", "f64": "c128"}


def _real_part(i: Instruction) -> Shape:
    """abs, real, imag: a complex number gives a real one."""
    shape = _elementwise(i)
    return retyped(shape, shape.dtype.part)


def _complex(i: Instruction) -> Shape:
    shape = _elementwise(i)
    require(shape.dtype.name in _WHOLE, f"takes f32 or f64 elements, got {shape.dtype}")
    types = {o.shape.dtype for o in i.operands}
    require(len(types) == 1, f"both parts have one element type, got {listed(o.shape for o in i.operands)}")
    return retyped(shape, DTYPES[_WHOLE[shape.dtype.name]])


def _is_finite(i: Instruction) -> Shape:
    return retyped(_elementwise(i), PRED)


def _convert(i: Instruction) -> Shape:
    return retyped(arrays(i)[0], i.shape.dtype)


def _stochastic_convert(i: Instruction) -> Shape:
    shape, bits = arrays(i)
    require_kind(shape.dtype, _FLOATS, "converts")
    fits = bits.dtype.kind is Kind.UNSIGNED and bits.dtype.bits == shape.dtype.bits and bits.dims == shape.dims
    require(fits, f"random bits are unsigned and have width and sizes of {shape}, got {bits}")
    return retyped(shape, i.shape.dtype)


def _reduce_precision(i: Instruction) -> Shape:
    exponent, mantissa = i.integer("exponent_bits"), i.integer("mantissa_bits")
    require(exponent >= 1, f"exponent_bits is at least 1, got {exponent}")
    require(mantissa >= 0, f"mantissa_bits is at least 0, got {mantissa}")
    return _elementwise(i)


def _copy(i: Instruction) -> Shape:
    return i.operands[0].shape


def _select(i: Instruction) -> Shape:
    shapes = arrays(i)
    condition, on_true, on_false = shapes
    # Selects are many in long code: text is made only of what is wrong.
    if not (types_agree(on_true.dtype, on_false.dtype) and dims_agree(on_true.dims, on_false.dims)):
        raise HloError(f"both choices have one shape, got {on_true} and {on_false}")
    if condition.dtype is not PRED:
        raise HloError(f"the predicate is pred, got {condition}")
    if condition.dims and not all(dims_agree(condition.dims, c.dims) for c in (on_true, on_false)):
        raise HloError(f"predicate {condition} is a scalar or has the sizes of {on_true} and {on_false}")
    chosen = _merge(on_true, on_false, shapes)
    if not condition.dynamic:
        return chosen
    # As in XLA the predicate's sizes are the result's, but where a choice has no bound.
    flags = zip(flags_of(condition), flags_of(chosen), strict=True)
    loose = [UNBOUNDED in pair for pair in zip(on_true.dims, on_false.dims, strict=True)]
    dims = [c if free else p for p, c, free in zip(condition.dims, chosen.dims, loose, strict=True)]
    return sized(chosen.dtype, dims, [c or (p and not free) for (p, c), free in zip(flags, loose, strict=True)])


def _clamp(i: Instruction) -> Shape:
    low, value, high = arrays(i)
    for bound in (low, high):
        require(types_agree(bound.dtype, value.dtype), f"bounds have the element type of {value}, got {bound}")
        fits = not bound.dims or dims_agree(bound.dims, value.dims)
        require(fits, f"bound {bound} is a scalar or has the sizes of {value}")
    both = not low.dims or not high.dims or dims_agree(low.dims, high.dims)
    require(both, f"bounds that are no scalars have equal sizes, got {low} and {high}")
    return value


_DIRECTIONS = frozenset("EQ NE GE GT LE LT".split())

_TYPES: dict[Kind, tuple[str, ...]] = {
    Kind.FLOAT: ("FLOAT", "TOTALORDER"),
    Kind.COMPLEX: ("FLOAT",),
    Kind.SIGNED: ("SIGNED",),
    Kind.UNSIGNED: ("UNSIGNED",),
    Kind.PRED: ("UNSIGNED",),
}


def _compare(i: Instruction) -> Shape:
    direction = i.word("direction")
    if direction not in _DIRECTIONS:
        raise HloError(f"direction is one of {', '.join(sorted(_DIRECTIONS))}, got {direction}")
    shape = _elementwise(i)
    types = _TYPES[shape.dtype.kind]
    kind = i.attributes.get("type")
    if kind is not None and kind not in types:
        raise HloError(f"type is {' or '.join(types)} for {shape.dtype}, got {kind}")
    return retyped(shape, PRED)


ELEMENTWISE_RULES: dict[str, Infer] = {
    **dict.fromkeys((ELEMENTWISE_UNARY | ELEMENTWISE_BINARY) - {"bitcast-convert"}, _elementwise),
    **dict.fromkeys(("abs", "real", "imag"), _real_part),
    "is-finite": _is_finite,
    "complex": _complex,
    "convert": _convert,
    "stochastic-convert": _stochastic_convert,
    "reduce-precision": _reduce_precision,
    "copy": _copy,
    "select": _select,
    "clamp": _clamp,
    "compare": _compare,
}
"""Opcode to rule."""
