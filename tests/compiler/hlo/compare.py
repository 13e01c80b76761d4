"""Run a text on the evaluator and on XLA, and compare."""

from typing import Any

import numpy as np

from systolith.compiler.hlo import evaluate, parse_hlo, verify
from tests.compiler.hlo.oracle import run_xla

Array = np.ndarray[Any, np.dtype[Any]]


def assert_close(actual: Array, expected: Array, tolerance: float, what: str) -> None:
    """Integers identical; floats within `tolerance` of the result's scale, NaN and infinities in the same places."""
    assert actual.shape == expected.shape, what
    assert actual.dtype == expected.dtype, what
    if actual.dtype.kind in "biu" or actual.dtype.name in ("int4", "uint4"):
        np.testing.assert_array_equal(actual, expected, err_msg=what)
        return
    wide = np.complex128 if actual.dtype.kind == "c" else np.float64
    a, b = actual.astype(wide), expected.astype(wide)
    finite = np.isfinite(b)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b), err_msg=what)
    if wide is np.float64:
        infinite = ~finite & ~np.isnan(b)
        np.testing.assert_array_equal(a[infinite], b[infinite], err_msg=what)
    scale = np.max(np.abs(b[finite]), initial=0.0)
    worst = np.max(np.abs(a[finite] - b[finite]), initial=0.0)
    assert worst <= tolerance * scale, f"{what}: {worst} of scale {scale}"


def assert_matches_xla(text: str, *arrays: Array, tolerance: float = 1e-5) -> None:
    """The evaluator and XLA give the same results for a module, which the verifier takes."""
    module = parse_hlo(text)
    verify(module)
    actual = evaluate(module, *arrays, precision="highest")
    expected = run_xla(text, *arrays)
    assert len(actual) == len(expected)
    for number, (a, b) in enumerate(zip(actual, expected, strict=True)):
        assert_close(a, b, tolerance, f"result {number} of\n{text}")
