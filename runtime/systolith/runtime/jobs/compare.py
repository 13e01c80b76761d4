"""Given results against computed ones, end to end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from systolith.isa.dtypes import DType
from systolith.runtime.arrays import Array

# Relative to the result's scale (its largest magnitude).  f32 products of `highest` are sums of six bf16 passes, whose
# error is that of f32; `high` drops terms of 2^-16; `default` rounds operands to bf16's 8 bits.
TOLERANCE = {"highest": 1e-5, "high": 1e-3, "default": 3e-2}


@dataclass(frozen=True)
class Difference:
    """How far one result is from the expected one.

    Attributes:
        number: result number.
        max_abs: largest |got - expected|.
        max_rel: the same over the scale of the expected result.
        limit: largest max_rel allowed; 0 for integers and bools.
        wrong: elements beyond it.
        first: index of the first wrong element, with the two values; empty if none.
    """

    number: int
    max_abs: float
    max_rel: float
    limit: float
    wrong: int
    first: str = ""

    @property
    def ok(self) -> bool:
        return self.wrong == 0

    def __str__(self) -> str:
        return (
            f"result {self.number}: {self.wrong} elements differ by more than {self.limit:g} of the scale "
            f"(largest {self.max_rel:.3g}); first at {self.first}"
        )


def compare(number: int, got: Array, expected: Array, dtype: DType, precision: str) -> Difference:
    """Compare one result.

    Integers, bools and non-finite elements must be identical; floats may differ by the precision's tolerance of the
    scale, and never less than one rounding of the element type.

    Args:
        number: result number, for messages.
        got, expected: arrays of the same shape and of dtype's numpy type.
        dtype: element type.
        precision: "default", "high" or "highest".
    """
    if not (dtype.is_float or dtype.kind == "complex"):
        wrong = got != expected
        gap = np.abs(got.astype(np.float64) - expected.astype(np.float64))
        return _difference(number, gap, gap.max(initial=0), wrong, 0.0, got, expected)
    wide = np.complex128 if dtype.kind == "complex" else np.float64
    a, b = got.astype(wide), expected.astype(wide)
    finite = np.isfinite(b)
    scale = float(np.abs(b[finite]).max(initial=0.0))
    limit = max(TOLERANCE[precision], half_ulp(dtype))
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.where(finite & np.isfinite(a), np.abs(a - b), 0.0)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
    wrong = np.where(finite & np.isfinite(a), gap > limit * scale, ~same)
    return _difference(
        number, gap, gap.max(initial=0) / scale if scale else gap.max(initial=0), wrong, limit, got, expected
    )


def half_ulp(dtype: DType) -> float:
    """Half a unit in the last place of 1.0: the largest relative error of one rounding to the type."""
    return float(dtype.finfo.eps) / 2


def _difference(
    number: int, gap: Array, rel: float, wrong: Array, limit: float, got: Array, expected: Array
) -> Difference:
    first = ""
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        first = f"[{','.join(map(str, at))}]: got {got[at]}, expected {expected[at]}"
    return Difference(number, float(gap.max(initial=0)), float(rel), limit, int(wrong.sum()), first)
