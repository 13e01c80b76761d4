"""The largest errors of functions of f32 on the chip, against numpy and scipy in f64.

Inputs are one of each of 2^24 equal pieces of all bit patterns, and as many around the points where functions bend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from scipy import special  # type: ignore[import-untyped]

from systolith import api as sl
from tests.isa_numerics.ulps import ulps

Array = np.ndarray[Any, Any]

REFERENCES: dict[str, Callable[[Array], Array]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "cosh": np.cosh,
    "cosine": np.cos,
    "erf": special.erf,
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "log": np.log,
    "log-plus-one": np.log1p,
    "logistic": special.expit,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sine": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}
"""By opcode: in f64, whose own errors are far below an ulp of f32."""

PIECE = 1 << 20
"""Inputs at a time."""
WHOLE = 16
"""Pieces of all bit patterns, and as many around `NEAR`."""
NEAR = (1e-3, 0.5, 1.0, 2.0, 5.0, 20.0, 90.0, 110.0)
"""Half of the widths around 0 and sizes around which inputs are dense."""


def inputs(number: int, size: int = PIECE) -> Array:
    """Every `number` gives others: of all bit patterns where it is even, dense near 0 and the points of `NEAR` else."""
    rng = np.random.default_rng(number)
    if number % 2 == 0:
        step = (1 << 32) // size
        patterns = np.arange(size, dtype=np.uint64) * step + rng.integers(0, step, size, dtype=np.uint64)
        return patterns.astype(np.uint32).view(np.float32)
    each = size // (2 * len(NEAR))
    spread = [rng.uniform(-n, n, each) for n in NEAR]
    around = [rng.choice([-n, n]) * (1 + rng.normal(0, 2.0**-10, each)) for n in NEAR]
    return np.concatenate([*spread, *around]).astype(np.float32)


@cache
def _program(opcode: str, size: int) -> sl.Executable:
    text = f"HloModule m\nENTRY e {{\n x = f32[{size}] parameter(0)\n ROOT y = f32[{size}] {opcode}(x)\n}}"
    return sl.Client("tpu_v3").compile(sl.parse_hlo(text))


def worst(opcode: str, x: Array) -> tuple[float, float]:
    """The largest error over some inputs, in ulp, and where it is."""
    with np.errstate(all="ignore"):
        (got,) = _program(opcode, x.size)(x, mode="values")
        errors = ulps(got.numpy(), REFERENCES[opcode](x.astype(np.float64)))
    at = int(errors.argmax())
    return float(errors[at]), float(x[at])


def line(opcode: str) -> str:
    """The row of a function: its largest error over all inputs, and where."""
    error, at = max(worst(opcode, inputs(number)) for number in range(2 * WHOLE))
    return f"| {opcode} | {error:.2f} | {np.float32(at)!s} |"


def accuracy(progress: Callable[[list[str]], Iterator[str]] = iter) -> Iterator[str]:
    """The lines of the table."""
    yield f"Largest errors of functions of f32 over {2 * WHOLE} million inputs, in units of the last place:"
    yield ""
    yield "| function | ulp | at |"
    yield "|---|---|---|"
    yield from map(line, progress([*REFERENCES]))
