"""Rows that a loop leaves to products of a later one: bf16, the same products, less memory."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.modules import lowered
from systolith.compiler.driver import compile_module
from systolith.compiler.groups.bf16_rows import Bf16Rows
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.base import run_pass
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.dtypes import BF16
from systolith.sim.simulate import simulate
from tests.compiler.fusion.test_loop_residuals import attention
from tests.compiler.machine import CHIPS, run
from tests.examples import examples
from tests.runtime.command import systolith

CHIP = CHIPS[32]


@cache
def layers(
    tokens: int, features: int, count: int = 4, precision: str = "default", square: bool = False
) -> tuple[str, Any]:
    """The gradient of dense layers in a scan with respect to their weights, and its arguments.

    The product of each gradient of weights reads a row of what the layer read; `square`: so does the gradient of what
    is added to the layer's result.
    """

    def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        return jnp.tanh(x @ w) + (x * x if square else 0), None

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.sum(jax.lax.scan(layer, x, w)[0] ** 2)

    rng = np.random.default_rng(1)
    shapes = (count, features, features), (tokens, features)
    args = [0.4 * rng.standard_normal(dims).astype(np.float32) for dims in shapes]
    with jax.default_matmul_precision(precision):
        return lowered(jax.grad(loss), args), args


def narrowed(text: str, precision: str | None = None) -> tuple[Module, list[str]]:
    """A module after the pass, and the rows that it made bf16."""
    module = canonicalise(parse_hlo(text))
    found = run_pass(module, Bf16Rows(CHIP, precision)).decisions
    return module, [d.chosen for d in found]


def arrays(module: Module) -> list[Any]:
    """The types of arrays of rows that loops have."""
    loops = (i for i in module.entry.instructions if i.opcode == "while")
    return [s.dtype for loop in loops for s in loop.shape.elements if len(s.dims) == 3]


def test_rows_that_products_read() -> None:
    text, args = layers(32, 32)
    module, found = narrowed(text)
    assert len(found) == 1
    assert arrays(module).count(BF16) == 2, "one array, of the loop that leaves it and of the one that reads it"
    for a, b in zip(evaluate(module, *args), evaluate(parse_hlo(text), *args), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("precision", ["highest", "tensorfloat32"])
def test_products_in_more_passes_read_all_bits(precision: str) -> None:
    text, _ = layers(32, 32, precision=precision)
    assert narrowed(text)[1] == []
    assert len(narrowed(text, "default")[1]) == 1
    assert narrowed(layers(32, 32)[0], "highest")[1] == []


def test_small_rows_and_rows_that_others_read_stay() -> None:
    assert narrowed(layers(8, 8)[0])[1] == []
    assert narrowed(layers(32, 32, square=True)[0])[1] == []


@examples(2, 60)
@given(st.sampled_from((16, 24, 27)), st.sampled_from((24, 32)), st.integers(3, 5))
def test_the_same_results(tokens: int, features: int, count: int) -> None:
    text, args = layers(tokens, features, count)
    now = run(compile_module(parse_hlo(text), CHIP).program, CHIP, args)
    before = run(without(text), CHIP, args)
    for a, b in zip(now, before, strict=True):  # tiles of other sizes are summed in another order
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def without(text: str) -> Any:
    """The program without the pass."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bf16Rows, "run", lambda self, module: False)
        return compile_module(parse_hlo(text), CHIP).program


def test_less_is_moved() -> None:
    text, args = layers(32, 32)
    runs = [simulate(p, CHIP, mode="time") for p in (compile_module(parse_hlo(text), CHIP).program, without(text))]
    now, before = (sum(r.hbm_bytes.values()) for r in runs)
    assert before - now >= 4 * args[1].nbytes  # each row is written, and read


def test_heads_of_attention() -> None:
    """q, k and v, each of which two products read in the backward pass, and what multiplies the gradient of them."""
    step, args = attention(tokens=64, features=16)
    text = lowered(step, args)
    module, found = narrowed(text)
    assert len(found) >= 3
    for a, b in zip(evaluate(module, *args), evaluate(parse_hlo(text), *args), strict=True):
        assert np.array_equal(a, b)


def test_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(layers(64, 64)[0])
    ran = systolith(capsys, "run", path, "--chip", "tiny", "--random", 0, "--check", "--hostile")
    assert ran.code == 0, ran.err
    assert "are bf16" in systolith(capsys, "explain", path, "--chip", "tiny").out
