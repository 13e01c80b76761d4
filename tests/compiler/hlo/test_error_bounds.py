"""Error bounds of a correct chip: they hold for honest roundings and not for planted errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.error_bounds import bounded

Floats = NDArray[np.float32]

REDUCERS = """
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
peak { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
softadd { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ea = f32[] exponential(a)
  eb = f32[] exponential(b)
  s = f32[] add(ea, eb)
  ROOT c = f32[] log(s) }
"""


def bounds(body: str, *arrays: np.ndarray, precision: str | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
    module = parse_hlo(f"HloModule m\n{REDUCERS}\nENTRY e {{\n{body}\n}}\n", "test")
    return bounded(module.entry, arrays, precision)


def draw(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_moved_elements_must_be_identical() -> None:
    body = """ x = f32[4,6] parameter(0)
 t = f32[6,4] transpose(x), dimensions={1,0}
 z = f32[] constant(0)
 p = f32[8,4] pad(t, z), padding=1_1x0_0
 ROOT m = f32[8,4] maximum(p, p)"""
    ((_, bound),) = bounds(body, draw(0, 4, 6))
    assert not bound.any()


@given(st.integers(0, 2**32 - 1), st.integers(2, 200))
def test_a_sum_in_any_order_is_within_its_bound(seed: int, n: int) -> None:
    x = draw(seed, n)
    body = f" x = f32[{n}] parameter(0)\n z = f32[] constant(0)\n"
    body += " ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add"
    ((value, bound),) = bounds(body, x)
    shuffled = np.random.default_rng(seed + 1).permutation(x)
    total = np.float32(0)
    for element in shuffled:
        total = np.float32(total + element)
    assert abs(float(total) - float(value)) <= bound


DOT = """ x = f32[5,40] parameter(0)
 w = f32[40,3] parameter(1)
 ROOT d = f32[5,3] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""


def test_a_dot_in_f32_is_within_and_a_lost_product_beyond() -> None:
    x, w = draw(1, 5, 40), draw(2, 40, 3)
    ((value, bound),) = bounds(DOT, x, w, precision="highest")
    assert (np.abs(x @ w - value) <= bound).all()
    x[:, 7] = 0
    assert (np.abs(x @ w - value) > bound).any()


def test_operands_rounded_to_bf16_are_beyond_the_bound_of_highest() -> None:
    x, w = draw(1, 5, 40), draw(2, 40, 3)
    ((exact, bound),) = bounds(DOT, x, w, precision="highest")
    ((rounded, _),) = bounds(DOT, x, w, precision="default")
    assert (np.abs(rounded - exact) > bound).any()


def test_errors_grow_through_an_epilogue() -> None:
    body = DOT.replace("ROOT d", "d") + "\n ROOT e = f32[5,3] exponential(d)"
    x, w = draw(1, 5, 40), draw(2, 40, 3)
    ((_, of_dot),) = bounds(DOT, x, w, precision="highest")
    ((value, bound),) = bounds(body, x, w, precision="highest")
    assert (bound >= of_dot * value * 0.99).all()


def test_where_a_comparison_is_in_doubt_either_side_may_be_taken() -> None:
    body = (
        DOT.replace("ROOT d", "d")
        + """
 t = f32[5,3] parameter(2)
 g = pred[5,3] compare(d, t), direction=GT
 one = f32[] constant(1)
 a = f32[5,3] broadcast(one), dimensions={}
 zero = f32[] constant(0)
 b = f32[5,3] broadcast(zero), dimensions={}
 ROOT s = f32[5,3] select(g, a, b)"""
    )
    x, w = draw(1, 5, 40), draw(2, 40, 3)
    ((value, _),) = bounds(DOT, x, w, precision="highest")
    threshold = value.astype(np.float32)
    threshold[0] += 1
    ((_, bound),) = bounds(body, x, w, threshold, precision="highest")
    assert (bound[1:] >= 1).all()
    assert not bound[0].any()


@pytest.mark.parametrize("window", ["reduce(x, z), dimensions={1}", "reduce-window(x, z), window={size=1x6}"])
def test_reductions_by_any_computation_follow_its_own_rules(window: str) -> None:
    x = draw(3, 4, 6)
    shape = "f32[4]" if window.startswith("reduce(") else "f32[4,1]"
    body = f" x = f32[4,6] parameter(0)\n z = f32[] constant(-inf)\n ROOT r = {shape} {window}, to_apply=softadd"
    ((value, bound),) = bounds(body, x)
    exact = np.log(np.exp(x.astype(np.float64)).sum(axis=1)).reshape(value.shape)
    assert (np.abs(value - exact) <= bound).all()
    assert (bound < 1e-4).all()


def test_a_reduction_by_any_computation_rounds_what_it_has_accumulated() -> None:
    body = " x = f32[4,6] parameter(0)\n z = f32[] constant(80)"
    body += "\n ROOT r = f32[4] reduce(x, z), dimensions={1}, to_apply=softadd"
    ((value, bound),) = bounds(body, draw(3, 4, 6))
    assert (bound >= np.spacing(value)).all()


def test_bits_of_exact_elements_are_exact() -> None:
    body = """ x = f32[3] parameter(0)
 y = f32[3] exponential(x)
 c = f32[6] concatenate(x, y), dimensions={0}
 ROOT b = s32[6] bitcast-convert(c)"""
    ((_, bound),) = bounds(body, draw(1, 3))
    np.testing.assert_array_equal(bound, [0, 0, 0, np.inf, np.inf, np.inf])


def test_bits_of_inexact_floats_have_no_bound() -> None:
    body = DOT.replace("ROOT d", "d") + "\n ROOT b = s32[5,3] bitcast-convert(d)"
    ((_, bound),) = bounds(body, draw(1, 5, 40), draw(2, 40, 3), precision="highest")
    assert np.isinf(bound).all()


@pytest.mark.parametrize("op", ["add", "multiply"])
def test_narrow_sums_and_products_have_one_rounding(op: str) -> None:
    """However many elements: they accumulate in f32."""
    text = (
        f"HloModule m\nf {{ a = bf16[] parameter(0)\n b = bf16[] parameter(1)\n ROOT c = bf16[] {op}(a, b) }}\n"
        "ENTRY e {\n x = bf16[400] parameter(0)\n o = bf16[] constant(1)\n"
        " ROOT r = bf16[] reduce(x, o), dimensions={0}, to_apply=f\n}\n"
    )
    x = np.random.default_rng(0).uniform(0.9, 1.1, 400).astype(ml_dtypes.bfloat16)
    ((value, bound),) = bounded(parse_hlo(text).entry, [x])
    assert 0 < float(bound) < 1.05 * float(abs(value)) * 2.0**-7


@pytest.mark.parametrize("tiny", [3, 4])
def test_a_product_that_may_leave_the_normal_numbers_has_no_bound(tiny: int) -> None:
    """In any order: the small factors first, though the large ones make up for them."""
    text = (
        "HloModule m\nf { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] multiply(a, b) }\n"
        "ENTRY e {\n x = f32[64] parameter(0)\n o = f32[] constant(1)\n"
        " ROOT r = f32[] reduce(x, o), dimensions={0}, to_apply=f\n}\n"
    )
    x = np.array([1e-10] * tiny + [3.0] * (64 - tiny), np.float32)
    ((_, bound),) = bounded(parse_hlo(text).entry, [x])
    assert np.isinf(float(bound)) == (tiny == 4)
