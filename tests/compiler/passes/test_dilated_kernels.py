"""Convolutions with dilated kernels, by phases of their input: the same values, and no dilation is left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand.dilated_kernels import SplitDilatedKernels
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.passes.differential import transformed
from tests.examples import examples

DIM = st.tuples(
    st.integers(1, 11),  # of the input
    st.integers(1, 4),  # of the kernel
    st.integers(1, 3),  # dilation of the kernel
    st.integers(-1, 3),
    st.integers(-1, 3),  # padding
    st.booleans(),  # reversal
)


def convolution(
    dims: list[tuple[int, int, int, int, int, bool]], batch: int, groups: str = "", features: int = 2
) -> str:
    """HLO of a convolution whose batch is innermost; an empty text: the window does not fit."""
    sizes = [n + low + high - (k - 1) * d for n, k, d, low, high, _ in dims]
    if min(sizes) < 1:
        return ""
    spatial = "012"[: len(dims)]
    x = ",".join(str(n) for n, *_ in dims)
    kernel = ",".join(str(k) for _, k, *_ in dims)
    out = ",".join(map(str, sizes))
    window = f"size={'x'.join(str(k) for _, k, *_ in dims)} pad={'x'.join(f'{d[3]}_{d[4]}' for d in dims)}"
    window += f" rhs_dilate={'x'.join(str(d[2]) for d in dims)} rhs_reversal={'x'.join(str(int(d[5])) for d in dims)}"
    given = {"": features, "feature": 2 * features, "batch": features}[groups]
    made = 2 * batch if groups == "batch" else batch
    group = f", {groups}_group_count=2" if groups else ""
    return f"""HloModule m
ENTRY e {{
  x = f32[{given},{x},{made}] parameter(0)
  k = f32[{features},{kernel},6] parameter(1)
  ROOT r = f32[{out},{batch},6] convolution(x, k), window={{{window}}},
    dim_labels=f{spatial}b_i{spatial}o->{spatial}bf{group}
}}
"""


def values(text: str) -> list[np.ndarray]:
    """Whole numbers, whose sums have no rounding."""
    rng = np.random.default_rng(0)
    return [rng.integers(-4, 5, p.dims).astype(np.float32) for p in parse_hlo(text).entry.parameters]


@given(st.lists(DIM, min_size=1, max_size=3), st.sampled_from([1, 3, 130]), st.sampled_from(["", "feature", "batch"]))
@examples(30, 600)
def test_values(dims: list[tuple[int, int, int, int, int, bool]], batch: int, groups: str) -> None:
    text = convolution(dims, batch, groups)
    assume(text)
    given = values(text)
    made = transformed(parse_hlo(text), SplitDilatedKernels())
    np.testing.assert_array_equal(evaluate(made, *given)[0], evaluate(parse_hlo(text), *given)[0])


@pytest.mark.parametrize(("batch", "count"), [(3, 1), (130, 4)])
def test_against_xla(batch: int, count: int) -> None:
    """Few rows: one convolution of an image with four channels for each; many: one for each phase."""
    text = convolution([(9, 4, 2, 1, 1, False), (8, 4, 2, 1, 0, False)], batch)
    given = values(text)
    made = transformed(parse_hlo(text), SplitDilatedKernels())
    products = [i for i in made.instructions() if i.opcode == "convolution"]
    assert len(products) == count
    assert all(w.window_dilation == 1 for i in products for w in i.window.dims)
    np.testing.assert_array_equal(evaluate(made, *given)[0], run_xla(text, *given)[0])


@pytest.mark.parametrize(
    "text",
    [
        convolution([(9, 4, 1, 1, 1, False)], 3),
        convolution([(9, 4, 2, 1, 1, False)], 3)
        .replace("f0b_", "b0f_")
        .replace("0bf", "0fb")
        .replace("[4,3,6]", "[4,6,2]"),
    ],
)
def test_others_stay(text: str) -> None:
    module = parse_hlo(text.replace("k = f32[2,4,6]", "k = f32[3,4,6]") if "b0f" in text else text)
    assert not SplitDilatedKernels().run(module)
