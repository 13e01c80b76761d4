"""The transcendental micro-operations: fixed sequences of f32 add, subtract, multiply, divide and square root (each
correctly rounded, none fused), integer operations, selects and small tables.

f32 arrays in, f32 arrays out, any shape; NaNs come out raw (`images.py`).  Each docstring states the largest error that
was measured, in ulp, over dense samples of every exponent.
"""

from __future__ import annotations

from collections.abc import Callable

from systolith.isa.numerics.exponential import erf, exp, expm1, logistic, tanh
from systolith.isa.numerics.images import Floats
from systolith.isa.numerics.logarithm import log, log1p, pow_
from systolith.isa.numerics.roots import cbrt, rsqrt
from systolith.isa.numerics.trigonometric import atan2, cos, sin, tan

FUNCTIONS: dict[str, Callable[..., Floats]] = {
    "exp": exp,
    "expm1": expm1,
    "log": log,
    "log1p": log1p,
    "tanh": tanh,
    "logistic": logistic,
    "rsqrt": rsqrt,
    "cbrt": cbrt,
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "erf": erf,
    "pow": pow_,
    "atan2": atan2,
}
