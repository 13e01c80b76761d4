"""Literals: their creation, their text, their elements, comparing, layouts."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from systolith import api as sl
from systolith.compiler.hlo.element_types import ELEMENT_TYPES
from systolith.compiler.hlo.errors import HloError
from tests.compiler.hlo.compare import assert_close
from tests.compiler.hlo.oracle import run_xla

# jaxlib gives arrays of these without detours through other types.
ORDINARY = "pred s8 s16 s32 s64 u8 u16 u32 u64 f16 bf16 f32 f64 c64 c128".split()


@st.composite
def literals(draw: st.DrawFn, names: Any = tuple(ELEMENT_TYPES)) -> sl.Literal:
    """An array of any type, with any bits in it, and any order of dimensions."""
    dtype = ELEMENT_TYPES[draw(st.sampled_from(names))]
    dims = draw(st.lists(st.integers(0, 3), max_size=3))
    bits = draw(arrays.arrays(np.uint8, (*dims, 16)))
    if dtype.name == "pred":
        value = bits[..., 0] % 2 == 1
    elif dtype.is_integer and dtype.bits < 8:
        low = 0 if dtype.name.startswith("u") else -(1 << dtype.bits - 1)
        value = (bits[..., 0] % (1 << dtype.bits)).astype(np.int64) + low
    else:
        taken = bits[..., : dtype.size] if dtype.bits >= 8 else bits[..., :1] % (1 << dtype.bits)
        if dtype.name == "f8e8m0fnu":
            taken = np.maximum(taken, 1)  # XLA prints its least number with too few digits to read back
        value = np.ascontiguousarray(taken).view(dtype.stored)[..., 0]
        if dtype.name[0] == "c" or (dtype.is_float and dtype.bits < 16):
            value = np.where(np.isnan(value), np.zeros((), dtype.stored), value)  # no text for their NaN's payload
    order = tuple(draw(st.permutations(range(len(dims)))))
    return sl.Literal.create(value.astype(dtype.stored), dtype, sl.Layout(order) if dims else None)


@given(st.recursive(literals(), lambda inner: st.lists(inner, max_size=3).map(sl.Literal.create_tuple), max_leaves=5))
def test_text_gives_the_literal_back(literal: sl.Literal) -> None:
    again = sl.Literal.parse(str(literal))
    assert again == literal
    assert hash(again) == hash(literal)
    assert again.shape == literal.shape
    assert str(again) == str(literal)


@given(literals(ORDINARY))
def test_xla_reads_the_text(literal: sl.Literal) -> None:
    shape, value = str(literal).split(" ", 1)
    (found,) = run_xla(f"HloModule m\n\nENTRY e {{\n  ROOT c = {shape} constant({value})\n}}\n")
    assert_close(found, literal.array, 0.0, str(literal))


@pytest.mark.parametrize(
    ("value", "element", "shape"),
    [
        (True, None, "pred[]"),
        (3, None, "s32[]"),
        (1.5, None, "f32[]"),
        (2j, None, "c64[]"),
        ([[1, 2, 3]], "bf16", "bf16[1,3]{1,0}"),
        (np.zeros((2, 0)), None, "f64[2,0]{1,0}"),
        ((1, (2.5, [True])), None, "(s32[], (f32[], pred[1]{0}))"),
        ([], None, "f32[0]{0}"),
    ],
)
def test_shapes_of_what_python_writes(value: Any, element: str | None, shape: str) -> None:
    assert sl.Literal.create(value, element).shape.text() == shape


@pytest.mark.parametrize(
    ("value", "element", "message"),
    [
        ([[1], [2, 3]], None, "not an array of numbers"),
        (300, "u8", "300 does not fit u8"),
        (-1, "u32", "does not fit u32"),
        (1j, "f32", "do not fit f32"),
        ("words", None, "not an array of numbers"),
        (1, "f33", "no element type"),
    ],
)
def test_what_is_no_literal(value: Any, element: str | None, message: str) -> None:
    with pytest.raises(HloError, match=message):
        sl.Literal.create(value, element)


@pytest.mark.parametrize("rank", range(5))
def test_ranks_are_checked(rank: int) -> None:
    makers = [sl.Literal.r0, sl.Literal.r1, sl.Literal.r2, sl.Literal.r3, sl.Literal.r4]
    for other, make in enumerate(makers):
        if other == rank:
            assert make(np.zeros((1,) * rank)).shape.rank == rank
        else:
            with pytest.raises(HloError, match=f"a value of {other} dimensions"):
                make(np.zeros((1,) * rank))


def test_elements() -> None:
    literal = sl.Literal.create(([[1, 2], [3, 4]], (5.0, True)))
    assert literal[0][1, 0] == 3
    assert literal.element(1, 0) == sl.Literal.r0(5.0)
    assert len(literal) == len(literal[0]) == 2
    for where, index in ((literal, 2), (literal, (1, 0, 0)), (literal[0], (0, 2)), (literal[0], 0), (literal[0], -1)):
        with pytest.raises(HloError, match="has no element"):
            where[index]
    with pytest.raises(HloError, match="that is an array"):
        literal.array  # noqa: B018 - its error is tested


def test_literals_do_not_change() -> None:
    source = np.zeros(3, np.float32)
    literal = sl.Literal.create(source)
    source[0] = 1
    assert literal == sl.Literal.r1([0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="read-only"):
        literal.array[0] = 1


def test_equality_is_of_bits_and_not_of_layouts() -> None:
    column = sl.Literal.create([[1.0, math.nan]], layout=sl.Layout((0, 1)))
    assert column == sl.Literal.create([[1.0, math.nan]])
    assert sl.Literal.r0(0.0) != sl.Literal.r0(-0.0)
    assert sl.Literal.r0(0.0) != sl.Literal.r0(0)
    assert sl.Literal.r1([1]) != sl.Literal.r0(1)


def test_only_the_bits_of_small_types_count() -> None:
    for name in ("s4", "f4e2m1fn", "u2"):
        stored = ELEMENT_TYPES[name].stored
        one, other = (np.array([bits], np.uint8).view(stored) for bits in (0x02, 0xF2))
        assert sl.Literal.create(one, name) == sl.Literal.create(other, name)


def test_tokens_in_tuples() -> None:
    def pair(value: float) -> sl.Literal:
        return sl.Literal.create_tuple([sl.Literal.create_token(), sl.Literal.r0(value)])

    assert str(pair(2.0).shape) == "(token[], f32[])"
    assert pair(2.0) == pair(2.0)
    assert pair(2.0) != pair(3.0)
    assert pair(2.0).near(pair(2.000001))


def test_near() -> None:
    literal = sl.Literal.create(([1.0, math.nan, math.inf], 3))
    assert literal.near(sl.Literal.create(([1.000001, math.nan, math.inf], 3)))
    assert not literal.near(sl.Literal.create(([1.01, math.nan, math.inf], 3)))
    assert not literal.near(sl.Literal.create(([1.0, 0.0, math.inf], 3)))
    assert not literal.near(sl.Literal.create(([1.0, math.nan, math.inf], 4)))
    assert not literal.near(literal.element(0))


@given(literals())
def test_memory_gives_the_literal_back(literal: sl.Literal) -> None:
    assert sl.Literal.from_memory(literal.shape, literal.elements_in_memory) == literal


def test_memory_of_another_type_or_size_is_refused() -> None:
    shape = sl.make_shape("f32", [2, 2])
    with pytest.raises(HloError, match="takes 4 elements"):
        sl.Literal.from_memory(shape, np.zeros(3, np.float32))
    with pytest.raises(HloError, match="holds float32, got float64"):
        sl.Literal.from_memory(shape, np.zeros(4))


@pytest.mark.parametrize("name", [n for n in ELEMENT_TYPES if n[0] != "c"])
def test_extremes_bound_every_value(name: str) -> None:
    dtype = ELEMENT_TYPES[name]
    low, high = sl.Literal.min_value(dtype).array, sl.Literal.max_value(dtype).array
    if name == "pred" or (dtype.is_integer and dtype.bits <= 8):
        every = {"p": [0, 1], "s": [-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1]}.get(
            name[0], [0, 2**dtype.bits - 1]
        )
        assert [int(low), int(high)] == every
    elif dtype.is_integer:
        info = np.iinfo(dtype.stored.name)
        assert [int(low), int(high)] == [info.min, info.max]
    elif dtype.bits <= 8:
        values = np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.stored).astype(np.float64)
        assert [float(low), float(high)] == [np.nanmin(values), np.nanmax(values)]
    else:
        assert [float(low), float(high)] == [-math.inf, math.inf]


def test_complex_numbers_have_no_extremes() -> None:
    with pytest.raises(HloError, match="c64 has no order"):
        sl.Literal.min_value("c64")


def test_iota_and_full() -> None:
    shape = sl.Shape.parse("bf16[2,3]{0,1}")
    assert sl.Literal.iota(shape, 1).array.astype(int).tolist() == [[0, 1, 2]] * 2
    assert sl.Literal.iota(shape, 1).shape == shape
    assert sl.Literal.full(shape, 1.5).array.astype(float).tolist() == [[1.5] * 3] * 2
    with pytest.raises(HloError, match="has no dimension 2"):
        sl.Literal.iota(shape, 2)


def test_literals_of_dynamic_shapes_have_actual_sizes() -> None:
    shape = sl.Shape.parse("(f32[<=5,2]{0,1}, s32[?])")
    literal = sl.Literal.of_shape((np.ones((3, 2), np.float32), np.arange(4, dtype=np.int32)), shape)
    assert literal.shape.text() == "(f32[3,2]{0,1}, s32[4])"
    with pytest.raises(HloError, match=r"of shape f32\[<=5,2\], got f32\[6,2\]"):
        sl.Literal.of_shape(np.ones((6, 2), np.float32), shape.elements[0])
    assert sl.Literal.full(shape.elements[0], 1).shape.dims == (5, 2)
    makers: list[Any] = [lambda s: sl.Literal.full(s, 1), lambda s: sl.Literal.iota(s, 0)]
    for make in makers:
        with pytest.raises(HloError, match="without a bound"):
            make(shape.elements[1])
