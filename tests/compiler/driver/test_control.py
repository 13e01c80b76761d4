"""Loops, conditionals, dynamic slices, tuples: compiled programs against the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.machine import check

RNG = np.random.default_rng(0)


def _f(*dims: int) -> np.ndarray:
    return RNG.standard_normal(dims).astype(np.float32)


SWAP = """HloModule t
body {
  p = (s32[], f32[4,5], f32[4,5], f32[7]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  n = s32[] add(i, one)
  a = f32[4,5] get-tuple-element(p), index=1
  b = f32[4,5] get-tuple-element(p), index=2
  c = f32[7] get-tuple-element(p), index=3
  d = f32[7] multiply(c, c)
  s = f32[4,5] add(a, b)
  ROOT r = (s32[], f32[4,5], f32[4,5], f32[7]) tuple(n, b, s, d)
}
cond {
  p = (s32[], f32[4,5], f32[4,5], f32[7]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  k = s32[] constant(5)
  ROOT r = pred[] compare(i, k), direction=LT
}
ENTRY e {
  z = s32[] parameter(0)
  x = f32[4,5] parameter(1)
  y = f32[7] parameter(2)
  t = (s32[], f32[4,5], f32[4,5], f32[7]) tuple(z, x, x, y)
  w = (s32[], f32[4,5], f32[4,5], f32[7]) while(t), condition=cond, body=body
  a = f32[4,5] get-tuple-element(w), index=1
  ROOT r = (f32[4,5], (s32[], f32[4,5], f32[4,5], f32[7]), f32[4,5]) tuple(a, w, x)
}
"""


@pytest.mark.parametrize("start", [0, 3, 5, 9])
def test_a_loop_that_rotates_its_values_and_may_not_run(start: int) -> None:
    check(SWAP, [np.array(start, np.int32), _f(4, 5), _f(7) / 4])


NESTED = """HloModule t
inner_body {
  p = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  v = s32[] get-tuple-element(p), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  w = s32[] add(v, i)
  ROOT r = (s32[], s32[]) tuple(n, w)
}
inner_cond {
  p = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  k = s32[] constant(4)
  ROOT r = pred[] compare(i, k), direction=LT
}
body {
  p = (s32[], s32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = s32[8] get-tuple-element(p), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  t = (s32[], s32[]) tuple(i, i)
  w = (s32[], s32[]) while(t), condition=inner_cond, body=inner_body
  v = s32[] get-tuple-element(w), index=1
  u = s32[1] reshape(v)
  d = s32[8] dynamic-update-slice(a, u, i)
  ROOT r = (s32[], s32[8]) tuple(n, d)
}
cond {
  p = (s32[], s32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  k = s32[] constant(6)
  ROOT r = pred[] compare(i, k), direction=LT
}
ENTRY e {
  z = s32[] parameter(0)
  x = s32[8] parameter(1)
  t = (s32[], s32[8]) tuple(z, x)
  w = (s32[], s32[8]) while(t), condition=cond, body=body
  ROOT a = s32[8] get-tuple-element(w), index=1
}
"""


@pytest.mark.parametrize("start", [0, 2, 7])
def test_nested_loops_and_an_update_in_place(start: int) -> None:
    check(NESTED, [np.array(start, np.int32), np.arange(8, dtype=np.int32)])


SLICES = """HloModule t
ENTRY e {
  x = f32[6,9] parameter(0)
  i = s32[] parameter(1)
  j = s32[] parameter(2)
  u = f32[2,3] parameter(3)
  s = f32[2,4] dynamic-slice(x, i, j), dynamic_slice_sizes={2,4}
  y = f32[6,9] dynamic-update-slice(x, u, i, j)
  d = f32[2,4] add(s, s)
  ROOT r = (f32[2,4], f32[6,9], f32[2,4]) tuple(s, y, d)
}
"""


@pytest.mark.parametrize(("i", "j"), [(0, 0), (3, 2), (-5, 4), (100, 100), (-(2**31), 2**31 - 1)])
def test_dynamic_slices_clamp(i: int, j: int) -> None:
    check(SLICES, [_f(6, 9), np.array(i, np.int32), np.array(j, np.int32), _f(2, 3)])


def test_unsigned_start_indices_clamp_to_the_end() -> None:
    text = SLICES.replace("s32[] parameter", "u32[] parameter")
    check(text, [_f(6, 9), np.array(2**32 - 1, np.uint32), np.array(4, np.uint32), _f(2, 3)])


BRANCHES = """HloModule t
plain {
  p = (f32[3], f32[2,2]) parameter(0)
  a = f32[3] get-tuple-element(p), index=0
  b = f32[2,2] get-tuple-element(p), index=1
  ROOT r = (f32[3], f32[2,2]) tuple(a, b)
}
doubled {
  p = (f32[3], f32[2,2]) parameter(0)
  a = f32[3] get-tuple-element(p), index=0
  b = f32[2,2] get-tuple-element(p), index=1
  c = f32[3] add(a, a)
  d = f32[2,2] dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[3], f32[2,2]) tuple(c, d)
}
negated {
  p = (f32[3], f32[2,2]) parameter(0)
  a = f32[3] get-tuple-element(p), index=0
  b = f32[2,2] get-tuple-element(p), index=1
  c = f32[3] negate(a)
  ROOT r = (f32[3], f32[2,2]) tuple(c, b)
}
ENTRY e {
  i = s32[] parameter(0)
  x = f32[3] parameter(1)
  y = f32[2,2] parameter(2)
  t = (f32[3], f32[2,2]) tuple(x, y)
  c = (f32[3], f32[2,2]) conditional(i, t, t, t), branch_computations={plain, doubled, negated}
  a = f32[3] get-tuple-element(c), index=0
  b = f32[2,2] get-tuple-element(c), index=1
  s = f32[3] add(a, x)
  ROOT r = (f32[3], f32[2,2]) tuple(s, b)
}
"""


@pytest.mark.parametrize("index", [0, 1, 2, 3, -1])
def test_conditional_by_index(index: int) -> None:
    check(BRANCHES, [np.array(index, np.int32), _f(3), _f(2, 2)])


PRED = """HloModule t
yes {
  p = f32[3] parameter(0)
  ROOT r = f32[3] add(p, p)
}
no {
  ROOT p = f32[3] parameter(0)
}
ENTRY e {
  c = pred[] parameter(0)
  x = f32[3] parameter(1)
  ROOT r = f32[3] conditional(c, x, x), true_computation=yes, false_computation=no
}
"""


@pytest.mark.parametrize("taken", [True, False])
def test_conditional_by_pred(taken: bool) -> None:
    check(PRED, [np.array(taken), _f(3)])


PASSED = """HloModule t
ENTRY e {
  x = f32[300,300] parameter(0)
  y = (f32[2], s8[3]) parameter(1)
  a = f32[2] get-tuple-element(y), index=0
  k = f32[2,2] constant({{1, 2}, {3, 4}})
  ROOT r = (f32[300,300], f32[2], (f32[2], s8[3]), f32[2,2]) tuple(x, a, y, k)
}
"""


def test_parameters_and_constants_as_results() -> None:
    check(PASSED, [_f(300, 300), _f(2), np.array([-1, 2, 3], np.int8)])
