"""Transcendental sequences: error over every exponent, special values, and that their bits never change."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from systolith.isa.numerics.transcendental import FUNCTIONS
from tests.isa_numerics.ulps import ulps

Array = np.ndarray[Any, Any]
INF, NAN = math.inf, math.nan


def _logistic(x: Array) -> Array:
    return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))


def _erf(x: Array) -> Array:
    return np.array([math.erf(v) for v in x])


# f64 references: their own error is far below an ulp of f32.  The limits are those of the docstrings.
UNARY: dict[str, tuple[Callable[[Array], Array], float]] = {
    "exp": (np.exp, 0.9),
    "expm1": (np.expm1, 1.5),
    "log": (np.log, 0.9),
    "log1p": (np.log1p, 0.9),
    "tanh": (np.tanh, 1.4),
    "logistic": (_logistic, 2.0),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.5),
    "cbrt": (np.cbrt, 0.8),
    "sin": (np.sin, 1.6),
    "cos": (np.cos, 1.6),
    "tan": (np.tan, 1.2),
    "erf": (_erf, 1.5),
}
BINARY: dict[str, tuple[Callable[[Array, Array], Array], float]] = {"pow": (np.power, 2.0), "atan2": (np.arctan2, 1.6)}


def samples(each: int, seed: int = 1) -> Array:
    """`each` significands of every exponent, both signs, and more where most functions do most."""
    rng = np.random.default_rng(seed)
    exponents = np.repeat(np.arange(255, dtype=np.uint32), each) << np.uint32(23)
    x = (exponents | rng.integers(0, 1 << 23, exponents.size, np.uint32)).view(np.float32)
    spans = [rng.uniform(-s, s, 60 * each).astype(np.float32) for s in (1, 5, 110)]
    return np.concatenate([x, -x, *spans, (1 + rng.uniform(-0.01, 0.01, 60 * each)).astype(np.float32)])


@pytest.mark.parametrize("name", UNARY)
def test_error_in_ulp(name: str) -> None:
    reference, limit = UNARY[name]
    x = samples(60 if name == "erf" else 400)
    with np.errstate(all="ignore"):
        errors = ulps(FUNCTIONS[name](x), reference(x.astype(np.float64)))
    worst = int(errors.argmax())
    assert errors[worst] <= limit, float(x[worst])
    assert errors[worst] > limit / 4  # the docstring's figure is not idle


@pytest.mark.parametrize("name", BINARY)
def test_error_in_ulp_of_two_arguments(name: str) -> None:
    reference, limit = BINARY[name]
    rng = np.random.default_rng(2)
    x, y = samples(300, 3), samples(300, 4)
    rng.shuffle(y)
    with np.errstate(all="ignore"):
        if name == "pow":
            x = np.abs(x)
            logs = np.log2(x.astype(np.float64))
            near = (rng.uniform(-150, 130, x.size) / np.where(logs == 0, 1, logs)).astype(np.float32)
            y = np.where(rng.random(x.size) < 0.8, near, y)
        else:
            y = np.where(rng.random(x.size) < 0.5, (x * rng.uniform(-4, 4, x.size)).astype(np.float32), y)
        errors = ulps(FUNCTIONS[name](x, y), reference(x.astype(np.float64), y.astype(np.float64)))
    worst = int(errors.argmax())
    assert errors[worst] <= limit, (float(x[worst]), float(y[worst]))


SPECIAL: dict[str, list[tuple[float, float]]] = {
    "exp": [(0.0, 1), (-0.0, 1), (INF, INF), (-INF, 0.0), (NAN, NAN), (89.0, INF), (-104.0, 0.0), (3e38, INF)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1), (NAN, NAN), (1e-40, 1e-40), (-1e-40, -1e-40)],
    "log": [(1.0, 0.0), (0.0, -INF), (-0.0, -INF), (-1.0, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (-1.5, NAN), (INF, INF), (NAN, NAN), (-1e-41, -1e-41)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1), (-INF, -1), (NAN, NAN), (1e-42, 1e-42), (20.0, 1)],
    "logistic": [(0.0, 0.5), (-0.0, 0.5), (INF, 1), (-INF, 0.0), (NAN, NAN), (100.0, 1)],
    "rsqrt": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN), (NAN, NAN), (4.0, 0.5), (-INF, NAN)],
    "cbrt": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (-27.0, -3), (8.0, 2)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (-1e-42, -1e-42)],
    "cos": [(0.0, 1), (-0.0, 1), (INF, NAN), (NAN, NAN), (1e-42, 1)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (NAN, NAN), (-1e-42, -1e-42)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1), (-INF, -1), (NAN, NAN), (5.0, 1)],
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name: str) -> None:
    x, want = np.array(SPECIAL[name], np.float32).T
    with np.errstate(all="ignore"):
        got = FUNCTIONS[name](x)
    assert np.array_equal(got, want, equal_nan=True)
    assert np.array_equal(np.signbit(got) & ~np.isnan(want), np.signbit(want) & ~np.isnan(want))


EDGES = np.array([0, 1, 0.5, 2, 3, 1e30, 1e-40, 2.5, 3e38, INF, 16777217], np.float32)
EDGES = np.concatenate([EDGES, -EDGES, [np.float32(np.nan)]])


@pytest.mark.parametrize(("name", "reference"), [("pow", math.pow), ("atan2", math.atan2)])
def test_edges_of_two_arguments(name: str, reference: Callable[[float, float], float]) -> None:
    def exact(a: float, b: float) -> float:
        try:
            return reference(a, b)
        except OverflowError:
            return math.copysign(INF, -1 if a < 0 and b % 2 == 1 else 1)
        except ValueError:  # where Python raises, IEEE 754 has an infinity for 0 to a negative power, else NaN
            odd = b % 2 == 1
            return math.copysign(INF, a if odd else 1) if a == 0 and b < 0 else NAN

    x, y = (v.reshape(-1) for v in np.meshgrid(EDGES, EDGES))
    with np.errstate(all="ignore"):
        got = FUNCTIONS[name](x, y)
        want = np.array([exact(float(a), float(b)) for a, b in zip(x, y, strict=True)]).astype(np.float32)
        close = (got == want) | (np.abs(got - want) <= np.abs(want) * 1e-6) | (np.isnan(got) & np.isnan(want))
    assert close.all(), [(x[i], y[i], got[i], want[i]) for i in np.flatnonzero(~close)[:5]]
    zero = want == 0
    assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


# Checksums of the results' bits: the same on every machine, and changed only together with the definition.
GOLDEN = {
    "exp": 0xE16D596C,
    "expm1": 0x905AFCEC,
    "log": 0x41846384,
    "log1p": 0xC5C4C630,
    "tanh": 0x40866FB1,
    "logistic": 0x23ED45B6,
    "rsqrt": 0x959153CD,
    "cbrt": 0x569E051C,
    "sin": 0xD66F7BC7,
    "cos": 0x7937F524,
    "tan": 0x7F251221,
    "erf": 0x6D57DFC5,
    "pow": 0x4D1B2A8E,
    "atan2": 0xE8182851,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits_are_the_same_everywhere(name: str) -> None:
    exponents = np.arange(0, 2**32, 65537, dtype=np.uint64).astype(np.uint32)
    x = exponents.view(np.float32)
    with np.errstate(all="ignore"):
        out = FUNCTIONS[name](*((x,) if name in UNARY else (x, x[::-1] * np.float32(1.5))))
    bits = np.where(np.isnan(out), np.uint32(0x7FC00000), out.view(np.uint32)).astype("<u4")
    assert zlib.crc32(bits.tobytes()) == GOLDEN[name]


def test_shapes_are_kept_and_broadcast() -> None:
    x = np.linspace(0.1, 3, 24, dtype=np.float32).reshape(2, 3, 4)
    assert FUNCTIONS["exp"](x).shape == (2, 3, 4)
    assert np.array_equal(FUNCTIONS["exp"](x[:, ::2]), FUNCTIONS["exp"](x)[:, ::2])
    assert FUNCTIONS["pow"](x, x[:1, :, :1]).shape == (2, 3, 4)
    assert FUNCTIONS["sin"](np.array(1, np.float32)).shape == ()
    assert np.array_equal(
        FUNCTIONS["tanh"](np.full(40000, 0.3, np.float32)),
        np.full(40000, FUNCTIONS["tanh"](np.array([0.3], np.float32))),
    )
