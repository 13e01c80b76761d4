"""Products that leave loops: recurrent layers and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from systolith.compiler.bounds.bound import bound
from systolith.compiler.driver import Compiled
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.loops.scans import hlo
from tests.compiler.machine import CHIPS, Array, checked_run, compiled, error, run
from tests.examples import THOROUGH, examples

V3 = load_chip("tpu_v3")


def lstm(xs: jax.Array, w: jax.Array, u: jax.Array, b: jax.Array) -> Any:
    def step(s: Any, x: jax.Array) -> Any:
        h, c = s
        i, g, f, o = jnp.split(x @ w + h @ u + b, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((xs.shape[1], u.shape[0]))
    return lax.scan(step, (zero, zero), xs)


def gated(xs: jax.Array, w: jax.Array, u: jax.Array) -> Any:
    """Backwards, weights on the left, of rows that overlap those of another product."""

    def step(h: jax.Array, x: Any) -> Any:
        before, x = x
        z = jax.nn.sigmoid(w @ x + u @ h)
        return z * h + (1 - z) * (w @ before), (h, x)

    return lax.scan(step, jnp.zeros((u.shape[0], xs.shape[2])), (xs[:-1], xs[1:]), reverse=True)


def gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    def loss(weights: Any, xs: jax.Array) -> jax.Array:
        return sum(jnp.sum(y**2) for y in jax.tree.leaves(f(xs, *weights)))  # type: ignore[return-value]

    return lambda xs, *weights: jax.grad(loss, argnums=(0, 1))(weights, xs)


def counted(xs: jax.Array, w: jax.Array) -> Any:
    """A loop that counts down, with sums of products, of integers, and of what is both read and added to."""

    def step(n: Any, s: Any) -> Any:
        i = xs.shape[0] - 1 - n
        x = lax.dynamic_index_in_dim(xs, i, 0, False)
        h, total, count, both = s
        h = jnp.tanh(x @ w + h[::-1])
        added = x.T @ h
        return h, total + added.T, count + i, both / 2 + added

    zero = jnp.zeros((xs.shape[2], w.shape[1]))
    return lax.fori_loop(0, xs.shape[0], step, (jnp.zeros((xs.shape[1], w.shape[1])), zero.T, jnp.int32(0), zero))


LOOPS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "lstm": (lstm, [(9, 3, 10), (10, 32), (8, 32), (32,)]),
    "gated": (gated, [(8, 12, 5), (7, 12), (7, 7)]),
    "lstm gradient": (gradient(lstm), [(7, 2, 6), (6, 16), (4, 16), (16,)]),
    "gated gradient": (gradient(gated), [(7, 6, 4), (5, 6), (5, 5)]),
    "counted": (counted, [(7, 4, 12), (12, 9)]),
}


def module(name: str) -> tuple[str, list[Array]]:
    rng = np.random.default_rng(0)
    f, shapes = LOOPS[name]
    args: list[Array] = [(rng.standard_normal(s) / 2).astype(np.float32) for s in shapes]
    return hlo(f, args), args


def left(made: Compiled) -> tuple[int, int]:
    """How many products of loops are made before them, and how many sums after them."""
    found = [d.numbers for d in made.explain if d.chosen == "products of all iterations"]
    return sum(int(n["before"]) for n in found), sum(int(n["after"]) for n in found)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("lstm", (1, 0)),
        ("gated", (2, 0)),
        ("lstm gradient", (1, 3)),
        pytest.param("gated gradient", (2, 2), marks=pytest.mark.slow),
        ("counted", (1, 2)),
    ],
)
def test_values(name: str, wanted: tuple[int, int]) -> None:
    text, args = module(name)
    results = run_xla(text, *args)
    for chip in (CHIPS[16], *([CHIPS[256]] if THOROUGH else []), V3):
        made = compiled(text, chip, "highest")
        assert chip is not V3 or left(made) == wanted
        found, report = checked_run(made, chip, args)
        for got, expected in zip(found, results, strict=True):
            assert error(got, expected) < 3e-5
        assert report.executions


@examples(3, 15)
@given(st.integers(1, 9), st.integers(1, 20), st.integers(1, 20), st.integers(1, 20), st.booleans(), st.booleans())
def test_any_sizes(n: int, rows: int, k: int, columns: int, backwards: bool, turned: bool) -> None:
    """A product of each row, and a sum of products with what is carried."""

    def f(xs: jax.Array, w: jax.Array) -> Any:
        def step(s: Any, x: jax.Array) -> Any:
            h, total = s
            h = jnp.tanh(h[::-1] + x @ (w.T if turned else w))
            return (h, total + h.T @ x), h

        start = jnp.zeros((rows, columns)), jnp.ones((columns, k))
        return lax.scan(step, start, xs, reverse=backwards)

    rng = np.random.default_rng(n)
    shapes = [(n, rows, k), (columns, k) if turned else (k, columns)]
    args: list[Array] = [(rng.standard_normal(s) / 2).astype(np.float32) for s in shapes]
    text = hlo(f, args)
    made = compiled(text, CHIPS[256], "highest")
    for got, expected in zip(run(made.program, CHIPS[256], args), run_xla(text, *args), strict=True):
        assert error(got, expected) < 3e-5


def scanned_layers(xs: jax.Array, w: jax.Array) -> Any:
    """Weights of each iteration: nothing is shared."""
    return lax.scan(lambda h, layer: (jnp.tanh(h @ layer), xs @ layer), xs, w)


def weights_that_change(xs: jax.Array, w: jax.Array) -> Any:
    return lax.scan(lambda w, x: (w - 0.1 * x.T @ (x @ w), x @ w), w, xs)


@pytest.mark.parametrize(
    ("f", "shapes"),
    [(scanned_layers, [(600, 12), (5, 12, 12)]), (weights_that_change, [(5, 4, 12), (12, 9)])],
)
def test_products_that_stay(f: Callable[..., Any], shapes: list[tuple[int, ...]]) -> None:
    args: list[Array] = [np.random.default_rng(0).standard_normal(s).astype(np.float32) / 3 for s in shapes]
    text = hlo(f, args)
    made = compiled(text, CHIPS[256], "highest")
    assert left(made) == (0, 0)
    for got, expected in zip(run(made.program, CHIPS[256], args), run_xla(text, *args), strict=True):
        assert error(got, expected) < 3e-5


def cycles(text: str) -> tuple[int, float]:
    """Those of a program on `tpu_v3`, and their bound."""
    found = simulate(compiled(text, V3).program, V3, mode="time").cycles
    canonical = parse_hlo(text)
    canonicalise(canonical)
    assert found is not None
    return found, bound(canonical, V3).cycles


def test_cycles_of_a_recurrent_layer_and_of_its_gradient() -> None:
    """They took 47,941 and 188,221; the bound is of products that no iteration has to wait for as one."""
    args: list[Array] = [np.zeros(s, np.float32) for s in [(64, 16, 128), (128, 512), (128, 512), (512,)]]
    took, least = cycles(hlo(lstm, args))
    assert least < took < 33_000
    took, least = cycles(hlo(gradient(lstm), args))
    assert least < took < 140_000
