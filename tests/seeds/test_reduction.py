"""Reduce, reduce-window, select-and-scatter, batch normalization."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith import api as sl
from tests.examples import examples
from tests.seeds.run import Array, check, constant, results, scalar_computation

MATRIX = [[1, 2, 3], [4, 5, 6]]
CUBE = [MATRIX] * 4


def _reduced(values: Any, dimensions: list[int], expected: Any) -> None:
    b = sl.XlaBuilder("reduce")
    root = b.Reduce(constant(b, values), b.ConstantR0(0.0), scalar_computation("Add"), dimensions)
    check(b, root, expected)


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(lambda f, init: f(10, f(11, f(12, f(init, 13)))), id="right to left"),
        pytest.param(
            lambda f, init: f(init, f(f(10, f(init, 11)), f(f(init, 12), f(13, init)))), id="a tree, 13 first"
        ),
        pytest.param(
            lambda f, init: f(init, f(f(10, f(init, 11)), f(f(init, 12), f(init, 13)))), id="a tree, 13 second"
        ),
    ],
)
@pytest.mark.parametrize("name", ["Add", "Mul", "Max", "Min"])
def test_reduce_of_four_in_any_order(order: Callable[..., float], name: str) -> None:
    function = {"Add": lambda x, y: x + y, "Mul": lambda x, y: x * y, "Max": max, "Min": min}[name]
    init = {"Add": 0.0, "Mul": 1.0, "Max": -math.inf, "Min": math.inf}[name]
    b = sl.XlaBuilder("reduce")
    root = b.Reduce(constant(b, [10, 11, 12, 13]), b.ConstantR0(init), scalar_computation(name), [0])
    check(b, root, order(function, init))


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data())
@examples(7, 15)
def test_reduce_by_pseudo_code(sizes: list[int], data: st.DataObject) -> None:
    dimensions = data.draw(st.permutations(range(len(sizes))).flatmap(lambda p: st.sampled_from([p[:1], p[:2], p])))
    operand = np.arange(np.prod(sizes)).reshape(sizes)
    kept = [d for d in range(len(sizes)) if d not in dimensions]
    result = np.zeros([sizes[d] for d in kept])
    for r in np.ndindex(*result.shape):
        for i in np.ndindex(*[sizes[d] for d in dimensions]):
            where = dict(zip([*kept, *dimensions], [*r, *i], strict=True))
            result[r] += operand[tuple(where[d] for d in range(len(sizes)))]
    _reduced(operand, list(dimensions), result)


@pytest.mark.parametrize(("dimension", "expected"), [(0, [5, 7, 9]), (1, [6, 15])])
def test_reduce_of_a_matrix(dimension: int, expected: list[int]) -> None:
    _reduced(MATRIX, [dimension], expected)


def test_reduce_of_a_cube_over_dimension_0() -> None:
    _reduced(CUBE, [0], [[4, 8, 12], [16, 20, 24]])


def test_reduce_of_a_cube_over_dimension_2() -> None:
    _reduced(CUBE, [2], [[6, 15]] * 4)


def test_reduce_of_a_cube_over_dimensions_0_and_1() -> None:
    _reduced(CUBE, [0, 1], [20, 28, 36])
    _reduced(CUBE, [1, 0], [20, 28, 36])


def test_reduce_of_a_cube_to_a_scalar() -> None:
    _reduced(CUBE, [0, 1, 2], 84)


def _max_and_argmax() -> sl.XlaComputation:
    b = sl.XlaBuilder("max_and_argmax")
    types = ("f32", "s32", "f32", "s32")
    best, at, value, index = (b.Parameter(n, sl.make_shape(t, []), f"p{n}") for n, t in enumerate(types))
    later = b.Ge(value, best)
    b.Tuple([b.Select(later, value, best), b.Select(later, index, at)])
    return b.build()


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=9))
@examples(5, 10)
def test_variadic_reduce_is_the_recursion(values: list[int]) -> None:
    best, at = -math.inf, -1
    for index, value in enumerate(values):
        best, at = (value, index) if value >= best else (best, at)
    b = sl.XlaBuilder("reduce")
    operands = [constant(b, values), b.Iota(sl.make_shape("s32", [len(values)]), 0)]
    init = [b.ConstantR0(-math.inf), b.ConstantR0(-1, "s32")]
    check(b, b.Reduce(operands, init, _max_and_argmax(), [0]), best, at)


def test_variadic_reduce_finds_maximum_and_index() -> None:
    b = sl.XlaBuilder("reduce")
    operands = [constant(b, [[3, 9, 2], [7, 1, 5]]), constant(b, [[0, 1, 2]] * 2, "s32")]
    init = [b.ConstantR0(-math.inf), b.ConstantR0(0, "s32")]
    check(b, b.Reduce(operands, init, _max_and_argmax(), [1]), [9, 7], [1, 0])


def _windows(operand: Array, size: tuple[int, ...], strides: tuple[int, ...]) -> dict[tuple[int, ...], Array]:
    """The window at each of its valid positions."""
    counts = [(n - w) // s + 1 if n >= w else 0 for n, w, s in zip(operand.shape, size, strides, strict=True)]
    return {
        at: operand[tuple(slice(a * s, a * s + w) for a, s, w in zip(at, strides, size, strict=True))]
        for at in np.ndindex(*counts)
    }


def _maxima(operand: Array, size: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    windows = _windows(operand, size, strides)
    return np.array([w.max() for w in windows.values()]).reshape(np.max([*windows], axis=0) + 1)


def test_reduce_window_2x3() -> None:
    # Create a computation for the maximum.
    builder = sl.XlaBuilder("max")
    y = builder.Parameter(0, sl.ShapeUtil.MakeShape(sl.F32, []), "y")
    x = builder.Parameter(1, sl.ShapeUtil.MakeShape(sl.F32, []), "x")
    builder.Max(y, x)
    maximum = builder.Build()
    # Create the reduce-window with it.
    builder = sl.XlaBuilder("reduce_window_2x3")
    operand = builder.Parameter(0, sl.ShapeUtil.MakeShape(sl.F32, [4, 6]), "input")
    init = builder.ConstantLiteral(sl.LiteralUtil.MinValue(sl.F32))
    root = builder.ReduceWindow(operand, init, maximum, [2, 3], [2, 3], "kValid")
    value = np.random.default_rng(0).permutation(24).reshape(4, 6).astype(np.float32) - 30
    expected = _maxima(value, (2, 3), (2, 3))
    assert expected.shape == (2, 2)
    check(builder, root, expected, arguments=[value])


@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (1, 2), (3, 3)])
def test_reduce_window_strides(strides: tuple[int, int]) -> None:
    value = np.random.default_rng(1).permutation(30).reshape(5, 6)
    b = sl.XlaBuilder("reduce_window")
    init = b.ConstantLiteral(sl.LiteralUtil.MinValue(sl.F32))
    root = b.ReduceWindow(constant(b, value), init, scalar_computation("Max"), [3, 2], strides, sl.Padding.VALID)
    check(b, root, _maxima(value, (3, 2), strides))


def test_reduce_window_computes_on_the_padded_input() -> None:
    value = np.random.default_rng(2).permutation(20).reshape(4, 5)
    b = sl.XlaBuilder("reduce_window")
    root = b.ReduceWindowWithGeneralPadding(
        constant(b, value), b.ConstantR0(-1.0), scalar_computation("Max"), [2, 3], [2, 1], [(1, 0), (0, 2)]
    )
    check(b, root, _maxima(np.pad(value, [(1, 0), (0, 2)], constant_values=-1), (2, 3), (2, 1)))


@pytest.mark.parametrize(("padding", "expected"), [("VALID", [100, 1]), ("SAME", [1000, 10, 1])])
def test_reduce_window_minimum_with_either_padding(padding: str, expected: list[int]) -> None:
    b = sl.XlaBuilder("reduce_window")
    init = b.ConstantLiteral(sl.LiteralUtil.MaxValue(sl.F32))
    operand = constant(b, [10000, 1000, 100, 10, 1])
    check(b, b.ReduceWindow(operand, init, scalar_computation("Min"), [3], [2], sl.Padding[padding]), expected)


def test_reduce_window_passes_init_on_the_left() -> None:
    """With a function that is not commutative: the second argument."""
    b = sl.XlaBuilder("second")
    b.Parameter(0, sl.make_shape("f32", []), "y")
    x = b.Parameter(1, sl.make_shape("f32", []), "x")
    second = b.Build(x)
    b = sl.XlaBuilder("reduce_window")
    root = b.ReduceWindow(constant(b, [3, 5, 7]), b.ConstantR0(99.0), second, [1], [1], sl.Padding.VALID)
    check(b, root, [3, 5, 7])


def test_variadic_reduce_window() -> None:
    b = sl.XlaBuilder("reduce_window")
    operands = [constant(b, [3, 9, 2, 7]), constant(b, [0, 1, 2, 3], "s32")]
    init = [b.ConstantR0(-math.inf), b.ConstantR0(0, "s32")]
    root = b.ReduceWindow(operands, init, _max_and_argmax(), [2], [1], sl.Padding.VALID)
    check(b, root, [9, 9, 7], [1, 1, 3])


# Windows of 2 x 3; the four of the top row are blue and red in the seeds' figure.
POOLED = np.array([[7, 2, 5, 3, 8], [3, 8, 9, 3, 4], [1, 5, 7, 5, 6], [0, 6, 2, 7, 2]])


def _select_and_scatter(
    operand: Any, size: tuple[int, int], strides: tuple[int, int], source: Any, init: float
) -> Array:
    """Choose the greatest of each window, the first of equals, and add its source to the element there."""
    result = np.full(np.shape(operand), init)
    for at, window in _windows(np.asarray(operand), size, strides).items():
        inside = np.unravel_index(np.argmax(window), window.shape)
        result[tuple(a * s + int(i) for a, s, i in zip(at, strides, inside, strict=True))] += source[at]
    return result


def _scattered(operand: Any, size: Any, strides: Any, source: Any, init: float) -> None:
    b = sl.XlaBuilder("select_and_scatter")
    root = b.SelectAndScatter(
        constant(b, operand), scalar_computation("Ge"), size, strides, sl.Padding.VALID,
        constant(b, source), b.ConstantR0(init), scalar_computation("Add"),
    )  # fmt: skip
    check(b, root, _select_and_scatter(operand, size, strides, source, init))


def test_select_and_scatter_where_windows_overlap() -> None:
    """The 9 is chosen by both windows at the top, so that 2 and 6 add up there."""
    source = np.array([[2, 6], [3, 1]])
    expected = _select_and_scatter(POOLED, (2, 3), (2, 2), source, 0.0)
    assert expected[1, 2] == 8
    assert POOLED[1, 2] == 9
    _scattered(POOLED, (2, 3), (2, 2), source, 0.0)


def test_select_and_scatter_where_windows_do_not_overlap() -> None:
    operand = np.random.default_rng(3).permutation(24).reshape(4, 6)
    source = np.array([[2, 6], [3, 1]])
    _scattered(operand, (2, 3), (2, 3), source, 0.0)


@given(
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.integers(0, 1000),
)
@examples(7, 15)
def test_select_and_scatter_by_definition(size: Any, strides: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    operand = rng.integers(-5, 5, (4, 5))
    counts = [(n - w) // s + 1 for n, w, s in zip(operand.shape, size, strides, strict=True)]
    _scattered(operand, size, strides, rng.integers(-9, 9, counts), float(rng.integers(-2, 3)))


def _moments(x: Array, feature: int) -> tuple[Array, Array]:
    """Mean and variance of each feature, by the sums of the formulas."""
    columns = np.moveaxis(x, feature, -1).reshape(-1, x.shape[feature])
    mean = columns.sum(0) / len(columns)
    return mean, ((columns - mean) ** 2).sum(0) / len(columns)


def _along(v: Array, x: Array, feature: int) -> Array:
    return v.reshape([-1 if d == feature else 1 for d in range(x.ndim)])


def _normed(rank: int, feature: int) -> tuple[Array, Array, Array, Array]:
    rng = np.random.default_rng(10 * rank + feature)
    x = rng.standard_normal((2, 3, 4, 5)[:rank]).astype(np.float32)
    scale, offset = rng.standard_normal((2, x.shape[feature])).astype(np.float32)
    return x, scale, offset, rng.standard_normal(x.shape).astype(np.float32)


FEATURES = [(4, 0), (4, 1), (4, 3), (2, 1), (3, 2)]


@pytest.mark.parametrize(("rank", "feature"), FEATURES)
def test_batch_norm_training(rank: int, feature: int) -> None:
    x, scale, offset, _ = _normed(rank, feature)
    mean, variance = _moments(x.astype(np.float64), feature)
    normal = (x - _along(mean, x, feature)) / np.sqrt(_along(variance, x, feature) + 0.25)
    b = sl.XlaBuilder("batch_norm_training")
    root = b.BatchNormTraining(constant(b, x), constant(b, scale), constant(b, offset), 0.25, feature)
    found = results(b, root, tolerance=1e-4)
    expected = _along(scale, x, feature) * normal + _along(offset, x, feature), mean, variance
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rank", "feature"), FEATURES)
def test_batch_norm_inference_is_training_with_given_moments(rank: int, feature: int) -> None:
    x, scale, offset, _ = _normed(rank, feature)
    mean, variance = (m.astype(np.float32) for m in _moments(x, feature))
    b = sl.XlaBuilder("batch_norm")
    operands = [constant(b, a) for a in (x, scale, offset)]
    inference = b.BatchNormInference(*operands, constant(b, mean), constant(b, variance), 0.25, feature)
    training = b.GetTupleElement(b.BatchNormTraining(*operands, 0.25, feature), 0)
    one, other = results(b, b.Tuple([inference, training]), tolerance=1e-4)
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rank", "feature"), FEATURES)
def test_batch_norm_grad(rank: int, feature: int) -> None:
    x, scale, _, grad = _normed(rank, feature)
    mean, variance = _moments(x.astype(np.float64), feature)
    axes = tuple(d for d in range(rank) if d != feature)
    centred, spread = x - _along(mean, x, feature), variance + 0.25
    c = np.mean(grad * centred, axis=axes) / spread
    d = np.mean(grad, axis=axes)
    grad_x = _along(scale / np.sqrt(spread), x, feature) * (
        grad - _along(d, x, feature) - _along(c, x, feature) * centred
    )
    grad_scale = np.sum(grad * centred, axis=axes) / np.sqrt(spread)
    b = sl.XlaBuilder("batch_norm_grad")
    operands = [constant(b, a) for a in (x, scale, mean, variance, grad)]
    found = results(b, b.BatchNormGrad(*operands, 0.25, feature), tolerance=1e-4)
    for actual, wanted in zip(found, (grad_x, grad_scale, np.sum(grad, axis=axes)), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)


def test_windows_of_the_reference_are_all_positions() -> None:
    found = _windows(np.arange(12).reshape(3, 4), (2, 2), (1, 2))
    assert {at: w.ravel().tolist() for at, w in found.items()} == {
        (i, j): [4 * (i + y) + 2 * j + x for y, x in product(range(2), range(2))] for i in range(2) for j in range(2)
    }
