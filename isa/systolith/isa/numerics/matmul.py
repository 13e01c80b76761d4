"""The matrix unit's tile product, to the bit.

Down each column the sum starts at +0 and takes rows 0 .. K-1, each step one fused multiply-add rounded to f32.
`sgemm` is used only for shapes for which it was seen to do exactly that in this process (`_is_exact`); else a compiled
loop of fused multiply-adds; else the step kernel of `fma.py`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from systolith.isa.numerics.fma import Product, compiled_product, step_product
from systolith.isa.numerics.images import F32, Array, Floats, Ints, canonical, floats, image

_MAX_DEPTH = 256  # beyond it a library may split the sum
_ROW_BLOCK = 2048  # rows given to the library at once: bounds the number of shapes to prove
_PROBE_ROWS = 24
_S8_LIMIT = 2**24


def tile_product(a: Floats, b: Floats) -> Floats:
    """Product of a stream of rows and a weight tile.

    Args:
        a: [M, K] f32, each value representable in bf16.
        b: [K, N] f32, each value representable in bf16.

    Returns:
        [M, N] f32; NaNs are 0x7FC00000.  A sum of 0 may have either sign (adding it to an accumulator removes it).
    """
    rows, depth, cols = a.shape[0], a.shape[1], b.shape[1]
    if rows == 0 or depth == 0:
        return np.zeros((rows, cols), F32)
    tall, deep, wide = _rows_class(rows), depth + -depth % 8, cols + -cols % 16
    out = np.empty((rows, wide), F32)
    right = _padded(b, deep, wide)
    with np.errstate(all="ignore"):
        for start in range(0, rows, _ROW_BLOCK):
            block = a[start : start + _ROW_BLOCK]
            tall = _rows_class(len(block))
            out[start : start + len(block)] = _product(tall, deep, wide)(_padded(block, tall, deep), right)[
                : len(block)
            ]
        return floats(canonical(image(out)))[:, :cols]


def integer_product(a: Array, b: Array) -> Ints:
    """[M, K] x [K, N] of integers of at most 8 bits (any integer or float type that holds them), in s32."""
    if a.shape[1] * 2**16 <= _S8_LIMIT:  # u8 x u8 < 2^16 each: every partial sum is an integer that f32 holds
        small: Floats = np.matmul(a.astype(np.float32), b.astype(np.float32))
        return small.astype(np.int32)
    large: Array = np.matmul(a.astype(np.float64), b.astype(np.float64))
    return np.asarray(large.astype(np.int64).astype(np.int32))


def _rows_class(rows: int) -> int:
    """Rows padded to: multiples of 16 to 128, then of 128, so that there are few shapes to prove."""
    step = 16 if rows <= 128 else 128
    return rows + -rows % step


def _padded(array: Floats, rows: int, cols: int) -> Floats:
    if array.shape == (rows, cols) and array.flags.c_contiguous:
        return array
    out = np.zeros((rows, cols), F32)
    out[: array.shape[0], : array.shape[1]] = array
    return out


@lru_cache(maxsize=4096)
def _product(rows: int, depth: int, cols: int) -> Product:
    """The fastest product that is right for this shape."""
    if depth <= _MAX_DEPTH and _is_exact(np.matmul, rows, depth, cols):
        return np.matmul
    return _fallback()


@lru_cache(maxsize=1)
def _fallback() -> Product:
    compiled = compiled_product()
    return compiled if compiled is not None and _is_exact(compiled, 32, 64, 32) else step_product


def _is_exact(product: Product, rows: int, depth: int, cols: int) -> bool:
    """Compare with the step kernel on random data of several kinds: first and last rows, all columns."""
    generator = np.random.default_rng(depth * 1009 + cols)
    some = np.unique(np.r_[: min(rows, 8), max(rows - _PROBE_ROWS + 8, 0) : rows])
    for a, b in _probes(generator, rows, depth, cols):
        with np.errstate(all="ignore"):
            got, want = product(a, b)[some], step_product(a[some], b)
        same = (canonical(image(got)) == canonical(image(want))) | ((got == 0) & (want == 0))
        if not same.all():
            return False
    return True


def _probes(generator: np.random.Generator, rows: int, depth: int, cols: int) -> list[tuple[Floats, Floats]]:
    def draw(kind: str, shape: tuple[int, int]) -> Floats:
        if kind == "normal":
            values = generator.standard_normal(shape, np.float32)
        elif kind == "wide":
            values = np.ldexp(generator.standard_normal(shape, np.float32), generator.integers(-75, 60, shape))
        else:
            values = floats(generator.integers(0, 2**32, shape, np.uint32) & np.uint32(0xFFFF0000))
            # Infinities and NaNs only here and there: one of them hides everything else in its row or column.
            values = np.where(np.isfinite(values) | (generator.random(shape) < 0.002), values, np.float32(1))
        return floats(image(values.astype(F32)) & np.uint32(0xFFFF0000))

    kinds = ("normal", "wide", "bits")
    return [(draw(kind, (rows, depth)), draw(kind, (depth, cols))) for kind in kinds]
