"""Products by fused multiply-adds, exact by construction: compiled (numba), and in plain numpy."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from systolith.isa.numerics.images import Floats

Product = Callable[[Floats, Floats], Floats]


def step_product(a: Floats, b: Floats) -> Floats:
    """[M, K] x [K, N] of f32 values that bf16 can represent, one step k at a time in f64.

    The product of two 8-bit significands is exact in f64.  The sum is made in f64 rounded to odd, from which rounding
    to f32 is the rounding of the exact sum (f64 has more than two bits more than f32).
    """
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        left, right = a.astype(np.float64), b.astype(np.float64)
        for k in range(a.shape[1]):
            total = _add_to_odd(left[:, k, None] * right[None, k], total.astype(np.float64)).astype(np.float32)
    return total


def _add_to_odd(x: Any, y: Any) -> Any:
    """The sum x + y in f64; where inexact, the neighbour of the exact sum whose last bit is 1."""
    total = x + y
    back = total - x
    error = (x - (total - back)) + (y - back)
    inexact = (error != 0) & np.isfinite(total)
    if inexact.any():
        bits = total.view(np.int64)
        even = inexact & ((bits & 1) == 0)
        away = (error > 0) == (total > 0)  # the exact sum lies away from zero: the odd neighbour is the next one up
        bits += np.where(even, np.where(away, 1, -1), 0)
    return total


@lru_cache(maxsize=1)
def compiled_product() -> Product | None:
    """The same, compiled with the processor's own fused multiply-add; None where numba is missing or broken."""
    try:
        import numba
        from numba.core import types
        from numba.extending import intrinsic
    except ImportError:
        return None

    def fused(context: Any, x: Any, y: Any, z: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.fma(*args)

        return types.float32(types.float32, types.float32, types.float32), generate

    fma: Any = intrinsic(fused)

    @numba.njit(error_model="numpy")  # type: ignore[untyped-decorator, unused-ignore]
    def product(a: Any, b: Any) -> Any:
        rows, depth = a.shape
        cols = b.shape[1]
        total = np.zeros((rows, cols), np.float32)
        for i in range(rows):
            line = total[i]
            for k in range(depth):
                left = a[i, k]
                right = b[k]
                for j in range(cols):
                    line[j] = fma(left, right[j], line[j])
        return total

    return lambda a, b: product(np.ascontiguousarray(a), np.ascontiguousarray(b))
