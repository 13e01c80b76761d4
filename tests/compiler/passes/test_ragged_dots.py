"""Ragged and scaled products as products: the same values, and on the chip those of the evaluator."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand.ragged_dots import RewriteRaggedDots
from systolith.compiler.passes.expand.scaled_dots import RewriteScaledDots
from tests.compiler.machine import check
from tests.compiler.passes.differential import Array, transformed
from tests.examples import examples

MODES = {
    "rows": (
        "f32[2,9,5]",
        "f32[3,2,5,4]",
        "f32[2,9,4]",
        "lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_contracting_dims={2},"
        " lhs_ragged_dims={1}, rhs_group_dims={0}",
    ),
    "rows after others": (
        "f32[4,2,9,5]",
        "f32[5,4,3]",
        "f32[4,2,9,4]",
        "lhs_contracting_dims={3}, rhs_contracting_dims={0}, lhs_ragged_dims={2}, rhs_group_dims={2}",
    ),
    "sums": ("f32[8,9]", "f32[9,4]", "f32[3,8,4]", "lhs_contracting_dims={1}, rhs_contracting_dims={0},"
        " lhs_ragged_dims={1}"),
    "sums of batches": (
        "f32[9,2,8]",
        "f32[2,9,4]",
        "f32[3,2,8,4]",
        "lhs_batch_dims={1}, rhs_batch_dims={0}, lhs_contracting_dims={0}, rhs_contracting_dims={1},"
        " lhs_ragged_dims={0}",
    ),
    "batch": (
        "f32[9,8,5]",
        "f32[9,5,4]",
        "f32[9,8,4]",
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1},"
        " lhs_ragged_dims={0}",
    ),
}  # fmt: skip
BEFORE = {"rows": (2,), "rows after others": (4, 2), "sums": (), "sums of batches": (2,), "batch": ()}
"""Sizes that those of the groups may differ by."""


def ragged(mode: str, sizes: Array) -> tuple[str, list[Array]]:
    lhs, rhs, result, attributes = MODES[mode]
    t = {"int32": "s32", "int64": "s64", "uint8": "u8"}[sizes.dtype.name]
    dims = ",".join(map(str, sizes.shape))
    text = (
        f"HloModule m\nENTRY e {{\n a = {lhs} parameter(0)\n b = {rhs} parameter(1)\n g = {t}[{dims}] parameter(2)\n"
        f" ROOT r = {result} ragged-dot(a, b, g), {attributes}\n}}"
    )
    rng = np.random.default_rng(0)
    sides = [rng.standard_normal(p.shape.dims).astype(np.float32) for p in parse_hlo(text).entry.parameters[:2]]
    return text, [*sides, sizes]


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, list[Array]]:
    mode = draw(st.sampled_from(sorted(MODES)))
    dims = (*(BEFORE[mode] if draw(st.booleans()) else ()), 3)
    count = int(np.prod(dims))
    sizes = draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
    return ragged(mode, np.array(sizes, draw(st.sampled_from(["i4", "i8", "u1"]))).reshape(dims))


@examples(20, 60)
@given(cases())
def test_ragged_dots_are_dots(case: tuple[str, list[Array]]) -> None:
    text, arguments = case
    module = parse_hlo(text)
    made = transformed(module, RewriteRaggedDots())
    assert not any(i.opcode == "ragged-dot" for i in made.instructions())
    want, got = (evaluate(m, *arguments, precision="highest")[0] for m in (module, made))
    np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_ragged_dots_on_the_chip(mode: str) -> None:
    check(*ragged(mode, np.array([4, 0, 3], np.int32)))


SCALED = """HloModule m
ENTRY e {{
 a = {t}[4,64] parameter(0)
 b = {t}[64,8] parameter(1)
 s = {s}[{left}] parameter(2)
 u = {s}[{right}] parameter(3)
 ROOT r = {out}[4,8] scaled-dot(a, b, s, u), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}"""


@pytest.mark.parametrize(
    ("t", "s", "out", "left", "right"),
    [
        ("f8e4m3fn", "bf16", "f32", (4, 2), (4, 8)),
        ("bf16", "bf16", "bf16", (1, 64), ()),
        ("f8e5m2", "f32", "f32", (4, 64), (64, 8)),
        pytest.param("f64", "f64", "f64", (4, 2), (4, 8), marks=pytest.mark.slow),
        ("bf16", "f64", "f32", (1, 64), (64, 8)),
    ],
)
def test_scaled_dots(t: str, s: str, out: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    stored: dict[str, Any] = {
        "f8e4m3fn": ml_dtypes.float8_e4m3fn,
        "f8e5m2": ml_dtypes.float8_e5m2,
        "bf16": ml_dtypes.bfloat16,
    }
    stored |= {"f32": np.float32, "f64": np.float64}
    scale = stored[s]
    sides = [rng.standard_normal(n).astype(stored[t]) for n in ((4, 64), (64, 8))]
    scales = [np.exp2(rng.integers(-3, 3, n)).astype(scale) for n in (left, right)]
    dims = (",".join(map(str, n)) for n in (left, right))
    text = SCALED.format(t=t, s=s, out=out, left=next(dims), right=next(dims))
    made = transformed(parse_hlo(text), RewriteScaledDots())
    want, got = (evaluate(m, *sides, *scales)[0].astype(np.float64) for m in (parse_hlo(text), made))
    bound = {"f32": 1e-6, "f64": 1e-14, "bf16": 2**-8}[out]
    np.testing.assert_allclose(got, want, rtol=bound, atol=min(bound, 1e-6))
    check(text, [*sides, *scales], precision=None, most=bound)
