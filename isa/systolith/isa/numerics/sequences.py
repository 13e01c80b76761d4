"""Pieces that the transcendental sequences are made of; each is a few f32 or integer operations, rounded one by one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from systolith.isa.numerics.images import (
    F32,
    S32,
    Abstract,
    Array,
    Floats,
    Ints,
    array,
    choose,
    floats,
    has_nan,
    image,
    mask_of,
)

_BLOCK = 16384  # elements at a time, so that the temporaries of a sequence stay in a core's cache

f32 = np.float32


def blocked(function: Callable[..., Floats]) -> Callable[..., Floats]:
    """Run an elementwise function on flat blocks of its (broadcast) operands."""

    @wraps(function)
    def run(*args: Array) -> Floats:
        if any(isinstance(a, Abstract) for a in args):
            return function(*args)
        shape = np.broadcast_shapes(*(a.shape for a in args))
        flat = [np.broadcast_to(a, shape).reshape(-1) for a in args]
        out = np.empty(flat[0].size, F32)
        for i in range(0, out.size, _BLOCK):
            out[i : i + _BLOCK] = function(*(a[i : i + _BLOCK] for a in flat))
        return out.reshape(shape)

    return run


def horner(x: Floats, coefficients: tuple[float, ...]) -> Floats:
    """c0 + x (c1 + x (c2 + ...)): a multiply and an add for each coefficient, highest first."""
    total = x * f32(coefficients[-1])
    total += f32(coefficients[-2])
    for c in coefficients[-3::-1]:
        total *= x
        total += f32(c)
    return total


def where(condition: Array, a: Any, b: Any) -> Floats:
    """Select of f32 values, bitwise."""
    return choose(mask_of(condition), image(array(a, F32)), image(array(b, F32))).view(F32)


def put(y: Floats, condition: Array, value: Any) -> Floats:
    """`y` with `value` where the condition holds (which it rarely does anywhere)."""
    return where(condition, value, y) if condition.any() else y


def keep_nan(x: Floats, y: Floats) -> Floats:
    """`y`, or NaN where x is one."""
    return put(y, np.isnan(x), f32(np.nan)) if has_nan(x) else y


def clamp(x: Floats, lo: float, hi: float) -> Floats:
    """Limit x to `lo` .. `hi`; a NaN becomes one of the two, so that later steps are finite."""
    return np.fmin(np.fmax(x, f32(lo)), f32(hi))


def power_of_two(n: Ints) -> Floats:
    """2^n as f32, for -126 <= n <= 127."""
    bits: Ints = array((n + np.int32(127)) << np.int32(23), S32)
    return floats(bits)


def scale(x: Floats, n: Ints) -> Floats:
    """Scale x by 2^n for |n| up to 252, in two multiplications of which the first is exact for 0.5 <= x < 4."""
    half = n >> np.int32(1)
    return (x * power_of_two(half)) * power_of_two(n - half)


def split(x: Floats) -> tuple[Floats, Floats]:
    """The top 12 bits of the significand, and the rest: their products are exact."""
    high = array(image(x) & np.uint32(0xFFFFF000), np.uint32).view(F32)
    return high, x - high


def two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """A + b rounded, and the error, exactly."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def two_product(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """A * b rounded, and the error, exactly (barring underflow and overflow)."""
    (ah, al), (bh, bl) = split(a), split(b)
    product = a * b
    return product, ((ah * bh - product) + ah * bl + al * bh) + al * bl


def parts(x: Floats, below: int) -> tuple[Ints, Floats]:
    """Exponent and significand of positive x: x = m * 2^e, m in [s, 2 s).

    Args:
        x: positive; subnormals are scaled first.
        below: image of s, such as 0x3F3504F3 for sqrt(1/2).
    """
    tiny = x < f32(2.0**-126)
    scaled = where(tiny, x * f32(2.0**24), x) if tiny.any() else x
    bits = scaled.view(S32) - np.int32(below)
    exponent = bits >> np.int32(23)
    significand = (bits & np.int32(0x7FFFFF)) + np.int32(below)
    return exponent - np.int32(24) * tiny.astype(S32), significand.view(F32)
