"""JAX's argmax and argmin with several NaNs, in every type: the chip, the evaluator and XLA on CPU."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.chip import load_chip
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import Array, compiled, run
from tests.examples import examples

FLOATS = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}


def module(t: str, direction: str, dims: tuple[int, ...], axis: int, first: str = "v0") -> str:
    """As JAX lowers `argmax` (GT) and `argmin` (LT); `first`: the value that is chosen where it is a NaN."""
    kept = ",".join(str(n) for d, n in enumerate(dims) if d != axis)
    whole = ",".join(map(str, dims))
    init = {"GT": "-inf", "LT": "inf"}[direction] if t in FLOATS else {"GT": 0, "LT": 255}[direction]
    return f"""HloModule m

f {{
 v0 = {t}[] parameter(0)
 v1 = {t}[] parameter(2)
 gt = pred[] compare(v0, v1), direction={direction}
 ne = pred[] compare({first}, {first}), direction=NE
 wins = pred[] or(gt, ne)
 v = {t}[] select(wins, v0, v1)
 eq = pred[] compare(v0, v1), direction=EQ
 i0 = s32[] parameter(1)
 i1 = s32[] parameter(3)
 lt = pred[] compare(i0, i1), direction=LT
 tie = pred[] and(eq, lt)
 either = pred[] or(wins, tie)
 i = s32[] select(either, i0, i1)
 ROOT r = ({t}[], s32[]) tuple(v, i)
}}

ENTRY e {{
 x = {t}[{whole}] parameter(0)
 n = s32[{whole}] iota(), iota_dimension={axis}
 a = {t}[] constant({init})
 b = s32[] constant(0)
 ROOT r = ({t}[{kept}], s32[{kept}]) reduce(x, n, a, b), dimensions={{{axis}}}, to_apply=f
}}
"""


@examples(5, 10)
@given(
    st.sampled_from([*FLOATS, "s32", "u8"]),
    st.sampled_from(["GT", "LT"]),
    st.sampled_from([((3, 300), 1), ((300, 3), 0), ((2, 70, 5), 1), ((1, 40), 1), ((4, 1), 1)]),
    st.floats(0, 1),
    st.integers(0, 99),
)
def test_the_lowest_index_of_the_extreme_values(
    t: str, direction: str, shape: tuple[tuple[int, ...], int], nans: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    dims, axis = shape
    x: Array = rng.integers(0, 4, dims).astype(FLOATS.get(t, np.dtype("u1" if t == "u8" else "i4")))
    if t in FLOATS:
        x = np.where(rng.uniform(size=dims) < nans, np.nan, x).astype(FLOATS[t])
    text = module(t, direction, dims, axis)
    want = [np.take_along_axis(x, (best := getattr(np, ARG[direction])(x, axis, keepdims=True)), axis), best]
    for results in (run(compiled(text, "tiny").program, load_chip("tiny"), [x]), evaluate(parse_hlo(text), x)):
        for got, expected in zip(results, want, strict=True):
            np.testing.assert_array_equal(got.astype(np.float64), expected.squeeze(axis).astype(np.float64))


ARG = {"GT": "argmax", "LT": "argmin"}


def test_numpy_and_xla_agree_on_it() -> None:
    x = np.array([[1, np.nan, 2, np.nan], [np.nan] * 4], np.float32)
    np.testing.assert_array_equal(run_xla(module("f32", "GT", (2, 4), 1), x)[1], np.argmax(x, 1))


@pytest.mark.parametrize(("first", "changes"), [("v0", True), ("v1", False)])
def test_other_computations_stay(first: str, changes: bool) -> None:
    text = module("f32", "GT", (4, 5), 1, first)
    opcodes = {i.opcode for i in canonicalise(parse_hlo(text)).instructions()}
    assert ("maximum" in opcodes) == changes
