"""Gradients of weights of depthwise convolutions as sums: the same values, and cycles."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jax import lax

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand.depthwise_gradients import MOST, SumDepthwiseGradients
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.loops.scans import hlo
from tests.compiler.machine import CHIPS, Array, check, compiled
from tests.compiler.passes.differential import transformed
from tests.examples import examples

DIM = st.tuples(
    st.integers(1, 9),  # of the input
    st.integers(1, 9),  # of the kernel
    st.integers(1, 2),  # stride
    st.integers(1, 3),  # dilation of the kernel
    st.integers(-1, 3),
    st.integers(-1, 3),  # padding
)
LABELS = ("f{}b_i{}o->{}bf", "b{}f_o{}i->bf{}", "{}fb_{}oi->f{}b")


def convolution(dims: list[tuple[int, ...]], channels: int, labels: str, dtype: str = "f32") -> str:
    """HLO of a convolution with a group for each channel; an empty text: the window does not fit."""
    sizes = [(n + low + high - (k - 1) * d - 1) // s + 1 for n, k, s, d, low, high in dims]
    if min(sizes) < 1:
        return ""
    spatial = "012"[: len(dims)]
    left, rest = labels.format(spatial, spatial, spatial).split("_")
    kernel, out = rest.split("->")
    window = f"size={'x'.join(str(d[1]) for d in dims)} stride={'x'.join(str(d[2]) for d in dims)}"
    window += f" pad={'x'.join(f'{d[4]}_{d[5]}' for d in dims)} rhs_dilate={'x'.join(str(d[3]) for d in dims)}"

    def shape(order: str, named: dict[str, int], places: list[int]) -> str:
        return f"{dtype}[{','.join(str(places[int(c)] if c.isdigit() else named[c]) for c in order)}]"

    x = shape(left, {"f": 3, "b": channels}, [d[0] for d in dims])
    k = shape(kernel, {"i": 3, "o": channels}, [d[1] for d in dims])
    result = shape(out, {"f": channels, "b": 1}, sizes)
    return f"""HloModule m
ENTRY e {{
  x = {x} parameter(0)
  k = {k} parameter(1)
  ROOT r = {result} convolution(x, k), window={{{window}}}, dim_labels={left}_{rest}, batch_group_count={channels}
}}
"""


@given(st.lists(DIM, min_size=1, max_size=2), st.integers(2, 5), st.sampled_from(LABELS))
@examples(30, 600)
def test_values(dims: list[tuple[int, ...]], channels: int, labels: str) -> None:
    text = convolution(dims, channels, labels)
    assume(text)
    rng = np.random.default_rng(0)
    given = [rng.integers(-4, 5, p.dims).astype(np.float32) for p in parse_hlo(text).entry.parameters]
    made = transformed(parse_hlo(text), SumDepthwiseGradients())
    taps = parse_hlo(text).entry.result.shape.size // channels
    assert ("convolution" in {i.opcode for i in made.entry.instructions}) == (taps > MOST)
    np.testing.assert_array_equal(evaluate(made, *given)[0], evaluate(parse_hlo(text), *given)[0])


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_on_the_chip(dtype: str) -> None:
    text = convolution([(8, 8, 1, 1, 1, 1), (9, 5, 2, 2, 0, 1)], 10, LABELS[0], dtype)
    rng = np.random.default_rng(0)
    given: list[Array] = [
        rng.integers(-2, 3, p.dims).astype(p.shape.dtype.stored) for p in parse_hlo(text).entry.parameters
    ]
    for chip in (CHIPS[16], "tiny"):
        check(text, given, chip, most=0)
    np.testing.assert_array_equal(evaluate(parse_hlo(text), *given)[0], run_xla(text, *given)[0])


def gradient(x: jax.Array, w: jax.Array) -> Any:
    def loss(w: jax.Array) -> jax.Array:
        labels = ("NHWC", "HWIO", "NHWC")
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=labels, feature_group_count=x.shape[-1])
        return jnp.sum(y**2)

    return jax.grad(loss)(w)


def test_cycles() -> None:
    """Of 3x3 taps of 96 channels; on the matrix units they took 124,848."""
    chip = load_chip("tpu_v3")
    text = hlo(gradient, [np.zeros(s, np.float32) for s in ((8, 28, 28, 96), (3, 3, 1, 96))])
    assert 0 < (simulate(compiled(text, chip).program, chip, mode="time").cycles or 0) < 34_000
