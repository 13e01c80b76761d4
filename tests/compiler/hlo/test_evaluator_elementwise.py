"""Every elementwise operation on every element type against XLA, special values and integer extremes among them.

Left out, because XLA's CPU backend is the one that is odd there: subnormals (it flushes them), popcnt of s4 (it counts
the sign extension).
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from systolith.compiler.hlo import HloError, evaluate, parse_hlo, verify
from systolith.compiler.hlo.opcodes import ELEMENTWISE_BINARY, ELEMENTWISE_UNARY
from systolith.compiler.passes.constants import FoldConstants
from systolith.isa.dtypes import DTYPES, Kind
from tests.compiler.hlo.compare import Array, assert_matches_xla

pytest.importorskip("jax")


def product(*choices: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Every combination, as a list that pytest takes."""
    return list(itertools.product(*choices))


FLOATS = ("f32", "bf16", "f16", "f64")
INTEGERS = ("s4", "s8", "s16", "s32", "s64", "u4", "u8", "u16", "u32", "u64")
SIGNED = tuple(t for t in INTEGERS if t[0] == "s")
TOLERANCE = {"bf16": 2**-8, "f16": 2**-11}
SPECIAL = (
    0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3e38, 1e30, -1e30, 127.0, 128.0,
    -129.0, 255.0, 256.0, 2147483647.0, 2147483648.0, -2147483649.0, 4294967296.0, 65535.0, 9.3e18, 1.9e19, 7.5, -7.5,
    0.49999997,
)  # fmt: skip


def values(name: str, seed: int = 0) -> Array:
    """Special values or extremes of an element type, and random ones."""
    dtype, rng = DTYPES[name], np.random.default_rng(seed)
    if dtype.kind is Kind.PRED:
        return np.array([False, True, True, False])
    if dtype.kind is Kind.COMPLEX:
        return (rng.standard_normal(24) + 1j * rng.standard_normal(24)).astype(dtype.stored)
    if dtype.is_float:
        with np.errstate(all="ignore"):
            return np.concatenate([SPECIAL, rng.standard_normal(16) * 3]).astype(dtype.stored)
    low, high = (
        (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.kind is Kind.SIGNED else (0, (1 << dtype.bits) - 1)
    )
    carrier = np.int64 if dtype.kind is Kind.SIGNED else np.uint64
    edges = [0, 1, 2, 3, 5, high, high - 1, low, low + 1] + ([-1, -2, -5] if low else [])
    drawn = rng.integers(low, high, 12, dtype=carrier, endpoint=True)
    return np.concatenate([np.array(edges, carrier), drawn]).astype(dtype.stored)


def unary(opcode: str, source: str, target: str, attributes: str = "") -> None:
    x = values(source)
    text = f"""HloModule m

ENTRY main {{
  x = {source}[{x.size}] parameter(0)
  ROOT y = {target}[{x.size}] {opcode}(x){attributes}
}}
"""
    assert_matches_xla(text, x, tolerance=TOLERANCE.get(source, 1e-6))


def binary(opcode: str, source: str, target: str, attributes: str = "", y: Array | None = None) -> None:
    x = values(source)
    y = x if y is None else y
    a, b = np.repeat(x, y.size), np.tile(y, x.size)
    text = f"""HloModule m

ENTRY main {{
  a = {source}[{a.size}] parameter(0)
  b = {source}[{a.size}] parameter(1)
  ROOT y = {target}[{a.size}] {opcode}(a, b){attributes}
}}
"""
    assert_matches_xla(text, a, b, tolerance=TOLERANCE.get(source, 1e-6))


FLOAT_UNARY = """abs cbrt ceil cosine erf exponential exponential-minus-one floor log log-plus-one logistic negate
    round-nearest-afz round-nearest-even rsqrt sign sine sqrt tan tanh""".split()


@pytest.mark.parametrize(("opcode", "dtype"), product(FLOAT_UNARY, FLOATS))
def test_unary_of_floats(opcode: str, dtype: str) -> None:
    unary(opcode, dtype, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_is_finite(dtype: str) -> None:
    unary("is-finite", dtype, "pred")


@pytest.mark.parametrize(
    ("opcode", "dtype"),
    [*product(("abs", "sign"), SIGNED), *product(("negate", "not", "count-leading-zeros", "popcnt"), INTEGERS)],
)
def test_unary_of_integers(opcode: str, dtype: str) -> None:
    if (opcode, dtype) == ("popcnt", "s4"):
        pytest.skip("XLA counts the sign extension")
    unary(opcode, dtype, dtype)


FLOAT_BINARY = "add subtract multiply divide remainder maximum minimum power atan2".split()


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize(("opcode", "dtype"), product(FLOAT_BINARY, FLOATS))
def test_binary_of_floats(opcode: str, dtype: str) -> None:
    x = values(dtype)
    with np.errstate(all="ignore"):
        binary(opcode, dtype, dtype, y=x[np.abs(x.astype(np.float64)) != 127] if opcode == "power" else None)


INTEGER_BINARY = """add subtract multiply divide remainder maximum minimum and or xor shift-left shift-right-arithmetic
    shift-right-logical""".split()


@pytest.mark.parametrize(("opcode", "dtype"), product(INTEGER_BINARY, INTEGERS))
def test_binary_of_integers(opcode: str, dtype: str) -> None:
    binary(opcode, dtype, dtype)


@pytest.mark.parametrize("dtype", [t for t in INTEGERS if t not in ("u4", "s4")])
def test_integer_power(dtype: str) -> None:
    exponents = [0, 1, 2, 3, 31, 33, 63, 64, 101] + ([-1, -2] if dtype[0] == "s" else [])
    binary("power", dtype, dtype, y=np.array(exponents).astype(DTYPES[dtype].stored))


@pytest.mark.parametrize("opcode", "add multiply maximum minimum and or xor".split())
def test_binary_of_predicates(opcode: str) -> None:
    binary(opcode, "pred", "pred")


@pytest.mark.parametrize(
    ("direction", "dtype"), product(("EQ", "NE", "GE", "GT", "LE", "LT"), ("f32", "bf16", "s32", "u8", "pred"))
)
def test_compare(direction: str, dtype: str) -> None:
    binary("compare", dtype, "pred", f", direction={direction}")


@pytest.mark.parametrize(("direction", "dtype"), product(("EQ", "GE", "LT"), FLOATS))
def test_compare_in_total_order(direction: str, dtype: str) -> None:
    binary("compare", dtype, "pred", f", direction={direction}, type=TOTALORDER")


@pytest.mark.parametrize("source", list(DTYPES))
def test_convert_to_every_type(source: str) -> None:
    from_complex = DTYPES[source].kind is Kind.COMPLEX
    targets = [t for t, dtype in DTYPES.items() if not from_complex or dtype.kind is Kind.COMPLEX]
    x = values(source)
    lines = [f"to_{t} = {t}[{x.size}] convert(x)" for t in targets]
    shapes, names = (", ".join(form.format(t) for t in targets) for form in (f"{{}}[{x.size}]", "to_{}"))
    body = "\n  ".join([f"x = {source}[{x.size}] parameter(0)", *lines, f"ROOT r = ({shapes}) tuple({names})"])
    assert_matches_xla(f"HloModule m\n\nENTRY main {{\n  {body}\n}}\n", x, tolerance=1e-6)


COMPLEX_UNARY = """exponential log sine cosine tan tanh sqrt rsqrt negate log-plus-one exponential-minus-one logistic
    sign""".split()


@pytest.mark.parametrize("opcode", COMPLEX_UNARY)
def test_unary_of_complex_numbers(opcode: str) -> None:
    unary(opcode, "c64", "c64")
    unary(opcode, "c128", "c128")


@pytest.mark.parametrize("opcode", ["abs", "real", "imag"])
def test_real_results_of_complex_numbers(opcode: str) -> None:
    unary(opcode, "c64", "f32")


@pytest.mark.parametrize("opcode", "add subtract multiply divide power atan2".split())
def test_binary_of_complex_numbers(opcode: str) -> None:
    binary(opcode, "c64", "c64")


@pytest.mark.parametrize(
    ("bits", "dtype"), product(((5, 10), (8, 7), (4, 3), (2, 1), (8, 23), (11, 52), (1, 2)), FLOATS)
)
def test_reduce_precision(bits: tuple[int, int], dtype: str) -> None:
    unary("reduce-precision", dtype, dtype, f", exponent_bits={bits[0]}, mantissa_bits={bits[1]}")


def test_select_and_clamp_take_scalars() -> None:
    text = """HloModule m

ENTRY main {
  p = pred[] parameter(0)
  x = f32[5] parameter(1)
  low = f32[] constant(-1)
  high = f32[5] constant({0, 1, 2, nan, -3})
  c = f32[5] clamp(low, x, high)
  ROOT y = f32[5] select(p, c, x)
}
"""
    for choice in (True, False):
        assert_matches_xla(text, np.asarray(choice), np.array([-2, 0.5, np.nan, 7, 7], np.float32))


@pytest.mark.parametrize("dims", ["", "1", "0", "1,0,2"])
@pytest.mark.parametrize("name", ["pred", "s32", "u8", "s4", "f32", "bf16", "f64", "c64"])
def test_results_have_their_shape_and_fold(name: str, dims: str) -> None:
    """Scalars and arrays without elements too, in the evaluator and as folded constants."""
    sizes = tuple(map(int, dims.split(","))) if dims else ()
    special = {"bitcast-convert": name, "convert": "f32", "compare": "pred", "is-finite": "pred"}
    attributes = {"compare": ", direction=NE", "reduce-precision": ", exponent_bits=4, mantissa_bits=2"}
    seen = set()
    for opcode in sorted(ELEMENTWISE_UNARY | ELEMENTWISE_BINARY | {"reduce-precision"}):
        given = "x, x" if opcode in ELEMENTWISE_BINARY else "x"
        root = f"{special.get(opcode, name)}[{dims}] {opcode}({given}){attributes.get(opcode, '')}"
        text = f"HloModule m\nENTRY e {{ x = {name}[{dims}] parameter(0) ROOT r = {root} }}"
        try:
            verify(module := parse_hlo(text))
        except HloError:
            continue  # not an operation of this type
        x = np.ones(sizes, DTYPES[name].stored)
        (result,) = evaluate(module, x)
        assert (result.shape, result.dtype) == (sizes, module.entry.result.shape.dtype.stored), opcode
        parameter = module.entry.parameters[0]
        parameter.opcode, parameter.literal, parameter.number = "constant", x, None
        FoldConstants().run(module)
        verify(module)
        assert [i.opcode for i in module.entry.instructions][-1] == "constant", opcode
        np.testing.assert_array_equal(np.asarray(module.entry.result.literal), result, err_msg=opcode)
        seen.add(opcode)
    assert len(seen) >= 6
