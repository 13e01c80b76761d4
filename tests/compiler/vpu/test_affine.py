"""Index maps against the reference evaluator: every point of a result, for random chains of data movement."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.index.affine import Box, Expr, IndexMap, reshape_factors, split_index
from systolith.compiler.ops.expression import Load
from systolith.compiler.ops.expression_builder import NotFoldableError, analyze
from tests.compiler.vpu.movement import MOVES, Chain, chains, show

FOLDING = tuple(m for m in MOVES if m != "concatenate")


def module_text(chain: Chain, element: str = "s32") -> str:
    lines = "\n".join(chain.lines)
    return (
        f"HloModule m\nENTRY e {{\n x = {element}[{show(chain.first)}] parameter(0)\n fill = {element}[] constant(-7)\n"
        f"{lines}\n ROOT r = {element}[{show(chain.last)}] copy({chain.result})\n}}\n"
    )


def read(load: Load, x: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """The value of a load at every point, from the definition of an index map."""
    points = np.indices(dims).reshape(len(dims), -1)
    inside = np.ones(points.shape[1], bool)

    def value(e: Expr) -> np.ndarray:
        nonlocal inside
        total = np.asarray(e.coefs, np.int64) @ points + e.const
        for q, scale in e.quotients:
            c = np.asarray(q.dividend.coefs, np.int64) @ points + q.dividend.const
            inside &= c % q.div == 0
            total = total + scale * (c // q.div)
        return np.asarray(total)

    for b in load.map.bounds:
        v = value(b.expr)
        inside &= (v >= b.lo) & (v < b.hi)
    index = [value(e) for e in load.map.dims]
    clipped = tuple(np.where(inside, i, 0) for i in index)
    fill = np.uint32(load.fill).view(np.int32)
    return np.where(inside, x[clipped], fill).reshape(dims)


@given(chains("s32", moves=FOLDING))
def test_map_reads_what_the_chain_moves(chain: Chain) -> None:
    module = parse_hlo(module_text(chain))
    x = np.arange(np.prod(chain.first), dtype=np.int32).reshape(chain.first)
    (want,) = evaluate(module, x)
    try:
        plan = analyze([module.entry.result])
    except NotFoldableError:
        return
    (node,) = plan.nodes
    if isinstance(node, Load):
        np.testing.assert_array_equal(read(node, x, chain.last), want)
        box = plan.footprint(node.leaf, Box.whole(chain.last))
        used = np.unique(want[np.isin(want, x) & (want >= 0)])
        if used.size and node.fill:
            index = np.stack(np.unravel_index(used, chain.first))
            assert (index.min(axis=1) >= box.origin).all()
            assert (index.max(axis=1) < np.add(box.origin, box.dims)).all()


def test_broadcast_as_jax_prints_it_is_one_load() -> None:
    text = """HloModule m
ENTRY e {
 x = f32[6] parameter(0)
 a = f32[1,6] reshape(x)
 b = f32[1,6] broadcast(a), dimensions={0,1}
 c = f32[6] reshape(b)
 ROOT d = f32[4,6] broadcast(c), dimensions={1}
}
"""
    (node,) = analyze([parse_hlo(text).entry.result]).nodes
    assert isinstance(node, Load)
    assert node.map.dims == (Expr((0, 1)),)
    assert node.map.total


def test_heads_of_attention_fold() -> None:
    text = """HloModule m
ENTRY e {
 x = f32[2,5,24] parameter(0)
 a = f32[2,5,12] slice(x), slice={[0:2], [0:5], [12:24]}
 b = f32[2,5,3,4] reshape(a)
 ROOT c = f32[2,3,5,4] transpose(b), dimensions={0,2,1,3}
}
"""
    (node,) = analyze([parse_hlo(text).entry.result]).nodes
    assert isinstance(node, Load)
    assert node.map.dims == (Expr((1, 0, 0, 0)), Expr((0, 0, 1, 0)), Expr((0, 4, 0, 1), 12))


def test_split_of_an_indivisible_index_is_refused() -> None:
    text = "HloModule m\nENTRY e {\n x = f32[3,4] parameter(0)\n ROOT r = f32[12] reshape(x)\n}\n"
    with pytest.raises(NotFoldableError, match=r"reshape 'r' \(f32\[12\]\)"):
        analyze([parse_hlo(text).entry.result])


@given(st.lists(st.integers(0, 4), min_size=0, max_size=4), st.data())
def test_reshape_factors_pair_equal_products(dims: list[int], data: st.DataObject) -> None:
    result = data.draw(st.permutations(dims))
    pairs = reshape_factors(dims, result)
    assert [x for xs, _ in pairs for x in xs] == list(range(len(dims)))
    assert [y for _, ys in pairs for y in ys] == list(range(len(result)))
    for xs, ys in pairs:
        assert 0 in dims or np.prod([dims[x] for x in xs]) == np.prod([result[y] for y in ys])


def test_split_index_checks_carries() -> None:
    assert split_index(Expr((3, 1)), (4, 3), (4, 3)) == [Expr((1, 0)), Expr((0, 1))]
    assert split_index(Expr((3, 1)), (5, 3), (4, 4)) is None  # the second index would carry
    assert split_index(Expr((2, 1)), (4, 3), (4, 2)) is None  # 2 does not divide into rows of 3


def test_footprint_of_a_box() -> None:
    m = IndexMap(2, (Expr((2, 0), 1), Expr((0, -1), 5)))
    assert m.footprint(Box((1, 2), (3, 2)), (20, 6)) == Box((3, 2), (5, 2))
    assert not m.footprint(Box((1, 2), (3, 2)), (3, 6)).elements  # all beyond the leaf


def test_an_index_of_a_dimension_of_size_1_is_0_wherever_there_is_an_element() -> None:
    """The second of three pieces, each a column as a row: what it reads does not depend on the number of the piece."""
    piece = Expr((0, 1), -1)
    read = replace(IndexMap.identity(2), dims=(piece, Expr((1, 0)))).reshape((4096, 1), (1, 4096))
    assert read is not None
    row, column = read.dims
    assert (row, column.interval(Box.whole((4096, 3)))) == (Expr((1, 0)), (0, 0))
