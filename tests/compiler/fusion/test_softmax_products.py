"""Products of a softmax: which divisions move behind the product, and that results are those of numpy in f64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith.compiler.groups.softmax_products import SoftmaxProducts
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.base import run_pass
from tests.compiler.fusion.test_blocking import FOLDS
from tests.compiler.machine import TINY, compare
from tests.compiler.passes.differential import transformed


def weighted(
    rows: int = 6, length: int = 16, depth: int = 4, dtype: str = "f32", side: str = "lhs", last: str = "ROOT o = {o}"
) -> str:
    """Values weighted by the softmax of scores, as JAX writes it, between types if these are not f32."""
    scores, values, line = f"[2,{rows},{length}]", f"{dtype}[2,{length},{depth}]", f"[2,{rows}]"
    operands, dims = ("w, v", f"[2,{rows},{depth}]") if side == "lhs" else ("v, w", f"[2,{depth},{rows}]")
    other = "rhs" if side == "lhs" else "lhs"
    dot = (
        f"{dtype}{dims} dot({operands}), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},"
        f" {side}_contracting_dims={{2}}, {other}_contracting_dims={{1}}, operand_precision={{highest,highest}}"
    )
    return f"""HloModule m
{FOLDS}
ENTRY e {{
 s = f32{scores} parameter(0)
 v = {values} parameter(1)
 low = f32[] constant(-inf)
 zero = f32[] constant(0)
 m = f32{line} reduce(s, low), dimensions={{2}}, to_apply=max
 ms = f32{scores} broadcast(m), dimensions={{0,1}}
 d = f32{scores} subtract(s, ms)
 e = f32{scores} exponential(d)
 t = f32{line} reduce(e, zero), dimensions={{2}}, to_apply=add
 ts = f32{scores} broadcast(t), dimensions={{0,1}}
 p = f32{scores} divide(e, ts)
 w = {dtype}{scores} convert(p)
 {last.format(o=dot)}
}}
"""


def divided(made: Module) -> set[tuple[int, ...]]:
    """The dimensions of what is divided."""
    return {i.dims for i in made.entry.instructions if i.opcode == "divide"}


def arguments(rows: int, length: int, depth: int) -> list[np.ndarray]:
    rng = np.random.default_rng(rows)
    return [
        rng.normal(0, 3, (2, rows, length)).astype(np.float32),
        rng.normal(size=(2, length, depth)).astype(np.float32),
    ]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("side", ["lhs", "rhs"])
def test_results_are_divided(dtype: str, side: str) -> None:
    text = weighted(dtype=dtype, side=side)
    made = transformed(parse_hlo(text), SoftmaxProducts())
    assert divided(made) == {(2, 6, 4) if side == "lhs" else (2, 4, 6)}


@settings(max_examples=20)
@given(st.integers(1, 9), st.integers(2, 40), st.integers(1, 12))
def test_results_are_those_of_f64(rows: int, length: int, depth: int) -> None:
    made = parse_hlo(weighted(rows, length, depth))
    changed = run_pass(made, SoftmaxProducts()).changed
    assert changed == (depth < length)
    scores, values = arguments(rows, length, depth)
    e = np.exp((scores - scores.max(2, keepdims=True)).astype(np.float64))
    wanted = (e / e.sum(2, keepdims=True)) @ values.astype(np.float64)
    (got,) = evaluate(made, scores, values)
    np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-6 * np.abs(values).max())


@pytest.mark.parametrize(
    "text",
    [
        weighted(last="o = {o}\n ROOT r = (f32[2,6,4], f32[2,6,16]) tuple(o, p)"),
        weighted().replace("subtract(s, ms)", "negate(s)"),
        weighted().replace("reduce(s, low)", "reduce(s, zero)").replace("to_apply=max", "to_apply=add"),
        weighted().replace("divide(e, ts)", "divide(e, ms)"),
        weighted().replace("divide(e, ts)", "divide(ts, e)"),
        weighted(depth=16),
    ],
    ids=["weights are a result", "no maximum", "not a maximum", "not the sum", "the other way", "as many results"],
)
def test_what_stays(text: str) -> None:
    assert not run_pass(parse_hlo(text), SoftmaxProducts()).changed


def test_rows_without_a_finite_score_are_nan() -> None:
    made = parse_hlo(weighted())
    scores, values = arguments(6, 16, 4)
    scores[0, 1] = -np.inf
    scores[1, 2, 3] = np.nan
    (before,) = evaluate(made, scores, values)
    assert run_pass(made, SoftmaxProducts()).changed
    (after,) = evaluate(made, scores, values)
    np.testing.assert_array_equal(np.isnan(before), np.isnan(after))
    assert np.isnan(after[0, 1]).all()


def test_on_the_chip() -> None:
    compare(weighted(16, 24, 8), arguments(16, 24, 8), TINY)
