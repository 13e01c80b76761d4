"""Scatters of constants, whose load from HBM waits for nothing but their indices."""

from __future__ import annotations

import numpy as np

from tests.compiler.machine import check


def test_a_constant_goes_where_the_index_of_its_iteration_says() -> None:
    """The index is computed in the body: a load ahead of that would take the one of the iteration before."""
    text = """HloModule m
last { a = pred[] parameter(0)  ROOT b = pred[] parameter(1) }
body {
  p = (s32[], s32[8], pred[8]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  order = s32[8] get-tuple-element(p), index=1
  seen = pred[8] get-tuple-element(p), index=2
  one = s32[1] dynamic-slice(order, n), dynamic_slice_sizes={1}
  eight = s32[1] constant({8})
  zero = s32[1] constant({0})
  negative = pred[1] compare(one, zero), direction=LT
  up = s32[1] add(one, eight)
  at = s32[1] select(negative, up, one)
  true = pred[] constant(true)
  marked = pred[8] scatter(seen, at, true), update_window_dims={}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=0, indices_are_sorted=true, unique_indices=true, to_apply=last
  step = s32[] constant(1)
  next = s32[] add(n, step)
  ROOT t = (s32[], s32[8], pred[8]) tuple(next, order, marked)
}
more {
  p = (s32[], s32[8], pred[8]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  order = s32[8] get-tuple-element(p), index=1
  one = s32[1] dynamic-slice(order, n), dynamic_slice_sizes={1}
  at = s32[] reshape(one)
  end = s32[] constant(7)
  ROOT m = pred[] compare(at, end), direction=NE
}
ENTRY e {
  order = s32[8] parameter(0)
  zero = s32[] constant(0)
  false = pred[] constant(false)
  none = pred[8] broadcast(false), dimensions={}
  start = (s32[], s32[8], pred[8]) tuple(zero, order, none)
  w = (s32[], s32[8], pred[8]) while(start), condition=more, body=body
  ROOT seen = pred[8] get-tuple-element(w), index=2
}
"""
    check(text, [np.array([3, -4, 5, 7, 0, 0, 0, 0], np.int32)])
