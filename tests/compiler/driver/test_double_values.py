"""f64 that a module takes and gives, on chips that have none, in hostile mode: against XLA, bit for bit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from systolith.compiler.driver import compile_module
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.chip import load_chip
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import compiled, run

Array = npt.NDArray[Any]

CALLED = (
    scalar_computation("maximum", "f64")
    + scalar_computation("add", "f64")
    + """less {
 a = f64[] parameter(0)
 b = f64[] parameter(1)
 ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER
}
greater {
 a = f64[] parameter(0)
 b = f64[] parameter(1)
 ROOT r = pred[] compare(a, b), direction=GT
}
taken {
 a = f64[] parameter(0)
 ROOT b = f64[] parameter(1)
}
test {
 s = (s32[], f64[4,6]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(3)
 ROOT p = pred[] compare(i, n), direction=LT
}
once {
 s = (s32[], f64[4,6]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = f64[4,6] get-tuple-element(s), index=1
 one = s32[] constant(1)
 j = s32[] add(i, one)
 k = f64[] convert(j)
 b = f64[4,6] broadcast(k), dimensions={}
 c = f64[4,6] negate(x)
 y = f64[4,6] maximum(c, b)
 ROOT t = (s32[], f64[4,6]) tuple(j, y)
}
plain {
 ROOT x = f64[4,6] parameter(0)
}
turned {
 x = f64[4,6] parameter(0)
 ROOT y = f64[4,6] reverse(x), dimensions={0,1}
}
"""
)
BODIES = {
    "handed on": "u = (f64[4,6], s32[5]) tuple(y, i)\n ROOT t = (f64[4,6], (f64[4,6], s32[5])) tuple(x, u)",
    "least": "ROOT r = f64[4,6] minimum(x, y)",
    "chosen": "p = pred[4,6] compare(x, y), direction=LE\n ROOT r = f64[4,6] select(p, y, x)",
    "sorted": "ROOT r = f64[4,6] sort(x), dimensions={1}, to_apply=less",
    "sorted by size": "ROOT r = f64[4,6] sort(x), dimensions={0}, to_apply=greater",
    "greatest": "z = f64[] constant(-inf)\n ROOT r = f64[4] reduce(x, z), dimensions={1}, to_apply=maximum",
    "greatest of all": "z = f64[] constant(-3.5)\n ROOT r = f64[] reduce(x, z), dimensions={0,1}, to_apply=maximum",
    "pooled": "z = f64[] constant(0)\n ROOT r = f64[3,5] reduce-window(x, z), window={size=2x2}, to_apply=maximum",
    "rows taken": (
        "ROOT r = f64[5,6] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},"
        " index_vector_dim=1, slice_sizes={1,6}"
    ),
    "rows put": (
        "v = f64[5] convert(i)\n u = f64[5,6] broadcast(v), dimensions={0}\n"
        " ROOT r = f64[4,6] scatter(x, i, u), update_window_dims={1},"
        " inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=maximum"
    ),
    "rows replaced": (
        "u = f64[5,6] iota(), iota_dimension=1\n"
        " ROOT r = f64[4,6] scatter(x, i, u), update_window_dims={1},"
        " inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=taken"
    ),
    "window": (
        "a = s32[1] slice(i), slice={[0:1]}\n b = s32[] reshape(a)\n"
        " ROOT r = f64[2,3] dynamic-slice(x, b, b), dynamic_slice_sizes={2,3}"
    ),
    "loop": (
        "z = s32[] constant(0)\n s = (s32[], f64[4,6]) tuple(z, x)\n"
        " w = (s32[], f64[4,6]) while(s), condition=test, body=once\n ROOT r = f64[4,6] get-tuple-element(w), index=1"
    ),
    "branch": (
        "a = s32[1] slice(i), slice={[4:5]}\n b = s32[] reshape(a)\n"
        " ROOT r = f64[4,6] conditional(b, x, y), branch_computations={plain, turned}"
    ),
    "moved": (
        "a = f64[6,4] transpose(x), dimensions={1,0}\n z = f64[] constant(0.1)\n b = f64[7,6] pad(a, z),"
        " padding=1_0x1_1\n c = f64[14,3] reshape(b)\n ROOT r = f64[14,3] reverse(c), dimensions={0}"
    ),
    "constants": "ROOT r = f64[4] constant({0.1, -0.0, inf, 1e-310})",
    "of integers": "s = s64[4,6] parameter(3)\n ROOT r = f64[4,6] convert(s)",
    "to integers": "ROOT r = s64[4,6] convert(x)",
    "of floats": "s = f32[4,6] parameter(3)\n ROOT r = f64[4,6] convert(s)",
    "to floats": "ROOT r = f32[4,6] convert(x)",
    "bits": "a = u64[4,6] bitcast-convert(x)\n b = u64[4,6] not(a)\n ROOT r = f64[4,6] bitcast-convert(b)",
    "nothing": "a = f64[0,6] slice(x), slice={[0:0], [0:6]}\n ROOT r = (f64[0,6], f64[4,6]) tuple(a, y)",
    "bytes": "ROOT r = u16[4,6,4] bitcast-convert(x)",
    "of words": (
        "s = u32[4,6,2] bitcast-convert(x)\n t = u32[4,6,2] reverse(s), dimensions={1}\n"
        " ROOT r = f64[4,6] bitcast-convert(t)"
    ),
}


def slow_where(names: Iterable[str], *slow: str) -> list[Any]:
    """Names as parameters of a test, some of them for the slow tests."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in names]


def module(body: str) -> str:
    given = " x = f64[4,6] parameter(0)\n y = f64[4,6] parameter(1)\n i = s32[5] parameter(2)\n"
    return f"HloModule m\n{CALLED}ENTRY e {{\n{given} {body}\n}}\n"


def arguments(text: str) -> list[Array]:
    rng = np.random.default_rng(0)
    found: list[Array] = []
    for p in parse_hlo(text).entry.parameters:
        if p.name == "i":
            found.append(np.array([3, 0, 9, 3, -1], np.int32))
        elif p.shape.dtype.is_float:
            x = rng.standard_normal(p.dims) * 2.0 ** rng.integers(-20, 20, p.dims)
            x.reshape(-1)[3:6] = (-0.0, 0.0, 2.0**-1000)
            found.append(x.astype(p.shape.dtype.stored))
        else:
            found.append(rng.integers(-(2**62), 2**62, p.dims) >> rng.integers(0, 62, p.dims))
    return found


@pytest.mark.parametrize("name", slow_where(BODIES, "sorted by size", "handed on", "pooled"))
def test_as_xla_computes_it(name: str) -> None:
    text = module(BODIES[name])
    given = arguments(text)
    got = run(compiled(text).program, load_chip("tiny"), given)
    for a, b in zip(got, run_xla(text, *given), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.signbit(a), np.signbit(b))


SUMS = {
    "rows": "ROOT r = f64[4] reduce(x, z), dimensions={1}, to_apply=add",
    "all": "ROOT r = f64[] reduce(x, z), dimensions={0,1}, to_apply=add",
    "cumulative": "ROOT r = f64[4,6] reduce-window(x, z), window={size=1x6 pad=0_0x5_0}, to_apply=add",
    "windows": "ROOT r = f64[3,5] reduce-window(x, z), window={size=2x2}, to_apply=add",
    "scattered": (
        "v = f64[5] convert(i)\n u = f64[5,6] broadcast(v), dimensions={0}\n"
        " ROOT r = f64[4,6] scatter(x, i, u), update_window_dims={1},"
        " inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"
    ),
    "mapped": "ROOT r = f64[4,6] map(x, y), dimensions={0,1}, to_apply=add",
    "product": "ROOT r = f64[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "products in a batch": (
        "ROOT r = f64[4] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1},"
        " rhs_contracting_dims={1}"
    ),
}


@pytest.mark.parametrize("name", slow_where(SUMS, "windows", "mapped", "products in a batch"))
def test_sums(name: str) -> None:
    """Rounded as f64 is after each operation; the order is left open."""
    text = module(f"z = f64[] constant({1.5 if 'reduce(' in SUMS[name] else 0})\n {SUMS[name]}")
    given = arguments(text)
    (got,) = run(compiled(text).program, load_chip("tiny"), given)
    (want,) = run_xla(text, *given)
    np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-15 * np.abs(given[0]).max())


@pytest.mark.parametrize(
    "call",
    [
        "subtract(x, y)",
        "multiply(x, y)",
        *(
            pytest.param(call, marks=pytest.mark.slow)
            for call in (
                "add(x, y)",
                "divide(x, y)",
                "remainder(x, y)",
                "sqrt(x)",
                "floor(x)",
                "ceil(x)",
                "round-nearest-even(x)",
                "round-nearest-afz(x)",
            )
        ),
    ],
)
def test_arithmetic_as_evaluated(call: str) -> None:
    """Also of numbers that XLA's CPU backend takes for 0."""
    special = np.array([0, -0.0, 1, -1.5, np.inf, -np.inf, np.nan, 2.0**-1074, 2.0**-1022, 1e308, 2.5, 1 / 3])
    rng = np.random.default_rng(0)
    x = np.concatenate([special, rng.integers(0, 2**64 - 1, 60, np.uint64, endpoint=True).view(np.float64)])
    y = rng.permutation(np.where(rng.random(72) < 0.5, x * 1.25, x))
    text = (
        f"HloModule m\nENTRY e {{\n x = f64[72] parameter(0)\n y = f64[72] parameter(1)\n ROOT r = f64[72] {call}\n}}\n"
    )
    with np.errstate(all="ignore"):
        (want,) = evaluate(parse_hlo(text), x, y)
    (got,) = run(compiled(text).program, load_chip("tiny"), [x, y])
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


COMPLEX = {
    "parts": "a = f64[4,6] real(x)\n b = f64[4,6] imag(x)\n ROOT r = c128[4,6] complex(b, a)",
    "product": "ROOT r = c128[4,6] multiply(x, y)",
    "compared": "p = pred[4,6] compare(x, y), direction=NE\n ROOT r = c128[4,6] select(p, x, y)",
    "turned": "a = c128[6,4] transpose(x), dimensions={1,0}\n ROOT r = c128[6,4] negate(a)",
    "narrow": "a = c64[4,6] convert(x)\n ROOT r = c128[4,6] convert(a)",
    "sum": "z = c128[] constant((1, 2))\n ROOT r = c128[4] reduce(x, z), dimensions={1}, to_apply=plus",
    "quotient": "ROOT r = c128[4,6] divide(x, y)",
    "size": "ROOT r = f64[4,6] abs(x)",
    "root": "ROOT r = c128[4,6] sqrt(x)",
    "dot": "ROOT r = c128[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
}


@pytest.mark.parametrize("name", slow_where(COMPLEX, "product", "sum", "quotient", "size", "root", "dot"))
def test_complex(name: str) -> None:
    plus = "plus {\n a = c128[] parameter(0)\n b = c128[] parameter(1)\n ROOT r = c128[] add(a, b)\n}\n"
    given = " x = c128[4,6] parameter(0)\n y = c128[4,6] parameter(1)\n"
    text = f"HloModule m\n{plus}ENTRY e {{\n{given} {COMPLEX[name]}\n}}\n"
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((4, 6)) + 1j * rng.standard_normal((4, 6)) for _ in range(2))
    y[0] = x[0]
    (got,) = run(compiled(text).program, load_chip("tiny"), [x, y])
    np.testing.assert_allclose(got, run_xla(text, x, y)[0], rtol=1e-15, atol=2e-15)


@pytest.mark.parametrize(
    "call", ["exponential(x)", *(pytest.param(f"{n}(x)", marks=pytest.mark.slow) for n in ("log", "tanh", "rsqrt"))]
)
def test_functions(call: str) -> None:
    text = f"HloModule m\nENTRY e {{\n x = f64[40] parameter(0)\n ROOT r = f64[40] {call}\n}}\n"
    x = np.concatenate([[0.0, -0.0, np.inf, -np.inf, np.nan], np.linspace(-3, 800, 35)])
    (got,) = run(compiled(text).program, load_chip("tiny"), [x])
    np.testing.assert_allclose(got, evaluate(parse_hlo(text), x)[0], rtol=5e-16)


def test_what_has_no_form_on_words_is_refused_by_name() -> None:
    text = module(
        "s = u64[2] parameter(3)\n t = (u64[2], pred[4,6]) rng-bit-generator(s), algorithm=rng_three_fry\n"
        " p = pred[4,6] get-tuple-element(t), index=1\n ROOT r = f64[4,6] convert(p)"
    )
    with pytest.raises(CompileError, match=r"rng-bit-generator 't'.*u64 has no form on pairs of u32"):
        compiled(text)


def test_stages_lead_to_the_same_results_and_sums_to_the_same_bits() -> None:
    """Words of sums have the bits of the evaluator, since sums of words are known not to be associative."""
    text = (
        "HloModule m\n"
        + scalar_computation("add", "f64")
        + """ENTRY e {
 x = f64[5,40] parameter(0)
 z = f64[] constant(0)
 s = f64[5] reduce(x, z), dimensions={1}, to_apply=add
 ROOT c = c128[5] complex(s, s)
}
"""
    )
    first = compile_module(parse_hlo(text), load_chip("tiny"))
    again = compile_module(parse_hlo(print_hlo(canonicalise(parse_hlo(text)))), load_chip("tiny"))
    x = np.random.default_rng(0).standard_normal((5, 40))
    made = canonicalise(parse_hlo(text))
    for got in (run(first.program, load_chip("tiny"), [x]), run(again.program, load_chip("tiny"), [x])):
        np.testing.assert_array_equal(got[0], evaluate(made, x)[0])
