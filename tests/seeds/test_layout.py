"""Shapes and layout: rank, order of dimensions, memory order, padding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith import api as sl
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.linear_layout import from_memory, linear_index, memory_size, strides, to_memory

# The array of the examples: a b c / d e f as 1 2 3 / 4 5 6.
ARRAY = sl.Literal.r2([[1, 2, 3], [4, 5, 6]])


def test_notation_of_shapes() -> None:
    vector, scalar = sl.Shape.parse("f32[10]"), sl.Shape.parse("f32[]")
    assert (vector.rank, vector.dims, vector.dtype.name) == (1, (10,), "f32")
    assert (scalar.rank, scalar.dims, scalar.size) == (0, (), 1)


def test_true_rank_counts_dimensions_greater_than_one() -> None:
    assert [sl.Shape.parse(f"f32[{dims}]").true_rank for dims in ("", "1", "1,5", "2,1,3", "2,3,4")] == [0, 0, 1, 2, 3]


def test_make_shape_takes_dimensions_in_increasing_order() -> None:
    shape = sl.ShapeUtil.MakeShape(sl.F32, [2, 3, 5, 7])
    assert shape == sl.make_shape("f32", [2, 3, 5, 7])
    assert shape.dims == (2, 3, 5, 7)
    assert str(shape) == "f32[2,3,5,7]"


def test_layout_has_order_padding_and_value() -> None:
    layout = sl.Layout((0, 1), padded_dimensions=(3, 5), padding_value=0)
    assert (layout.minor_to_major, layout.padded_dimensions, layout.padding_value) == ((0, 1), (3, 5), 0)
    assert sl.Layout((1, 0)).padded_dimensions == ()


def test_dimension_0_minor_is_column_major() -> None:
    literal = ARRAY.relayout(sl.Layout((0, 1)))
    assert literal.elements_in_memory.tolist() == [1, 4, 2, 5, 3, 6]
    assert strides(literal.shape) == (1, 2)
    assert literal == ARRAY


def test_dimension_0_major_is_row_major() -> None:
    literal = ARRAY.relayout(sl.Layout((1, 0)))
    assert literal.elements_in_memory.tolist() == [1, 2, 3, 4, 5, 6]
    assert strides(literal.shape) == (3, 1)


def test_padded_dimensions_in_memory() -> None:
    literal = ARRAY.relayout(sl.Layout((0, 1), padded_dimensions=(3, 5)))
    assert literal.elements_in_memory.tolist() == [1, 4, 0, 2, 5, 0, 3, 6, 0, 0, 0, 0, 0, 0, 0]
    assert linear_index(literal.shape, (1, 2)) == 7


def test_padding_is_the_layout_of_the_padded_array() -> None:
    order = (0, 1)
    padded = sl.Literal.r2([[1, 2, 3, 0, 0], [4, 5, 6, 0, 0], [0, 0, 0, 0, 0]]).relayout(sl.Layout(order))
    literal = ARRAY.relayout(sl.Layout(order, padded_dimensions=(3, 5)))
    assert padded.elements_in_memory.tolist() == literal.elements_in_memory.tolist()


def test_tiles_of_a_layout() -> None:
    """XLA's document on tiled layouts: f32[3,5]{1,0:T(2,2)}; element (2, 3) is at 17."""
    shape = sl.Shape.parse("f32[3,5]{1,0:T(2,2)}")
    assert memory_size(shape) == 24
    assert linear_index(shape, (2, 3)) == 17


@pytest.mark.parametrize(
    ("dims", "layout", "message"),
    [
        ((2, 3), sl.Layout((0,)), "permutation of 0 to 1"),
        ((2, 3), sl.Layout((1, 1)), "permutation of 0 to 1"),
        ((2, 3), sl.Layout((1, 0), padded_dimensions=(3,)), "must have 2 sizes, got 1"),
        ((2, 3), sl.Layout((1, 0), padded_dimensions=(1, 3)), "dimension 0 of size 2 cannot be padded to 1"),
        ((2, 3), sl.Layout((1, 0), ":T(2,*)"), "its last one is not '\\*'"),
    ],
)
def test_layouts_that_do_not_fit(dims: tuple[int, ...], layout: sl.Layout, message: str) -> None:
    with pytest.raises(HloError, match=message):
        sl.Literal.full(sl.make_shape("f32", dims), 0).relayout(layout)


@given(
    st.lists(st.integers(1, 5), min_size=0, max_size=4).flatmap(
        lambda dims: st.tuples(
            st.just(dims),
            st.permutations(range(len(dims))),
            st.lists(st.integers(0, 3), min_size=len(dims), max_size=len(dims)),
            st.sampled_from(["", ":T(2)", ":T(2,4)", ":T(4,3)(2,1)", ":T(*,2)", ":T(2)S(1)"]),
        )
    )
)
def test_memory_holds_each_element_at_its_linear_index(case: tuple[list[int], list[int], list[int], str]) -> None:
    dims, order, extra, suffix = case
    padded = tuple(n + e for n, e in zip(dims, extra, strict=True))
    layout = sl.Layout(tuple(order), suffix, padded_dimensions=padded, padding_value=-1)
    shape = sl.make_shape("s32", dims).with_layout(layout)
    value = np.arange(shape.size, dtype=np.int32).reshape(dims)
    memory = to_memory(value, shape)
    for index in np.ndindex(*dims):
        assert memory[linear_index(shape, index)] == value[index]
    assert np.count_nonzero(memory == -1) == memory.size - value.size
    np.testing.assert_array_equal(from_memory(memory, shape), value, strict=True)
    if not suffix:
        assert memory.size == int(np.prod(padded, dtype=int))
        assert all(
            linear_index(shape, index) == sum(i * s for i, s in zip(index, strides(shape), strict=True))
            for index in np.ndindex(*dims)
        )
