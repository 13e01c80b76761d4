"""Functions of f64 as pairs of u32, on the evaluator: at most 2 ulp from floats of 64 bits of mantissa."""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.compiler.passes.test_doubles import SPECIAL, module, numbers, split

Array = npt.NDArray[Any]
Long = np.longdouble

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "log": np.log,
    "log-plus-one": np.log1p,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "atan": np.arctan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
}
UNITS = 2.0


def assert_near(got: Array, exact: Array, units: float = UNITS) -> None:
    """Within units in the last place; infinities, NaN and signs as they are."""
    with np.errstate(all="ignore"):
        want = exact.astype(np.float64)
        unit = np.spacing(np.abs(want))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    there = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[there]), np.signbit(want[there]))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
    finite = np.isfinite(want)
    error = np.abs(got[finite].astype(Long) - exact[finite]) / unit[finite].astype(Long)
    assert float(error.max()) <= units


@pytest.mark.parametrize("call", FUNCTIONS)
def test_within_two_units(call: str) -> None:
    rng = np.random.default_rng(1)
    n = 1000
    x = np.concatenate(
        [
            numbers(3, 200),
            rng.standard_normal(n) * 2.0 ** rng.integers(-30, 11, n),
            rng.uniform(-750, 720, n),
            1 + rng.standard_normal(n) * 2.0 ** rng.integers(-52, 0, n),
            rng.uniform(-1, 1, n),
        ]
    )
    (got,) = split(module(f"{call}(x)", "f64", "f64", count=len(x)), x)
    with np.errstate(all="ignore"):
        assert_near(got, FUNCTIONS[call](x.astype(Long)))


def test_error_function() -> None:
    rng = np.random.default_rng(0)
    quarters = np.arange(-26, 27) / 4
    some = [0.0, -0.0, np.inf, -np.inf, np.nan, 5.9, 5e-324]
    x = np.concatenate([rng.uniform(-6.5, 6.5, 2000), rng.uniform(-0.5, 0.5, 1000), quarters, some])
    x = np.concatenate([x, np.nextafter(quarters, 9), np.exp2(rng.uniform(-1074, -1, 500))])
    (got,) = split(module("erf(x)", "f64", "f64", count=len(x)), x)
    assert_near(got, np.array([erf(v) for v in x], Long), 1.0)  # of a library whose own error is below 1


def test_angles_of_points() -> None:
    rng = np.random.default_rng(2)
    n = 4000
    some = np.concatenate([SPECIAL, -SPECIAL])
    y, x = (v.ravel() for v in np.meshgrid(some, some))
    y, x = (np.concatenate([v, rng.standard_normal(n) * 2.0 ** rng.integers(-30, 30, n)]) for v in (y, x))
    (got,) = split(module("atan2(x, y)", "f64", "f64", "f64", count=len(x)), y, x)
    assert_near(got, np.arctan2(y.astype(Long), x.astype(Long)))


@pytest.mark.parametrize(("call", "function"), [("sine", np.sin), ("cosine", np.cos), ("tan", np.tan)])
def test_angles_of_any_size(call: str, function: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    n = 2000
    hardest = 6381956970095103.0 * 2.0**797  # nearest to a multiple of pi / 2 of all
    special = [hardest, 5e-324, 1e-310, np.pi / 4, 0.7853981633974484, 1e308, 0.0, -0.0, np.inf, -np.inf, np.nan]
    spread = np.exp2(rng.uniform(-60, 1023.9, n))
    x = np.concatenate([rng.uniform(-7, 7, n), spread, -spread, np.arange(1, 200) * np.pi / 2, special])
    (got,) = split(module(f"{call}(x)", "f64", "f64", count=len(x)), x)
    with np.errstate(all="ignore"):
        assert_near(got, function(x.astype(Long)))


def test_powers() -> None:
    rng = np.random.default_rng(2)
    n = 2000
    near = np.abs(1 + rng.standard_normal(n) * 2.0 ** rng.integers(-40, 0, n))
    x = np.concatenate([np.exp2(rng.uniform(-30, 30, n)), near, -rng.integers(1, 50, n).astype(np.float64)])
    y = np.concatenate(
        [
            rng.standard_normal(n) * 2.0 ** rng.integers(-10, 6, n),
            rng.standard_normal(n) * 2.0 ** rng.integers(0, 40, n),
            rng.integers(-60, 60, n).astype(np.float64),
        ]
    )
    (got,) = split(module("power(x, y)", "f64", "f64", "f64", count=3 * n), x, y)
    with np.errstate(all="ignore"):
        assert_near(got, np.power(x.astype(Long), y.astype(Long)))


def test_powers_at_the_ends() -> None:
    """As C has them, of f64: that of wider floats differs for odd integers beyond 2^53."""
    some = np.concatenate([SPECIAL, -SPECIAL, [3.0, -3.0, 2.0**53 + 2, -4.0]])
    x, y = (v.ravel() for v in np.meshgrid(some, some))
    (got,) = split(module("power(x, y)", "f64", "f64", "f64", count=len(x)), x, y)
    with np.errstate(all="ignore"):
        assert_near(got, np.power(x, y).astype(Long))
