"""JAX functions on the simulated chip, against JAX itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

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
    first = double.last_executable  # type: ignore[attr-defined]
    double(np.zeros(3, np.float32))
    assert double.last_executable is first  # type: ignore[attr-defined]
    assert double(np.ones((2, 2), np.float32)).shape == (2, 2)
    assert double.last_executable is not first  # type: ignore[attr-defined]
