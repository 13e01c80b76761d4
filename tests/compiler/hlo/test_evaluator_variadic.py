"""Windows and scatters of several arrays at once, computations of any kind, and negative padding, against XLA."""

import numpy as np
import pytest

from systolith.compiler.hlo import parse_hlo
from systolith.compiler.hlo.values.evaluator import in_any_order
from tests.compiler.hlo.compare import assert_matches_xla

pytest.importorskip("jax")

BEST = """best {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(b, a), direction=GT
  v = f32[] select(more, b, a)
  k = s32[] select(more, j, i)
  ROOT t = (f32[], s32[]) tuple(v, k)
}"""

FLAGGED = """HloModule m
keep {
  p = pred[] parameter(0)
  v = s32[] parameter(1)
  q = pred[] parameter(2)
  u = s32[] parameter(3)
  limit = s32[] constant(8)
  a = s32[] abs(v)
  b = s32[] abs(u)
  sizes = s32[] or(a, b)
  small = pred[] compare(sizes, limit), direction=LT
  both = pred[] and(p, q)
  first = pred[] and(small, both)
  either = pred[] or(p, q)
  most = s32[] maximum(v, u)
  kept = s32[] select(first, v, most)
  ROOT t = (pred[], s32[]) tuple(either, kept)
}
ENTRY e {
  ROOT x = s32[] parameter(0)
}
"""

X = np.random.default_rng(3).permutation(30).astype(np.float32).reshape(5, 6)
PLACES = np.arange(30, dtype=np.int32).reshape(5, 6)


@pytest.mark.parametrize(
    ("window", "dims"),
    [
        ("size=2x3", "4,4"),
        ("size=3x3 stride=2x1 pad=1_1x1_1", "3,6"),
        ("size=2x2 lhs_dilate=2x1 rhs_dilate=1x2", "8,4"),
        ("size=1x6", "5,1"),
    ],
)
def test_reduce_window_of_two_arrays(window: str, dims: str) -> None:
    text = f"""HloModule m
{BEST}
ENTRY e {{
  x = f32[5,6] parameter(0)
  n = s32[5,6] parameter(1)
  low = f32[] constant(-inf)
  none = s32[] constant(-1)
  ROOT w = (f32[{dims}], s32[{dims}]) reduce-window(x, n, low, none), window={{{window}}}, to_apply=best
}}"""
    assert_matches_xla(text, X, PLACES)


def test_scatter_into_two_arrays() -> None:
    text = """HloModule m
both {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  s = f32[] add(a, b)
  k = s32[] maximum(i, j)
  ROOT t = (f32[], s32[]) tuple(s, k)
}
ENTRY e {
  x = f32[5,6] parameter(0)
  n = s32[5,6] parameter(1)
  at = s32[4] parameter(2)
  u = f32[4,6] slice(x), slice={[0:4], [0:6]}
  v = s32[4,6] slice(n), slice={[1:5], [0:6]}
  ROOT r = (f32[5,6], s32[5,6]) scatter(x, n, at, u, v), update_window_dims={1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=both
}"""
    assert_matches_xla(text, X, PLACES, np.array([2, 9, 2, 0], np.int32))


@pytest.mark.parametrize("hint", ["unique_indices=true", "indices_are_sorted=true"])
def test_hints_change_nothing(hint: str) -> None:
    text = f"""HloModule m
keep {{ a = s32[] parameter(0) ROOT b = s32[] parameter(1) }}
ENTRY e {{
  n = s32[5,6] parameter(0)
  at = s32[3] constant({{1, 3, 4}})
  g = s32[3,6] gather(n, at), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
    index_vector_dim=1, slice_sizes={{1,6}}, indices_are_sorted=true
  ROOT r = s32[5,6] scatter(n, at, g), update_window_dims={{1}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, {hint}, to_apply=keep
}}"""
    assert_matches_xla(text, PLACES)


def test_negative_padding_of_a_window() -> None:
    text = """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[5,6] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[3,5] reduce-window(x, z), window={size=2x2 pad=-1_0x0_0}, to_apply=add
}"""
    assert_matches_xla(text, X)


def test_sort_of_three_arrays_by_two_keys() -> None:
    text = """HloModule m
before {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  i = s32[] parameter(4)
  j = s32[] parameter(5)
  less = pred[] compare(a, b), direction=LT
  same = pred[] compare(a, b), direction=EQ
  more = pred[] compare(c, d), direction=GT
  second = pred[] and(same, more)
  ROOT r = pred[] or(less, second)
}
ENTRY e {
  x = f32[5,6] parameter(0)
  n = s32[5,6] parameter(1)
  three = s32[] constant(3)
  threes = s32[5,6] broadcast(three), dimensions={}
  k = s32[5,6] remainder(n, threes)
  ROOT s = (s32[5,6], f32[5,6], s32[5,6]) sort(k, x, n), dimensions={0}, is_stable=true, to_apply=before
}"""
    assert_matches_xla(text, X, PLACES)


def test_flagged_small_values_alone_show_that_the_order_matters() -> None:
    assert not in_any_order(parse_hlo(FLAGGED).computation("keep"))
    assert in_any_order(parse_hlo(FLAGGED.replace("select(first, v, most)", "copy(most)")).computation("keep"))
