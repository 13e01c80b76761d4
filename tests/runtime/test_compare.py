"""End-to-end comparison."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.isa.dtypes import dtype
from systolith.runtime.jobs.compare import compare
from systolith.runtime.jobs.job import effective_precision


def test_floats_within_the_tolerance_of_the_scale() -> None:
    want = np.asarray([100.0, 1.0, 0.0], np.float32)
    near = want + np.asarray([0, 9e-4, 0], np.float32)
    far = want + np.asarray([0, 2e-3, 0], np.float32)
    assert compare(0, near, want, dtype("f32"), "highest").ok
    found = compare(0, far, want, dtype("f32"), "highest")
    assert not found.ok
    assert found.wrong == 1
    assert "[1]: got" in found.first
    assert compare(0, far, want, dtype("f32"), "default").ok


def test_integers_and_bools_are_identical() -> None:
    want = np.asarray([2**30, 5], np.int32)
    assert compare(0, want, want, dtype("s32"), "default").ok
    assert not compare(0, want + np.asarray([1, 0], np.int32), want, dtype("s32"), "default").ok
    assert not compare(0, np.asarray([True]), np.asarray([False]), dtype("pred"), "default").ok


def test_non_finite_elements_are_identical() -> None:
    want = np.asarray([np.inf, np.nan, 1.0], np.float32)
    assert compare(0, want, want, dtype("f32"), "highest").ok
    for wrong in ([-np.inf, np.nan, 1], [np.inf, 0, 1], [np.inf, np.nan, np.nan], [3e38, np.nan, 1]):
        assert not compare(0, np.asarray(wrong, np.float32), want, dtype("f32"), "default").ok


def test_all_zero_expected_must_be_zero() -> None:
    zero = np.zeros(3, np.float32)
    assert compare(0, zero, zero, dtype("f32"), "default").ok
    assert not compare(0, zero + np.float32(1e-6), zero, dtype("f32"), "default").ok


def test_one_rounding_of_bf16_is_allowed_at_highest() -> None:
    want = np.asarray([1.0], ml_dtypes.bfloat16)
    assert compare(0, np.asarray([1 - 2.0**-8], ml_dtypes.bfloat16), want, dtype("bf16"), "highest").ok
    assert not compare(0, np.asarray([1 - 2.0**-6], ml_dtypes.bfloat16), want, dtype("bf16"), "highest").ok


@pytest.mark.parametrize("t", ["f32", "c64"])
@pytest.mark.parametrize("precision", ["default", "high", "highest"])
def test_results_are_held_to_the_precision_of_products(t: str, precision: str) -> None:
    """Of complex numbers, too, whose products are four real ones."""
    asked = f"operand_precision={{{precision},{precision}}}"
    text = f"""HloModule m
ENTRY e {{
 x = {t}[4,4] parameter(0)
 ROOT d = {t}[4,4] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {asked}
}}
"""
    assert effective_precision(parse_hlo(text), None) == precision
    assert effective_precision(parse_hlo(text), "highest") == "highest"
