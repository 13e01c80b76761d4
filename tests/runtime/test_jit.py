"""JAX functions on the simulated chip, against JAX itself."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from systolith import api as sl


def test_a_function_of_a_pytree() -> None:
    def layer(p: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
        hidden = jnp.tanh(jnp.dot(x, p["w"], precision="highest") + p["b"])
        return {"out": hidden, "mean": hidden.mean(axis=-1)}

    rng = np.random.default_rng(0)
    p = {"w": rng.standard_normal((12, 9)).astype(np.float32), "b": np.ones(9, np.float32)}
    x = rng.standard_normal((5, 12)).astype(np.float32)
    on_chip = sl.jit(layer, sl.Client("tiny"))
    got, want = on_chip(p, x), layer({k: jnp.asarray(v) for k, v in p.items()}, jnp.asarray(x))
    assert got.keys() == want.keys()
    for key in want:
        np.testing.assert_allclose(got[key], want[key], rtol=1e-5, atol=1e-5)


def test_one_compilation_a_shape() -> None:
    double = sl.jit(lambda x: x * 2, sl.Client("tiny"))
    assert (double(np.ones(3, np.float32)) == 2).all()
    first = double.last_executable
    double(np.zeros(3, np.float32))
    assert double.last_executable is first
    assert double(np.ones((2, 2), np.float32)).shape == (2, 2)
    assert double.last_executable is not first


RANDOM: dict[str, Callable[[jax.Array, int], jax.Array]] = {
    "bits": lambda key, n: jax.random.bits(key, (n,), jnp.uint32),
    "uniform": lambda key, n: jax.random.uniform(key, (n // 100, 100), jnp.float32),
    "normal": lambda key, n: jax.random.normal(key, (n,), jnp.float32),
    "randint": lambda key, n: jax.random.randint(key, (n,), -5, 1000, jnp.int32),
    "bernoulli": lambda key, n: jax.random.bernoulli(key, np.float32(0.3), (n,)),
    "split": lambda key, n: jax.random.split(key, n),
}


@pytest.mark.parametrize(
    ("name", "n", "wide"),
    [
        ("bits", 100_000, False),
        ("randint", 20_000, False),
        *(
            pytest.param(name, 20_000, False, marks=pytest.mark.slow)
            for name in ("bits", "uniform", "bernoulli", "split", "normal")
        ),
        ("normal", 10_000, True),
    ],
)
def test_random_numbers_by_64_bit_counters(name: str, n: int, wide: bool) -> None:
    """With 64-bit types enabled in JAX its loops count in s64 too; programs are tens of instructions."""
    with jax.enable_x64(wide):
        key = jax.random.PRNGKey(42)
        on_chip = sl.jit(lambda k: RANDOM[name](k, n), sl.Client("tpu_v3"))
        got, want = on_chip(np.asarray(key)), np.asarray(RANDOM[name](key, n))
    assert got.dtype == want.dtype
    if name == "normal":
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    else:
        np.testing.assert_array_equal(got, want)
    assert len(on_chip.last_executable.program.code) < 300


def test_tridiagonal_systems_exchange_rows() -> None:
    """As LAPACK does: JAX's rule for platforms that it does not know divides by the first element, 0."""
    lower, diagonal, upper = (np.array(x, np.float32) for x in ([0, 2, 1], [0, 1, 3], [1, 4, 0]))
    b = np.array([[1], [2], [3]], np.float32)
    got = sl.jit(jax.lax.linalg.tridiagonal_solve, sl.Client("tiny"))(lower, diagonal, upper, b)
    whole = np.diag(diagonal) + np.diag(lower[1:], -1) + np.diag(upper[:-1], 1)
    np.testing.assert_allclose(whole @ got, b, rtol=1e-5, atol=1e-5)
