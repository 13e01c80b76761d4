"""The oldest seed's section on broadcasting in binary operations."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith import api as sl
from systolith.compiler.hlo.errors import HloError
from tests.examples import examples
from tests.seeds.run import check, constant, results

MATRIX = [[1, 2, 3], [4, 5, 6]]


def _add(left: Any, right: Any, dimensions: list[int] | None = None) -> tuple[sl.XlaBuilder, sl.XlaOp]:
    b = sl.XlaBuilder("add")
    operands = constant(b, left), constant(b, right)
    return b, b.Add(*operands) if dimensions is None else b.Add(*operands, dimensions)


def _refused(left: Any, right: Any, dimensions: list[int] | None = None) -> None:
    b, _ = _add(left, right, dimensions)
    with pytest.raises(HloError):
        b.Build()


def test_matrix_and_vector_over_rows() -> None:
    b, total = _add(MATRIX, [7, 8, 9], [1])
    check(b, total, [[8, 10, 12], [11, 13, 15]])


def test_matrix_and_scalar() -> None:
    b, total = _add(MATRIX, 7)
    check(b, total, [[8, 9, 10], [11, 12, 13]])
    b, total = _add(7, MATRIX)
    check(b, total, [[8, 9, 10], [11, 12, 13]])


def test_ranks_differ_without_dimensions_is_invalid() -> None:
    _refused(MATRIX, [7, 8, 9])


def test_vector_becomes_rows_of_a_matrix_of_two() -> None:
    b, rows = _add(np.zeros((2, 3)), [7, 8, 9], [1])
    check(b, rows, [[7, 8, 9]] * 2)


def test_vector_along_dimension_1_of_a_square() -> None:
    b, rows = _add(np.zeros((3, 3)), [7, 8, 9], [1])
    check(b, rows, [[7, 8, 9]] * 3)


def test_vector_along_dimension_0_of_a_square() -> None:
    b, columns = _add(np.zeros((3, 3)), [7, 8, 9], [0])
    check(b, columns, [[7, 7, 7], [8, 8, 8], [9, 9, 9]])


def test_vector_of_three_along_a_dimension_of_two_is_invalid() -> None:
    _refused(MATRIX, [7, 8, 9], [0])


def test_matrix_onto_dimensions_1_and_2_of_a_cuboid() -> None:
    cuboid, matrix = np.arange(24).reshape(2, 3, 4), 100 * np.arange(12).reshape(3, 4)
    b, total = _add(cuboid, matrix, [1, 2])
    check(b, total, cuboid + matrix)


@pytest.mark.parametrize("dimension", [3, 2, 1, 0])
def test_vector_matched_to_each_of_four_dimensions(dimension: int) -> None:
    sizes = (2, 3, 4, 5)
    vector = np.arange(sizes[dimension])
    b, total = _add(np.zeros(sizes), vector, [dimension])
    expected = np.moveaxis(np.broadcast_to(vector, (*np.delete(sizes, dimension), len(vector))), -1, dimension)
    check(b, total, expected)


@pytest.mark.parametrize("dimensions", [[2, 3], [1, 2], [0, 3], [0, 1], [0, 2], [1, 3]])
def test_matrix_matched_to_a_pair_of_four_dimensions(dimensions: list[int]) -> None:
    sizes = (2, 3, 4, 5)
    t, v = (sizes[d] for d in dimensions)
    matrix = np.arange(t * v).reshape(t, v)
    b, total = _add(np.zeros(sizes), matrix, dimensions)
    shape = [n if d in dimensions else 1 for d, n in enumerate(sizes)]
    check(b, total, np.broadcast_to(matrix.reshape(shape), sizes))


@pytest.mark.parametrize("dimensions", [[2, 1], [3, 3], [1, 1]])
def test_broadcast_dimensions_increase_strictly(dimensions: list[int]) -> None:
    _refused(np.zeros((3, 3, 3, 3)), np.zeros((3, 3)), dimensions)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [((2, 1), (2, 3), (2, 3)), ((1, 2, 5), (7, 2, 5), (7, 2, 5)), ((7, 2, 5), (7, 1, 5), (7, 2, 5))],
)
def test_degenerate_dimensions_expand(left: tuple[int, ...], right: tuple[int, ...], result: tuple[int, ...]) -> None:
    a, c = np.arange(np.prod(left)).reshape(left), 100.0 * np.arange(np.prod(right)).reshape(right)
    b, total = _add(a, c)
    check(b, total, a + c)
    assert (a + c).shape == result


def test_sizes_5_and_6_are_incompatible() -> None:
    _refused(np.zeros((7, 2, 5)), np.zeros((7, 2, 6)))


def test_outer_operation() -> None:
    b, total = _add([[1], [2]], [[10, 20, 30]])
    check(b, total, [[11, 21, 31], [12, 22, 32]])


def test_vector_first_becomes_a_matrix() -> None:
    """The first step of the composition: along dimension 0, as wide as the matrix."""
    b, rows = _add([1, 2, 3, 4], np.zeros((4, 2)), [0])
    check(b, rows, [[1, 1], [2, 2], [3, 3], [4, 4]])


def test_vector_and_single_row_compose() -> None:
    b, total = _add([1, 2, 3, 4], [[5, 6]], [0])
    check(b, total, [[6, 7], [7, 8], [8, 9], [9, 10]])


def test_matrix_and_cuboid_compose() -> None:
    matrix, cuboid = np.array([[1, 2]]), 10 * np.arange(12).reshape(4, 3, 1)
    b, total = _add(matrix, cuboid, [1, 2])
    check(b, total, matrix.reshape(1, 1, 2) + cuboid)
    assert (matrix.reshape(1, 1, 2) + cuboid).shape == (4, 3, 2)


@given(st.data())
@examples(12, 25)
def test_broadcast_is_in_dim_then_degenerate(data: st.DataObject) -> None:
    """Any lower-rank array onto a higher-rank one: unmapped dimensions get size one, then those of size one expand."""
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    dimensions = sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1), max_size=len(sizes) - 1)))
    low = [data.draw(st.sampled_from(sorted({1, sizes[d]}))) for d in dimensions]
    high = [data.draw(st.sampled_from([1, n])) if d in dimensions else n for d, n in enumerate(sizes)]
    a = np.arange(np.prod(low, dtype=int)).reshape(low)
    c = 100.0 * np.arange(np.prod(high, dtype=int)).reshape(high)
    spread = a.reshape([low[dimensions.index(d)] if d in dimensions else 1 for d in range(len(sizes))])
    b, total = _add(a, c, dimensions)
    check(b, total, spread + c)


@pytest.mark.parametrize("name", ["Eq", "Ne", "Ge", "Gt", "Le", "Lt"])
def test_comparisons_broadcast_too(name: str) -> None:
    b = sl.XlaBuilder("compare")
    (found,) = results(b, getattr(b, name)(constant(b, MATRIX), constant(b, [2, 2, 6]), [1]))
    compare = {"Eq": "equal", "Ne": "not_equal", "Ge": "greater_equal", "Gt": "greater", "Le": "less_equal"}
    np.testing.assert_array_equal(found, getattr(np, compare.get(name, "less"))(MATRIX, [2, 2, 6]))
