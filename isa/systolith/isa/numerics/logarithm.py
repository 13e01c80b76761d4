"""log, log1p and pow.  Errors are measured over every exponent, in ulp of the exact result."""

from __future__ import annotations

from fractions import Fraction
from math import log2

import numpy as np

from systolith.isa.numerics.images import F32, S32, Array, Floats, image
from systolith.isa.numerics.sequences import (
    blocked,
    clamp,
    f32,
    horner,
    parts,
    put,
    scale,
    split,
    two_product,
    two_sum,
    where,
)

_SQRT_HALF = 0x3F3504F3
_SEAM = 0x3F350000  # 181/256: next to sqrt(1/2), on a border of the table's intervals
_LN2_HIGH = 0.693359375
_LN2_LOW = -2.12194440e-4
_LOG = (
    *(3.333331e-01, -2.4999987e-01, 2.0002231e-01, -1.6669263e-01, 1.4218564e-01, -1.2384051e-01),
    *(1.18734166e-01, -1.1791876e-01, 6.916887e-02),
)
_LOG2E_HIGH = float(np.float32(1.442695040888963))
_LOG2E_LOW = float(np.float32(1.4426950408889634 - _LOG2E_HIGH))
_LOG2 = (-7.213475e-01, 4.8089835e-01, -3.607507e-01, 2.8862128e-01)
_EXP2 = (6.931472e-01, 2.402265e-01, 5.550411e-02, 9.618036e-03, 1.3333426e-03, 1.5467391e-04, 1.531628e-05)


def _log_parts(f: Floats, exponent: Floats, low: Floats | None = None) -> Floats:
    """log(1 + f) + exponent * ln 2 (+ low), for f in sqrt(1/2) - 1 .. sqrt(2) - 1."""
    square = f * f
    rest = f * square * horner(f, _LOG) + exponent * f32(_LN2_LOW)
    if low is not None:
        rest += low
    rest -= square * f32(0.5)
    return (f + rest) + exponent * f32(_LN2_HIGH)


def _log_specials(u: Floats, y: Floats) -> Floats:
    y = put(y, u == f32(np.inf), f32(np.inf))
    y = put(y, u == 0, f32(-np.inf))
    return put(y, ~(u >= 0), f32(np.nan))


@blocked
def log(x: Floats) -> Floats:
    """Natural logarithm.  Error at most 0.9 ulp; -inf of 0, NaN of negative numbers."""
    exponent, m = parts(x, _SQRT_HALF)
    return _log_specials(x, _log_parts(m - f32(1), exponent.astype(F32)))


@blocked
def log1p(x: Floats) -> Floats:
    """log(1 + x).  Error at most 0.9 ulp; keeps -0 and subnormals; -inf of -1, NaN below."""
    u = f32(1) + x
    lost = where(x >= f32(1), f32(1) - (u - x), x - (u - f32(1)))  # rounding error of 1 + x
    exponent, m = parts(u, _SQRT_HALF)
    direct = exponent == 0
    low = where(direct, f32(0), lost / u)
    y = _log_parts(where(direct, x, m - f32(1)), exponent.astype(F32), low)
    y = where(np.abs(x) < f32(2.0**-26), x, y)
    return _log_specials(u, y)


def _log2_table() -> tuple[Floats, Floats, Floats]:
    """For 128 intervals of m in [181/256, 181/128): r close to 1/m (8 bits), log2(1/r) in two parts, the first of 12
    bits.

    Indexed by the top 7 bits of the significand: those from 53 on belong to m below 1.
    """
    reciprocals, highs, lows = [], [], []
    for i in range(128):
        centre = (1 + (i + 0.5) / 128) * (0.5 if i >= 53 else 1.0)
        r = Fraction(round(256 / centre), 256) if 2 <= i < 124 else Fraction(1)
        exact = -log2(r)
        high = round(exact * 4096) / 4096
        reciprocals.append(float(r))
        highs.append(high)
        lows.append(exact - high)
    return np.array(reciprocals, F32), np.array(highs, F32), np.array(lows, F32)


_RECIPROCAL, _TABLE_HIGH, _TABLE_LOW = _log2_table()


def _log2(x: Floats) -> tuple[Floats, Floats]:
    """log2 of positive finite x in two f32 parts, good to 2^-31 of it."""
    exponent, m = parts(x, _SEAM)
    index = (image(m) >> np.uint32(16)) & np.uint32(127)
    r = _RECIPROCAL[index]
    high, low = split(m)
    z, z_low = two_sum(high * r - f32(1), low * r)
    linear, linear_low = two_product(z, np.full_like(z, _LOG2E_HIGH))
    linear_low += z * f32(_LOG2E_LOW) + z_low * f32(_LOG2E_HIGH)
    total, error = two_sum(exponent.astype(F32) + _TABLE_HIGH[index], linear)
    error += (linear_low + _TABLE_LOW[index]) + z * z * horner(z, _LOG2)
    result = total + error
    return result, error - (result - total)


def _pow_positive(x: Floats, y: Floats) -> Floats:
    """x^y of positive finite x."""
    log_high, log_low = _log2(x)
    power = np.fmin(np.fmax(y, f32(-(2.0**33))), f32(2.0**33))
    product, error = two_product(power, log_high)
    error += power * log_low
    safe = clamp(product, -160.0, 140.0)
    whole = np.rint(safe)
    rest = (safe - whole) + where(np.abs(product) < f32(140), error, f32(0))
    return scale(f32(1) + rest * horner(rest, _EXP2), whole.astype(S32))


@blocked
def pow_(x: Floats, y: Floats) -> Floats:
    """x^y as IEEE 754 `pow`.  Error at most 2 ulp.

    x^0 = 1 and 1^y = 1 for anything, NaN included; negative x needs an integer y, else NaN; zeros and infinities by
    sign and oddness of y; (-1)^inf = 1.
    """
    size = np.abs(x)
    ordinary = (size > 0) & (size < f32(np.inf))
    result = _pow_positive(where(ordinary, size, f32(1)), where(np.isfinite(y), y, f32(0)))
    grows = (size > f32(1)) == (y > 0)
    limit = where(grows, f32(np.inf), f32(0))
    result = put(result, ~ordinary | np.isinf(y), limit)
    result = put(result, (size == f32(1)) | (y == 0), f32(1))
    if (image(x) >> np.uint32(31)).any():
        result = _signed(x, y, result)
    unordered = np.isnan(x) | np.isnan(y)
    return put(result, unordered & (x != f32(1)) & (y != 0), f32(np.nan))


def _signed(x: Floats, y: Floats, result: Floats) -> Floats:
    negative = (image(x) >> np.uint32(31)) != 0
    whole = np.trunc(y) == y
    half = y * f32(0.5)
    odd: Array = whole & (np.trunc(half) != half)
    result = where(negative & odd, -result, result)
    return put(result, (x < 0) & np.isfinite(x) & ~whole, f32(np.nan))
