"""Reductions, windows and scatters by functions of f64 and complex numbers: values of XLA, code of one length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand.long_computations import LoopLongComputations
from systolith.compiler.passes.expand.scatters import SimplifyScatters
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.chip import load_chip
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import compiled, run
from tests.examples import examples

LOG_OF_SUM = """ m = {t}[] maximum(a, b)
 d = {t}[] subtract(a, b)
 s = {t}[] abs(d)
 n = {t}[] negate(s)
 e = {t}[] exponential(n)
 l = {t}[] log-plus-one(e)
 ROOT r = {t}[] add(m, l)
"""
QUOTIENT = """ p = {t}[] multiply(a, b)
 s = {t}[] add(a, b)
 ROOT r = {t}[] divide(p, s)
"""


def computation(t: str, body: str) -> str:
    return f"HloModule m\nf {{\n a = {t}[] parameter(0)\n b = {t}[] parameter(1)\n{body.format(t=t)}}}\n"


def text(t: str, body: str, init: str, dims: tuple[int, ...], result: tuple[int, ...], window: str) -> str:
    shape, made = (f"{t}[{','.join(map(str, d))}]" for d in (dims, result))
    return computation(t, body) + (
        f"ENTRY e {{\n x = {shape} parameter(0)\n i = {t}[] constant({init})\n"
        f" ROOT w = {made} reduce-window(x, i), window={{{window}}}, to_apply=f\n}}\n"
    )


def running(n: int) -> str:
    """The logarithms of the sums of exponentials of all before."""
    return text("f64", LOG_OF_SUM, "-1e300", (n, 3), (n, 3), f"size={n}x1 pad={n - 1}_0x0_0")


@st.composite
def windows(draw: st.DrawFn) -> tuple[tuple[int, ...], str]:
    dims, fields = [], []
    for _ in range(draw(st.integers(1, 3))):
        size, stride, low, high, base, kernel = (
            draw(st.integers(*ends)) for ends in ((1, 3), (1, 3), (0, 2), (0, 2), (1, 2), (1, 2))
        )
        dims.append(draw(st.integers((size - 1) * kernel + 1, 6)))
        fields.append((size, stride, f"{low}_{high}", base, kernel))
    names = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate")
    return tuple(dims), " ".join(f"{n}={'x'.join(str(f[k]) for f in fields)}" for k, n in enumerate(names))


@examples(15, 400)
@given(windows())
def test_any_window_has_the_same_value(drawn: tuple[tuple[int, ...], str]) -> None:
    dims, window = drawn
    x = np.random.default_rng(0).standard_normal(dims)
    for body, init, given_array in ((LOG_OF_SUM, "-1e300", x), (QUOTIENT, "1e100", np.abs(x) + 0.5)):
        plain = text("f64", body, init, dims, _result(dims, window), window)
        assert_same_after(parse_hlo(plain), plain, given_array)


def _result(dims: tuple[int, ...], window: str) -> tuple[int, ...]:
    fields = {name: values.split("x") for name, values in (part.split("=") for part in window.split())}
    found = []
    for d, n in enumerate(dims):
        low, high = map(int, fields["pad"][d].split("_"))
        size, stride, base, kernel = (int(fields[k][d]) for k in ("size", "stride", "lhs_dilate", "rhs_dilate"))
        found.append(((n - 1) * base + 1 + low + high - ((size - 1) * kernel + 1)) // stride + 1)
    return tuple(found)


def test_code_is_as_long_for_a_window_of_any_length() -> None:
    short, long = (sum(1 for _ in canonicalise(parse_hlo(running(n))).instructions()) for n in (8, 80))
    assert short == long


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_any_dimensions_reduce_to_the_same_value(dims: list[int], draw: st.DataObject) -> None:
    over = draw.draw(st.sets(st.integers(0, len(dims) - 1), min_size=1))
    kept = ",".join(str(n) for d, n in enumerate(dims) if d not in over)
    body = computation("f64", LOG_OF_SUM) + (
        f"ENTRY e {{\n x = f64[{','.join(map(str, dims))}] parameter(0)\n i = f64[] constant(-1e300)\n"
        f" ROOT s = f64[{kept}] reduce(x, i), dimensions={{{','.join(map(str, over))}}}, to_apply=f\n}}\n"
    )
    assert_same_after(parse_hlo(body), body, np.random.default_rng(0).standard_normal(dims))


SCATTER = (
    "ENTRY e {{\n x = f64[{n},3] parameter(0)\n i = s32[{k},1] parameter(1)\n u = f64[{k},{w},3] parameter(2)\n"
    " ROOT s = f64[{n},3] scatter(x, i, u), update_window_dims={{1,2}}, inserted_window_dims={{}},"
    " scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=f\n}}\n"
)


def scattered(n: int, k: int, w: int) -> tuple[str, list[np.ndarray]]:
    """Windows at indices of which some are equal, and some outside."""
    rng = np.random.default_rng(n)
    indices = rng.integers(-2, n + 2, (k, 1)).astype(np.int32)
    text = computation("f64", LOG_OF_SUM) + SCATTER.format(n=n, k=k, w=w)
    return text, [rng.standard_normal((n, 3)), indices, rng.standard_normal((k, w, 3))]


@given(st.integers(2, 6), st.integers(1, 6), st.integers(1, 2))
def test_any_updates_scatter_to_the_same_value(n: int, k: int, w: int) -> None:
    body, arrays = scattered(n, k, w)
    module = parse_hlo(body)
    SimplifyScatters().run(module)
    assert_same_after(module, body, *arrays)


def assert_same_after(module: Module, body: str, *arrays: np.ndarray) -> None:
    """The pass, on a module that stands for a text, changes no value of the text's."""
    (want,) = evaluate(parse_hlo(body), *arrays)
    LoopLongComputations().run(module)
    verify(module)
    (got,) = evaluate(module, *arrays)
    np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)


def test_short_windows_and_plain_operations_stay() -> None:
    for body, size in ((LOG_OF_SUM, 2), (" ROOT r = {t}[] multiply(a, b)\n", 5)):
        n = 9 - size + 1
        assert not LoopLongComputations().run(parse_hlo(text("f64", body, "1", (9,), (n,), f"size={size}")))


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(running(9), marks=pytest.mark.slow),
        text("c64", QUOTIENT, "(1, 2)", (5, 4), (2, 1), "size=2x3 stride=2x2"),
        scattered(3, 3, 1)[0],
    ],
    ids=["running", "complex", "scatter"],
)
def test_on_the_chip(module: str) -> None:
    rng = np.random.default_rng(1)
    given: list[np.ndarray] = []
    for p in parse_hlo(module).entry.parameters:
        random = rng.integers(-1, 6, p.dims) if p.shape.dtype.is_integer else rng.standard_normal(p.dims) + 2
        given.append(random.astype(p.shape.dtype.stored))
    (got,) = run(compiled(module).program, load_chip("tiny"), given)
    (want,) = run_xla(module, *given)
    np.testing.assert_allclose(got, want, rtol=1e-5 if got.dtype == np.complex64 else 1e-14)
