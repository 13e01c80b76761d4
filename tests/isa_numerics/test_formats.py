"""Widening and narrowing against exact fractions, and the bf16 split."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.dtypes import DTYPES
from systolith.isa.errors import SystolithError
from systolith.isa.numerics.fma import reduce_to_part
from systolith.isa.numerics.formats import fill_of, narrow, raw_type, round_to, widen
from tests.isa_numerics.exact import round_fraction, value

NARROW_FLOATS = ("bf16", "f16", "f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz")
#                 mantissa, least, most exponent; largest finite value; infinities
SHAPES = {
    "bf16": (7, -126, 127, None, True),
    "f16": (10, -14, 15, None, True),
    "f8e4m3fn": (3, -6, 8, 448, False),
    "f8e5m2": (2, -14, 15, None, True),
    "f8e4m3fnuz": (3, -7, 7, None, False),
    "f8e5m2fnuz": (2, -15, 15, None, False),
}
_bits = st.one_of(st.integers(0, 2**32 - 1), st.integers(0x3A000000, 0x48000000), st.integers(0x33000000, 0x3C000000))


@pytest.mark.parametrize("name", NARROW_FLOATS)
def test_what_was_widened_narrows_to_the_same_bits(name: str) -> None:
    dtype = DTYPES[name]
    codes = np.arange(2 ** (8 * dtype.size)).astype(raw_type(dtype))
    assert np.array_equal(narrow(widen(codes, dtype), dtype), codes)


@pytest.mark.parametrize("name", NARROW_FLOATS)
def test_widening_keeps_values(name: str) -> None:
    dtype = DTYPES[name]
    codes = np.arange(2 ** (8 * dtype.size)).astype(raw_type(dtype))
    wide = widen(codes, dtype).view(np.float32)
    assert np.array_equal(wide, codes.view(dtype.stored).astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("name", NARROW_FLOATS)
@given(bits=_bits, tie=st.booleans())
def test_narrowing_rounds_to_nearest_even(name: str, bits: int, tie: bool) -> None:
    dtype = DTYPES[name]
    mantissa, least, most, largest, infinities = SHAPES[name]
    if tie:
        bits &= -1 << (22 - mantissa)
    x = value(bits)
    got = widen(narrow(np.array([bits], np.uint32), dtype), dtype).view(np.float32)[0]
    if math.isnan(x):
        assert math.isnan(got)
        return
    want = None if math.isinf(x) else round_fraction(Fraction(x), mantissa, least, most)
    if want is not None and largest is not None and abs(want) > largest:
        want = None
    if want is None:
        assert got == math.copysign(math.inf, x) if infinities else math.isnan(got)
    else:
        assert float(got) == float(want)
        if infinities or name == "f8e4m3fn":
            assert np.signbit(got) == (math.copysign(1, x) < 0)


@pytest.mark.parametrize("name", ["s4", "s8", "s16", "s32", "u4", "u8", "u16", "u32", "pred"])
@given(bits=st.integers(0, 2**32 - 1))
def test_integers_take_the_low_bits(name: str, bits: int) -> None:
    dtype = DTYPES[name]
    stored = narrow(np.array([bits], np.uint32), dtype)
    wide = int(widen(stored, dtype)[0])
    low = bits % 2**dtype.bits
    if name == "pred":
        low = int(bits != 0)
    elif name[0] == "s" and low >= 2 ** (dtype.bits - 1):
        low += 2**32 - 2**dtype.bits
    assert wide == low
    assert int(stored.view(dtype.stored)[0]) % 2**32 == low


def test_stored_types_are_taken_as_they_are() -> None:
    x = np.array([-3, 7], ml_dtypes.int4)
    assert list(widen(x, DTYPES["s4"]).view(np.int32)) == [-3, 7]
    assert list(widen(np.array([True, False]), DTYPES["pred"])) == [1, 0]


def test_wide_types_are_refused() -> None:
    for name in ("s64", "f64", "c64", "c128"):
        with pytest.raises(SystolithError, match=f"{name}: {DTYPES[name].size} bytes"):
            widen(np.zeros(1, DTYPES[name].stored), DTYPES[name])
        with pytest.raises(SystolithError, match=name):
            narrow(np.zeros(1, np.uint32), DTYPES[name])


@pytest.mark.parametrize(("name", "fill", "want"), [
    ("bf16", 0xFF800000, (0xFF80, True)), ("bf16", 0x3F800001, (0x3F80, False)), ("s8", 0xFFFFFFFF, (0xFF, True)),
    ("u8", 0xFFFFFFFF, (0xFF, False)), ("f32", 0x12345678, (0x12345678, True)),
])  # fmt: skip
def test_fill_values(name: str, fill: int, want: tuple[int, bool]) -> None:
    assert fill_of(fill, DTYPES[name]) == want


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_bf16_parts_follow_their_definition(values: list[float]) -> None:
    x = np.array(values, np.float32)

    def bf16(v: np.ndarray) -> np.ndarray:
        return v.astype(ml_dtypes.bfloat16).astype(np.float32)

    with np.errstate(all="ignore"):
        first = bf16(x)
        second = bf16(x - first)
        third = bf16((x - first) - second)
    for part, want in enumerate((first, second, third)):
        assert np.array_equal(bf16_part(x, part), want, equal_nan=True)
    ordinary = (np.abs(x) > 1e-30) & (np.abs(x) < 1e38)
    assert np.array_equal((first + (second + third))[ordinary], x[ordinary])


def bf16_part(values: np.ndarray, part: int) -> np.ndarray:
    bits = values.view(np.uint32).copy()
    reduce_to_part(bits, part)
    return bits.view(np.float32)


def test_parts_of_nans_and_infinities() -> None:
    x = np.array([0x7F812345, 0x7F800000], np.uint32).view(np.float32)
    assert [hex(v) for v in bf16_part(x, 0).view(np.uint32)] == ["0x7fc00000", "0x7f800000"]
    assert [hex(v) for v in bf16_part(x, 1).view(np.uint32)] == ["0x7fc00000", "0x7fc00000"]


def test_rounding_micro_operation_is_narrow_and_widen() -> None:
    x = np.random.default_rng(0).integers(0, 2**32, 20000, np.uint32)
    for name in NARROW_FLOATS:
        assert np.array_equal(round_to(x, DTYPES[name]), widen(narrow(x, DTYPES[name]), DTYPES[name]))


@pytest.mark.parametrize("name", ["s4", "u4"])
def test_four_bits_are_stored_as_their_value_in_a_byte(name: str) -> None:
    values = np.arange(-8, 8) if name == "s4" else np.arange(16)
    stored = narrow(values.astype(np.int32).view(np.uint32), DTYPES[name])
    np.testing.assert_array_equal(stored.view(np.uint8), values.astype(np.int8).view(np.uint8))
