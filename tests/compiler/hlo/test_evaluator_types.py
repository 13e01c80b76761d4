"""Elementwise operations and conversions on every element type against XLA, all values of the narrow ones.

Many operations stand in one module, since compiling costs more than running.  Left out, because XLA's CPU backend is
the one that is odd there: the least f8e8m0fnu, which it flushes to 0 as an f32; f4e2m1fn to integers, of which it
takes 6 for infinity; and the sign of a zero that an f4e2m1fn gets instead of NaN.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from systolith.compiler.hlo import evaluate, parse_hlo
from systolith.compiler.hlo.element_types import ELEMENT_TYPES
from systolith.compiler.hlo.values.convert import store
from systolith.isa.dtypes import DType, Kind
from tests.compiler.hlo.compare import Array
from tests.compiler.hlo.oracle import by_emitters, run_xla

pytest.importorskip("jax")

ULPS = {"f32": 4.0, "f64": 64.0}
"""Units in the last place that results may differ by: of narrower types one.  XLA's f64 log1p is off by 45."""

FLOATS = [n for n, t in ELEMENT_TYPES.items() if t.is_float]
INTEGERS = [n for n, t in ELEMENT_TYPES.items() if t.is_integer and t.bits > 1]


QUICK = frozenset("pred s4 s8 s32 u8 u64 f8e4m3fn bf16 f32 f64 c64".split())


def each(names: Sequence[str]) -> list[Any]:
    """Parameters of a test; all but one or two of a kind are slow ones, as each costs compilations."""
    return [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in names]


SPECIAL = (
    0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1.5, 2.5, -0.5, -2.5, 3e38, 1e30, -1e30, 127.0, 128.0, -129.0,
    2147483648.0, 4294967296.0, 9.3e18, 1.9e19, 7.5, -7.5, 0.49999997, 1e-3, 0.99999994, 1.0000001, 88.0, -100.0,
)  # fmt: skip


def values(name: str) -> Array:
    """All values of a type of a byte or less, else special ones, extremes and random ones."""
    dtype, rng = ELEMENT_TYPES[name], np.random.default_rng(7)
    if dtype.kind is Kind.PRED:
        return np.array([False, True])
    if dtype.bits <= 8:
        bits = np.arange(1 << dtype.bits, dtype=np.uint8)
        least = name == "f8e8m0fnu"
        return (
            bits[1:].view(dtype.stored) if least else bits.view(dtype.stored) if dtype.is_float else store(bits, dtype)
        )
    if dtype.is_float:
        with np.errstate(all="ignore"):
            return np.concatenate([SPECIAL, rng.standard_normal(30) * 3]).astype(dtype.stored)
    low = -(1 << dtype.bits - 1) if dtype.kind is Kind.SIGNED else 0
    high = low + (1 << dtype.bits) - 1
    carrier = np.int64 if low else np.uint64
    edges = [
        n for n in (0, 1, 2, 3, 7, 8, 31, 63, 64, 65, high, high - 1, low, low + 1, -1, -2, -5) if low <= n <= high
    ]
    drawn = rng.integers(low, high, 12, dtype=carrier, endpoint=True)
    return np.concatenate([np.array(edges, carrier), drawn]).astype(dtype.stored)


def pairs(name: str) -> tuple[Array, Array]:
    x = values(name)
    if name == "f8e8m0fnu":  # products and quotients stay above the least number
        x = x[70:180]
    x = x[:: max(1, len(x) // 40)]
    return np.repeat(x, len(x)), np.tile(x, len(x))


def assert_ulps(actual: Array, expected: Array, dtype: DType, ulps: float, what: str) -> None:
    """Integers identical; floats within `ulps`, NaN, infinities and the signs of zeros alike (f4: not the latter)."""
    assert actual.dtype == expected.dtype, what
    assert actual.shape == expected.shape, what
    if not dtype.is_float:
        np.testing.assert_array_equal(actual, expected, err_msg=what)
        return
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b), err_msg=what)
        extreme = np.isinf(a) | np.isinf(b)
        np.testing.assert_array_equal(a[extreme], b[extreme], err_msg=what)
        rest = np.isfinite(a) & np.isfinite(b)
        a, b = a[rest], b[rest]
        limits = dtype.finfo
        unit = np.maximum(np.exp2(np.floor(np.log2(np.abs(b)))) * float(limits.eps), float(limits.smallest_normal))
        worst = np.max(np.abs(a - b) / unit, initial=0.0)
    assert worst <= ulps, f"{what}: {worst} ulp"
    if dtype.bits > 4:
        zero = (a == 0) & (b == 0)
        np.testing.assert_array_equal(np.signbit(a[zero]), np.signbit(b[zero]), err_msg=what)


def check(lines: Sequence[tuple[str, str]], inputs: Sequence[tuple[str, Array]], ulps: float | None = None) -> None:
    """Evaluate lines (type of the result, operation on p0, p1, ...) on inputs of one size, and compare with XLA."""
    for part in by_emitters(lines):
        check_together(part, inputs, ulps)


def check_together(lines: Sequence[tuple[str, str]], inputs: Sequence[tuple[str, Array]], ulps: float | None) -> None:
    n = len(inputs[0][1])
    body = [f"p{k} = {name}[{n}] parameter({k})" for k, (name, _) in enumerate(inputs)]
    body += [f"r{k} = {name}[{n}] {line}" for k, (name, line) in enumerate(lines)]
    shapes = ", ".join(f"{name}[{n}]" for name, _ in lines)
    names = ", ".join(f"r{k}" for k in range(len(lines)))
    body.append(f"ROOT t = ({shapes}) tuple({names})")
    text = "HloModule m\n\nENTRY main {\n  " + "\n  ".join(body) + "\n}\n"
    arrays = [x for _, x in inputs]
    actual, expected = evaluate(parse_hlo(text), *arrays), run_xla(text, *arrays)
    for (name, line), a, b in zip(lines, actual, expected, strict=True):
        allowed = ULPS.get(name, 1.0) if ulps is None else ulps
        assert_ulps(a, b, ELEMENT_TYPES[name], allowed, f"{name} {line} of {inputs[0][0]}")


FLOAT_UNARY = """abs cbrt ceil cosine erf exponential exponential-minus-one floor log log-plus-one logistic negate
    round-nearest-afz round-nearest-even rsqrt sign sine sqrt tan tanh""".split()
INVERSE: dict[str, Callable[[float], float]] = {
    "acos": math.acos, "acosh": math.acosh, "asin": math.asin, "asinh": math.asinh, "atanh": math.atanh,
    "cosh": math.cosh, "sinh": math.sinh,
}  # fmt: skip


@pytest.mark.parametrize("name", each(FLOATS))
def test_unary_of_floats(name: str) -> None:
    lines = [(name, f"{opcode}(p0)") for opcode in FLOAT_UNARY]
    check([*lines, ("pred", "is-finite(p0)")], [(name, values(name))])


@pytest.mark.parametrize("opcode", INVERSE)
def test_functions_that_the_cpu_backend_does_not_have(opcode: str) -> None:
    """Against the C library's, through Python."""
    function = INVERSE[opcode]

    def expected(x: float) -> float:
        try:
            return function(x)
        except ValueError:
            return math.copysign(math.inf, x) if opcode == "atanh" and abs(x) == 1 else math.nan
        except OverflowError:
            return math.copysign(math.inf, x) if opcode == "sinh" else math.inf

    for name in ("f32", "f64", "f16", "bf16"):
        x = values(name)
        text = f"HloModule m\nENTRY e {{ x = {name}[{len(x)}] parameter(0) ROOT y = {name}[{len(x)}] {opcode}(x) }}"
        (result,) = evaluate(parse_hlo(text), x)
        with np.errstate(over="ignore"):
            wanted = np.array([expected(float(v)) for v in x]).astype(x.dtype)
        assert_ulps(result, wanted, ELEMENT_TYPES[name], 1.0, f"{opcode} of {name}")


@pytest.mark.parametrize("name", each(INTEGERS))
def test_unary_of_integers(name: str) -> None:
    """XLA counts the sign extension of a narrow negative number in `popcnt`."""
    opcodes = ["negate", "not", "count-leading-zeros"] + (["abs", "sign"] if name[0] == "s" else [])
    counted = [] if name in ("s2", "s4") else ["popcnt"]
    check([(name, f"{opcode}(p0)") for opcode in opcodes + counted], [(name, values(name))])


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", each(FLOATS))
def test_binary_of_floats(name: str) -> None:
    opcodes = "add subtract multiply divide remainder maximum minimum atan2".split()
    x, y = pairs(name)
    check([(name, f"{opcode}(p0, p1)") for opcode in opcodes], [(name, x), (name, y)])


INTEGER_BINARY = """add subtract multiply divide remainder maximum minimum and or xor power shift-left
    shift-right-arithmetic shift-right-logical""".split()


@pytest.mark.parametrize("name", each(INTEGERS))
def test_binary_of_integers(name: str) -> None:
    x, y = pairs(name)
    check([(name, f"{opcode}(p0, p1)") for opcode in INTEGER_BINARY], [(name, x), (name, y)])


@pytest.mark.parametrize("name", each([*FLOATS, *INTEGERS, "pred"]))
def test_compare(name: str) -> None:
    x, y = pairs(name)
    kinds = ["", ", type=TOTALORDER"] if ELEMENT_TYPES[name].is_float else [""]
    lines = [f"compare(p0, p1), direction={d}{k}" for d in "EQ NE GE GT LE LT".split() for k in kinds]
    check([("pred", line) for line in lines], [(name, x), (name, y)])


@pytest.mark.parametrize("name", each([*FLOATS, *INTEGERS]))
def test_clamp(name: str) -> None:
    x = values(name)
    x = x[:: max(1, len(x) // 12)]
    n = len(x)
    low, middle, high = np.repeat(x, n * n), np.tile(np.repeat(x, n), n), np.tile(x, n * n)
    check([(name, "clamp(p0, p1, p2)")], [(name, low), (name, middle), (name, high)])


CONVERTED = [*FLOATS, *INTEGERS, "pred"]


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("source", each(CONVERTED))
def test_convert_to_every_type(source: str) -> None:
    odd = source == "f4e2m1fn"
    targets = [t for t in CONVERTED if not (odd and ELEMENT_TYPES[t].is_integer)]
    check([(t, "convert(p0)") for t in targets], [(source, values(source))], ulps=0)


@pytest.mark.parametrize("name", each(FLOATS))
def test_reduce_precision(name: str) -> None:
    """Ties to even among exponents too, overflow of a rounding, subnormal numbers, and more bits than there are."""
    forms = (
        (5, 10),
        (8, 7),
        (4, 3),
        (5, 2),
        (2, 1),
        (8, 23),
        (11, 52),
        (1, 2),
        (3, 0),
        (8, 0),
        (1, 0),
        (5, 30),
        (20, 3),
    )
    lines = [f"reduce-precision(p0), exponent_bits={e}, mantissa_bits={m}" for e, m in forms]
    check([(name, line) for line in lines], [(name, values(name))], ulps=0)


@pytest.mark.parametrize("source", ["f32", "bf16", "f16"])
def test_stochastic_convert(source: str) -> None:
    width = ELEMENT_TYPES[source].bits
    x = np.array([0, 0.5, 1.5, -0.5, -1.25, 3, 126.75, 127.5, -127.5, -128.5, 300, np.nan, np.inf, -np.inf, 0.001])
    random = np.array([0, 1, 2 ** (width - 1) - 1, 2 ** (width - 1), 2**width - 1], np.uint64)
    a, b = np.repeat(x, len(random)), np.tile(random, len(x))
    lines = [(t, "stochastic-convert(p0, p1)") for t in ("s8", "s16", "s32")]
    stored = ELEMENT_TYPES[source].stored
    check(lines, [(source, a.astype(stored)), (f"u{width}", b.astype(f"u{width // 8}"))])


@pytest.mark.parametrize("name", each(INTEGERS))
def test_high_half_of_products(name: str) -> None:
    """XLA's CPU backend has no mulhi, Python has integers of any width."""
    dtype = ELEMENT_TYPES[name]
    x, y = pairs(name)
    text = f"HloModule m\nENTRY e {{ x = {name}[{len(x)}] parameter(0) y = {name}[{len(x)}] parameter(1)\n" \
        f"ROOT r = {name}[{len(x)}] mulhi(x, y) }}"  # fmt: skip
    (result,) = evaluate(parse_hlo(text), x, y)
    expected = [(int(a) * int(b)) >> dtype.bits for a, b in zip(x, y, strict=True)]
    assert [int(r) for r in result] == expected
