"""Address patterns visit what their index maps read, in the order of the loops."""

from __future__ import annotations

from itertools import product
from math import prod

from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.index.affine import Bound, Box, Expr, IndexMap, divided
from systolith.compiler.index.contraction import convolution_contraction
from systolith.compiler.mxu.streams import operand_ref
from systolith.compiler.tile.arrays import dense, view
from systolith.compiler.tile.ir import Array, Buf, Ref
from systolith.compiler.tile.patterns import Loop, address, fitting, merged, pattern, stream
from systolith.isa.dtypes import F32
from systolith.isa.instruction import Space
from systolith.isa.pattern import MAX_COORDS, MAX_LOOPS
from tests.compiler.gemm.test_convolution import Case, convolutions
from tests.compiler.index.points import Point, boxes, element, maps, points
from tests.examples import examples
from tests.sim_values.slow import visit


def stored(dims: Point, order: list[int], offset: int = 0) -> Array:
    """An array nested in some order."""
    steps = dense([dims[d] for d in order], 4)
    strides = tuple(steps[order.index(d)] for d in range(len(dims)))
    return Array(Buf("a", Space.VMEM, 4 * prod(dims)), F32, dims, strides, (0,) * len(dims), offset)


def place(array: Array, at: Point | None) -> int | None:
    """Where an element lies."""
    if at is None:
        return None
    steps = zip(at, array.origin, array.strides, strict=True)
    return array.offset + sum((i - o) * s for i, o, s in steps)


def visited(ref: Ref) -> list[int | None]:
    return [where for _, where in visit(ref.pattern, ref.offset, (0, 0))]


@st.composite
def read_arrays(draw: st.DrawFn) -> tuple[IndexMap, Array, Box]:
    rank = draw(st.integers(1, 3))
    index, leaf = draw(maps(rank))
    array = stored(leaf, list(draw(st.permutations(range(len(leaf))))), draw(st.integers(0, 64)))
    return index, array, draw(boxes(rank))


@given(read_arrays())
def test_addresses_are_those_of_the_elements(case: tuple[IndexMap, Array, Box]) -> None:
    index, array, box = case
    offset, strides, coords = address(array, index.within(box))
    if len(coords) > MAX_COORDS:
        return
    loops = [Loop(d, 1, n) for d, n in enumerate(box.dims)]
    found = visited(Ref(array.buf, pattern(F32, loops, strides, coords), offset))
    assert found == [place(array, element(index, p)) for p in points(box)]
    joined = merged(range(len(box.dims)), box.dims, (strides, *(c.coefs for c in coords)))
    assert visited(Ref(array.buf, pattern(F32, joined, strides, coords), offset)) == found


@given(convolutions(), st.data())
@examples(30, 200)
def test_streams_of_a_product_visit_rows_of_operands(case: Case, data: st.DataObject) -> None:
    c = convolution_contraction(parse_hlo(case.text).entry.result, case.lhs, case.rhs)
    firsts = [data.draw(st.integers(0, n - 1)) for n in c.sizes]
    sizes = [data.draw(st.integers(1, n - first)) for n, first in zip(c.sizes, firsts, strict=True)]
    box = Box(tuple(firsts), tuple(1 if a in c.batch else n for a, n in enumerate(sizes)))
    weights = ((c.rhs, case.rhs, groups) for groups in ((c.k, c.n), (c.n, c.k)))
    for index, dims, groups in ((c.lhs, case.lhs, (c.m, c.k)), *weights):
        array = stored(dims, list(data.draw(st.permutations(range(len(dims))))))
        array = view(array, index.reach(box, dims))
        ref, rows = operand_ref(index, array, box, groups)
        assert prod(ref.pattern.counts[:rows]) == prod(box.dims[a] for a in groups[0])
        steps = [a for group in groups for a in group]
        wanted = []
        for at in product(*(range(box.origin[a], box.origin[a] + box.dims[a]) for a in steps)):
            point = list(box.origin)
            for a, i in zip(steps, at, strict=True):
                point[a] = i
            wanted.append(place(array, element(index, tuple(point))))
        assert visited(ref) == wanted


@st.composite
def bounded_rows(draw: st.DrawFn) -> tuple[IndexMap, Point]:
    """A map to the elements of a dense array as they lie, under bounds and quotients of few indices, and its sizes."""
    dims = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4).map(tuple))
    rank, steps = len(dims), dense(dims, 1)
    coefs = st.sampled_from([*(tuple(int(k == d) for k in range(rank)) for d in range(rank)), steps])
    bounds = []
    for e in draw(st.lists(st.builds(Expr, coefs, st.integers(-1, 1)), min_size=1, max_size=2)):
        kept = divided(e, draw(st.sampled_from((1, 1, 2))))
        assert kept is not None
        bounds.append(Bound(kept, 0, draw(st.integers(1, 3))))
    return IndexMap(rank, (Expr(steps),), tuple(bounds)), dims


@given(bounded_rows(), st.data())
@examples(75, 500)
def test_loops_of_a_stream_merge_under_bounds(case: tuple[IndexMap, Point], data: st.DataObject) -> None:
    index, dims = case
    cut = data.draw(st.integers(0, len(dims)))
    array = stored((prod(dims),), [0])
    ref, _ = operand_ref(index, array, Box.whole(dims), (range(cut), range(cut, len(dims))))
    assert visited(ref) == [place(array, element(index, p)) for p in points(Box.whole(dims))]


@given(st.lists(st.integers(1, 2), min_size=1, max_size=10), st.data())
@examples(20, 100)
def test_unrolled_loops_visit_every_element_once(dims: list[int], data: st.DataObject) -> None:
    array = stored(tuple(dims), list(data.draw(st.permutations(range(len(dims))))))
    loops = merged(range(len(dims)), dims, [array.strides])
    refs = [stream(array, kept, at) for kept, at in fitting([Loop(d, 1, n) for d, n in enumerate(dims)])]
    assert all(len(ref.pattern.counts) <= MAX_LOOPS for ref in refs)
    every = [place(array, p) for p in points(Box.whole(array.dims))]
    assert sorted(w for ref in refs for w in visited(ref) if w is not None) == sorted(w for w in every if w is not None)
    if len(loops) <= MAX_LOOPS:
        assert visited(stream(array, loops)) == every
