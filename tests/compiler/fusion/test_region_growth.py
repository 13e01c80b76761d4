"""Regions that could have taken in what they are computed from, or one value in blocks of two dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.modules import lowered
from systolith.isa.chip import Chip, load_chip
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import CHIPS, TINY, compiled, error, run, with_vmem


def _gradient(f: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """What a function gives, and its gradient; what comes back depends on all that it gave, and on a number."""

    def apply(x: Any, c: Any) -> Any:
        made, back = jax.vjp(f, x)
        return made, back(jax.tree.map(lambda v: jnp.cos(v * c), made))

    return apply


def shares(x: Any, axis: Any) -> Any:
    return jnp.abs(x) / (1e-2 + jnp.abs(x).sum(axis, keepdims=True))


def masked_by_the_mean(x: Any) -> Any:
    """The mean of all is part of what its softmax is computed from, and reads what that reads."""
    x = shares(x, -1) * jnp.linspace(0.5, 1.5, x.shape[-2])[:, None]
    mask = jnp.arange(x.shape[-1]) < jnp.arange(x.shape[0]).reshape(-1, *[1] * (x.ndim - 1)) % 7
    return jax.nn.log_softmax(jnp.where(mask, x, x.mean()), axis=-1)


def transposed_between(x: Any) -> Any:
    x = shares(x, (-1, -2))
    first = x - x.max(-1, keepdims=True)
    return x, first, jax.nn.log_softmax(jnp.swapaxes(first, -1, -2), axis=-2)


def running_sums(x: Any) -> Any:
    soft = jax.nn.softmax(x, axis=-1)
    unit = soft / (1e-3 + jnp.sqrt((soft * soft).sum(-2, keepdims=True)))
    sums = 0.1 * jnp.cumsum(unit, axis=-1)
    return soft, unit, sums, sums - sums.max(-2, keepdims=True)


def of_itself(x: Any) -> Any:
    """A product reads a value along its rows and its columns."""
    scores = x @ jnp.swapaxes(x, -1, -2) / x.shape[-1]
    return jax.nn.softmax(scores - scores.max(-1, keepdims=True), axis=-1)


def one_after_another(x: Any) -> Any:
    """What a later region computes again is made of results that come after what it was."""
    first = x - jax.nn.logsumexp(x, axis=-2, keepdims=True)
    apart = first - first.mean(-1, keepdims=True)
    normal = apart * jax.lax.rsqrt((apart**2).mean(-1, keepdims=True) + 1e-5)
    part = shares(normal, -2)
    return first, normal, part, part / (1e-3 + jnp.sqrt((part * part).sum(-1, keepdims=True)))


def assert_same(program: Callable[[Any], Any], dims: tuple[int, ...], chip: Chip) -> None:
    """The chip gives what XLA does."""
    both, given = _gradient(program), [np.random.default_rng(0).standard_normal(dims, np.float32), np.float32(1.7)]
    text, args = lowered(both, given), [np.asarray(a) for a in given]
    got = run(compiled(text, chip, "highest").program, chip, args)
    for a, b in zip(got, run_xla(text, *args), strict=True):
        assert error(a, b) <= 1e-4


@pytest.mark.parametrize(
    ("program", "dims", "chip"),
    [
        (masked_by_the_mean, (16, 100), TINY),
        (transposed_between, (1, 75, 16), with_vmem(TINY, 64 << 10)),
        (running_sums, (8, 34, 25), CHIPS[32]),
        (of_itself, (2, 66, 5), with_vmem(TINY, 64 << 10)),
        pytest.param(one_after_another, (3, 300, 7), TINY, marks=pytest.mark.slow),
        pytest.param(running_sums, (8, 130, 50), TINY, marks=pytest.mark.slow),
        pytest.param(of_itself, (5, 130, 5), TINY, marks=pytest.mark.slow),
    ],
    ids=lambda p: getattr(p, "__name__", ""),
)
def test_values_and_gradients(program: Callable[[Any], Any], dims: tuple[int, ...], chip: Chip) -> None:
    assert_same(program, dims, chip)


def test_rows_of_a_block_at_the_end_of_vmem() -> None:
    """A kernel's last rows are outside of an array of some columns, and of memory; no element of them is touched."""

    def program(x: Any) -> Any:
        x = jax.nn.log_softmax(x, axis=-2)
        return x, x / (1e-3 + jnp.sqrt((x * x).sum((-1, -2), keepdims=True)))

    assert_same(program, (1500, 128), load_chip("small"))
