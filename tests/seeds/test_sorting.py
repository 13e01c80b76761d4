"""Sort and top-k."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith import api as sl
from tests.examples import examples
from tests.seeds.run import check, constant, results, scalar_computation


def _comparator(name: str, *types: str) -> sl.XlaComputation:
    """Compares the first operand's values only; parameters 2k and 2k + 1 belong to operand k."""
    b = sl.XlaBuilder("comparator")
    p = [b.Parameter(n, sl.make_shape(t, []), f"p{n}") for n, t in enumerate(t for t in types for _ in range(2))]
    return b.build(getattr(b, name)(p[0], p[1]))


def test_sort_without_more_is_ascending() -> None:
    b = sl.XlaBuilder("sort")
    check(b, b.Sort(constant(b, [3, -1, 2, 0])), [-1, 0, 2, 3])


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=8), st.sampled_from(["Lt", "Gt", "Le"]))
@examples(7, 15)
def test_sorted_values_are_in_the_comparators_order(values: list[int], name: str) -> None:
    b = sl.XlaBuilder("sort")
    (found,) = results(b, b.Sort([constant(b, values)], scalar_computation(name)))
    before = {"Lt": np.less, "Gt": np.greater, "Le": np.less_equal}[name]
    for i in range(len(values)):
        for j in range(i + 1, len(values)):
            assert before(found[i], found[j]) or before(found[i], found[j]) == before(found[j], found[i])
    assert sorted(found) == sorted(values)


@pytest.mark.parametrize(("dimension", "axis"), [(0, 0), (1, 1), (None, 1)])
def test_sort_of_a_matrix_by_columns_or_rows(dimension: int | None, axis: int) -> None:
    values = np.array([[3, 1, 2], [0, 5, 1]])
    b = sl.XlaBuilder("sort")
    more = {} if dimension is None else {"dimension": dimension}
    check(b, b.Sort([constant(b, values)], scalar_computation("Lt"), **more), np.sort(values, axis=axis))


def test_sort_of_three_operands_together() -> None:
    b = sl.XlaBuilder("sort")
    operands = [constant(b, [3, 1], "s32"), constant(b, [42, 50], "s32"), constant(b, [-3.0, 1.1])]
    root = b.Sort(operands, _comparator("Lt", "s32", "s32", "f32"), dimension=0)
    check(b, root, [1, 3], [50, 42], np.array([1.1, -3.0], np.float32))


def test_stable_sort_keeps_the_order_of_equals() -> None:
    keys = np.array([1, 0, 1, 0, 2, 1, 0])
    b = sl.XlaBuilder("sort")
    operands = [constant(b, keys), b.Iota(sl.make_shape("s32", [7]), 0)]
    root = b.Sort(operands, _comparator("Lt", "f32", "s32"), dimension=0, is_stable=True)
    order = np.argsort(keys, kind="stable")
    check(b, root, keys[order], order)
    assert "is_stable=true" in b.Build(root).hlo_text()


def test_sort_is_not_stable_unless_asked_for() -> None:
    b = sl.XlaBuilder("sort")
    assert "is_stable" not in b.Build(b.Sort([constant(b, [2, 1])], scalar_computation("Lt"))).hlo_text()


def test_top_1_of_two_rows() -> None:
    values = np.array([[0.1, 0.3, 0.1], [0.7, 0.2, -0.1]], np.float32)
    b = sl.XlaBuilder("top_k")
    root = b.TopK(constant(b, values), 1)
    assert str(b.GetShape(root)) == "(f32[2,1], s32[2,1])"
    check(b, root, np.array([[0.3], [0.7]], np.float32), [[1], [0]])


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=8), st.booleans(), st.data())
@examples(7, 15)
def test_top_k_of_a_vector(values: list[int], largest: bool, data: st.DataObject) -> None:
    """The j-th greatest or smallest; of equal elements the one of the lower index first."""
    k = data.draw(st.integers(1, len(values)))
    order = sorted(range(len(values)), key=lambda i: (-values[i] if largest else values[i], i))[:k]
    b = sl.XlaBuilder("top_k")
    check(b, b.TopK(constant(b, values), k, largest), [values[i] for i in order], order)


@pytest.mark.parametrize("dims", [(4,), (2, 4), (3, 2, 5)])
def test_top_k_keeps_all_but_the_last_dimension(dims: Any) -> None:
    b = sl.XlaBuilder("top_k")
    values = np.random.default_rng(0).permutation(np.prod(dims)).reshape(dims)
    found, indices = results(b, b.TopK(constant(b, values), 3))
    assert found.shape == indices.shape == (*dims[:-1], 3)
    np.testing.assert_array_equal(found, -np.sort(-values)[..., :3])
    np.testing.assert_array_equal(np.take_along_axis(values, indices, -1), found)
