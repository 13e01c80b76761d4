"""Intervals, counts and boxes of index maps against each of their points."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.index.affine import Bound, Box, Expr, IndexMap
from tests.compiler.index.points import Point, boxes, element, exprs, maps, points, value

spaces = st.integers(0, 3)


@given(spaces.flatmap(lambda rank: st.tuples(exprs(rank), boxes(rank))))
def test_interval_is_that_of_the_values(case: tuple[Expr, Box]) -> None:
    e, box = case
    found = [v for p in points(box) if (v := value(e, p)) is not None]
    lo, hi = e.interval(box)
    if e.is_affine:
        assert (lo, hi) == (min(found), max(found))
    assert all(lo <= v <= hi for v in found)


@given(spaces.flatmap(lambda rank: st.tuples(exprs(rank), boxes(rank))))
def test_values_are_those_at_the_points(case: tuple[Expr, Box]) -> None:
    e, box = case
    values, divides = (np.broadcast_to(a, box.dims).ravel() for a in e.values(box))
    wanted = [value(e, p) for p in points(box)]
    assert [int(v) if good else None for v, good in zip(values, divides, strict=True)] == wanted


@given(spaces.flatmap(lambda rank: st.tuples(exprs(rank), boxes(rank))), st.integers(-9, 9), st.integers(1, 9))
def test_a_bound_holds_or_fails_all_over_a_box(case: tuple[Expr, Box], lo: int, size: int) -> None:
    e, box = case
    bound, found = Bound(e, lo, lo + size), [v for p in points(box) if (v := value(e, p)) is not None]
    inside = [lo <= v < lo + size for v in found]
    assert not (bound.holds(box) and not all(inside))
    assert not (bound.fails(box) and any(inside))
    if e.is_affine:
        assert bound.holds(box) == all(inside)
        assert bound.fails(box) == (max(found) < lo or min(found) >= lo + size)


@given(spaces.flatmap(lambda rank: st.tuples(maps(rank), boxes(rank, least=0))))
def test_inside_counts_the_points_that_read_an_element(case: tuple[tuple[IndexMap, Point], Box]) -> None:
    (m, _), box = case
    assert m.inside(box) == sum(element(m, p) is not None for p in points(box))


@given(spaces.flatmap(lambda rank: st.tuples(maps(rank), boxes(rank))))
def test_footprint_holds_what_is_read(case: tuple[tuple[IndexMap, Point], Box]) -> None:
    (m, leaf), box = case
    read = [at for p in points(box) if (at := element(m, p)) is not None]
    footprint, reach = m.footprint(box, leaf), m.reach(box, leaf)
    for found in (footprint, reach):
        assert set(read) <= set(points(found))
    assert set(points(reach)) <= set(points(Box.whole(leaf)))
    assert reach.elements
    assert reach == footprint or not footprint.elements
    if m.nowhere(box):
        assert not read
        assert not footprint.elements


@given(spaces.flatmap(lambda rank: st.tuples(maps(rank), boxes(rank))))
def test_a_map_within_a_box_reads_the_same(case: tuple[tuple[IndexMap, Point], Box]) -> None:
    (m, _), box = case
    local = m.within(box)
    relative = points(Box.whole(box.dims))
    assert [element(local, r) for r in relative] == [element(m, p) for p in points(box)]
    assert not any(b.expr.is_affine and b.holds(Box.whole(box.dims)) for b in local.bounds)


@given(st.integers(1, 3).flatmap(lambda rank: st.tuples(maps(rank), boxes(rank), st.permutations(range(rank)))))
def test_indices_in_another_order(case: tuple[tuple[IndexMap, Point], Box, list[int]]) -> None:
    (m, _), box, order = case
    other = m.picked(order)
    for p in points(box):
        assert element(other, tuple(p[d] for d in order)) == element(m, p)


@given(st.integers(0, 3).flatmap(lambda rank: st.lists(boxes(rank), min_size=1, max_size=3)))
def test_hull_is_the_smallest_box_that_holds_all(some: list[Box]) -> None:
    hull = Box.hull(some)
    together = [p for box in some for p in points(box)]
    assert set(together) <= set(points(hull))
    for d in range(len(hull.dims)):
        along = [p[d] for p in together]
        assert (hull.origin[d], hull.origin[d] + hull.dims[d] - 1) == (min(along), max(along))


@given(st.lists(st.integers(0, 2).flatmap(boxes), max_size=3))
def test_product_has_the_dimensions_of_all(some: list[Box]) -> None:
    made = Box.product(*some)
    assert made.elements == prod(box.elements for box in some)
    assert made.intervals() == [ends for box in some for ends in box.intervals()]
