"""The tile product against exact fractions and against steps in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.numerics.fma import reduce_to_part
from systolith.isa.numerics.images import image
from systolith.isa.numerics.matmul import add_product, integer_product, weight_tile
from tests.isa_numerics.exact import dot

Array = np.ndarray[Any, Any]
_bf16 = st.one_of(
    st.integers(0, 0xFFFF),
    st.sampled_from([0, 0x8000, 1, 0x8001, 0x7F, 0x80, 0x7F80, 0xFF80, 0x7FC0, 0x3F80, 0xBF80, 0x7F7F]),
    st.integers(0x3F00, 0x4000),
    st.integers(0x1F00, 0x2080),  # products are subnormal
).map(lambda v: v << 16)


def floats(rows: list[list[int]]) -> Array:
    return np.array(rows, np.uint32).view(np.float32)


def bf16(generator: np.random.Generator, kind: str, shape: tuple[int, int]) -> Array:
    """Values that bf16 can represent; infinities and NaNs only here and there, because one hides everything else."""
    if kind == "normal":
        values = generator.standard_normal(shape, np.float32)
    elif kind == "wide":
        values = np.ldexp(generator.standard_normal(shape, np.float32), generator.integers(-75, 60, shape))
    else:
        values = generator.integers(0, 2**32, shape, np.uint32).view(np.float32)
        values = np.where(np.isfinite(values) | (generator.random(shape) < 0.002), values, np.float32(1))
    return (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def multiply(a: Array, b: Array, before: Array | None = None) -> Array:
    """Images of (before or +0) + a x b."""
    tile = weight_tile(image(b), 0, b.shape[1])
    sums = np.full((len(a), b.shape[1]), np.nan, np.float32) if before is None else before.copy()
    add_product(image(a), 0, tile, sums, before is not None)
    return image(sums)


def step_product(a: Array, b: Array) -> Array:
    """The same, one step k at a time in f64.

    The product of two 8-bit significands is exact in f64.  The sum is made in f64 rounded to odd, from which rounding
    to f32 is the rounding of the exact sum (f64 has more than two bits more than f32).
    """
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        left, right = a.astype(np.float64), b.astype(np.float64)
        for k in range(a.shape[1]):
            total = add_to_odd(left[:, k, None] * right[None, k], total.astype(np.float64)).astype(np.float32)
        return image(np.where(np.isnan(total), np.float32(np.nan), total + np.float32(0)))


def add_to_odd(x: Array, y: Array) -> Array:
    """The sum x + y in f64; where inexact, the neighbour of the exact sum whose last bit is 1."""
    total = x + y
    back = total - x
    error = (x - (total - back)) + (y - back)
    inexact = (error != 0) & np.isfinite(total)
    bits = total.view(np.int64)
    away = (error > 0) == (total > 0)  # the exact sum lies away from zero: the odd neighbour is the next one up
    bits += np.where(inexact & ((bits & 1) == 0), np.where(away, 1, -1), 0)
    return total


@given(st.data(), st.integers(1, 14), st.integers(1, 12), st.integers(1, 5))
def test_the_product_is_the_chain_of_fused_steps(data: st.DataObject, m: int, k: int, n: int) -> None:
    a = [[data.draw(_bf16) for _ in range(k)] for _ in range(m)]
    b = [[data.draw(_bf16) for _ in range(n)] for _ in range(k)]
    want = np.array([[dot(row, [b[i][j] for i in range(k)]) for j in range(n)] for row in a], np.uint32)
    want[want == 0x80000000] = 0
    assert np.array_equal(multiply(floats(a), floats(b)), want)
    assert np.array_equal(step_product(floats(a), floats(b)), want)


@pytest.mark.parametrize("kind", ["normal", "wide", "bits"])
@pytest.mark.parametrize(
    ("m", "k", "n"), [(1, 128, 1), (5, 147, 128), (130, 256, 64), (1, 8, 128), (2050, 16, 16), (3, 300, 7), (6, 3, 65)]
)
def test_shapes_agree_with_steps_in_f64(m: int, k: int, n: int, kind: str) -> None:
    rng = np.random.default_rng(m)
    a, b = bf16(rng, kind, (m, k)), bf16(rng, kind, (k, n))
    assert np.array_equal(multiply(a, b), step_product(a, b))


@pytest.mark.parametrize("part", [0, 1, 2])
def test_rows_are_reduced_and_sums_added_to(part: int) -> None:
    rng = np.random.default_rng(part)
    a, before = rng.standard_normal((13, 40), np.float32), rng.standard_normal((13, 9), np.float32)
    b, reduced = bf16(rng, "normal", (40, 9)), image(a).copy()
    reduce_to_part(reduced, part)
    tile, sums = weight_tile(image(b), 0, 9), before.copy()
    add_product(image(a), part, tile, sums, True)
    product = step_product(reduced.view(np.float32), b).view(np.float32)
    assert np.array_equal(image(sums), image(before + product))


def test_any_layout_of_rows() -> None:
    rng = np.random.default_rng(1)
    a, b = bf16(rng, "normal", (24, 24)), bf16(rng, "normal", (12, 8))
    unaligned = np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(np.float32).reshape(24, 24)
    assert not unaligned.flags.aligned
    for rows in (a[:, 5:17], a[::-2, :12], a.T[:, :12], a[:, ::2], unaligned[:, :12]):
        assert np.array_equal(multiply(rows, b), step_product(rows, b))


def test_the_shorter_depth_meets_zeros() -> None:
    rng = np.random.default_rng(2)
    a, b = bf16(rng, "normal", (4, 9)), bf16(rng, "normal", (6, 8))
    a[1, 7] = np.inf
    want = step_product(a, np.pad(b, ((0, 3), (0, 0))))
    assert (want[1] == 0x7FC00000).all()
    assert np.array_equal(multiply(a, b), want)
    b[5, 2] = np.nan
    want = step_product(np.pad(a[:, :4], ((0, 0), (0, 2))), b)
    assert (want[:, 2] == 0x7FC00000).all()
    assert np.array_equal(multiply(a[:, :4], b), want)


@pytest.mark.parametrize("k", [1, 255, 256, 257, 511, 600])
@pytest.mark.parametrize(("left", "right"), [(np.int8, np.int8), (np.uint8, np.uint8), (np.uint8, np.int8)])
def test_integer_products(k: int, left: type, right: type) -> None:
    rng = np.random.default_rng(k)
    a = rng.integers(np.iinfo(left).min, np.iinfo(left).max, (9, k), left, endpoint=True)
    b = rng.integers(np.iinfo(right).min, np.iinfo(right).max, (k, 5), right, endpoint=True)
    a[0], b[:, 0] = np.iinfo(left).max, np.iinfo(right).max
    assert np.array_equal(integer_product(a, b), a.astype(np.int64) @ b.astype(np.int64))
