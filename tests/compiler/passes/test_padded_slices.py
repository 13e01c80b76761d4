"""Rows that are cut off and padded again: values before and after, XLA's on the chip, one pass through HBM."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.pipeline import canonicalise
from systolith.compiler.passes.simplify.padded_slices import WidenPaddedSlices
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.machine import Array, compiled, run
from tests.compiler.passes.differential import transformed

TEXT = """HloModule m
f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] FOLD(a, b)
}
ENTRY e {
  x = f32[3,TOTAL,9] parameter(0)
  v = f32[COUNT] parameter(1)
  p = f32[] parameter(2)
  i = f32[] constant(0)
  s = f32[3,COUNT,9] slice(x), slice={[0:3], [LOW:END], [0:9]}
  n = f32[3,COUNT,9] negate(s)
  c = f32[3,COUNT] reduce(n, i), dimensions={2}, to_apply=f
  w = f32[3,COUNT] broadcast(v), dimensions={1}
  d = f32[3,COUNT] multiply(c, w)
  t = f32[COUNT,3] transpose(d), dimensions={1,0}
  g = f32[COUNT,3,1] reshape(t)
  h = f32[COUNT,3] reshape(g)
  k = f32[3,COUNT,9] iota(), iota_dimension=2
  b = f32[3,COUNT,9] broadcast(h), dimensions={1,0}
  q = f32[3,COUNT,9] add(b, k)
  y = f32[3,COUNT,9] multiply(q, s)
  z = f32[3,TOTAL,9] pad(y, p), padding=0_0xLOW_HIGHx0_0
  o = f32[COUNT] reduce(c, i), dimensions={0}, to_apply=f
  ROOT r = (f32[3,TOTAL,9], f32[COUNT]) tuple(z, o)
}
"""


def text_of(low: int, count: int, high: int, fold: str = "add") -> str:
    sizes = {"LOW": low, "END": low + count, "COUNT": count, "HIGH": high, "TOTAL": low + count + high, "FOLD": fold}
    text = TEXT
    for name, size in sizes.items():
        text = text.replace(name, str(size))
    return text


def widened(module: Module) -> Module:
    return transformed(module, WidenPaddedSlices())


@given(st.integers(0, 2), st.integers(1, 70), st.integers(0, 2), st.sampled_from(["add", "maximum"]))
def test_values_are_the_same(low: int, count: int, high: int, fold: str) -> None:
    module = parse_hlo(text_of(low, count, high, fold))
    made = widened(module)
    few = 0 < (low + high) * 16 <= count
    assert all(i.shape.rank == 1 for i in made.entry.instructions if i.opcode == "pad") == few
    rng = np.random.default_rng(count)
    x = rng.standard_normal((3, low + count + high, 9)).astype(np.float32)
    x[0, 0, 0] = np.nan  # of a row that is left out, or not
    arguments = (x, rng.standard_normal(count).astype(np.float32), np.array(7, np.float32))
    for want, got in zip(evaluate(module, *arguments), evaluate(made, *arguments), strict=True):
        np.testing.assert_array_equal(got, want)


def test_only_the_vector_is_padded() -> None:
    made = widened(parse_hlo(text_of(1, 40, 1)))
    (pad,) = (i for i in made.entry.instructions if i.opcode == "pad")
    assert pad.dims == (42,)
    (chosen,) = (i for i in made.entry.instructions if i.opcode == "select")
    assert chosen.dims == (3, 42, 9)


@pytest.mark.parametrize(
    "change",
    [
        ("padding=0_0xLOW_HIGHx0_0", "padding=0_0x0_2x0_0"),  # not where the slice was
        ("slice={[0:3], [LOW:END], [0:9]}", "slice={[0:3], [0:COUNT], [0:9]}"),
        ("c = f32[3,COUNT] reduce(n, i), dimensions={2}, to_apply=f", "c = f32[3,COUNT] broadcast(v), dimensions={1}"),
        ("k = f32[3,COUNT,9] iota(), iota_dimension=2", "k = f32[3,COUNT,9] iota(), iota_dimension=1"),
        ("n = f32[3,COUNT,9] negate", "n = f32[3,COUNT,9]{0,1,2} negate"),
    ],
)
def test_others_stay(change: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "TEXT", TEXT.replace(*change))
    module = parse_hlo(text_of(1, 40, 1))
    assert not WidenPaddedSlices().run(module)


def loss(x: Any, tokens: Any) -> Any:
    """Of the next tokens: the last one has none."""
    scores = jax.nn.log_softmax(x[:, :-1])
    return -jnp.mean(jnp.take_along_axis(scores, tokens[:, 1:, None], -1))


def lowered(*dims: int, function: Any = jax.value_and_grad) -> str:
    shapes = jax.ShapeDtypeStruct(dims, jnp.float32), jax.ShapeDtypeStruct(dims[:-1], jnp.int32)  # type: ignore[no-untyped-call]
    return jax.jit(function(loss)).lower(*shapes).as_text("hlo")


def test_the_gradient_of_a_loss_of_next_tokens_on_the_chip() -> None:
    rng = np.random.default_rng(0)
    x: Array = rng.standard_normal((2, 33, 70)).astype(np.float32)
    tokens: Array = rng.integers(0, 70, (2, 33)).astype(np.int32)
    pads = [i for i in canonicalise(parse_hlo(lowered(2, 33, 70))).instructions() if i.opcode == "pad"]
    assert all(70 not in i.dims for i in pads)
    got = run(compiled(lowered(2, 33, 70), "small").program, load_chip("small"), [x, tokens])
    want = jax.value_and_grad(loss)(x, tokens)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("function", "passes"), [(jax.grad, 2), (jax.value_and_grad, 4)])
def test_passes_through_hbm(function: Any, passes: int) -> None:
    """The scores are read and their gradient written; for the loss once more, as they are without the largest one."""
    chip = load_chip("tpu_v3")
    size = 8 * 512 * 4096 * 4
    program = compiled(lowered(8, 512, 4096, function=function), chip).program
    moved = simulate(program, chip, mode="time").to_json()["hbm_bytes"]
    assert sum(moved.values()) < (passes + 0.1) * size
