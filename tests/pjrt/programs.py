"""JAX programs on the plugin against JAX on the CPU, in one process: `python programs.py [slow]`.

Prints a line for each that differs or fails, and ends with 1 if there is one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from systolith.pjrt.plugin import initialize
from tests.pjrt.algorithms import ALGORITHMS, SHORT

Program = Callable[..., Any]

rng = np.random.default_rng(0)
X = rng.standard_normal((3, 4)).astype(np.float32)
Y = rng.standard_normal((4, 5)).astype(np.float32)
S = (X.T @ X + 4 * np.eye(4)).astype(np.float32)
N = np.arange(12, dtype=np.int32).reshape(3, 4)
KEY = np.array([1, 2], np.uint32)


def mlp(params: dict[str, Any], x: Any) -> Any:
    return jax.nn.softmax(jnp.tanh(x @ params["w"] + params["b"][0]))


PARAMS = {"w": Y, "b": (np.ones(5, np.float32),)}

FAST: dict[str, tuple[Program, tuple[Any, ...]]] = {
    "add": (lambda a: a + 1, (X,)),
    "scalar": (lambda a, b: a * b, (np.float32(3), np.float32(4))),
    "pytree": (mlp, (PARAMS, X)),
    "grad": (jax.grad(lambda p, x: mlp(p, x)[:, 0].sum()), (PARAMS, X)),
    "vmap": (jax.vmap(lambda a: a[None, :] @ Y), (X,)),
    "scan": (lambda a: lax.scan(lambda c, r: (c + r, c * r), jnp.zeros(4), a), (X,)),
    "while": (lambda a: lax.while_loop(lambda v: v.sum() < 99, lambda v: v * 2, a), (abs(X),)),
    "gather and scatter": (lambda a: a.at[jnp.array([2, 0])].add(a[:, jnp.array([1, 1, 3])][:2, :1]), (X,)),
    "bf16": (lambda a: a.astype(jnp.bfloat16) * 2, (X,)),
    "complex": (lambda a: a * (1 + 2j), (X,)),
    "no elements": (lambda a: (a[:0] + 1, a[:0].sum()), (X,)),
    "strides": (lambda a: a - 1, (X.T[::-1, ::2],)),
    "fp8 and int4": (lambda a: (a.astype(jnp.float8_e4m3fn), a.astype(jnp.int4)), (X,)),
}

SLOW: dict[str, tuple[Program, tuple[Any, ...]]] = {
    "cond": (lambda a: lax.cond(a.sum() > 3, lambda v: v + 1, lambda v: v - 1, a), (X,)),
    "sort": (lambda a: (jnp.sort(a, axis=0), jnp.argsort(a)), (X,)),
    "threefry": (lambda k: jax.random.bits(k, (5,)), (KEY,)),
    "fori": (lambda a: lax.fori_loop(0, 5, lambda i, v: v + i, a), (X,)),
    "switch": (lambda i: lax.switch(i, [lambda: 1.0, lambda: 2.0, lambda: 3.0]), (np.int32(1),)),
    "normal": (lambda k: jax.random.normal(k, (4, 5)), (KEY,)),
    "permutation": (lambda k: jax.random.permutation(k, 10), (KEY,)),
    "categorical": (lambda k, a: jax.random.categorical(k, a), (KEY, X)),
    "top_k": (lambda a: lax.top_k(a, 2), (X,)),
    "dynamic slice": (lambda a, i: lax.dynamic_slice(a, (i, 1), (2, 2)), (X, np.int32(1))),
    "cumsum": (lambda a: jnp.cumsum(a, axis=1), (X,)),
    "cholesky": (jnp.linalg.cholesky, (S,)),
    "inverse": (jnp.linalg.inv, (S,)),
    "solve": (lambda a: jnp.linalg.solve(a, a[:, 0]), (S,)),
    "det": (jnp.linalg.det, (S,)),
    "eigenvalues": (jnp.linalg.eigvalsh, (S,)),
    "pseudo-inverse": (jnp.linalg.pinv, (X,)),
    "qr": (jnp.linalg.qr, (X,)),
    "fft": (jnp.fft.fft, (X,)),
    "singular values": (lambda a: jnp.linalg.svd(a, compute_uv=False), (X,)),
    "qr product": (lambda a: jnp.matmul(*jnp.linalg.qr(a)), (X,)),
    "lstsq": (lambda a: jnp.linalg.lstsq(a, a[:, 0])[0], (S,)),
    "convolution": (lambda a: jnp.convolve(a[0], a[1]), (X,)),
    "einsum": (lambda a, b: jnp.einsum("ij,jk->ki", a, b), (X, Y)),
    "jacobian": (jax.jacobian(lambda a: jnp.sin(a @ a)), (S,)),
    "hessian": (jax.hessian(lambda a: (a**3).sum()), (X[0],)),
    "checkpoint": (jax.grad(jax.checkpoint(lambda a: jnp.sin(jnp.sin(a)).sum())), (X,)),
    "custom vjp": (jax.grad(lambda a: jax.nn.relu(a).sum()), (X,)),
    "integers": (lambda a: (a // 5, a % 5, a << 2, a & 6, a == 3), (N,)),
    "unique": (lambda a: jnp.unique(a // 3, size=6), (N,)),
    "bools": (lambda a: (a > 0, jnp.any(a > 0, axis=0), jnp.where(a > 0, a, -a)), (X,)),
    "half": (lambda a: a.astype(jnp.float16) + 1, (X,)),
    "logsumexp": (lambda a: jax.scipy.special.logsumexp(a, axis=1), (X,)),
}

WIDE: dict[str, tuple[Program, tuple[Any, ...]]] = {
    "int64": (lambda a: a.astype(jnp.int64) * 5_000_000_000, (N,)),
    "uint64": (lambda a: a.astype(jnp.uint64) << 40, (N,)),
}
"""With 64-bit types switched on."""


def leaves(value: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(value)]


def difference(program: Program, arguments: tuple[Any, ...]) -> str:
    """Why the plugin's results are not the CPU's; empty if they are."""
    try:
        got = leaves(jax.jit(program)(*arguments))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    with jax.default_device(jax.devices("cpu")[0]):
        want = leaves(jax.jit(program)(*arguments))
    for ours, theirs in zip(got, want, strict=True):
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            return f"{ours.dtype}{ours.shape} instead of {theirs.dtype}{theirs.shape}"
        a, b = (v.astype(np.complex128) for v in (ours, theirs))
        if not np.allclose(a, b, rtol=1e-4, atol=1e-4 * max(1.0, abs(b).max(initial=0)), equal_nan=True):
            return f"{ours} instead of {theirs}"
    return ""


def main(which: str) -> int:
    assert jax.devices()[0].platform == "systolith", jax.devices()
    slow = [(False, {**FAST, **SLOW, **ALGORITHMS}), (True, WIDE)]
    rounds = slow if which == "slow" else [(False, FAST | {name: ALGORITHMS[name] for name in SHORT})]
    failures = 0
    for wide, programs in rounds:
        with jax.enable_x64(wide):
            for name, (program, arguments) in programs.items():
                if why := difference(program, arguments):
                    failures += 1
                    print(f"{name}: {why}")
    return min(failures, 1)


if __name__ == "__main__":
    initialize()
    sys.exit(main(*sys.argv[1:]))
