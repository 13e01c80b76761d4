"""rsqrt and cbrt.  Errors are measured over every exponent, in ulp of the exact result."""

from __future__ import annotations

import numpy as np

from systolith.isa.numerics.images import F32, S32, Array, Floats, array
from systolith.isa.numerics.sequences import blocked, f32, put, where

_CBRT_MAGIC = 709_958_130  # (127 - 127/3) * 2^23, less a little that evens the error of the first guess


@blocked
def rsqrt(x: Floats) -> Floats:
    """1 / sqrt(x), both rounded.  Error at most 1.5 ulp; infinity of a zero with its sign, NaN of negative numbers."""
    root: Floats = np.sqrt(x)
    return f32(1) / root


@blocked
def cbrt(x: Floats) -> Floats:
    """Cube root.  Error at most 0.8 ulp; keeps the sign, infinities and zeros."""
    size = np.abs(x)
    small = size < f32(1)
    special = ~((size > 0) & (size < f32(np.inf)))
    m = put(size * where(small, f32(2.0**24), f32(2.0**-24)), special, f32(1))
    t: Array = (m.view(S32) // np.int32(3) + np.int32(_CBRT_MAGIC)).view(F32)
    for _ in range(2):  # Halley: the error is cubed, from 2^-5
        cube = t * t * t
        t = t * (((cube + m) + m) / ((cube + cube) + m))
    t = t - (t - m / (t * t)) * f32(1 / 3)
    root = put(t * where(small, f32(2.0**-8), f32(2.0**8)), special, size)
    signed: Floats = array(np.copysign(root, x), F32)
    return signed
