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


def mlp(x: Any) -> Any:
    return jax.nn.softmax(jax.nn.gelu(x @ INNER) @ OUTER)


def attention(x: Any) -> Any:
    """Of two heads, with a residual and a norm."""
    q, k, v = ((x @ w).reshape(16, 2, 16).transpose(1, 0, 2) for w in (QUERY, KEY, VALUE))
    shares = jax.nn.softmax(q @ k.transpose(0, 2, 1) / 4)
    y = (shares @ v).transpose(1, 0, 2).reshape(16, 32) @ PROJECTION + x
    centred = y - y.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def convolutions(x: Any) -> Any:
    """With a residual and two poolings."""
    dims = ("NHWC", "HWIO", "NHWC")
    y = jax.nn.relu(jax.lax.conv_general_dilated(x, FIRST, (2, 2), "SAME", dimension_numbers=dims))
    y = jax.nn.relu(jax.lax.conv_general_dilated(y, SECOND, (1, 1), "SAME", dimension_numbers=dims) + y)
    y = jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return y.mean((1, 2)) @ LAST


if __name__ == "__main__":
    for function, shape in ((mlp, (8, 32)), (attention, (16, 32)), (convolutions, (2, 16, 16, 3))):
        x = rng.standard_normal(shape).astype(np.float32)
        onnx.save(to_onnx(function, [jnp.zeros(shape)]), HERE / f"{function.__name__}.onnx")
        with jax.default_matmul_precision("highest"):
            np.savez(HERE / f"{function.__name__}.npz", x=x, y=np.asarray(function(x)))
