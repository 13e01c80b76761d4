"""Operands worth multiplying: ordinary ones, wide ones, and those at the edges of the formats."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from systolith.isa.dtypes import DType

REGION = 1024  # bytes of one kind
Words = NDArray[np.uint32]

# Zeros, least and greatest subnormal and normal, ones, infinities, NaNs with payloads, and neighbours of ties.
_SMALL = (0x0, 0x1, 0x7FFFFF, 0x800000, 0x10000, 0x7F0000, 0x0D000000, 0x19800000)
_ONES = (0x3F800000, 0x3F800001, 0x3F808000, 0x3F818000, 0x3F7FFFFF, 0x33800000, 0x34000000)
_LARGE = (0x7F7FFFFF, 0x7F7F0000, 0x7F800000, 0x7FC00000, 0x7F800001)
EDGES = np.array((*_SMALL, *_ONES, *_LARGE), np.uint32)


def edges(random: np.random.Generator, count: int) -> Words:
    """f32 images from `EDGES`, either sign."""
    signs = random.integers(0, 2, count, np.uint32) << np.uint32(31)
    picked: Words = random.choice(EDGES, count)
    return picked | signs


def words(random: np.random.Generator, kind: str, count: int) -> Words:
    """f32 images: `normal`, `wide` (magnitudes from the least to the greatest), `tiny`, or normal with some `edges`."""
    values = random.standard_normal(count)
    if kind == "wide":
        values = np.ldexp(values, random.integers(-75, 63, count))
    elif kind == "tiny":
        values = np.ldexp(values, random.integers(-149, -60, count))
    images = values.astype(np.float32).view(np.uint32)
    # Seldom enough that not every sum becomes NaN.
    some = random.random(count) < (0.05 if kind == "edges" else 0.0)
    return np.where(some, edges(random, count), images)


def memory(random: np.random.Generator, size: int) -> NDArray[np.uint8]:
    """`size` bytes: the first 16 regions hold operands, one kind and type each; the rest is 0."""
    data = np.zeros(size, np.uint8)
    narrow = (ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
    for r in range(16):
        kind = str(random.choice(["normal", "wide", "tiny", "edges"]))
        images = words(random, kind, REGION)
        if r % 2 == 0:
            stored = images.view(np.uint8)
        else:
            with np.errstate(all="ignore"):
                stored = images.view(np.float32).astype(narrow[r // 2 % 4]).view(np.uint8)
        data[r * REGION : (r + 1) * REGION] = stored[:REGION]
    return data


def fill_image(random: np.random.Generator, dtype: DType) -> int:
    """A value that elements outside read as: mostly 0; one that the type has."""
    if random.random() < 0.6:
        return 0
    if dtype.is_float:
        return int(random.choice(np.array([0x3F800000, 0xC0000000, 0xFF800000, 0x7F800000, 0x7FC00000], np.uint32)))
    return 1 if dtype.bits == 1 else int(random.integers(0, 8))
