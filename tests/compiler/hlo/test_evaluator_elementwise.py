"""Every elementwise operation on every element type against XLA, special values and integer extremes among them.

Left out, because XLA's CPU backend is the one that is odd there: subnormals (it flushes them), popcnt of s4 (it counts
the sign extension).
"""

from collections.abc import Sequence

import numpy as np
import pytest

from systolith.compiler.hlo import HloError, evaluate, parse_hlo, verify
from systolith.compiler.hlo.opcodes import ELEMENTWISE_BINARY, ELEMENTWISE_UNARY
from systolith.compiler.passes.simplify.constants import FoldConstants
from systolith.isa.dtypes import DTYPES, Kind
from tests.compiler.hlo.compare import Array, assert_matches_xla
from tests.compiler.hlo.oracle import by_emitters

pytest.importorskip("jax")


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


def check(operations: Sequence[tuple[str, str]], source: str, *arrays: Array, tolerance: float | None = None) -> None:
    """Operations on x and y, each after its type, in few modules: XLA starts for longer than it compiles one."""
    n = arrays[0].size
    parameters = [f"{'xy'[k]} = {source}[{n}] parameter({k})" for k in range(len(arrays))]
    allowed = TOLERANCE.get(source, 1e-6) if tolerance is None else tolerance
    for lines in by_emitters(operations):
        results = [f"r{k} = {target}[{n}] {line}" for k, (target, line) in enumerate(lines)]
        shapes = ", ".join(f"{target}[{n}]" for target, _ in lines)
        root = f"ROOT r = ({shapes}) tuple({', '.join(f'r{k}' for k in range(len(lines)))})"
        body = "\n  ".join([*parameters, *results, root])
        assert_matches_xla(f"HloModule m\n\nENTRY main {{\n  {body}\n}}\n", *arrays, tolerance=allowed)


def unary(opcodes: Sequence[str], source: str, target: str) -> None:
    check([(target, f"{opcode}(x)") for opcode in opcodes], source, values(source))


def binary(lines: Sequence[tuple[str, str]], source: str, y: Array | None = None) -> None:
    """Operations on every pair of a value of a type and one of `y`, or of that type."""
    x = values(source)
    y = x if y is None else y
    check(lines, source, np.repeat(x, y.size), np.tile(y, x.size))


def of_pairs(opcodes: str, dtype: str) -> list[tuple[str, str]]:
    return [(dtype, f"{opcode}(x, y)") for opcode in opcodes.split()]


FLOAT_UNARY = """abs cbrt ceil cosine erf exponential exponential-minus-one floor log log-plus-one logistic negate
    round-nearest-afz round-nearest-even rsqrt sign sine sqrt tan tanh""".split()


@pytest.mark.parametrize("dtype", FLOATS)
def test_unary_of_floats(dtype: str) -> None:
    check([*((dtype, f"{opcode}(x)") for opcode in FLOAT_UNARY), ("pred", "is-finite(x)")], dtype, values(dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_unary_of_integers(dtype: str) -> None:
    opcodes = ["negate", "not", "count-leading-zeros"] + (["abs", "sign"] if dtype in SIGNED else [])
    unary(opcodes + ([] if dtype == "s4" else ["popcnt"]), dtype, dtype)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("dtype", FLOATS)
def test_binary_of_floats(dtype: str) -> None:
    with np.errstate(all="ignore"):
        binary(of_pairs("add subtract multiply divide remainder maximum minimum atan2", dtype), dtype)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("dtype", FLOATS)
def test_float_power(dtype: str) -> None:
    x = values(dtype)
    with np.errstate(all="ignore"):
        binary(of_pairs("power", dtype), dtype, x[np.abs(x.astype(np.float64)) != 127])


INTEGER_BINARY = """add subtract multiply divide remainder maximum minimum and or xor shift-left shift-right-arithmetic
    shift-right-logical"""


@pytest.mark.parametrize("dtype", INTEGERS)
def test_binary_of_integers(dtype: str) -> None:
    binary(of_pairs(INTEGER_BINARY, dtype), dtype)


@pytest.mark.parametrize("dtype", [t for t in INTEGERS if t not in ("u4", "s4")])
def test_integer_power(dtype: str) -> None:
    exponents = [0, 1, 2, 3, 31, 33, 63, 64, 101] + ([-1, -2] if dtype[0] == "s" else [])
    binary(of_pairs("power", dtype), dtype, np.array(exponents).astype(DTYPES[dtype].stored))


def test_binary_of_predicates() -> None:
    binary(of_pairs("add multiply maximum minimum and or xor", "pred"), "pred")


@pytest.mark.parametrize("dtype", [*FLOATS, "s32", "u8", "pred"])
def test_compare(dtype: str) -> None:
    forms = [f"direction={direction}" for direction in ("EQ", "NE", "GE", "GT", "LE", "LT")]
    forms += [f"direction={direction}, type=TOTALORDER" for direction in ("EQ", "GE", "LT") if dtype in FLOATS]
    binary([("pred", f"compare(x, y), {form}") for form in forms], dtype)


@pytest.mark.parametrize("source", list(DTYPES))
def test_convert_to_every_type(source: str) -> None:
    from_complex = DTYPES[source].kind is Kind.COMPLEX
    targets = [t for t, dtype in DTYPES.items() if not from_complex or dtype.kind is Kind.COMPLEX]
    check([(t, "convert(x)") for t in targets], source, values(source), tolerance=1e-6)


COMPLEX_UNARY = """exponential log sine cosine tan tanh sqrt rsqrt negate log-plus-one exponential-minus-one logistic
    sign""".split()


@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_unary_of_complex_numbers(dtype: str) -> None:
    unary(COMPLEX_UNARY, dtype, dtype)


def test_real_results_of_complex_numbers() -> None:
    unary(["abs", "real", "imag"], "c64", "f32")


def test_binary_of_complex_numbers() -> None:
    binary(of_pairs("add subtract multiply divide power atan2", "c64"), "c64")


@pytest.mark.parametrize("dtype", FLOATS)
def test_reduce_precision(dtype: str) -> None:
    forms = ((5, 10), (8, 7), (4, 3), (2, 1), (8, 23), (11, 52), (1, 2))
    lines = [f"reduce-precision(x), exponent_bits={exponent}, mantissa_bits={mantissa}" for exponent, mantissa in forms]
    check([(dtype, line) for line in lines], dtype, values(dtype))


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
