"""exp, expm1, tanh, logistic and erf.  Errors are measured over every exponent, in ulp of the exact result."""

from __future__ import annotations

import numpy as np

from systolith.isa.numerics.images import S32, Floats, Ints
from systolith.isa.numerics.sequences import blocked, clamp, f32, horner, keep_nan, power_of_two, put, scale, where

_LOG2E = 1.44269504
_LN2_HIGH = 0.693359375  # ten bits: its product with an exponent is exact
_LN2_LOW = -2.12194440e-4
_EXP = (0.5, 1.6666667e-01, 4.1666266e-02, 8.333268e-03, 1.3946247e-03, 1.9916729e-04)
_TANH = (-3.3333284e-01, 1.333149e-01, -5.374338e-02, 2.0650182e-02, -5.716573e-03)
_ERF_NEAR = (1.2837917e-01, -3.7612635e-01, 1.12837195e-01, -2.6860751e-02, 5.2044294e-03, -8.181847e-04, 8.538479e-05)
_ERFC_LOG = (
    *(-1.5338417e-04, 1.129397e00, 6.336273e-01, 1.0790574e-01, -2.4812821e-02, 4.01341e-03),
    *(-3.847897e-04, 1.2330712e-05, 6.627592e-07),
)


def _reduced(x: Floats) -> tuple[Ints, Floats, Floats]:
    """n, r, e^r - 1 where x = n ln 2 + r; x finite and |x| <= 110."""
    whole = np.rint(x * f32(_LOG2E))
    high, low = x - whole * f32(_LN2_HIGH), whole * f32(_LN2_LOW)
    r = high - low
    lost = (high - r) - low
    return whole.astype(S32), r, r + (r * r * horner(r, _EXP) + lost)


def _exp(x: Floats) -> Floats:
    n, _, growth = _reduced(clamp(x, -104.0, 89.0))
    return scale(f32(1) + growth, n)


@blocked
def exp(x: Floats) -> Floats:
    """e^x.  Error at most 0.9 ulp; +inf above 88.72, subnormal below -87.33, 0 below -103.97."""
    return keep_nan(x, _exp(x))


@blocked
def expm1(x: Floats) -> Floats:
    """e^x - 1.  Error at most 1.5 ulp; keeps -0 and subnormals."""
    n, r, growth = _reduced(clamp(x, -104.0, 89.0))
    near = clamp(n.astype(np.float32), -30.0, 30.0).astype(S32)
    power = power_of_two(near)
    middle = (power - f32(1)) + power * growth
    y = put(middle, n > 24, scale(f32(1) + growth, n))
    y = where(n == 0, where(np.abs(r) < f32(2.0**-26), x, growth), y)
    return keep_nan(x, y)


@blocked
def tanh(x: Floats) -> Floats:
    """Hyperbolic tangent.  Error at most 1.4 ulp; keeps -0 and subnormals."""
    size = np.abs(x)
    far = f32(1) - f32(2) / (_exp(np.fmin(size, f32(10)) * f32(2)) + f32(1))
    square = np.fmin(size, f32(1)) * np.fmin(size, f32(1))
    near = size + size * (square * horner(square, _TANH))
    return keep_nan(x, np.copysign(where(size < f32(0.625), near, far), x))


@blocked
def logistic(x: Floats) -> Floats:
    """1 / (1 + e^-x).  Error at most 2.0 ulp; goes through the subnormals below -87.33 to 0 below -103.97."""
    small = _exp(-np.abs(x))
    total = f32(1) + small
    lost = small - (total - f32(1))  # rounding error of the denominator
    y = where(x < 0, small, f32(1)) / total
    return keep_nan(x, y - y * (lost / total))


@blocked
def erf(x: Floats) -> Floats:
    """Error function.  Error at most 1.5 ulp; keeps -0 and subnormals."""
    size = np.fmin(np.abs(x), f32(4))
    square = size * size
    near = size + size * horner(square, _ERF_NEAR)
    far = f32(1) - _exp(-horner(size, _ERFC_LOG))
    return keep_nan(x, np.copysign(where(size < f32(0.9), near, far), x))
