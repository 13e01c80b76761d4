"""Convolutions whose sum runs over images and positions, as gradients of weights: no element of a row is read alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.bounds.bound import bound
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.machine import check, compiled
from tests.examples import examples


def gradient(images: int, size: int, given: int, made: int, window: int, stride: int = 1) -> str:
    """HLO of the weights' gradient of a convolution with padding, as JAX lowers it."""
    result = -(-size // stride)
    before = (window - 1) // 2
    after = (result - 1) * stride + window - size - before
    steps = f" rhs_dilate={stride}x{stride}" if stride > 1 else ""
    pads = f"{before}_{after + (size - 1) - (result - 1) * stride}" if stride == 1 else f"{before}_{after}"
    return f"""HloModule t
ENTRY e {{
  x = f32[{images},{size},{size},{given}] parameter(0)
  g = f32[{images},{result},{result},{made}] parameter(1)
  ROOT w = f32[{window},{window},{given},{made}] convolution(x, g),
    window={{size={result}x{result} pad={pads}x{pads}{steps}}}, dim_labels=f01b_i01o->01bf
}}
"""


@given(
    st.sampled_from([1, 2, 5]),
    st.integers(2, 9),
    st.sampled_from([1, 3, 8, 20]),
    st.sampled_from([1, 4, 17]),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 2]),
    st.integers(0, 2**32 - 1),
)
@examples(5, 60)
def test_values(images: int, size: int, given: int, made: int, window: int, stride: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    result = -(-size // stride)
    args = [
        rng.standard_normal((images, size, size, given)).astype(np.float32),
        rng.standard_normal((images, result, result, made)).astype(np.float32),
    ]
    check(gradient(images, size, given, made, window, stride), args, "tiny", "highest", 1e-5)


@pytest.mark.parametrize(
    ("sizes", "most"),
    [
        ((8, 14, 128, 128, 3), 1.7),
        ((8, 14, 256, 128, 1), 1.35),
        ((1, 28, 128, 128, 3), 1.85),
        ((8, 7, 128, 256, 3), 2.8),
        ((8, 14, 256, 512, 1, 2), 1.9),
        pytest.param((8, 14, 256, 256, 3, 2), 2.4, marks=pytest.mark.slow),
        ((2, 112, 3, 64, 7, 2), 2.9),
        pytest.param((8, 112, 3, 64, 7, 2), 2.1, marks=pytest.mark.slow),
    ],
)
def test_cycles_are_near_the_bound(sizes: tuple[int, ...], most: float) -> None:
    text, chip = gradient(*sizes), load_chip("tpu_v3")
    program = compiled(text, chip, "default").program
    cycles = simulate(program, chip, mode="time").cycles
    assert cycles is not None
    assert cycles <= most * bound(canonicalise(parse_hlo(text)), chip).cycles
    if len(program.groups) == 1:
        assert 0.8 <= program.groups[0].planned / cycles <= 1.15
