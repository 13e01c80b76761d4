"""The tile product against exact fractions, and its kernels against each other."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.numerics import matmul
from systolith.isa.numerics.fma import compiled_product, step_product
from systolith.isa.numerics.images import canonical, image
from systolith.isa.numerics.matmul import integer_product, tile_product
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


def bits(product: Array) -> Array:
    """Images, with sums of zero made +0: what an accumulator would see."""
    return canonical(image(product + np.float32(0)))


@given(st.data(), st.integers(1, 4), st.integers(1, 12), st.integers(1, 5))
def test_every_kernel_is_the_chain_of_fused_steps(data: st.DataObject, m: int, k: int, n: int) -> None:
    a = [[data.draw(_bf16) for _ in range(k)] for _ in range(m)]
    b = [[data.draw(_bf16) for _ in range(n)] for _ in range(k)]
    want = np.array([[dot(row, [b[i][j] for i in range(k)]) for j in range(n)] for row in a], np.uint32)
    want[want == 0x80000000] = 0
    compiled = compiled_product()
    assert compiled is not None
    for product in (tile_product, step_product, compiled):
        with np.errstate(all="ignore"):
            assert np.array_equal(bits(product(floats(a), floats(b))), want)


@pytest.mark.parametrize(
    ("m", "k", "n"), [(1, 128, 1), (5, 147, 128), (130, 256, 64), (1, 8, 128), (2050, 16, 16), (3, 300, 7)]
)
def test_shapes_and_fallbacks_agree(m: int, k: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(m)
    a, b = (np.ldexp(rng.standard_normal(s, np.float32), rng.integers(-9, 9, s)) for s in ((m, k), (k, n)))
    a, b = ((x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32) for x in (a, b))
    want = bits(step_product(a, b))
    assert np.array_equal(bits(tile_product(a, b)), want)
    monkeypatch.setattr(matmul, "_product", lambda *_: matmul._fallback())
    assert np.array_equal(bits(tile_product(a, b)), want)


def test_a_product_that_is_not_fused_is_found_out() -> None:
    def unfused(a: Array, b: Array) -> Array:
        total = np.zeros((a.shape[0], b.shape[1]), np.float32)
        for k in range(a.shape[1]):
            total += a[:, k, None] * b[k]
        return total

    def reversed_order(a: Array, b: Array) -> Array:
        return step_product(a[:, ::-1], b[::-1])

    assert matmul._is_exact(step_product, 16, 16, 16)
    assert not matmul._is_exact(unfused, 16, 16, 16)
    assert not matmul._is_exact(reversed_order, 16, 16, 16)


@pytest.mark.parametrize("k", [1, 255, 256, 257, 600])
@pytest.mark.parametrize(("left", "right"), [(np.int8, np.int8), (np.uint8, np.uint8), (np.uint8, np.int8)])
def test_integer_products(k: int, left: type, right: type) -> None:
    rng = np.random.default_rng(k)
    a = rng.integers(np.iinfo(left).min, np.iinfo(left).max, (9, k), left, endpoint=True)
    b = rng.integers(np.iinfo(right).min, np.iinfo(right).max, (k, 5), right, endpoint=True)
    a[0], b[:, 0] = np.iinfo(left).max, np.iinfo(right).max
    assert np.array_equal(integer_product(a, b), a.astype(np.int64) @ b.astype(np.int64))


@pytest.mark.parametrize("preload", ["", "import numpy; "])
def test_blas_is_chosen_before_numpy(preload: str) -> None:
    code = (
        f"{preload}import os, sys; from systolith.isa.numerics.blas_env import prefer_exact_blas, _has_avx512; "
        "set_ = prefer_exact_blas(); print(int(set_ == (_has_avx512() and 'numpy' not in sys.modules)), "
        "os.environ.get('OPENBLAS_CORETYPE'), os.environ.get('OPENBLAS_NUM_THREADS'))"
    )
    env = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS")} | {
        "PYTHONPATH": os.pathsep.join(sys.path)
    }
    out = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    ).stdout.split()
    assert out[0] == "1"
    assert out[2] == ("None" if preload else "1")
