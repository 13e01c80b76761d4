"""The matrix unit's tile product, to the bit.

Down each column the sum starts at +0 and takes rows 0 .. K-1, each step one fused multiply-add rounded to f32.
"""

from __future__ import annotations

import numpy as np

from systolith.isa.numerics import fma
from systolith.isa.numerics.images import U32, Array, Bits, Floats, Ints, floats

_S8_LIMIT = 2**24


def weight_tile(bits: Bits, part: int, cols: int) -> Floats:
    """A tile as `add_product` takes it.

    Args:
        bits: [K, N] f32 images, N at most `cols`.
        part: 0, 1 or 2 of their bf16 split.
        cols: columns of the array.

    Returns:
        [K, `cols` or a few more] f32, zero beyond N.
    """
    depth, width = bits.shape
    tile = np.zeros((depth, fma.tile_columns(cols)), U32)
    tile[:, :width] = bits
    fma.reduce_to_part(tile, part)
    return floats(tile)


def add_product(rows: Bits, part: int, weights: Floats, sums: Floats, accumulate: bool) -> None:
    """Multiply a stream of rows with a weight tile: sums = (accumulate ? sums : +0) + rows x weights.

    Args:
        rows: [M, K] f32 images.
        part: the part of their bf16 split that is multiplied: 0, 1 or 2.
        weights: from `weight_tile`, [L, ...]: where K and L differ the shorter one meets zeros, which matters to
            infinities and NaNs.
        sums: [M, N] f32, C-contiguous, changed in place; NaNs become 0x7FC00000.
        accumulate: add to `sums`.
    """
    depth = rows.shape[1] - len(weights)
    if depth > 0:
        weights = np.pad(weights, ((0, depth), (0, 0)))
    elif depth < 0:
        rows = np.pad(rows, ((0, 0), (0, -depth)))
    if rows.strides[1] != rows.itemsize or not rows.flags.aligned:
        rows = rows.copy()
    fma.add_product(rows, part, weights, sums, accumulate)


def integer_product(a: Array, b: Array) -> Ints:
    """[M, K] x [K, N] of integers of at most 8 bits (any integer or float type that holds them), in s32."""
    if a.shape[1] * 2**16 <= _S8_LIMIT:  # u8 x u8 < 2^16 each: every partial sum is an integer that f32 holds
        small: Floats = np.matmul(a.astype(np.float32), b.astype(np.float32))
        return small.astype(np.int32)
    large: Array = np.matmul(a.astype(np.float64), b.astype(np.float64))
    return np.asarray(large.astype(np.int64).astype(np.int32))
