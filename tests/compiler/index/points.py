"""Index maps as their definition says, a point at a time, and random ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from hypothesis import strategies as st

from systolith.compiler.index.affine import Bound, Box, Expr, IndexMap, Quotient

Point = tuple[int, ...]


def points(box: Box) -> Iterator[Point]:
    """The points of a box, row-major."""
    return product(*(range(o, o + n) for o, n in zip(box.origin, box.dims, strict=True)))


def value(e: Expr, point: Point) -> int | None:
    """An expression's value; None where a quotient has a remainder."""
    total = e.const + sum(c * i for c, i in zip(e.coefs, point, strict=True))
    for q, scale in e.quotients:
        dividend = value(q.dividend, point)
        if dividend is None or dividend % q.div:
            return None
        total += scale * (dividend // q.div)
    return total


def element(m: IndexMap, point: Point) -> Point | None:
    """The index of the element that a map reads at a point; None: it reads none."""
    for b in m.bounds:
        at = value(b.expr, point)
        if at is None or not b.lo <= at < b.hi:
            return None
    index = [value(e, point) for e in m.dims]
    return None if None in index else tuple(i for i in index if i is not None)


def exprs(rank: int) -> st.SearchStrategy[Expr]:
    """Affine expressions, and multiples of one quotient."""
    coefs = st.lists(st.integers(-3, 3), min_size=rank, max_size=rank).map(tuple)
    affine = st.builds(Expr, coefs, st.integers(-6, 9))
    quotient = st.builds(Quotient, affine, st.integers(2, 3))
    scale = st.sampled_from((1, 1, -1, 2))
    divided = st.builds(lambda q, s, c: Expr((0,) * rank, c, ((q, s),)), quotient, scale, st.integers(-2, 2))
    return affine | affine | divided


def boxes(rank: int, least: int = 1) -> st.SearchStrategy[Box]:
    """Boxes of a few points."""
    origin, dims = (
        st.lists(st.integers(lo, 4), min_size=rank, max_size=rank).map(tuple) for lo in (0, least)
    )  # fmt: skip
    return st.builds(Box, origin, dims)


@st.composite
def maps(draw: st.DrawFn, rank: int) -> tuple[IndexMap, Point]:
    """A map that reads no element outside of its leaf, and the leaf's sizes; bounds and quotients may be shared."""
    dims: list[Expr] = []
    leaf, bounds = [], []
    for _ in range(draw(st.integers(1, 3))):
        e = draw(st.sampled_from(dims) | exprs(rank) if dims else exprs(rank))
        n = draw(st.integers(1, 8))
        dims.append(e)
        leaf.append(n)
        bounds.append(Bound(e, 0, n))
    if draw(st.booleans()):
        bounds.append(Bound(draw(exprs(rank)), draw(st.integers(-3, 2)), draw(st.integers(3, 9))))
    return IndexMap(rank, tuple(dims), tuple(bounds)), tuple(leaf)
