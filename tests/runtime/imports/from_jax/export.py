"""Write the models beside this file: JAX's functions as jax2onnx 0.17.1 exports them, and XLA's results for an input.

`python export.py`, with jax 0.10 and jax2onnx, which the tests do not need.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from jax2onnx import to_onnx  # type: ignore[import-not-found]  # not among the tests' packages

HERE = Path(__file__).parent
rng = np.random.default_rng(0)


def weights(*dims: int) -> Any:
    return (0.1 * rng.standard_normal(dims)).astype(np.float32)


INNER, OUTER = weights(32, 48), weights(48, 16)
QUERY, KEY, VALUE, PROJECTION = (weights(32, 32) for _ in range(4))
FIRST, SECOND, LAST = weights(3, 3, 3, 16), weights(3, 3, 16, 16), weights(16, 10)
WORDS, PLACES = weights(20, 32), weights(8, 32)
QKV, MIXED, WIDE, NARROW = weights(3, 32, 2, 16), weights(2, 16, 32), weights(32, 64), weights(64, 32)


def mlp(x: Any) -> Any:
    return jax.nn.softmax(jax.nn.gelu(x @ INNER) @ OUTER)


def attention(x: Any) -> Any:
    """Of two heads, with a residual and a norm."""
    q, k, v = ((x @ w).reshape(16, 2, 16).transpose(1, 0, 2) for w in (QUERY, KEY, VALUE))
    shares = jax.nn.softmax(q @ k.transpose(0, 2, 1) / 4)
    y = (shares @ v).transpose(1, 0, 2).reshape(16, 32) @ PROJECTION + x
    centred = y - y.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def _normed(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)


def encoder(ids: Any, lengths: Any) -> Any:
    """Of texts of different lengths: embeddings, attention by equations and with a mask, a layer of GELU, a pooling."""
    x = _normed(jnp.take(WORDS, ids, axis=0) + PLACES)
    q, k, v = jnp.einsum("btd,sdhe->sbthe", x, QKV)
    seen = jnp.arange(8) < lengths[:, None]
    scores = jnp.where(seen[:, None, None, :], jnp.einsum("bthe,bshe->bhts", q, k) / 4, -1e9)
    x = _normed(x + jnp.einsum("bhts,bshe,hed->btd", jax.nn.softmax(scores), v, MIXED))
    x = _normed(x + jax.nn.gelu(x @ WIDE, approximate=False) @ NARROW)
    return jnp.tanh(x[:, 0])


def convolutions(x: Any) -> Any:
    """With a residual and two poolings."""
    dims = ("NHWC", "HWIO", "NHWC")
    y = jax.nn.relu(jax.lax.conv_general_dilated(x, FIRST, (2, 2), "SAME", dimension_numbers=dims))
    y = jax.nn.relu(jax.lax.conv_general_dilated(y, SECOND, (1, 1), "SAME", dimension_numbers=dims) + y)
    y = jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return y.mean((1, 2)) @ LAST


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    return [rng.standard_normal(dims).astype(np.float32) for dims in shapes]


if __name__ == "__main__":
    text = [rng.integers(0, 20, (2, 8), np.int32), np.array([8, 5], np.int32)]
    for function, inputs in (
        (mlp, arrays((8, 32))),
        (attention, arrays((16, 32))),
        (convolutions, arrays((2, 16, 16, 3))),
        (encoder, text),
    ):
        onnx.save(to_onnx(function, inputs), HERE / f"{function.__name__}.onnx")
        with jax.default_matmul_precision("highest"):
            y = np.asarray(function(*map(jnp.asarray, inputs)))
        np.savez(HERE / f"{function.__name__}.npz", *inputs, y=y)
