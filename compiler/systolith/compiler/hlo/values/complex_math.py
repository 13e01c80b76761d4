"""Functions of complex numbers where numpy's lose digits, or NaN hides an infinity or a zero (C99, annex G)."""

from __future__ import annotations

import numpy as np


def _joined(real: np.ndarray, imag: np.ndarray, like: np.ndarray) -> np.ndarray:
    result = np.empty(np.broadcast_shapes(real.shape, imag.shape), like.dtype)
    result.real, result.imag = real, imag
    return result


def _boxed(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The parts, 1 for infinite ones and 0 for others, with their signs."""
    real, imag = (np.copysign(np.isinf(part).astype(part.dtype), part) for part in (z.real, z.imag))
    return real, imag


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quotient: infinite where a is infinite or b zero, zero where b is infinite, even if a part is NaN."""
    quotient = np.divide(a, b)
    lost = np.isnan(quotient.real) & np.isnan(quotient.imag)
    if not lost.any():
        return np.asarray(quotient)
    a, b = np.broadcast_arrays(a, b)
    infinite = (np.isinf(z.real) | np.isinf(z.imag) for z in (a, b))
    finite = [np.isfinite(z.real) & np.isfinite(z.imag) for z in (a, b)]
    a_infinite, b_infinite = infinite
    by_zero = (b == 0) & ~(np.isnan(a.real) & np.isnan(a.imag))
    sign = np.copysign(np.inf, b.real)
    quotient = np.where(lost & by_zero, _joined(sign * a.real, sign * a.imag, a), quotient)
    for case, scale, (p, q), d in (
        (a_infinite & finite[1], np.inf, _boxed(a), b),
        (b_infinite & finite[0], 0.0, (a.real, a.imag), _joined(*_boxed(b), b)),
    ):
        value = _joined(scale * (p * d.real + q * d.imag), scale * (q * d.real - p * d.imag), a)
        quotient = np.where(lost & ~by_zero & case, value, quotient)
    return np.asarray(quotient)


def log1p(z: np.ndarray) -> np.ndarray:
    """log(1 + z), without the digits that 1 + z loses near 0."""
    x, y = z.real, z.imag
    near = np.hypot(x, y) < 0.5
    real = np.where(near, 0.5 * np.log1p(np.where(near, x * (2 + x) + y * y, 0)), np.log(np.hypot(1 + x, y)))
    return _joined(real, np.arctan2(y, 1 + x), z)


def expm1(z: np.ndarray) -> np.ndarray:
    """exp(z) - 1; real on the real axis."""
    x, y = z.real, z.imag
    half = np.sin(y / 2)
    real = np.expm1(x) * np.cos(y) - 2 * half * half
    return _joined(np.where(y == 0, np.expm1(x), real), np.where(y == 0, y, np.exp(x) * np.sin(y)), z)
