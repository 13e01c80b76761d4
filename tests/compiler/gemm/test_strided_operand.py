"""Operands of which only every second row, say, is read: the same elements at the same places, fewer bytes moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.index.affine import Box, Expr, IndexMap
from systolith.compiler.tile.arrays import dense
from systolith.compiler.tile.ir import Array, Buf
from systolith.compiler.tile.strided import compact
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import F32
from systolith.isa.instruction import Space
from systolith.sim.simulate import simulate
from tests.compiler.machine import check, compiled


@st.composite
def operands(draw: st.DrawFn) -> tuple[Array, IndexMap, tuple[int, ...]]:
    """An array in HBM, and the elements of it that axes read."""
    sizes = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    whole, exprs, dims = Box.whole(sizes), [], []
    for _ in range(draw(st.integers(1, 3))):
        expr = Expr(tuple(draw(st.sampled_from((0, 0, 1, 2, 3, 4, -2))) for _ in sizes))
        lo, hi = expr.interval(whole)
        first = draw(st.integers(0, 2))
        exprs.append(Expr(expr.coefs, first - lo))
        dims.append(first + hi - lo + 1 + draw(st.integers(0, 2)))
    buf = Buf("x", Space.HBM, int(np.prod(dims)) * 4)
    return Array(buf, F32, tuple(dims), dense(dims, 4), (0,) * len(dims)), IndexMap(len(sizes), tuple(exprs)), sizes


def places(array: Array, index: IndexMap, sizes: tuple[int, ...]) -> np.ndarray[Any, np.dtype[Any]]:
    """The byte that each point reads first; every index has to be inside."""
    at = np.full(sizes, array.offset)
    for d, expr in enumerate(index.dims):
        values = np.broadcast_to(expr.values(Box.whole(sizes))[0], sizes)
        assert (values >= array.origin[d]).all()
        assert (values < array.origin[d] + array.dims[d]).all()
        at = at + (values - array.origin[d]) * array.strides[d]
    return at


@given(operands(), st.sampled_from((4, 16, 64)))
def test_the_same_elements(operand: tuple[Array, IndexMap, tuple[int, ...]], least: int) -> None:
    array, index, sizes = operand
    made, seen = compact(array, index, sizes, least)
    np.testing.assert_array_equal(places(made, seen, sizes), places(array, index, sizes))
    for d, expr in enumerate(seen.dims):
        step = np.gcd.reduce([abs(c) for axis, c in expr.terms if sizes[axis] > 1] or [1])
        assert step == 1 or abs(made.strides[d]) < least


def strided(stride: int) -> str:
    out, window = 16 // stride, f"size=1x1 stride={stride}x{stride}"
    return f"""HloModule m
ENTRY e {{
 x = f32[1,16,16,32] parameter(0)
 w = f32[1,1,32,8] parameter(1)
 ROOT y = f32[1,{out},{out},8] convolution(x, w), window={{{window}}}, dim_labels=b01f_01io->b01f
}}
"""


@pytest.mark.parametrize("stride", [2, 4])
def test_a_convolution_of_one_tap(stride: int) -> None:
    """It moves what it reads, and little else."""
    text = strided(stride)
    rng = np.random.default_rng(0)
    check(text, [rng.standard_normal(d).astype(np.float32) for d in ((1, 16, 16, 32), (1, 1, 32, 8))], "tiny")
    chip = load_chip("tiny")
    moved = sum(simulate(compiled(text, chip).program, chip, mode="time").groups()[0]["hbm_bytes"].values())
    positions = (16 // stride) ** 2
    assert moved < 1.1 * 4 * (positions * (32 + 8) + 32 * 8)
