"""Unary, binary and comparison functions, clamp, select, conversions, reduced precision."""

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith import api as sl
from systolith.compiler.hlo.errors import HloError
from tests.examples import examples
from tests.seeds.run import check, constant, results

V1, V2 = [1, 2, 3, 4], [100, 200, 300, 400]
FLOATS = [-2.5, -1.5, -0.5, -0.0, 0.0, 0.25, 0.5, 1.5, 2.5, 7.75]

UNARY: dict[str, Callable[[Any], Any]] = {
    "Abs": abs,
    "Cbrt": np.cbrt,
    "Ceil": math.ceil,
    "Cos": math.cos,
    "Erf": math.erf,
    "Exp": math.exp,
    "Expm1": math.expm1,
    "Floor": math.floor,
    "Imag": lambda x: 0.0,
    "IsFinite": math.isfinite,
    "Logistic": lambda x: 1 / (1 + math.exp(-x)),
    "Neg": lambda x: -x,
    "Real": lambda x: x,
    "Round": lambda x: math.copysign(math.floor(abs(x) + 0.5), x),
    "RoundNearestEven": round,
    "Sign": lambda x: (x > 0) - (x < 0),
    "Sin": math.sin,
    "Tan": math.tan,
    "Tanh": math.tanh,
}
POSITIVE: dict[str, Callable[[float], float]] = {
    "Log": math.log,
    "Log1p": math.log1p,
    "Rsqrt": lambda x: 1 / math.sqrt(x),
    "Sqrt": math.sqrt,
    "SqrtF32": math.sqrt,
    "SquareF32": lambda x: x * x,
    "ReciprocalF32": lambda x: 1 / x,
}


@pytest.mark.parametrize("name", [*UNARY, *POSITIVE])
def test_unary_functions(name: str) -> None:
    function = UNARY.get(name) or POSITIVE[name]
    values = FLOATS if name in UNARY else [0.25, 0.5, 1.0, 2.0, 10.0]
    b = sl.XlaBuilder("unary")
    operand = constant(b, values)
    vector, scalar = results(
        b, b.Tuple([getattr(b, name)(operand), getattr(b, name)(b.ConstantR0(values[-1]))]), tolerance=1e-5
    )
    np.testing.assert_allclose(vector, [function(v) for v in values], rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(scalar, function(values[-1]), rtol=2e-6)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("Clz", lambda x: 32 - x.bit_length()),
        ("PopulationCount", lambda x: x.bit_count()),
        ("Not", lambda x: x ^ 0xFFFFFFFF),
    ],
)
def test_unary_functions_of_bits(name: str, function: Callable[[int], int]) -> None:
    values = [0, 1, 2, 255, 0x80000000, 0xFFFFFFFF]
    b = sl.XlaBuilder("bits")
    check(b, getattr(b, name)(constant(b, np.array(values, np.uint32), "u32")), [function(v) for v in values])


def test_logical_not() -> None:
    for name in ("LogicalNot", "Not"):
        b = sl.XlaBuilder("not")
        check(b, getattr(b, name)(constant(b, [True, False], "pred")), [False, True])


def test_parts_of_complex_numbers() -> None:
    b = sl.XlaBuilder("parts")
    z = b.Complex(constant(b, [1.0, -2.0]), constant(b, [0.5, 3.0]))
    check(b, b.Tuple([z, b.Real(z), b.Imag(z), b.Abs(constant(b, [3 + 4j], "c64"))]),
          [1 + 0.5j, -2 + 3j], [1, -2], [0.5, 3], [5])  # fmt: skip


def test_sign_keeps_zeros_and_nan() -> None:
    b = sl.XlaBuilder("sign")
    (found,) = results(b, b.Sign(constant(b, [-3.0, -0.0, math.nan, 0.0, 3.0])))
    np.testing.assert_array_equal(found, [-1, 0, math.nan, 0, 1])
    assert np.signbit(found[:2]).all()
    assert not np.signbit(found[3])


def test_erf_is_the_integral() -> None:
    steps = np.linspace(0.0, 0.75, 20001)
    integral = 2 / math.sqrt(math.pi) * np.trapezoid(np.exp(-(steps**2)), steps)
    b = sl.XlaBuilder("erf")
    (found,) = results(b, b.Erf(b.ConstantR0(0.75)))
    np.testing.assert_allclose(found, integral, rtol=1e-6)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": np.power,
    "Rem": np.fmod,
    "Max": np.maximum,
    "Min": np.minimum,
    "Atan2": np.arctan2,
    "Complex": lambda x, y: x + 1j * y,
}
BITS: dict[str, Callable[[Any, Any], Any]] = {
    "And": np.bitwise_and,
    "Or": np.bitwise_or,
    "Xor": np.bitwise_xor,
    "ShiftLeft": np.left_shift,
    "ShiftRightArithmetic": np.right_shift,
    "ShiftRightLogical": lambda x, y: (x.astype(np.uint32) >> y.astype(np.uint32)).astype(np.int32),
}


@pytest.mark.parametrize("name", BINARY)
def test_binary_functions(name: str) -> None:
    x, y = np.array([1.5, 2.0, 0.25, 7.0], np.float32), np.array([0.5, -3.0, 2.0, 4.0], np.float32)
    b = sl.XlaBuilder("binary")
    (found,) = results(b, getattr(b, name)(constant(b, x), constant(b, y)), tolerance=1e-5)
    np.testing.assert_allclose(found, BINARY[name](x, y), rtol=2e-6)


@pytest.mark.parametrize("name", BITS)
def test_binary_functions_of_bits(name: str) -> None:
    x, y = np.array([1, -5, 1 << 30, 12], np.int32), np.array([3, 1, 0, 2], np.int32)
    b = sl.XlaBuilder("bits")
    check(b, getattr(b, name)(constant(b, x, "s32"), constant(b, y, "s32")), BITS[name](x, y))


def test_logical_and_or() -> None:
    b = sl.XlaBuilder("logical")
    x, y = constant(b, [True, True, False, False], "pred"), constant(b, [True, False, True, False], "pred")
    check(b, b.Tuple([b.LogicalAnd(x, y), b.LogicalOr(x, y)]), [True, False, False, False], [True, True, True, False])


@given(st.integers(-100, 100), st.integers(-20, 20).filter(bool))
@examples(10, 20)
def test_rem_has_the_dividends_sign_and_is_less_than_the_divisor(x: int, y: int) -> None:
    b = sl.XlaBuilder("rem")
    pairs = [(b.ConstantR0(x, t), b.ConstantR0(y, t)) for t in ("s32", "f32")]
    for found in results(b, b.Tuple([b.Rem(*pair) for pair in pairs])):
        assert found == math.fmod(x, y)
        assert abs(found) < abs(y)
        assert found == 0 or (found > 0) == (x > 0)


def test_division_overflow_is_what_xla_computes() -> None:
    """The seeds leave it to the implementation; it is XLA's."""
    low = np.iinfo(np.int32).min
    numbers = [np.array([7, -7, low], np.int32), np.array([0, 0, -1], np.int32), *np.array([[7], [0]], np.uint32)]
    b = sl.XlaBuilder("overflow")
    # Parameters: XLA's own folding of such constants traps.
    x, y, u, v = (b.Parameter(n, sl.Literal.create(a).shape, f"p{n}") for n, a in enumerate(numbers))
    root = b.Tuple([b.Div(x, y), b.Rem(x, y), b.Div(u, v), b.Rem(u, v)])
    check(b, root, [-1, -1, low], [7, -7, 0], [2**32 - 1], [7], arguments=numbers)


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "Eq": operator.eq, "Ne": operator.ne, "Ge": operator.ge, "Gt": operator.gt, "Le": operator.le, "Lt": operator.lt,
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARE)
def test_comparisons_follow_ieee_754(name: str) -> None:
    values = np.array([-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan], np.float32)
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    b = sl.XlaBuilder("compare")
    expected = [COMPARE[name](p, q) for p, q in zip(x.tolist(), y.tolist(), strict=True)]
    check(b, getattr(b, name)(constant(b, x), constant(b, y)), expected)


@pytest.mark.parametrize("name", COMPARE)
def test_total_order(name: str) -> None:
    ordered = np.array([math.nan, -math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan], np.float32)
    ordered.view(np.uint32)[0] |= 1 << 31
    i, j = (a.ravel() for a in np.meshgrid(range(8), range(8)))
    b = sl.XlaBuilder("total_order")
    shape = sl.make_shape("f32", [64])
    # Parameters: XLA folds such constants without regard to the order.
    root = getattr(b, f"{name}TotalOrder")(b.Parameter(0, shape, "x"), b.Parameter(1, shape, "y"))
    expected = [COMPARE[name](p, q) for p, q in zip(i.tolist(), j.tolist(), strict=True)]
    check(b, root, expected, arguments=[ordered[i], ordered[j]])


def test_clamp_between_scalars() -> None:
    b = sl.XlaBuilder("clamp")
    check(b, b.Clamp(b.ConstantR0(0, "s32"), constant(b, [-1, 5, 9], "s32"), b.ConstantR0(6, "s32")), [0, 5, 6])


def test_clamp_of_a_value_in_range() -> None:
    b = sl.XlaBuilder("clamp")
    check(b, b.Clamp(b.ConstantR0(0, "s32"), constant(b, [1, 5, 9], "s32"), b.ConstantR0(6, "s32")), [1, 5, 6])


@given(st.lists(st.tuples(*[st.integers(-9, 9)] * 3), min_size=1, max_size=6))
@examples(7, 15)
def test_clamp_is_min_of_max(rows: list[tuple[int, int, int]]) -> None:
    low, x, high = (np.array(column, np.int32) for column in zip(*rows, strict=True))
    b = sl.XlaBuilder("clamp")
    operands = [constant(b, a, "s32") for a in (low, x, high)]
    check(b, b.Clamp(*operands), np.minimum(np.maximum(low, x), high))


def test_select_by_elements() -> None:
    b = sl.XlaBuilder("select")
    pred = constant(b, [True, False, False, True], "pred")
    check(b, b.Select(pred, constant(b, V1, "s32"), constant(b, V2, "s32")), [1, 200, 300, 4])


@pytest.mark.parametrize("pred", [True, False])
def test_select_by_a_scalar(pred: bool) -> None:
    b = sl.XlaBuilder("select")
    check(b, b.Select(b.ConstantR0(pred), constant(b, V1, "s32"), constant(b, V2, "s32")), V1 if pred else V2)


@pytest.mark.parametrize("pred", [True, False])
def test_select_between_tuples(pred: bool) -> None:
    b = sl.XlaBuilder("select")
    one, other = (b.Tuple([constant(b, v, "s32"), b.ConstantR0(float(v[0]))]) for v in (V1, V2))
    check(b, b.Select(b.ConstantR0(pred), one, other), *((V1, 1.0) if pred else (V2, 100.0)))


def test_convert_integers_to_floats() -> None:
    b = sl.XlaBuilder("convert")
    (found,) = results(b, b.ConvertElementType(constant(b, [0, 1, 2], "s32"), sl.F32))
    np.testing.assert_array_equal(found, np.array([0.0, 1.0, 2.0], np.float32), strict=True)


def test_convert_rounds_to_nearest_even() -> None:
    b = sl.XlaBuilder("convert")
    ties = [2**24 + 1, 2**24 + 3, -(2**24) - 1]
    check(b, b.ConvertElementType(constant(b, ties, "s32"), sl.F32), [2**24, 2**24 + 4, -(2**24)])


@pytest.mark.parametrize("method", ["ConvertElementType", "BitcastConvertType"])
def test_tuples_are_not_converted(method: str) -> None:
    b = sl.XlaBuilder("convert")
    getattr(b, method)(b.Tuple([b.ConstantR0(1.0)]), sl.S32)
    with pytest.raises(HloError):
        b.Build()


def test_bitcast_of_the_same_width() -> None:
    b = sl.XlaBuilder("bitcast")
    values = np.array([0, 0x3F800000, -1, 0x7F800000], np.int32)
    (found,) = results(b, b.BitcastConvertType(constant(b, values, "s32"), sl.F32))
    assert found.tobytes() == values.tobytes()
    assert found.dtype == np.float32


def test_bitcast_of_one_s32_gives_four_s8() -> None:
    b = sl.XlaBuilder("bitcast")
    check(b, b.BitcastConvertType(b.ConstantR0(0x04030201, "s32"), sl.S8), [1, 2, 3, 4])


FINFO = {"f16": np.float16, "f32": np.float32}


@pytest.mark.parametrize(("before", "after"), [("f32[10]", "f16[10,2]"), ("f32[]", "f16[2]"), ("f16[10,2]", "f32[10]")])
def test_bitcast_between_widths(before: str, after: str) -> None:
    source, target = sl.Shape.parse(before), sl.Shape.parse(after)
    b = sl.XlaBuilder("bitcast")
    value = np.arange(source.size, dtype=np.float32).reshape(source.dims).astype(FINFO[source.dtype.name])
    operand = b.Parameter(0, source, "input")
    root = b.BitcastConvertType(operand, target.dtype)
    assert b.GetShape(root).same(target)
    (found,) = results(b, root, value)
    assert found.tobytes() == value.tobytes()


def _reduced(value: float, exponent: int, mantissa: int) -> float:
    """Round to `mantissa` bits, ties to even; beyond the exponents of the format infinite, below them zero.

    XLA flushes values that would be subnormal in the format.
    """
    if value == 0 or not math.isfinite(value):
        return value
    fraction, power = math.frexp(value)  # 0.5 <= fraction < 1
    rounded = math.ldexp(round(fraction * 2 ** (mantissa + 1)), power - mantissa - 1)
    bias = (1 << exponent - 1) - 1
    if math.frexp(rounded)[1] - 1 > bias:
        return math.copysign(math.inf, value)
    return rounded if math.frexp(rounded)[1] - 1 >= 1 - bias else math.copysign(0.0, value)


@pytest.mark.parametrize(("exponent", "mantissa"), [(5, 10), (8, 7), (4, 3), (2, 0), (11, 52), (8, 23), (3, 30)])
def test_reduce_precision_rounds_and_saturates(exponent: int, mantissa: int) -> None:
    rng = np.random.default_rng(exponent)
    values = np.concatenate(
        [
            rng.standard_normal(40) * 2.0 ** rng.integers(-20, 20, 40),
            [0.0, -0.0, 1.0, 1.5, 2049.0, 65504.0, 65520.0, 1e38, math.inf, -math.inf],
        ]
    ).astype(np.float32)
    b = sl.XlaBuilder("reduce_precision")
    (found,) = results(b, b.ReducePrecision(constant(b, values), exponent_bits=exponent, mantissa_bits=mantissa))
    np.testing.assert_array_equal(found, [_reduced(float(v), exponent, mantissa) for v in values])


def test_reduce_precision_keeps_nan_and_needs_an_exponent() -> None:
    b = sl.XlaBuilder("reduce_precision")
    (found,) = results(b, b.ReducePrecision(constant(b, [math.nan]), exponent_bits=5, mantissa_bits=10))
    assert np.isnan(found).all()
    for exponent, mantissa in ((0, 3), (3, -1)):
        b = sl.XlaBuilder("reduce_precision")
        b.ReducePrecision(constant(b, [1.0]), exponent_bits=exponent, mantissa_bits=mantissa)
        with pytest.raises(HloError):
            b.Build()


@pytest.mark.parametrize("name", ["Abs", "Neg", "Exp"])
def test_unary_functions_keep_any_shape(name: str) -> None:
    b = sl.XlaBuilder("shape")
    for dims in ((), (1,), (2, 3), (2, 1, 2)):
        assert b.GetShape(getattr(b, name)(constant(b, np.ones(dims)))).dims == dims
