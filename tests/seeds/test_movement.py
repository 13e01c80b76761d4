"""Broadcast, collapse, reshape, concatenate, slice, dynamic slices, pad, reverse, transpose, iota."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith import api as sl
from systolith.compiler.hlo.errors import HloError
from tests.examples import examples
from tests.seeds.run import Array, check, constant, results

# The array of 24 elements that collapse and reshape start from: 10 * (i + 1) + 5 * j + k.
V = [[[10 * i + 5 * j + k for k in range(3)] for j in range(2)] for i in range(1, 5)]
IN_ORDER = [10, 11, 12, 15, 16, 17, 20, 21, 22, 25, 26, 27, 30, 31, 32, 35, 36, 37, 40, 41, 42, 45, 46, 47]
# Slowest dimension 1, then 2, then 0.
OUT_OF_ORDER = [10, 20, 30, 40, 11, 21, 31, 41, 12, 22, 32, 42, 15, 25, 35, 45, 16, 26, 36, 46, 17, 27, 37, 47]
A = [0.0, 1.0, 2.0, 3.0, 4.0]
B = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0], [9.0, 10.0, 11.0]]


@given(st.lists(st.integers(1, 3), max_size=2), st.lists(st.integers(1, 3), max_size=2))
@examples(7, 15)
def test_broadcast_indexes_copies(sizes: list[int], dims: list[int]) -> None:
    b = sl.XlaBuilder("broadcast")
    operand = np.arange(np.prod(dims, dtype=int), dtype=np.float32).reshape(dims)
    (output,) = results(b, b.Broadcast(constant(b, operand), sizes))
    assert output.shape == (*sizes, *dims)
    for i in np.ndindex(*sizes):
        np.testing.assert_array_equal(output[i], operand)


def test_broadcast_of_a_scalar() -> None:
    b = sl.XlaBuilder("broadcast")
    check(b, b.Broadcast(b.ConstantR0(2.0), [2, 3]), np.full((2, 3), 2.0))


def test_broadcast_in_dim_maps_and_expands() -> None:
    b = sl.XlaBuilder("broadcast_in_dim")
    matrix = constant(b, [[1, 2, 3]])
    check(b, b.BroadcastInDim(matrix, [2, 4, 3], [1, 2]), np.broadcast_to(np.array([1.0, 2, 3]), (2, 4, 3)))
    b = sl.XlaBuilder("misfit")
    b.BroadcastInDim(constant(b, [[1, 2, 3]]), [2, 4], [0, 1])
    with pytest.raises(HloError):
        b.Build()


@pytest.mark.parametrize(("dimensions", "sizes"), [([0, 1, 2], [24]), ([0, 1], [8, 3]), ([1, 2], [4, 6])])
def test_collapse_takes_consecutive_dimensions(dimensions: list[int], sizes: list[int]) -> None:
    b = sl.XlaBuilder("collapse")
    check(b, b.Collapse(constant(b, V), dimensions), np.array(V).reshape(sizes))


@pytest.mark.parametrize("dimensions", [[1, 0], [0, 2]])
def test_collapse_refuses_other_sets(dimensions: list[int]) -> None:
    b = sl.XlaBuilder("collapse")
    b.Collapse(constant(b, V), dimensions)
    with pytest.raises(HloError, match="Collapse"):
        b.Build()


def test_collapse_to_one_dimension() -> None:
    b = sl.XlaBuilder("collapse")
    check(b, b.Collapse(constant(b, V), [0, 1, 2]), IN_ORDER)


def test_collapse_lower_dimensions() -> None:
    b = sl.XlaBuilder("collapse")
    rows = [IN_ORDER[i : i + 3] for i in range(0, 24, 3)]
    check(b, b.Collapse(constant(b, V), [0, 1]), rows)


def test_collapse_higher_dimensions() -> None:
    b = sl.XlaBuilder("collapse")
    rows = [IN_ORDER[i : i + 6] for i in range(0, 24, 6)]
    check(b, b.Collapse(constant(b, V), [1, 2]), rows)


def test_collapse_of_named_dimensions() -> None:
    """The interface's comment: 256 x 2 x 2 x 32 becomes 1024 x 32."""
    b = sl.XlaBuilder("collapse")
    operand = b.Parameter(0, sl.make_shape("s32", [256, 2, 2, 32]), "operand")
    value = np.arange(256 * 4 * 32, dtype=np.int32).reshape(256, 2, 2, 32)
    check(b, b.Collapse(operand, [0, 1, 2]), value.reshape(1024, 32), arguments=[value])


def test_reshape_in_order_to_a_vector() -> None:
    for arguments in ([[24]], [[0, 1, 2], [24]]):
        b = sl.XlaBuilder("reshape")
        check(b, b.Reshape(constant(b, V), *arguments), IN_ORDER)


def test_reshape_in_order_to_a_matrix() -> None:
    rows = [IN_ORDER[i : i + 3] for i in range(0, 24, 3)]
    for arguments in ([[8, 3]], [[0, 1, 2], [8, 3]]):
        b = sl.XlaBuilder("reshape")
        check(b, b.Reshape(constant(b, V), *arguments), rows)


def test_reshape_out_of_order_to_a_vector() -> None:
    b = sl.XlaBuilder("reshape")
    check(b, b.Reshape(constant(b, V), [1, 2, 0], [24]), OUT_OF_ORDER)


def test_reshape_out_of_order_to_a_matrix() -> None:
    b = sl.XlaBuilder("reshape")
    expected = [[10, 20, 30], [40, 11, 21], [31, 41, 12], [22, 32, 42], [15, 25, 35], [45, 16, 26], [36, 46, 17]]
    check(b, b.Reshape(constant(b, V), [1, 2, 0], [8, 3]), [*expected, [27, 37, 47]])


def test_reshape_out_of_order_to_three_dimensions() -> None:
    b = sl.XlaBuilder("reshape")
    pairs = [OUT_OF_ORDER[i : i + 2] for i in range(0, 24, 2)]
    check(b, b.Reshape(constant(b, V), [1, 2, 0], [2, 6, 2]), [pairs[:6], pairs[6:]])


@pytest.mark.parametrize(
    ("operand", "arguments", "expected"),
    [([[5]], [[0, 1], []], 5), ([[5]], [[]], 5), (5, [[], [1, 1]], [[5]]), (5, [[1, 1]], [[5]])],
)
def test_reshape_between_scalar_and_single_element(operand: Any, arguments: list[Any], expected: Any) -> None:
    b = sl.XlaBuilder("reshape")
    check(b, b.Reshape(constant(b, operand), *arguments), expected)


def test_concat_of_vectors() -> None:
    b = sl.XlaBuilder("concat")
    check(b, b.ConcatInDim([constant(b, v) for v in ([2, 3], [4, 5], [6, 7])], 0), [2, 3, 4, 5, 6, 7])


def test_concat_of_matrices() -> None:
    b = sl.XlaBuilder("concat")
    parts = [constant(b, [[1, 2], [3, 4], [5, 6]]), constant(b, [[7, 8]])]
    check(b, b.ConcatInDim(parts, 0), [[1, 2], [3, 4], [5, 6], [7, 8]])


@pytest.mark.parametrize("dimension", [0, 1])
def test_concat_in_either_dimension(dimension: int) -> None:
    b = sl.XlaBuilder("concat")
    parts = [np.arange(6.0).reshape(2, 3), 10 + np.arange(6.0).reshape(2, 3)]
    check(b, b.ConcatInDim([constant(b, p) for p in parts], dimension), np.concatenate(parts, dimension))


@pytest.mark.parametrize(("first", "second", "dimension"), [([[1, 2]], [[3]], 0), (1.0, 2.0, 0), ([1], [2], 1)])
def test_concat_refuses_ragged_arrays_and_scalars(first: Any, second: Any, dimension: int) -> None:
    b = sl.XlaBuilder("concat")
    b.ConcatInDim([constant(b, first), constant(b, second)], dimension)
    with pytest.raises(HloError):
        b.Build()


def test_slice_of_a_vector() -> None:
    b = sl.XlaBuilder("slice")
    check(b, b.Slice(constant(b, A), [2], [4]), [2.0, 3.0])


def test_slice_of_a_matrix() -> None:
    b = sl.XlaBuilder("slice")
    check(b, b.Slice(constant(b, B), [2, 1], [4, 3]), [[7.0, 8.0], [10.0, 11.0]])


def test_slice_of_the_interface_comment() -> None:
    b = sl.XlaBuilder("slice")
    check(b, b.Slice(constant(b, np.arange(12).reshape(3, 4)), [1, 1], [2, 3]), [[5, 6]])


def test_slice_with_strides() -> None:
    b = sl.XlaBuilder("slice")
    check(b, b.Slice(constant(b, B), [0, 0], [4, 3], [2, 2]), [[0, 2], [6, 8]])


def _starts(b: sl.XlaBuilder, starts: list[int], together: bool) -> Any:
    """Starting indices as one vector (the older seeds), or as a scalar each."""
    if together:
        return b.ConstantR1(starts, dtype="s32")
    return [b.ConstantR0(s, "s32") for s in starts]


@pytest.mark.parametrize("together", [True, False])
def test_dynamic_slice_of_a_vector(together: bool) -> None:
    b = sl.XlaBuilder("dynamic_slice")
    check(b, b.DynamicSlice(constant(b, A), _starts(b, [2], together), [2]), [2.0, 3.0])


@pytest.mark.parametrize("together", [True, False])
def test_dynamic_slice_of_a_matrix(together: bool) -> None:
    b = sl.XlaBuilder("dynamic_slice")
    found = b.DynamicSlice(constant(b, B), _starts(b, [2, 1], together), [2, 2])
    check(b, found, [[7.0, 8.0], [10.0, 11.0]])


@pytest.mark.parametrize("together", [True, False])
def test_dynamic_update_slice_of_a_vector(together: bool) -> None:
    b = sl.XlaBuilder("dynamic_update_slice")
    found = b.DynamicUpdateSlice(constant(b, A), constant(b, [5.0, 6.0]), _starts(b, [2], together))
    check(b, found, [0.0, 1.0, 5.0, 6.0, 4.0])


@pytest.mark.parametrize("together", [True, False])
def test_dynamic_update_slice_of_a_matrix(together: bool) -> None:
    b = sl.XlaBuilder("dynamic_update_slice")
    update = constant(b, [[12.0, 13.0], [14.0, 15.0], [16.0, 17.0]])
    found = b.DynamicUpdateSlice(constant(b, B), update, _starts(b, [1, 1], together))
    check(b, found, [[0, 1, 2], [3, 12, 13], [6, 14, 15], [9, 16, 17]])


@given(st.lists(st.integers(-3, 6), min_size=2, max_size=2))
@examples(7, 15)
def test_dynamic_slice_clamps_its_start(starts: list[int]) -> None:
    b = sl.XlaBuilder("dynamic_slice")
    i, j = (min(max(s, 0), n - 2) for s, n in zip(starts, (4, 3), strict=True))
    found = b.DynamicSlice(constant(b, B), _starts(b, starts, together=False), [2, 2])
    check(b, found, np.array(B)[i : i + 2, j : j + 2])


@given(st.lists(st.integers(-3, 6), min_size=2, max_size=2))
@examples(7, 15)
def test_dynamic_update_slice_clamps_its_start(starts: list[int]) -> None:
    b = sl.XlaBuilder("dynamic_update_slice")
    i, j = (min(max(s, 0), n - 2) for s, n in zip(starts, (4, 3), strict=True))
    expected = np.array(B)
    expected[i : i + 2, j : j + 2] = -1
    update = constant(b, np.full((2, 2), -1.0))
    check(b, b.DynamicUpdateSlice(constant(b, B), update, _starts(b, starts, together=False)), expected)


def _padded(operand: Array, value: float, config: list[tuple[int, int, int]]) -> Array:
    """Pad as the seeds say: interior first, then the edges, where a negative one removes."""
    for axis, (low, high, interior) in enumerate(config):
        moved = np.moveaxis(operand, axis, 0)
        spread = np.full((max(len(moved) + (len(moved) - 1) * interior, 0), *moved.shape[1:]), value)
        spread[:: interior + 1] = moved
        edges = [np.full((max(n, 0), *moved.shape[1:]), value) for n in (low, high)]
        spread = np.concatenate([edges[0], spread[max(-low, 0) : len(spread) - max(-high, 0)], edges[1]])
        operand = np.moveaxis(spread, 0, axis)
    return operand


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(-1, 2), st.integers(0, 2)), min_size=2, max_size=2))
@examples(12, 25)
def test_pad_edges_and_interior(config: list[tuple[int, int, int]]) -> None:
    b = sl.XlaBuilder("pad")
    found = b.Pad(constant(b, B), b.ConstantR0(-1.0), config)
    check(b, found, _padded(np.array(B), -1.0, config))


def test_pad_of_nothing_changes_nothing() -> None:
    b = sl.XlaBuilder("pad")
    check(b, b.Pad(constant(b, B), b.ConstantR0(-1.0), [(0, 0, 0), (0, 0, 0)]), B)


def test_pad_config_has_three_fields_a_dimension() -> None:
    b = sl.XlaBuilder("pad")
    config = [
        sl.PaddingConfigDimension(edge_padding_low=1, edge_padding_high=2, interior_padding=0),
        sl.PaddingConfigDimension(edge_padding_low=0, edge_padding_high=0, interior_padding=1),
    ]
    expected = [[9, 9, 9], [1, 9, 2], [3, 9, 4], [9, 9, 9], [9, 9, 9]]
    check(b, b.Pad(constant(b, [[1, 2], [3, 4]]), b.ConstantR0(9.0), config), expected)


@pytest.mark.parametrize("dimensions", [[], [0], [1], [0, 2], [0, 1, 2]])
def test_rev_reflects_indices(dimensions: list[int]) -> None:
    b = sl.XlaBuilder("rev")
    operand = np.array(V)
    expected = np.empty_like(operand)
    for index in product(*map(range, operand.shape)):
        to = tuple(n - 1 - i if d in dimensions else i for d, (i, n) in enumerate(zip(index, operand.shape)))  # noqa: B905
        expected[to] = operand[index]
    check(b, b.Rev(constant(b, V), dimensions), expected)


def test_trans_is_an_out_of_order_reshape() -> None:
    b = sl.XlaBuilder("trans")
    matrix = constant(b, B)
    check(b, b.Tuple([b.Trans(matrix), b.Reshape(matrix, [1, 0], [3, 4])]), np.transpose(B), np.transpose(B))


@pytest.mark.parametrize("permutation", [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]])
def test_transpose_permutes_dimensions(permutation: list[int]) -> None:
    b = sl.XlaBuilder("transpose")
    (found,) = results(b, b.Transpose(constant(b, V), permutation))
    assert all(np.shape(V)[permutation[i]] == found.shape[i] for i in range(3))
    np.testing.assert_array_equal(found, np.transpose(V, permutation))


@pytest.mark.parametrize("permutation", [[2, 1, 0], [1, 2, 0], [2, 0, 1]])
def test_transpose_is_an_out_of_order_reshape(permutation: list[int]) -> None:
    b = sl.XlaBuilder("transpose")
    sizes = [(4, 2, 3)[p] for p in permutation]
    check(b, b.Reshape(constant(b, V), permutation, sizes), np.transpose(V, permutation))


def test_iota_down_the_rows() -> None:
    b = sl.XlaBuilder("iota")
    check(b, b.Iota(sl.Shape.parse("s32[4,8]"), 0), [[row] * 8 for row in range(4)])


def test_iota_along_the_columns() -> None:
    b = sl.XlaBuilder("iota")
    check(b, b.Iota(sl.Shape.parse("s32[4,8]"), 1), [list(range(8))] * 4)


@pytest.mark.parametrize("element", ["f32", "f16", "bf16", "f64"])
def test_iota_of_floats_is_a_converted_iota(element: str) -> None:
    b = sl.XlaBuilder("iota")
    shape = sl.make_shape(element, [300])
    converted = b.ConvertElementType(b.Iota(sl.make_shape("s32", [300]), 0), shape.dtype)
    one, other = results(b, b.Tuple([b.Iota(shape, 0), converted]))
    np.testing.assert_array_equal(one.astype(np.float64), other.astype(np.float64))
