"""Implicit broadcasting: every compatible pair gives the values of numpy's explicit broadcasting, and only HLO."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith import api as sl
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.xla_builder.cases import f32, s32
from tests.examples import examples

SIZES = st.lists(st.integers(0, 3), max_size=4).map(tuple)


def _values(dims: tuple[int, ...], start: int) -> np.ndarray:
    return (np.arange(start, start + int(np.prod(dims)), dtype=np.int32) * 3).reshape(dims)


def _sub(lhs: np.ndarray, rhs: np.ndarray, dimensions: tuple[int, ...] = ()) -> sl.XlaComputation:
    b = sl.XlaBuilder("sub")
    x, y = (b.parameter(n, sl.make_shape("s32", v.shape), "xy"[n]) for n, v in enumerate((lhs, rhs)))
    b.sub(x, y, dimensions)
    return b.build()


def _agree(lhs: np.ndarray, rhs: np.ndarray, built: sl.XlaComputation, expected: np.ndarray) -> None:
    (found,) = built.evaluate(lhs, rhs)
    np.testing.assert_array_equal(found, expected, strict=True)
    (theirs,) = run_xla(built.hlo_text(), lhs, rhs)
    np.testing.assert_array_equal(found, theirs, strict=True)


@examples(6, 60)
@given(SIZES, st.data())
def test_sizes_of_one_stretch(sizes: tuple[int, ...], data: st.DataObject) -> None:
    sides = st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes))
    left, right = (
        _values(tuple(1 if one else n for one, n in zip(data.draw(sides), sizes, strict=True)), start)
        for start in (5, -40)
    )
    _agree(left, right, _sub(left, right), left - right)


@examples(5, 60)
@given(SIZES, st.data())
def test_dimensions_of_the_smaller_are_mapped(sizes: tuple[int, ...], data: st.DataObject) -> None:
    places = tuple(sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1)) if sizes else st.just(set()))))
    small = tuple(data.draw(st.sampled_from((1, sizes[p]))) for p in places)
    large = tuple(data.draw(st.sampled_from((1, n))) for n in sizes)
    left, right = _values(small, 5), _values(large, -40)
    wide = left.reshape([small[places.index(d)] if d in places else 1 for d in range(len(sizes))])
    given_dimensions = places if len(small) != len(large) else ()
    _agree(left, right, _sub(left, right, given_dimensions), wide - right)
    _agree(right, left, _sub(right, left, given_dimensions), right - wide)


def _emitted(built: sl.XlaComputation) -> list[tuple[str, tuple[int, ...], object]]:
    def line(i: Instruction) -> tuple[str, tuple[int, ...], object]:
        return i.opcode, i.dims, i.attributes.get("dimensions")

    return [line(i) for i in built.module().entry.instructions if i.opcode != "parameter"]


def test_a_scalar_is_one_broadcast() -> None:
    built = _sub(_values((), 0), _values((2, 3), 0))
    assert _emitted(built) == [("broadcast", (2, 3), ()), ("subtract", (2, 3), None)]


def test_sizes_of_one_are_dropped_then_broadcast() -> None:
    built = _sub(_values((2, 1), 0), _values((1, 3), 0))
    assert _emitted(built) == [
        ("reshape", (2,), None), ("broadcast", (2, 3), (0,)),
        ("reshape", (3,), None), ("broadcast", (2, 3), (1,)),
        ("subtract", (2, 3), None),
    ]  # fmt: skip


def test_composition_raises_the_number_of_dimensions_first() -> None:
    built = _sub(_values((1, 2), 0), _values((4, 3, 1), 0), (1, 2))
    assert _emitted(built) == [
        ("broadcast", (4, 1, 2), (1, 2)),
        ("reshape", (4, 2), None), ("broadcast", (4, 3, 2), (0, 2)),
        ("reshape", (4, 3), None), ("broadcast", (4, 3, 2), (0, 1)),
        ("subtract", (4, 3, 2), None),
    ]  # fmt: skip


def test_equal_sizes_need_nothing() -> None:
    assert _emitted(_sub(_values((2, 3), 0), _values((2, 3), 0))) == [("subtract", (2, 3), None)]


@pytest.mark.parametrize(
    ("left", "right", "dimensions", "rule"),
    [
        ((3,), (2, 3), (), "broadcast_dimensions is missing"),
        ((7, 2, 5), (7, 2, 6), (), "dimension 2 has sizes 5 and 6"),
        ((3,), (2, 3), (0,), "dimension 0 of s32.3. has size 3, dimension 0 of s32.2,3. has 2"),
        ((3,), (2, 3), (2,), "has no dimension 2"),
        ((3,), (2, 3), (-1,), "has no dimension -1"),
        ((3,), (2, 3), (0, 1), "has 2 entries, s32.3. has 1 dimensions"),
        ((3, 2), (2, 3, 4), (1, 0), "increase strictly"),
        ((3, 3), (2, 3, 4), (1, 1), "increase strictly"),
        ((2, 3), (2, 3), (1, 0), "leave it out"),
        ((), (2, 3), (0,), "has 1 entries, s32.. has 0 dimensions"),
        ((3,), (2, 3), "x", "list of integers"),
    ],
)
def test_what_is_not_compatible_is_refused(
    left: tuple[int, ...], right: tuple[int, ...], dimensions: tuple[int, ...], rule: str
) -> None:
    with pytest.raises(HloError, match=f"Sub: .*{rule}"):
        _sub(_values(left, 0), _values(right, 0), dimensions)


def test_the_identity_is_allowed_for_equal_numbers_of_dimensions() -> None:
    left, right = _values((2, 1), 5), _values((1, 3), 9)
    _agree(left, right, _sub(left, right, (0, 1)), left - right)


def test_dynamic_sizes_stay_dynamic() -> None:
    b = sl.XlaBuilder("dynamic")
    x = b.set_dimension_size(f32(b, 4, 3), b.parameter(0, "s32[]", "n"), 0)
    assert str((x + 1.0).shape) == "f32[<=4,3]"
    assert str(b.add(x, f32(b, 3), [1]).shape) == "f32[<=4,3]"
    assert str(b.add(x, f32(b, 4, 1)).shape) == "f32[<=4,3]"
    b.build().module()


def test_clamp_and_select_stretch_scalars_only() -> None:
    b = sl.XlaBuilder("ternary")
    assert b.clamp(b.constant(0), s32(b, 4), b.constant(6)).shape.dims == (4,)
    assert b.select(b.constant(True), b.constant(1), s32(b, 2, 3)).shape.dims == (2, 3)
    b.clamp(s32(b, 1), s32(b, 4), s32(b, 4))
    with pytest.raises(HloError, match="Clamp: operands are scalars or arrays of equal sizes"):
        b.build()
