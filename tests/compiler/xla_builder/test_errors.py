"""Errors wait for build(), name the line that caused them, and nothing else comes out of bad arguments."""

import inspect
from collections.abc import Callable

import numpy as np
import pytest

from systolith import api as sl
from systolith.compiler.hlo.errors import HloError
from tests.compiler.xla_builder.cases import combine, f32, pred, s32


def test_the_first_error_is_raised_by_build_with_its_line() -> None:
    b = sl.XlaBuilder("bad")
    x, y = b.parameter(0, "f32[2,3]", "x"), b.parameter(1, "f32[3]", "y")
    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    bad = x + y
    after = b.neg(bad)
    b.dot(x, x)
    assert not bad.valid
    assert not after.valid
    with pytest.raises(HloError) as raised:
        b.build()
    assert raised.value is b.first_error
    assert raised.value.line == line
    assert raised.value.place is not None
    assert raised.value.place.file == __file__
    assert "bad = x + y" in raised.value.detail
    assert str(raised.value) == (
        f"{__file__}:{line}: Add: f32[3] and f32[2,3] have different numbers of dimensions; broadcast_dimensions is "
        "missing, a dimension of the second for each of the first's [operands x f32[2,3], y f32[3]]"
    )


def test_shape_of_an_invalid_value_raises_the_error() -> None:
    b = sl.XlaBuilder("bad")
    bad = b.add(f32(b, 2), f32(b, 3))
    with pytest.raises(HloError, match="incompatible"):
        b.get_shape(bad)
    with pytest.raises(HloError, match="incompatible"):
        _ = bad.shape
    with pytest.raises(HloError, match="incompatible"):
        b.get_program_shape()
    b.set_return_value(bad)
    b.trace("bad", bad)
    with pytest.raises(HloError, match="incompatible"):
        b.build(bad)


def test_errors_can_be_raised_at_once() -> None:
    b = sl.XlaBuilder("bad")
    b.set_die_immediately_on_error(True)
    with pytest.raises(HloError, match="incompatible"):
        b.add(f32(b, 2), f32(b, 3))
    assert b.create_sub_builder("sub").die_immediately_on_error


def test_reported_errors_count() -> None:
    b = sl.XlaBuilder("bad")
    assert not b.report_error("the front end's own").valid
    b.report_error("second")
    with pytest.raises(HloError, match="the front end's own"):
        b.build()


def test_a_sub_builders_error_is_noted_in_the_parent() -> None:
    b = sl.XlaBuilder("parent")
    sub = b.CreateSubBuilder("sub")
    sub.add(f32(sub, 2), f32(sub, 3))
    computation = sub.BuildAndNoteError()
    assert not computation
    assert not b.call(computation).valid
    with pytest.raises(HloError, match=r"test_errors.py:\d+: Add: "):
        b.build()
    with pytest.raises(HloError, match="could not be built"):
        computation.module()


def test_a_good_sub_builder_builds() -> None:
    b = sl.XlaBuilder("parent")
    sub = b.create_sub_builder("sub")
    sub.neg(sub.parameter(0, "f32[]", "x"))
    b.call(sub.build_and_note_error(), [b.constant(2.0)])
    assert b.build().evaluate() == [-2]
    with pytest.raises(HloError, match="no sub-builder"):
        b.build_and_note_error()


def test_checks_fail_at_once() -> None:
    b = sl.XlaBuilder("checks")
    x, y = f32(b, 2), f32(b, 3)
    assert b.CheckShape(x, "f32[2]") is x
    b.CheckSameShape(x, x)
    with pytest.raises(HloError, match=r"CheckShape: expected f32\[3\], got f32\[2\]"):
        b.CheckShape(x, "f32[3]")
    with pytest.raises(HloError, match=r"CheckSameShape: f32\[2\] and f32\[3\] differ"):
        b.CheckSameShape(x, y)
    assert b.first_error is None


BAD: dict[str, Callable[[sl.XlaBuilder], object]] = {
    "another builder's value": lambda b: b.neg(f32(sl.XlaBuilder("other"), 2)),
    "no value": lambda b: b.neg(3.0),  # type: ignore[arg-type]
    "None": lambda b: b.add(f32(b, 2), None),
    "text": lambda b: b.add("x", f32(b, 2)),
    "numbers only": lambda b: b.add(1, 2),
    "a number that does not fit": lambda b: b.add(b.constant([1], "s8"), 300),
    "a fraction with integers": lambda b: b.add(b.constant([1]), 1.5),
    "infinity with integers": lambda b: b.add(b.constant([1]), float("inf")),
    "NaN with integers": lambda b: b.add(b.constant([1]), float("nan")),
    "a complex number with floats": lambda b: b.add(b.constant([1.0]), 1j),
    "length": lambda b: b.constant_r1(-1, 2.0),
    "element type": lambda b: b.convert_element_type(f32(b, 2), "f33"),
    "shape text": lambda b: b.parameter(0, "f32[2", "x"),
    "shape": lambda b: b.parameter(0, 7, "x"),  # type: ignore[arg-type]
    "parameter twice": lambda b: (b.parameter(0, "f32[]", "x"), b.parameter(0, "f32[]", "y")),
    "parameter's number": lambda b: b.parameter(-1, "f32[]", "x"),
    "ragged constant": lambda b: b.constant([[1, 2], [3]]),
    "rank of a constant": lambda b: b.constant_r1([[1, 2]]),
    "float into integers": lambda b: b.and_(f32(b, 2), f32(b, 2)),
    "dimension": lambda b: b.concat_in_dim([f32(b, 2), f32(b, 2)], 1),
    "no operands": lambda b: b.concat_in_dim([], 0),
    "one value for a list": lambda b: b.concat_in_dim(f32(b, 2), 0),  # type: ignore[arg-type]
    "permutation": lambda b: b.transpose(f32(b, 2, 3), [0, 0]),
    "transpose of a vector": lambda b: b.transpose(f32(b, 2)),
    "reshape's size": lambda b: b.reshape(f32(b, 4), [3]),
    "reshape without sizes": lambda b: b.reshape(f32(b, 4)),
    "collapse out of order": lambda b: b.collapse(f32(b, 2, 3, 4), [1, 0]),
    "collapse with a gap": lambda b: b.collapse(f32(b, 2, 3, 4), [0, 2]),
    "collapse outside": lambda b: b.collapse(f32(b, 2, 3, 4), [2, 3]),
    "slice's lengths": lambda b: b.slice(f32(b, 2, 3), [0], [1]),
    "slice beyond": lambda b: b.slice(f32(b, 4), [0], [5]),
    "slice's dimension": lambda b: b.slice_in_dim(f32(b, 4), 0, 1, 1, 3),
    "start indices": lambda b: b.dynamic_slice(f32(b, 4, 4), s32(b, 3), [1, 1]),
    "padding": lambda b: b.pad(f32(b, 2), b.constant(0.0), [(1,)]),
    "negative interior padding": lambda b: b.pad(f32(b, 2), b.constant(0.0), [(1, 1, -1)]),
    "padding by name": lambda b: b.conv(f32(b, 1, 1, 5), f32(b, 1, 1, 3), [1], "kFull"),
    "strides": lambda b: b.conv(f32(b, 1, 1, 5), f32(b, 1, 1, 3), [0], "kSame"),
    "spatial dimensions": lambda b: b.conv(f32(b, 1, 1, 5), f32(b, 1, 1, 3), [1, 1], "kSame"),
    "features": lambda b: b.conv(f32(b, 1, 2, 5), f32(b, 1, 1, 3), [1], "kSame"),
    "precision": lambda b: b.dot(f32(b, 2), f32(b, 2), "best"),
    "dot's sizes": lambda b: b.dot(f32(b, 2, 3), f32(b, 4, 2)),
    "dot of scalar and vector": lambda b: b.dot(b.constant(1.0), f32(b, 2)),
    "initial value after the computation": lambda b: b.reduce(f32(b, 2), combine("Add"), b.constant(0.0), [0]),  # type: ignore[arg-type]
    "no computation": lambda b: b.reduce(f32(b, 2), b.constant(0.0), None, [0]),  # type: ignore[arg-type]
    "computation's type": lambda b: b.reduce(s32(b, 2), b.constant(0), combine("Add"), [0]),
    "window": lambda b: b.reduce_window(f32(b, 4), b.constant(0.0), combine("Add"), [2, 2], [1, 1], "kValid"),
    "map's dimensions": lambda b: b.map([f32(b, 2, 3)], combine("Add"), [0]),
    "map's operands": lambda b: b.map([], combine("Add")),
    "sort of nothing": lambda b: b.sort([]),
    "window over nothing": lambda b: b.reduce_window([], [], combine("Add"), [2], [1], "kValid"),
    "all-to-all of nothing": lambda b: b.all_to_all_tuple([]),
    "all-reduce of nothing": lambda b: b.all_reduce(b.tuple([]), combine("Add")),
    "reduce of nothing": lambda b: b.reduce([], [], combine("Add"), [0]),
    "scatter into nothing": lambda b: b.scatter([], s32(b, 1), [], combine("Add"), sl.ScatterDimensionNumbers()),
    "a number for a list": lambda b: b.tuple(5),  # type: ignore[arg-type]
    "sort's dimension": lambda b: b.sort(f32(b, 3), dimension=1),
    "k": lambda b: b.top_k(f32(b, 3), 4),
    "tuple's index": lambda b: b.get_tuple_element(b.tuple([f32(b, 2)]), 1),
    "tuple as array": lambda b: b.neg(b.tuple([f32(b, 2)])),
    "select between tuples of other shapes": lambda b: b.select(
        b.constant(True), b.tuple([f32(b, 2)]), b.tuple([f32(b, 3)])
    ),
    "predicate of tuples": lambda b: b.select(pred(b, 2), b.tuple([f32(b, 2)]), b.tuple([f32(b, 2)])),
    "arguments of a call": lambda b: b.call(combine("Add"), [f32(b, 2)]),
    "branches": lambda b: b.conditional(b.constant(0), [combine("Add")], []),
    "branch arguments": lambda b: b.conditional(b.constant(0), combine("Add")),  # type: ignore[call-overload]
    "target": lambda b: b.custom_call("$internal", [], "f32[]"),
    "fft type": lambda b: b.fft(f32(b, 4), "DCT", [4]),
    "random algorithm": lambda b: b.rng_bit_generator("dice", b.constant(np.zeros(2, np.uint64)), "u32[2]"),
    "random parameters": lambda b: b.rng_uniform(b.constant(0), b.constant(1), "f32[2]"),
    "mean": lambda b: b.rng_bernoulli(b.constant(1), "u32[2]"),
    "transpose_a": lambda b: b.triangular_solve(f32(b, 2, 2), f32(b, 2, 2), True, True, False, "MAYBE"),
    "split": lambda b: b.all_to_all(f32(b, 3), 0, 0, 2),
    "shards": lambda b: b.reduce_scatter(f32(b, 3), combine("Add"), 0, 2),
    "shard count": lambda b: b.all_gather(f32(b, 3), 0, 0),
    "groups": lambda b: b.all_reduce(f32(b, 3), combine("Add"), 5),  # type: ignore[arg-type]
    "groups of names": lambda b: b.all_reduce(f32(b, 3), combine("Add"), [["a"]]),  # type: ignore[list-item]
    "pairs": lambda b: b.collective_permute(f32(b, 3), [(0, 1, 2)]),
    "token": lambda b: b.after_all([f32(b, 2)]),
    "nested infeed": lambda b: b.infeed("((f32[]))"),
    "outfeed's shape": lambda b: b.outfeed(f32(b, 2), "f32[3]"),
    "channel": lambda b: b.send(f32(b, 2), sl.ChannelHandle(1, sl.ChannelType.HOST_TO_DEVICE)),
    "size of a dimension": lambda b: b.set_dimension_size(f32(b, 2), b.constant(1.0), 0),
    "dynamic reshape": lambda b: b.dynamic_reshape(f32(b, 6), [b.constant(2)], [2, 3], [True, False]),
    "iota's dimension": lambda b: b.iota("s32[3]", 1),
    "dynamic iota": lambda b: b.iota("s32[<=3]", 0),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_give_one_line(name: str) -> None:
    b = sl.XlaBuilder("bad")
    BAD[name](b)
    with pytest.raises(HloError) as raised:
        b.build()
    assert raised.value.place is not None
    assert raised.value.place.file.startswith(str(__file__.rpartition("/")[0]))
    assert "\n" not in str(raised.value)


def test_a_builder_takes_a_name() -> None:
    with pytest.raises(HloError, match="name of its computation"):
        sl.XlaBuilder(5)
    with pytest.raises(HloError, match="has no operations"):
        sl.XlaBuilder("empty").build()


def test_functions_need_a_builder() -> None:
    with pytest.raises(HloError, match="Add: an argument is a builder"):
        sl.ops.Add(1, 2)
    with pytest.raises(AttributeError, match="NoSuch"):
        _ = sl.ops.NoSuch
    with pytest.raises(AttributeError, match="NoSuch"):
        sl.XlaBuilder("b").NoSuch()
