"""Gather and scatter: the examples, and the formal definitions on drawn dimension numbers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith import api as sl
from tests.examples import examples
from tests.seeds.run import Array, check, constant, results, scalar_computation

OPERAND = np.arange(16 * 11).reshape(16, 11)


def _gathered(operand: Any, indices: Any, numbers: sl.GatherDimensionNumbers, sizes: list[int], expected: Any) -> None:
    b = sl.XlaBuilder("gather")
    root = b.Gather(constant(b, operand), constant(b, indices, "s64"), numbers, sizes)
    check(b, root, expected)


def test_gather_of_five_slices() -> None:
    starts = np.array([[0, 0], [8, 5], [3, 2], [1, 4], [3, 2]])
    numbers = sl.GatherDimensionNumbers(offset_dims=[1, 2], start_index_map=[0, 1], index_vector_dim=1)
    expected = np.empty((5, 8, 6))
    for g, o0, o1 in np.ndindex(5, 8, 6):
        x, y = starts[g]
        expected[g, o0, o1] = OPERAND[x + o0, y + o1]
    _gathered(OPERAND, starts, numbers, [8, 6], expected)


def test_gather_with_a_batch_of_two_dimensions() -> None:
    starts = np.stack(np.meshgrid(range(5), [0, 5, 2, 1], indexing="xy"), axis=-1)
    assert starts.shape == (4, 5, 2)
    numbers = sl.GatherDimensionNumbers(offset_dims=[2, 3], start_index_map=[0, 1], index_vector_dim=2)
    expected = np.empty((4, 5, 8, 6))
    for g0, g1, o0, o1 in np.ndindex(*expected.shape):
        x, y = starts[g0, g1]
        expected[g0, g1, o0, o1] = OPERAND[x + o0, y + o1]
    _gathered(OPERAND, starts, numbers, [8, 6], expected)


def test_gather_of_rows() -> None:
    """gather_nd: an index of one element picks a whole row."""
    rows = np.array([[[3], [0]], [[15], [3]], [[7], [1]]])
    numbers = sl.GatherDimensionNumbers(
        offset_dims=[2], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=2
    )
    _gathered(OPERAND, rows, numbers, [1, 11], OPERAND[rows[..., 0]])


def test_index_vector_dim_past_the_end_is_a_dimension_of_one() -> None:
    rows = np.arange(42).reshape(6, 7) % 16
    for indices in (rows, rows[..., None]):
        numbers = sl.GatherDimensionNumbers(
            offset_dims=[2], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=2
        )
        _gathered(OPERAND, indices, numbers, [1, 11], OPERAND[rows])


def test_offsets_skip_collapsed_dimensions() -> None:
    """Rank 6, of which 0 and 2 are collapsed: offsets 0, 1, 2, 3 are the operand's dimensions 1, 3, 4, 5."""
    operand = np.arange(2 * 2 * 3 * 2 * 3 * 2).reshape(2, 2, 3, 2, 3, 2)
    numbers = sl.GatherDimensionNumbers(
        offset_dims=[0, 1, 2, 3], collapsed_slice_dims=[0, 2], start_index_map=[0, 2], index_vector_dim=0
    )
    _gathered(operand, [1, 2], numbers, [1, 2, 1, 2, 3, 2], operand[1, :, 2])


def test_batch_dimensions_are_those_that_are_no_offsets() -> None:
    """A result of rank 5 whose offsets are dimensions 2 and 4 has batch dimensions 0, 1 and 3."""
    starts = np.random.default_rng(0).integers(0, 4, (2, 3, 4, 2))
    numbers = sl.GatherDimensionNumbers(offset_dims=[2, 4], start_index_map=[0, 1], index_vector_dim=3)
    expected = np.empty((2, 3, 5, 4, 6))
    for i, j, o0, k, o1 in np.ndindex(*expected.shape):
        x, y = starts[i, j, k]
        expected[i, j, o0, k, o1] = OPERAND[x + o0, y + o1]
    _gathered(OPERAND, starts, numbers, [5, 6], expected)


@dataclass
class Case:
    """A drawn operand and indices with the dimension numbers between them."""

    operand: Array
    indices: Array
    index_vector_dim: int
    mapped: list[int]
    removed: list[int]
    sizes: list[int]
    windows: list[int]
    result: tuple[int, ...]

    def places(self) -> Any:
        """Each index of the result with the operand's index in front of clamping: start and offset apart."""
        kept = [d for d in range(self.operand.ndim) if d not in self.removed]
        batch = [d for d in range(len(self.result)) if d not in self.windows]
        padded = self.indices if self.index_vector_dim < self.indices.ndim else self.indices[..., None]
        for out in np.ndindex(*self.result):
            at = [out[d] for d in batch]
            vector = padded[(*at[: self.index_vector_dim], slice(None), *at[self.index_vector_dim :])]
            start = [0] * self.operand.ndim
            for k, d in enumerate(self.mapped):
                start[d] = int(vector[k])
            offset = [0] * self.operand.ndim
            for k, d in enumerate(kept):
                offset[d] = out[self.windows[k]]
            yield out, start, offset


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rank = draw(st.integers(1, 3))
    dims = draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank))
    removed = sorted(draw(st.sets(st.integers(0, rank - 1))))
    sizes = [1 if d in removed else draw(st.integers(1, n)) for d, n in enumerate(dims)]
    mapped = draw(st.permutations(range(rank)))[: draw(st.integers(1, rank))]
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    vector_dim = draw(st.integers(0, len(batch)))
    shape = [*batch[:vector_dim], len(mapped), *batch[vector_dim:]]
    seed = draw(st.integers(0, 1000))
    indices = np.random.default_rng(seed).integers(-2, 6, shape)
    if len(mapped) == 1 and draw(st.booleans()):
        indices, vector_dim = indices.reshape(batch), len(batch)
    total = len(batch) + rank - len(removed)
    windows = sorted(draw(st.permutations(range(total)))[: rank - len(removed)])
    inner, outer = iter([n for d, n in enumerate(sizes) if d not in removed]), iter(batch)
    result = tuple(next(inner) if d in windows else next(outer) for d in range(total))
    operand = np.arange(np.prod(dims)).reshape(dims)
    return Case(operand, indices, vector_dim, list(mapped), removed, sizes, windows, result)


@given(cases())
@examples(15, 30)
def test_gather_by_definition(case: Case) -> None:
    expected = np.empty(case.result)
    for out, start, offset in case.places():
        limits = zip(start, case.operand.shape, case.sizes, strict=True)
        clamped = [min(max(s, 0), n - w) for s, n, w in limits]
        expected[out] = case.operand[tuple(s + o for s, o in zip(clamped, offset, strict=True))]
    numbers = sl.GatherDimensionNumbers(
        offset_dims=case.windows,
        collapsed_slice_dims=case.removed,
        start_index_map=case.mapped,
        index_vector_dim=case.index_vector_dim,
    )
    _gathered(case.operand, case.indices, numbers, case.sizes, expected)


@given(cases())
@examples(15, 30)
def test_scatter_by_definition(case: Case) -> None:
    updates = 100 + np.arange(np.prod(case.result, dtype=int)).reshape(case.result)
    expected = case.operand.astype(np.float64)
    for out, start, offset in case.places():
        limits = zip(start, case.operand.shape, case.sizes, strict=True)
        if all(0 <= s <= n - w for s, n, w in limits):  # a window that is partly outside is left out as a whole
            expected[tuple(s + o for s, o in zip(start, offset, strict=True))] += updates[out]
    b = sl.XlaBuilder("scatter")
    root = b.Scatter(
        constant(b, case.operand), constant(b, case.indices, "s64"), constant(b, updates), scalar_computation("Add"),
        _scatter_numbers(case),
    )  # fmt: skip
    check(b, root, expected)


def _scatter_numbers(case: Case) -> sl.ScatterDimensionNumbers:
    return sl.ScatterDimensionNumbers(
        update_window_dims=case.windows,
        inserted_window_dims=case.removed,
        scatter_dims_to_operand_dims=case.mapped,
        index_vector_dim=case.index_vector_dim,
    )


def test_windows_of_updates_skip_inserted_dimensions() -> None:
    """Rank 6, of which 0 and 2 are inserted: the updates' windows are the operand's dimensions 1, 3, 4, 5."""
    operand, updates = np.zeros((2, 2, 3, 2, 3, 2)), np.arange(24).reshape(2, 2, 3, 2)
    expected = operand.copy()
    expected[1, :, 2] = updates
    case = Case(operand, np.array([1, 2]), 0, [0, 2], [0, 2], [], [0, 1, 2, 3], ())
    b = sl.XlaBuilder("scatter")
    root = b.Scatter(
        constant(b, operand), constant(b, [1, 2], "s64"), constant(b, updates), scalar_computation("Add"),
        _scatter_numbers(case),
    )  # fmt: skip
    check(b, root, expected)


def test_scatter_is_the_inverse_of_gather() -> None:
    """Scatter puts back the slices that gather takes out."""
    starts = np.array([[0, 0], [8, 5]])
    b = sl.XlaBuilder("scatter")
    operand, indices = constant(b, OPERAND), constant(b, starts, "s64")
    numbers = sl.GatherDimensionNumbers(offset_dims=[1, 2], start_index_map=[0, 1], index_vector_dim=1)
    slices = b.Gather(operand, indices, numbers, [8, 6])
    case = Case(OPERAND, starts, 1, [0, 1], [], [8, 6], [1, 2], ())
    root = b.Scatter(
        constant(b, np.zeros((16, 11))), indices, slices, scalar_computation("Max"), _scatter_numbers(case)
    )
    expected = np.zeros((16, 11))
    expected[:8, :6] = OPERAND[:8, :6]
    expected[8:, 5:] = OPERAND[8:, 5:]
    check(b, root, expected)


def test_scatter_passes_the_current_value_first() -> None:
    case = Case(np.zeros(4), np.array([[2], [0]]), 1, [0], [0], [1], [], ())
    b = sl.XlaBuilder("scatter")
    root = b.Scatter(
        constant(b, [10, 20, 30, 40]), constant(b, case.indices, "s64"), constant(b, [1, 2]),
        scalar_computation("Sub"), _scatter_numbers(case),
    )  # fmt: skip
    check(b, root, [8, 20, 29, 40])


def test_variadic_scatter_updates_together() -> None:
    """Where the new key is greater, key and value are replaced."""
    b = sl.XlaBuilder("greater")
    types = ("f32", "s32", "f32", "s32")
    key, value, new_key, new_value = (b.Parameter(n, sl.make_shape(t, []), f"p{n}") for n, t in enumerate(types))
    later = b.Gt(new_key, key)
    b.Tuple([b.Select(later, new_key, key), b.Select(later, new_value, value)])
    greater = b.Build()
    case = Case(np.zeros(3), np.array([[0], [2], [5]]), 1, [0], [0], [1], [], ())
    b = sl.XlaBuilder("scatter")
    root = b.Scatter(
        [constant(b, [5, 5, 5]), constant(b, [0, 0, 0], "s32")],
        constant(b, case.indices, "s64"),
        [constant(b, [9, 1, 9]), constant(b, [7, 8, 9], "s32")],
        greater,
        _scatter_numbers(case),
    )
    check(b, root, [9, 5, 5], [7, 0, 0])


@pytest.mark.parametrize("sorted_", [True, False])
def test_hints_about_indices_do_not_change_results(sorted_: bool) -> None:
    case = Case(np.zeros(4), np.array([[0], [2]]), 1, [0], [0], [1], [], ())
    b = sl.XlaBuilder("scatter")
    root = b.Scatter(
        constant(b, np.zeros(4)), constant(b, case.indices, "s64"), constant(b, [1, 2]), scalar_computation("Add"),
        _scatter_numbers(case), indices_are_sorted=sorted_, unique_indices=sorted_,
    )  # fmt: skip
    (found,) = results(b, root)
    np.testing.assert_array_equal(found, [1, 0, 2, 0])
