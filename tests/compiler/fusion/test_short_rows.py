"""Normalisations of short rows: transposed blocks, whose values are those of rows as they lie."""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.modules import lowered
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.ops.group import Group
from systolith.compiler.passes.pipeline import canonicalise
from systolith.compiler.tiling.blocking import BlockNormalisations
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.machine import compare, compiled, error
from tests.examples import examples

V3 = load_chip("tpu_v3")


def softmax(x: Any) -> Any:
    return jax.nn.softmax(x, axis=-1)


def masked(x: Any) -> Any:
    """By places in a row and by rows: the mask is spread along both, which is left as it is."""
    return jax.nn.softmax(jnp.where(jnp.arange(x.shape[-1]) > jnp.arange(x.shape[-2])[:, None] % 3, x, -1e9), axis=-1)


def layer_norm(x: Any) -> Any:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), axis=-1, keepdims=True)
    scale = jnp.arange(x.shape[-1], dtype=x.dtype)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + 1, mean


def with_gradient(x: Any) -> Any:
    y, back = jax.vjp(layer_norm, x)
    return y, back(jax.tree.map(jnp.tanh, y)), jnp.sum(y[0], axis=range(x.ndim - 1))


PROGRAMS = (softmax, layer_norm, with_gradient)


def text_of(program: Any, dims: tuple[int, ...]) -> str:
    return lowered(program, [np.zeros(dims, np.float32)])


def argument(dims: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(dims, np.float32)


def transposes(module: Module) -> int:
    """Of blocks."""
    groups = [i for i in module.entry.instructions if isinstance(i, Group)]
    return sum(i.opcode == "transpose" for g in groups for i in g.body.instructions)


@given(st.sampled_from(PROGRAMS), st.lists(st.integers(1, 9), max_size=2), st.integers(2, 130))
@examples(3, 60)
def test_values(program: Any, outer: list[int], width: int) -> None:
    """Of the rewritten module; sums may be made in another order."""
    dims = (*outer, 16384, width)
    module = canonicalise(parse_hlo(text_of(program, dims)))
    small = (*outer, 160, width)
    few = canonicalise(parse_hlo(text_of(program, small)))
    BlockNormalisations(V3).run(module)
    verify(module)
    assert (transposes(module) > 0) == (2 <= width <= 102)
    x = argument(small)
    chip = load_chip("tiny")
    wanted = evaluate(few, x)
    BlockNormalisations(chip).run(few)
    for a, b in zip(evaluate(few, x), wanted, strict=True):
        assert error(a, b) <= 1e-5


@pytest.mark.parametrize(
    ("program", "dims"),
    [
        (softmax, (3000, 5)),
        (layer_norm, (2, 3, 600, 3)),
        (with_gradient, (40, 70, 6)),
        pytest.param(softmax, (40, 70, 6), marks=pytest.mark.slow),
        pytest.param(softmax, (2, 3, 600, 3), marks=pytest.mark.slow),
        pytest.param(layer_norm, (3000, 5), marks=pytest.mark.slow),
        pytest.param(layer_norm, (40, 70, 6), marks=pytest.mark.slow),
        pytest.param(with_gradient, (3000, 5), marks=pytest.mark.slow),
        pytest.param(with_gradient, (2, 3, 600, 3), marks=pytest.mark.slow),
    ],
    ids=lambda p: getattr(p, "__name__", str(p)),
)
def test_values_on_the_chip(program: Any, dims: tuple[int, ...]) -> None:
    text, chip = text_of(program, dims), load_chip("tiny")
    module = canonicalise(parse_hlo(text))
    BlockNormalisations(chip).run(module)
    assert transposes(module)
    compare(text, [argument(dims)], chip)


def test_masks_along_both_dimensions() -> None:
    compare(text_of(masked, (3000, 5)), [argument((3000, 5))], load_chip("tiny"))


@pytest.mark.parametrize(
    ("width", "dtype"),
    [
        *((4, "bf16"), (64, "f32"), (96, "bf16")),
        *(pytest.param(width, "f32", marks=pytest.mark.slow) for width in (2, 4, 8, 33, 96)),
        *(pytest.param(width, "bf16", marks=pytest.mark.slow) for width in (2, 8, 33, 64)),
    ],
)
def test_rows_take_no_longer_than_the_cross_lane_unit(width: int, dtype: str) -> None:
    """It transposes each element twice, a row of lanes a cycle; of f32, HBM takes as long."""
    dims = (2**20 // width, width)
    text = text_of(softmax, dims).replace("f32", dtype)
    cycles = simulate(compiled(text, V3).program, V3, mode="time").cycles
    assert cycles is not None
    assert cycles < 1.3 * 2 * prod(dims) / V3.vpu.lanes
