"""Programs of JAX with loops of known trip counts, which are none of elementwise operations alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.compiler.machine import Array


def recurrence(xs: jax.Array, w: jax.Array) -> Any:
    def step(h: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        h = jnp.tanh(x + h @ w)
        return h, h

    return lax.scan(step, jnp.zeros(xs.shape[1:]), xs)


def backwards(xs: jax.Array, w: jax.Array) -> Any:
    return lax.scan(lambda h, x: (h[::-1] * w + x, h), jnp.zeros(xs.shape[1:]), xs, reverse=True)


def gradient(xs: jax.Array, w: jax.Array) -> Any:
    return jax.grad(lambda w: jnp.sum(recurrence(xs, w)[1]))(w)


def two_loops(xs: jax.Array) -> Any:
    def outer(c: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        return lax.scan(lambda d, x: (d[::-1] / 2 + x, d), c, rows)

    return lax.scan(outer, jnp.zeros(xs.shape[2:]), xs)


def stencil(x: jax.Array) -> Any:
    return lax.fori_loop(0, 9, lambda _, y: (jnp.roll(y, 1, 0) + jnp.roll(y, -1, 1)) / 2, x)


def shifted(xs: jax.Array) -> Any:
    """Indices that leave the array at both ends, so that they are clamped, and an update in place."""

    def step(i: jax.Array, ys: jax.Array) -> jax.Array:
        row = lax.dynamic_slice(ys, (2 * i - 3, 0), (2, ys.shape[1]))
        return lax.dynamic_update_slice(ys, row + 1, (6 - i, 0))

    return lax.fori_loop(0, 8, step, xs)


def fibonacci(xs: jax.Array) -> Any:
    """An iteration that depends on the one before the last."""

    def step(i: jax.Array, ys: jax.Array) -> jax.Array:
        row = lax.dynamic_slice(ys, (i - 2, 0), (1, ys.shape[1])) + lax.dynamic_slice(ys, (i - 1, 0), (1, ys.shape[1]))
        return lax.dynamic_update_slice(ys, row, (i, 0))

    return lax.fori_loop(2, xs.shape[0], step, xs)


PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "recurrence": (recurrence, [(9, 3, 20), (20, 20)]),
    "backwards": (backwards, [(7, 33), (33,)]),
    "gradient": (gradient, [(5, 3, 12), (12, 12)]),
    "two_loops": (two_loops, [(3, 4, 17)]),
    "stencil": (stencil, [(12, 40)]),
    "shifted": (shifted, [(12, 21)]),
    "fibonacci": (fibonacci, [(11, 24)]),
    "one_turn": (backwards, [(1, 33), (33,)]),
    "two_turns": (backwards, [(2, 33), (33,)]),
    "three_turns": (backwards, [(3, 33), (33,)]),
}


def hlo(f: Callable[..., Any], args: list[Array]) -> str:
    lowered = jax.jit(f, keep_unused=True).lower(*args).compiler_ir("hlo")
    return str(lowered.as_hlo_text(print_large_constants=True))  # type: ignore[union-attr]


def arguments(name: str) -> list[Array]:
    """Random arguments of a program."""
    rng = np.random.default_rng(0)
    return [(rng.standard_normal(s) / 2).astype(np.float32) for s in PROGRAMS[name][1]]
