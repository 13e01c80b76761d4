"""Convolutions of images with channels first: the evaluator's values before and after, XLA's on the chip, cycles."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand.channels_last import MoveChannelsLast
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.machine import Array, compiled, run
from tests.compiler.passes.differential import opcodes, transformed
from tests.examples import examples


def lowered(function: Any, *arrays: Array) -> str:
    text: str = jax.jit(function).lower(*arrays).compiler_ir("hlo").as_hlo_text()  # type: ignore[union-attr]
    return text


def whole(seed: int, *dims: int) -> Array:
    """Small whole numbers, of which the products and sums are exact in bf16."""
    return np.random.default_rng(seed).integers(-3, 4, dims).astype(np.float32)


@examples(12, 25)
@given(
    st.integers(1, 3),
    st.sampled_from([8, 9, 16]),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from(["SAME", "VALID", [(2, -1)]]),
    st.booleans(),
)
def test_any_number_of_dimensions(
    rank: int, channels: int, features: int, size: int, stride: int, padding: Any, dilated: bool
) -> None:
    x = whole(rank, 2, channels, *[5, 6, 4][:rank])
    kernel = whole(size, features, channels, *[size] * rank)

    def convolve(x: Any, kernel: Any) -> Any:
        pads = padding if isinstance(padding, str) else padding * rank
        dilation = None if isinstance(padding, str) else (1 + dilated,) * rank
        return lax.conv_general_dilated(x, kernel, (stride,) * rank, pads, lhs_dilation=dilation)

    module = parse_hlo(lowered(convolve, x, kernel))
    made = transformed(module, MoveChannelsLast())
    want, got = (evaluate(m, x, kernel)[0] for m in (module, made))
    np.testing.assert_array_equal(want, got)
    pixels = size == stride == 1 and not any(w.base_dilation > 1 or w.low for w in windows(module))
    assert ("transpose" in opcodes(made)) != pixels
    assert not MoveChannelsLast().run(made)


def windows(module: Any) -> list[Any]:
    return [w for i in module.instructions() if i.opcode == "convolution" for w in i.window.dims]


@pytest.mark.parametrize(
    ("labels", "channels", "groups"),
    [
        (("NHWC", "OIHW", "NHWC"), 16, 1),
        (("NCHW", "OIHW", "NHWC"), 16, 1),
        (("CNHW", "OIHW", "NCHW"), 16, 1),
        (("NCHW", "OIHW", "NCHW"), 3, 1),
        (("NCHW", "OIHW", "NCHW"), 16, 16),
    ],
)
def test_other_convolutions_stay(labels: tuple[str, str, str], channels: int, groups: int) -> None:
    sizes = {"N": 2, "C": channels, "H": 5, "W": 6, "O": 32, "I": channels // groups}
    x, kernel = (np.ones([sizes[d] if d in "NCHWOI" else 3 for d in each], np.float32) for each in labels[:2])
    text = lowered(
        lambda x, k: lax.conv_general_dilated(
            x, k, (1, 1), "SAME", dimension_numbers=labels, feature_group_count=groups
        ),
        x,
        kernel,
    )
    assert not MoveChannelsLast().run(parse_hlo(text))


def test_on_the_chip() -> None:
    """Two convolutions with what is usual between them, and a residual."""
    x, kernels, offset = whole(0, 2, 16, 9, 10), [whole(k, 16, 16, 3, 3) for k in (1, 2)], whole(3, 16, 1, 1)

    def block(x: Any, first: Any, second: Any, offset: Any) -> Any:
        made = jax.nn.relu(lax.conv_general_dilated(x, first, (1, 1), "SAME") + offset)
        return jax.nn.relu(lax.conv_general_dilated(made / 64, second, (1, 1), "SAME") + x)

    text = lowered(block, x, *kernels, offset)
    (got,) = run(compiled(text, "small", "highest").program, load_chip("small"), [x, *kernels, offset])
    with jax.default_matmul_precision("highest"):
        np.testing.assert_allclose(got, np.asarray(jax.jit(block)(x, *kernels, offset)), rtol=1e-5, atol=1e-4)


def test_time_near_that_of_channels_last() -> None:
    """With the transposes that it takes; gathered channel by channel it was 5 times as long."""
    chip = load_chip("tpu_v3")
    times = []
    for labels in (("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC")):
        sizes = {"N": 8, "C": 64, "H": 56, "W": 56, "O": 64, "I": 64}
        kernel = {**sizes, "H": 3, "W": 3}
        x, k = np.ones([sizes[d] for d in labels[0]], np.float32), np.ones([kernel[d] for d in labels[1]], np.float32)
        text = lowered(
            lambda x, k, labels=labels: lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=labels), x, k
        )
        cycles = simulate(compiled(text, chip, "default").program, chip, mode="time").cycles
        assert cycles is not None
        times.append(cycles)
    assert times[0] < 1.4 * times[1]
