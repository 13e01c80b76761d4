"""sin, cos, tan and atan2.  Errors are measured over every exponent, in ulp of the exact result.

Arguments from pi/4 up are reduced exactly (Payne and Hanek): the 24-bit significand times 96 bits of 2/pi, of which
those that only count whole turns are left out, gives the quadrant and 62 bits of the fraction.  No f32 comes closer
to a multiple of pi/2 than 2^-31 of a quadrant, so that 31 good bits are left.
"""

from __future__ import annotations

import numpy as np

from systolith.isa.numerics.images import F32, S32, Array, Floats, Ints, has_nan, image
from systolith.isa.numerics.sequences import blocked, f32, horner, power_of_two, put, two_product, two_sum, where

_TWO_OVER_PI = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBB  # its first 240 bits
_LEAST = -24  # exponent of the last bit of the smallest significand that is reduced
_SIN = (-1.6666667e-01, 8.333329e-03, -1.9839333e-04, 2.7183025e-06)
_COS = (4.1666646e-02, -1.3887367e-03, 2.443836e-05)
_ATAN = (-3.3333316e-01, 1.9998488e-01, -1.424383e-01, 1.0595857e-01, -6.0830723e-02)
_QUARTER_PI = 0.78539816
_HALF_PI_TOP = 1.5703125  # 12 bits
_HALF_PI_REST = 4.8382679e-4
_HALF_PI = 1.5707964
_PI_HIGH, _PI_LOW = 3.1415927, -8.7422777e-08
_TAN_EIGHTH = 0.41421357


def _windows() -> Array:
    """[129, 3] words: for exponent e = _LEAST + i, the 96 bits of 2/pi from the one that weighs 2^(1 - e) on."""
    bits = _TWO_OVER_PI
    rows = []
    for e in range(_LEAST, 105):
        window = (bits >> (240 - (e - 2 + 96))) & (2**96 - 1)
        rows.append([(window >> s) & 0xFFFFFFFF for s in (64, 32, 0)])
    return np.array(rows, np.uint64)


_WINDOWS = _windows()


def _reduce(x: Floats) -> tuple[Ints, Floats, Floats]:
    """Quadrant (mod 4) and remainder in -pi/4 .. pi/4 of finite x >= 0, and what its rounding has left."""
    direct = x < f32(_QUARTER_PI)
    if direct.all():
        return np.zeros(x.shape, S32), x, np.zeros(x.shape, F32)
    quadrant, rest, low = _reduce_large(where(direct, f32(1), x))
    return quadrant * (~direct).astype(S32), where(direct, x, rest), where(direct, f32(0), low)


def _reduce_large(x: Floats) -> tuple[Ints, Floats, Floats]:
    bits = image(x)
    words = _WINDOWS[(bits >> np.uint32(23)).astype(np.int64) - (150 + _LEAST)]
    m = ((bits & np.uint32(0x7FFFFF)) | np.uint32(0x800000)).astype(np.uint64)
    low32 = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    middle = m * words[:, 1] + ((m * words[:, 2]) >> shift)
    top = m * words[:, 0] + (middle >> shift)
    turn = (top << shift) | (middle & low32)  # two bits of quadrant, 62 of fraction
    quadrant = (turn + np.uint64(1 << 61)) >> np.uint64(62)
    fraction = (turn - (quadrant << np.uint64(62))).view(np.int64)
    return (quadrant & np.uint64(3)).astype(S32), *_radians(fraction)


def _radians(fraction: Array) -> tuple[Floats, Floats]:
    """Fraction / 2^62 quadrants in radians, 36 significant bits times pi/2, and what rounding has left."""
    size = np.abs(fraction).view(np.uint64)
    # Bit length by way of f64, which holds the upper 53 bits exactly.
    length = ((size >> np.uint64(9)).astype(np.float64).view(np.uint64) >> np.uint64(52)) - np.uint64(1022 - 9)
    shift = np.uint64(61) - length
    normal = size << shift
    high = (normal >> np.uint64(49)).astype(F32)
    rest = ((normal >> np.uint64(25)) & np.uint64(0xFFFFFF)).astype(F32) * f32(2.0**-24)
    top, below = high * f32(_HALF_PI_TOP), high * f32(_HALF_PI_REST) + rest * f32(_HALF_PI)
    angle = top + below
    left = below - (angle - top)
    unit = power_of_two(-13 - shift.astype(S32))
    unit = np.asarray(np.copysign(unit, fraction.astype(F32)), F32)
    return angle * unit, left * unit


def _sine(r: Floats) -> Floats:
    square = r * r
    return r + r * (square * horner(square, _SIN))


def _cosine(r: Floats) -> Floats:
    square = r * r
    return f32(1) + (square * square * horner(square, _COS) - square * f32(0.5))


def _sine_parts(r: Floats, low: Floats) -> tuple[Floats, Floats]:
    """Sine of r + low, and what its rounding has left."""
    square = r * r
    return _sum_of(r, r * (square * horner(square, _SIN)) + low)


def _cosine_parts(r: Floats, low: Floats) -> tuple[Floats, Floats]:
    """Cosine of r + low, and what its rounding has left."""
    square, below = two_product(r, r)
    curve = square * square * horner(square, _COS)
    top, left = _sum_of(np.ones(r.shape, F32), square * f32(-0.5))
    return _sum_of(top, left + (curve - (below * f32(0.5) + r * low)))


def _sum_of(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The sum, and what its rounding has left; |a| >= |b|."""
    total = a + b
    return total, b - (total - a)


def _quotient(a: Floats, a_low: Floats, b: Floats, b_low: Floats) -> tuple[Floats, Floats]:
    """(a + a_low) / (b + b_low), and what its rounding has left."""
    y: Floats = a / b
    product, below = two_product(y, b)
    rest: Floats = (((a - product) - below) + a_low) - y * b_low
    left: Floats = rest / b
    return y, left


def _finite(x: Floats) -> tuple[Floats, Array | None]:
    """|x| with 0 for values that have no sine, and where those are."""
    size = np.abs(x)
    bad = ~(size < f32(np.inf))
    return (where(bad, f32(0), size), bad) if bad.any() else (size, None)


def _flip(y: Floats, condition: Array) -> Floats:
    return (image(y) ^ (condition.astype(np.uint32) << np.uint32(31))).view(F32)


def _finish(y: Floats, bad: Array | None) -> Floats:
    return y if bad is None else put(y, bad, f32(np.nan))


@blocked
def sin(x: Floats) -> Floats:
    """Sine, of any finite argument.  Error at most 1.6 ulp; keeps -0 and subnormals; NaN of infinities."""
    size, bad = _finite(x)
    n, r, _ = _reduce(size)
    y = where((n & 1) != 0, _cosine(r), _sine(r))
    return _finish(_flip(y, ((n & 2) != 0) ^ np.signbit(x)), bad)


@blocked
def cos(x: Floats) -> Floats:
    """Cosine, of any finite argument.  Error at most 1.6 ulp; NaN of infinities."""
    size, bad = _finite(x)
    n, r, _ = _reduce(size)
    y = where((n & 1) != 0, _sine(r), _cosine(r))
    return _finish(_flip(y, ((n + 1) & 2) != 0), bad)


@blocked
def tan(x: Floats) -> Floats:
    """Tangent, of any finite argument.  Error at most 1.2 ulp; keeps -0 and subnormals; NaN of infinities."""
    size, bad = _finite(x)
    n, r, low = _reduce(size)
    odd = (n & 1) != 0
    sine, cosine = _sine_parts(r, low), _cosine_parts(r, low)
    above = [where(odd, c, s) for s, c in zip(sine, cosine, strict=True)]
    below = [where(odd, s, c) for s, c in zip(sine, cosine, strict=True)]
    y, left = _quotient(above[0], above[1], below[0], below[1])
    y = y + left
    return _finish(_flip(y, odd ^ np.signbit(x)), bad)


def _less_one(small: Floats, large: Floats) -> tuple[Floats, Floats]:
    """(t - 1) / (t + 1) of t = small / large, which is above 0.4, and what its rounding has left."""
    both = np.isinf(small)
    small, large = where(both, f32(1), small), where(both, f32(1), large)
    unit = where(large > f32(2.0**60), f32(2.0**-64), where(large < f32(2.0**-60), f32(2.0**64), f32(1)))
    small, large = small * unit, large * unit
    return _quotient(*two_sum(small, -large), *two_sum(small, large))


@blocked
def atan2(y: Floats, x: Floats) -> Floats:
    """Angle of the point (x, y), IEEE 754 `atan2` with its signed zeros and infinities.  Error at most 1.6 ulp."""
    wide, tall = np.abs(x), np.abs(y)
    steep = tall > wide
    small, large = where(steep, wide, tall), where(steep, tall, wide)
    t = put(small / large, large == 0, f32(0))
    t = put(t, np.isinf(small), f32(1))
    shifted = t > f32(_TAN_EIGHTH)
    s, left = _less_one(where(shifted, small, f32(1)), where(shifted, large, f32(1)))
    s, left = where(shifted, s, t), where(shifted, left, f32(0))
    square = s * s
    arc = s * (square * horner(square, _ATAN)) + left
    base = where(shifted, f32(_QUARTER_PI), f32(0))
    low = where(shifted, f32(-2.1855694e-08), f32(0))
    # pi/2 - arc, then pi - arc: each as the far end minus the rest, the ends in two parts.
    sign = where(steep, f32(-1), f32(1))
    base, low = base * sign, low * sign
    s, arc = s * sign, arc * sign
    base, low = base + where(steep, f32(_HALF_PI), f32(0)), low + where(steep, f32(_PI_LOW * 0.5), f32(0))
    left = np.signbit(x)
    mirror = where(left, f32(-1), f32(1))
    base, low = base * mirror + where(left, f32(_PI_HIGH), f32(0)), low * mirror + where(left, f32(_PI_LOW), f32(0))
    angle = base + (s * mirror + (arc * mirror + low))
    angle = np.copysign(angle, y)
    return put(angle, np.isnan(x) | np.isnan(y), f32(np.nan)) if has_nan(x) or has_nan(y) else angle
