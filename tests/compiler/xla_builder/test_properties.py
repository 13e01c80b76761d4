"""Operations of the builder agree with jax.lax's, and random programs with XLA."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from systolith import api as sl
from tests.compiler.hlo.oracle import Array, run_xla
from tests.compiler.xla_builder.cases import combine
from tests.examples import examples

lax: Any = importlib.import_module("jax.lax")
quiet = settings(examples(5, 20), suppress_health_check=[HealthCheck.too_slow])


def _whole(rng: np.random.Generator, dims: tuple[int, ...]) -> Array:
    """Small whole numbers: sums and products of them are exact in f32, in any order."""
    return rng.integers(-4, 5, dims).astype(np.float32)


def _one(make: Callable[[sl.XlaBuilder], sl.XlaOp]) -> Array:
    b = sl.XlaBuilder("one")
    (found,) = b.build(make(b)).evaluate()
    return found


@quiet
@given(st.data())
def test_convolution(data: st.DataObject) -> None:
    draw = data.draw
    rank, groups = draw(st.integers(1, 3)), draw(st.sampled_from((1, 2)))
    sizes = tuple(draw(st.integers(1, 6)) for _ in range(rank))
    kernel = tuple(draw(st.integers(1, min(3, n))) for n in sizes)
    strides = [draw(st.integers(1, 3)) for _ in range(rank)]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    lhs, rhs = _whole(rng, (2, 2 * groups, *sizes)), _whole(rng, (4, 2, *kernel))
    name = draw(st.sampled_from(("SAME", "VALID")))
    found = _one(lambda b: b.conv(b.constant(lhs), b.constant(rhs), strides, name, groups))
    expected = lax.conv_general_dilated(lhs, rhs, strides, name, feature_group_count=groups)
    np.testing.assert_array_equal(found, expected, strict=True)

    base, holes = ([draw(st.integers(1, 2)) for _ in range(rank)] for _ in range(2))
    pads = [(draw(st.integers(0, 2)), draw(st.integers(4, 5))) for _ in range(rank)]
    numbers = sl.XlaBuilder.create_default_conv_dimension_numbers(rank)
    found = _one(
        lambda b: b.conv_general_dilated(b.constant(lhs), b.constant(rhs), strides, pads, base, holes, numbers, groups)
    )
    expected = lax.conv_general_dilated(lhs, rhs, strides, pads, base, holes, feature_group_count=groups)
    np.testing.assert_array_equal(found, expected, strict=True)


@quiet
@given(st.data())
def test_reduce_window(data: st.DataObject) -> None:
    draw = data.draw
    rank = draw(st.integers(1, 3))
    sizes = tuple(draw(st.integers(1, 6)) for _ in range(rank))
    window, strides = ([draw(st.integers(1, 3)) for _ in range(rank)] for _ in range(2))
    window = [min(w, n) for w, n in zip(window, sizes, strict=True)]
    name = draw(st.sampled_from(("SAME", "VALID")))
    values = _whole(np.random.default_rng(0), sizes)
    found = _one(lambda b: b.reduce_window(b.constant(values), b.constant(0.0), combine("Add"), window, strides, name))
    np.testing.assert_array_equal(found, lax.reduce_window(values, 0.0, lax.add, window, strides, name), strict=True)


@quiet
@given(st.data())
def test_pad_and_broadcast_in_dim(data: st.DataObject) -> None:
    draw = data.draw
    sizes = draw(st.lists(st.integers(1, 4), max_size=3).map(tuple))
    values = _whole(np.random.default_rng(0), sizes)
    config = [(draw(st.integers(0, 2)), draw(st.integers(-1, 2)), draw(st.integers(0, 2))) for _ in sizes]
    found = _one(lambda b: b.pad(b.constant(values), b.constant(9.0), config))
    np.testing.assert_array_equal(found, lax.pad(values, np.float32(9), config), strict=True)

    rank = len(sizes) + draw(st.integers(0, 2))
    places = sorted(draw(st.permutations(range(rank)))[: len(sizes)])
    target = [draw(st.integers(1, 3)) for _ in range(rank)]
    for place, size in zip(places, sizes, strict=True):
        target[place] = size if size > 1 else target[place]
    found = _one(lambda b: b.broadcast_in_dim(b.constant(values), target, places))
    np.testing.assert_array_equal(found, lax.broadcast_in_dim(values, target, places), strict=True)


_SAME_SHAPE: list[Callable[[sl.XlaBuilder, sl.XlaOp, sl.XlaOp], sl.XlaOp]] = [
    lambda b, x, y: x + y,
    lambda b, x, y: x * y,
    lambda b, x, y: x - 3,
    lambda b, x, y: 7 - y,
    lambda b, x, y: b.max(x, y),
    lambda b, x, y: b.select(x.lt(y), x, y * 2),
    lambda b, x, y: b.clamp(-50, x, 50),
    lambda b, x, y: b.rev(x, range(len(x.shape.dims))),
    lambda b, x, y: b.sort(x) if x.shape.dims else x,
    lambda b, x, y: b.convert_element_type(b.convert_element_type(x, "s64"), "s32"),
    lambda b, x, y: b.get_tuple_element(b.tuple([x, y]), 1),
    lambda b, x, y: b.dynamic_update_slice(x, y, [b.constant(1)] * x.shape.rank),
    lambda b, x, y: b.call(_negated(x.shape), [x]),
]
_RESHAPING: list[Callable[[sl.XlaBuilder, sl.XlaOp], sl.XlaOp]] = [
    lambda b, x: b.reshape(x, (x.shape.size,)),
    lambda b, x: b.collapse(x, range(x.shape.rank)),
    lambda b, x: b.transpose(x, tuple(reversed(range(x.shape.rank)))),
    lambda b, x: b.broadcast(x, [2]) if x.shape.size < 64 else x,
    lambda b, x: b.concat_in_dim([x, x], 0) if x.shape.dims and x.shape.size < 64 else x,
    lambda b, x: b.slice_in_dim(x, 0, x.shape.dims[0], 2) if x.shape.dims else x,
    lambda b, x: b.reduce(x, b.constant(0), combine("Add", "s32"), [0]) if x.shape.dims else x,
    lambda b, x: b.iota(x.shape, 0) if x.shape.dims else b.constant(5),
    lambda b, x: b.pad(x, b.constant(1), [(1, 0, 1)] * x.shape.rank) if x.shape.size < 16 else x,
]


def _negated(shape: sl.Shape) -> sl.XlaComputation:
    b = sl.XlaBuilder("negated")
    b.neg(b.parameter(0, shape, "x"))
    return b.build()


@settings(examples(10, 25), suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_random_programs_of_integers(data: st.DataObject) -> None:
    """Every value of the program is a result, so that a difference shows where it arises."""
    draw = data.draw
    sizes = draw(st.lists(st.integers(1, 3), max_size=3).map(tuple))
    argument = np.random.default_rng(0).integers(-100, 100, sizes).astype(np.int32)
    b = sl.XlaBuilder("random")
    values = [b.parameter(0, sl.make_shape("s32", sizes), "x")]
    for _ in range(draw(st.integers(1, 12))):
        x = draw(st.sampled_from(values))
        if draw(st.booleans()):
            values.append(draw(st.sampled_from(_RESHAPING))(b, x))
        else:
            others = [v for v in values if v.shape.dims == x.shape.dims]
            values.append(draw(st.sampled_from(_SAME_SHAPE))(b, x, draw(st.sampled_from(others))))
    built = b.build(b.tuple(values))
    expected = run_xla(built.hlo_text(), argument)
    for a, e in zip(built.evaluate(argument), expected, strict=True):
        np.testing.assert_array_equal(a, e, err_msg=built.hlo_text(), strict=True)
