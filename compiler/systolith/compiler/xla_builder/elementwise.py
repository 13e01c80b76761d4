"""Elementwise operations, with the builder's implicit broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.shape import array
from systolith.compiler.xla_builder.arguments import Ints, PrimitiveType, element_type, integer
from systolith.compiler.xla_builder.broadcasting import Broadcasting
from systolith.compiler.xla_builder.op import Operand, XlaOp
from systolith.isa.dtypes import Kind

_Unary: TypeAlias = Callable[["Elementwise", XlaOp], XlaOp]


def _unary(name: str, opcode: str, meaning: str) -> _Unary:
    def method(self: Elementwise, operand: XlaOp) -> XlaOp:
        return self._emit(opcode, [operand])

    return _named(method, name, meaning)


def _named(method: Callable[..., XlaOp], name: str, meaning: str) -> Callable[..., XlaOp]:
    method.__name__, method.__qualname__, method.__doc__ = name, f"Elementwise.{name}", meaning
    return method


_Binary: TypeAlias = Callable[..., XlaOp]


def _binary(name: str, opcode: str, meaning: str) -> _Binary:
    def method(self: Elementwise, lhs: Operand, rhs: Operand, broadcast_dimensions: Ints = ()) -> XlaOp:
        return self._emit(opcode, self._match(self._operands(lhs, rhs), broadcast_dimensions))

    return _named(method, name, meaning)


def _comparison(name: str, direction: str, total_order: bool = False) -> _Binary:
    def method(self: Elementwise, lhs: Operand, rhs: Operand, broadcast_dimensions: Ints = ()) -> XlaOp:
        matched = self._match(self._operands(lhs, rhs), broadcast_dimensions)
        kind = self._instruction(matched[0]).shape.dtype.kind
        total = total_order and kind in (Kind.FLOAT, Kind.COMPLEX)
        return self._emit("compare", matched, direction=direction, type="TOTALORDER" if total else None)

    order = ", with -NaN < -inf < ... < -0 < +0 < ... < inf < NaN" if total_order else ""
    return _named(method, name, f"Whether lhs {direction} rhs{order}.")


class Elementwise(Broadcasting):
    """Operations on each element.

    Binary ones take a value or a number on either side, and `broadcast_dimensions` where the operands have different
    numbers of dimensions.
    """

    abs = _unary("abs", "abs", "|x|; of a complex number the real magnitude.")
    acos = _unary("acos", "acos", "Inverse cosine.")
    acosh = _unary("acosh", "acosh", "Inverse hyperbolic cosine.")
    asin = _unary("asin", "asin", "Inverse sine.")
    asinh = _unary("asinh", "asinh", "Inverse hyperbolic sine.")
    atanh = _unary("atanh", "atanh", "Inverse hyperbolic tangent.")
    cbrt = _unary("cbrt", "cbrt", "Cube root.")
    ceil = _unary("ceil", "ceil", "Rounds up.")
    clz = _unary("clz", "count-leading-zeros", "Number of leading zeros of an integer.")
    cos = _unary("cos", "cosine", "Cosine.")
    cosh = _unary("cosh", "cosh", "Hyperbolic cosine.")
    erf = _unary("erf", "erf", "Error function.")
    exp = _unary("exp", "exponential", "e^x.")
    expm1 = _unary("expm1", "exponential-minus-one", "e^x - 1.")
    floor = _unary("floor", "floor", "Rounds down.")
    imag = _unary("imag", "imag", "Imaginary part; 0 of a real number.")
    is_finite = _unary("is_finite", "is-finite", "Whether neither infinite nor NaN.")
    log = _unary("log", "log", "Natural logarithm.")
    log1p = _unary("log1p", "log-plus-one", "ln(1 + x).")
    logistic = _unary("logistic", "logistic", "1 / (1 + e^-x).")
    neg = _unary("neg", "negate", "-x.")
    not_ = _unary("not_", "not", "Not: logical of pred, of each bit of integers.")
    population_count = _unary("population_count", "popcnt", "Number of bits that are set.")
    real = _unary("real", "real", "Real part; a real number itself.")
    round = _unary("round", "round-nearest-afz", "Rounds to the nearest integer, halves away from zero.")
    round_nearest_even = _unary("round_nearest_even", "round-nearest-even", "Rounds to the nearest, halves to even.")
    rsqrt = _unary("rsqrt", "rsqrt", "1 / sqrt(x).")
    sign = _unary("sign", "sign", "-1, 0 or 1; -0 and NaN stay.")
    sin = _unary("sin", "sine", "Sine.")
    sinh = _unary("sinh", "sinh", "Hyperbolic sine.")
    sqrt = _unary("sqrt", "sqrt", "Square root.")
    tan = _unary("tan", "tan", "Tangent.")
    tanh = _unary("tanh", "tanh", "Hyperbolic tangent.")
    copy = _unary("copy", "copy", "The operand, in memory of its own.")

    add = _binary("add", "add", "lhs + rhs; of pred, or.")
    atan2 = _binary("atan2", "atan2", "Angle of the point (rhs, lhs).")
    complex = _binary("complex", "complex", "The complex number of real and imaginary parts.")
    div = _binary("div", "divide", "lhs / rhs; of integers, rounded to zero.")
    max = _binary("max", "maximum", "The greater; NaN if either is.")
    min = _binary("min", "minimum", "The smaller; NaN if either is.")
    mul = _binary("mul", "multiply", "lhs * rhs; of pred, and.")
    pow = _binary("pow", "power", "lhs to the power rhs.")
    rem = _binary("rem", "remainder", "Remainder of the division, with the dividend's sign.")
    shift_left = _binary("shift_left", "shift-left", "lhs * 2^rhs; 0 where rhs is not a bit's number.")
    shift_right_arithmetic = _binary("shift_right_arithmetic", "shift-right-arithmetic", "Shift that keeps the sign.")
    shift_right_logical = _binary("shift_right_logical", "shift-right-logical", "Shift that fills with zeros.")
    sub = _binary("sub", "subtract", "lhs - rhs.")
    xor = _binary("xor", "xor", "Exclusive or, of pred or of each bit.")

    eq = _comparison("eq", "EQ")
    ne = _comparison("ne", "NE")
    ge = _comparison("ge", "GE")
    gt = _comparison("gt", "GT")
    le = _comparison("le", "LE")
    lt = _comparison("lt", "LT")
    eq_total_order = _comparison("eq_total_order", "EQ", total_order=True)
    ne_total_order = _comparison("ne_total_order", "NE", total_order=True)
    ge_total_order = _comparison("ge_total_order", "GE", total_order=True)
    gt_total_order = _comparison("gt_total_order", "GT", total_order=True)
    le_total_order = _comparison("le_total_order", "LE", total_order=True)
    lt_total_order = _comparison("lt_total_order", "LT", total_order=True)

    def compare(
        self,
        lhs: Operand,
        rhs: Operand,
        broadcast_dimensions: Ints = (),
        direction: str = "EQ",
        type: str | None = None,
    ) -> XlaOp:
        """A comparison whose direction (EQ, NE, GE, GT, LE, LT) and type (FLOAT, TOTALORDER, ...) are arguments."""
        return self._emit(
            "compare", self._match(self._operands(lhs, rhs), broadcast_dimensions), direction=direction, type=type
        )

    def and_(self, lhs: Operand, rhs: Operand, *rest: Operand | Ints) -> XlaOp:
        """And, of pred or of each bit; of two operands and perhaps broadcast_dimensions, or of more operands."""
        return self._folded("and", lhs, rhs, rest)

    def or_(self, lhs: Operand, rhs: Operand, *rest: Operand | Ints) -> XlaOp:
        """Or, of pred or of each bit; of two operands and perhaps broadcast_dimensions, or of more operands."""
        return self._folded("or", lhs, rhs, rest)

    def _folded(self, opcode: str, lhs: Operand, rhs: Operand, rest: tuple[Operand | Ints, ...]) -> XlaOp:
        """op(lhs, op(rhs, op(...)))."""
        if len(rest) == 1 and isinstance(rest[0], list | tuple):
            return self._emit(opcode, self._match(self._operands(lhs, rhs), rest[0]))
        *before, found = self._operands(lhs, rhs, *rest)  # type: ignore[arg-type]
        for operand in reversed(before):
            found = self._emit(opcode, self._match([operand, found], ()))
        return found

    def conj(self, operand: XlaOp) -> XlaOp:
        """Complex conjugate."""
        return self.complex(self.real(operand), self.neg(self.imag(operand)))

    def square(self, operand: XlaOp) -> XlaOp:
        """The operand times itself."""
        return self.mul(operand, operand)

    def reciprocal(self, operand: XlaOp) -> XlaOp:
        """1 / x."""
        return self.div(self.scalar_like(operand, 1), operand)

    def sqrt_f32(self, operand: XlaOp) -> XlaOp:
        """Square root of f32."""
        return self.sqrt(self._f32(operand))

    def square_f32(self, operand: XlaOp) -> XlaOp:
        """The operand, of f32, times itself."""
        return self.square(self._f32(operand))

    def reciprocal_f32(self, operand: XlaOp) -> XlaOp:
        """1 / x of f32."""
        return self.reciprocal(self._f32(operand))

    def _f32(self, operand: XlaOp) -> XlaOp:
        shape = self._instruction(operand).shape
        if not shape.is_array or shape.dtype.name != "f32":
            raise HloError(f"takes f32 elements, got {shape}")
        return operand

    def convert_element_type(self, operand: XlaOp, new_element_type: PrimitiveType) -> XlaOp:
        """Each element converted to another type."""
        dims = self._dims(operand)
        return self._emit("convert", [operand], array(element_type(new_element_type), dims))

    def bitcast_convert_type(self, operand: XlaOp, new_element_type: PrimitiveType) -> XlaOp:
        """The same bits as another type; a narrower one gains a minor dimension, a wider one takes it away."""
        dims = self._dims(operand)
        return self._emit("bitcast-convert", [operand], array(element_type(new_element_type), dims))

    def stochastic_convert_type(self, operand: XlaOp, random: XlaOp, new_element_type: PrimitiveType) -> XlaOp:
        """Each element converted to another type, rounded up or down as random bits say."""
        dims = self._dims(operand)
        return self._emit("stochastic-convert", [operand, random], array(element_type(new_element_type), dims))

    def reduce_precision(self, operand: XlaOp, exponent_bits: int, mantissa_bits: int) -> XlaOp:
        """Each element rounded to a format with so many bits, and back."""
        return self._emit(
            "reduce-precision",
            [operand],
            exponent_bits=integer(exponent_bits, "exponent_bits"),
            mantissa_bits=integer(mantissa_bits, "mantissa_bits"),
        )

    def clamp(self, min: Operand, operand: Operand, max: Operand) -> XlaOp:
        """min(max(operand, min), max); a scalar goes with an array."""
        return self._emit("clamp", self._spread(self._operands(min, operand, max)))

    def select(self, pred: XlaOp, on_true: Operand, on_false: Operand) -> XlaOp:
        """Elements of `on_true` where `pred`, else of `on_false`; a scalar goes with an array.

        A scalar predicate selects between tuples too, element by element.
        """
        if isinstance(on_true, XlaOp) and self._instruction(on_true).shape.is_tuple:
            return self._select_tuple(pred, on_true, on_false)
        either = self._operands(*(o for o in (on_true, on_false, pred) if isinstance(o, XlaOp)))[0]
        filled = [o if isinstance(o, XlaOp) else self._operands(either, o)[1] for o in (on_true, on_false)]
        return self._emit("select", self._spread([pred, *filled]))

    def _select_tuple(self, pred: XlaOp, on_true: XlaOp, on_false: Operand) -> XlaOp:
        if not isinstance(on_false, XlaOp) or not self._instruction(on_false).shape.same(on_true.shape):
            raise HloError(f"both choices have one shape, {on_true.shape}")
        if self._dims(pred):
            raise HloError(f"the predicate of tuples is a scalar, got {pred.shape}")
        parts: list[XlaOp] = []
        for index, shape in enumerate(on_true.shape.elements):
            chosen = [self._emit("get-tuple-element", [o], shape, index=index) for o in (on_true, on_false)]
            parts.append(self.select(pred, *chosen))
        return self._emit("tuple", parts)

    def _spread(self, operands: list[XlaOp]) -> list[XlaOp]:
        """Scalars among arrays, broadcast to the arrays' sizes."""
        arrays = [dims for dims in map(self._dims, operands) if dims]
        if not arrays:
            return operands
        if any(dims != arrays[0] for dims in arrays):
            raise HloError("operands are scalars or arrays of equal sizes")
        return [o if self._dims(o) else self._in_dims(o, arrays[0], ()) for o in operands]
