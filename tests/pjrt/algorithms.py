"""Programs as users of JAX write them: a loop of training or of decoding, a filter, a solver, each in one function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import sparse
from jax.experimental.ode import odeint

rng = np.random.default_rng(7)


def normal(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def attention_by_blocks(q: Any, k: Any, v: Any) -> Any:
    """Attention with a running maximum and sum, in a scan that keeps nothing for its gradient."""

    def block(carry: Any, kv: Any) -> tuple[Any, None]:
        top, total, out = carry
        s = jnp.einsum("hqd,hkd->hqk", q, kv[0])
        new = jnp.maximum(top, s.max(-1))
        p, shrink = jnp.exp(s - new[..., None]), jnp.exp(top - new)
        return (new, total * shrink + p.sum(-1), out * shrink[..., None] + jnp.einsum("hqk,hkd->hqd", p, kv[1])), None

    start = jnp.full(q.shape[:2], -jnp.inf), jnp.zeros(q.shape[:2]), jnp.zeros(q.shape)
    blocks = tuple(x.reshape(2, 4, 8, 8).transpose(1, 0, 2, 3) for x in (k, v))
    _, total, out = lax.scan(jax.checkpoint(block), start, blocks)[0]
    return out / total[..., None]


def decoding(embedding: Any, wk: Any, wv: Any, prompt: Any) -> Any:
    """Greedy decoding with rotary positions, and keys and values in a cache."""
    frequencies = 10000.0 ** (-jnp.arange(4) / 4)

    def rotated(x: Any, position: Any) -> Any:
        c, s = jnp.cos(position * frequencies), jnp.sin(position * frequencies)
        return jnp.concatenate([x[:, :4] * c - x[:, 4:] * s, x[:, :4] * s + x[:, 4:] * c], -1)

    def step(carry: Any, position: Any) -> tuple[Any, Any]:
        token, keys, values = carry
        x = embedding[token]
        keys = keys.at[:, position].set(rotated(x @ wk, position))
        values = values.at[:, position].set(x @ wv)
        scores = jnp.einsum("bd,btd->bt", rotated(x, position), keys)
        weights = jax.nn.softmax(jnp.where(jnp.arange(8) <= position, scores, -jnp.inf))
        following = (jnp.einsum("bt,btd->bd", weights, values) @ embedding.T).argmax(-1)
        return (following, keys, values), following

    empty = jnp.zeros((2, 8, 8))
    return lax.scan(step, (prompt, empty, empty), jnp.arange(8))[1]


def beam_search(table: Any) -> Any:
    def grow(i: Any, carry: Any) -> Any:
        tokens, scores = carry
        every = (scores[:, None] + jax.nn.log_softmax(table[tokens[:, i - 1]])).ravel()
        best, where = lax.top_k(every, 3)
        return tokens[where // 12].at[:, i].set(where % 12), best

    return lax.fori_loop(1, 6, grow, (jnp.zeros((3, 6), jnp.int32), jnp.array([0.0, -1e9, -1e9])))


def experts(x: Any, w: Any, chosen: Any) -> Any:
    """Rows sorted by expert, one ragged product, and back."""
    order = jnp.argsort(chosen)
    y = lax.ragged_dot(x[order], w, jnp.bincount(chosen, length=4).astype(jnp.int32))
    return jnp.zeros_like(y).at[order].set(y)


def quantised(x: Any, w: Any) -> Any:
    def bytes_of(a: Any, axis: int) -> tuple[Any, Any]:
        scale = jnp.abs(a).max(axis, keepdims=True) / 127
        return jnp.round(a / scale).astype(jnp.int8), scale

    (a, s), (b, t) = bytes_of(x, 1), bytes_of(w, 0)
    return lax.dot(a, b, preferred_element_type=jnp.int32) * s * t


def kalman(observed: Any) -> Any:
    a, h = jnp.array([[1.0, 0.1], [0.0, 1.0]]), jnp.array([[1.0, 0.0]])

    def step(state: Any, y: Any) -> tuple[Any, Any]:
        mean, covariance = a @ state[0], a @ state[1] @ a.T + 0.01 * jnp.eye(2)
        seen = h @ covariance @ h.T + 0.1
        gain = jnp.linalg.solve(seen, h @ covariance).T
        state = mean + gain @ (y - h @ mean), covariance - gain @ seen @ gain.T
        return state, state

    return lax.scan(step, (jnp.zeros(2), jnp.eye(2)), observed)[1]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fixed_point(f: Callable[..., Any], a: Any) -> Any:
    """The x that f leaves as it is, in a loop until it stays; its gradient is a fixed point again."""

    def moves(c: Any) -> Any:
        return jnp.abs(c[0] - c[1]).max() > 1e-6

    start = jnp.zeros(a.shape[0])
    return lax.while_loop(moves, lambda c: (c[1], f(a, c[1])), (start, f(a, start)))[1]


def _forward(f: Callable[..., Any], a: Any) -> tuple[Any, Any]:
    x = fixed_point(f, a)
    return x, (a, x)


def _backward(f: Callable[..., Any], saved: Any, g: Any) -> tuple[Any]:
    a, x = saved
    _, by_x = jax.vjp(lambda x: f(a, x), x)
    u = lax.fori_loop(0, 20, lambda _, u: g + by_x(u)[0], g)
    return (jax.vjp(lambda a: f(a, x), a)[1](u)[0],)


fixed_point.defvjp(_forward, _backward)


def edit_distance(a: Any, b: Any) -> Any:
    """A scan over one word in a scan over the other."""

    def row(above: Any, x: Any) -> tuple[Any, None]:
        def cell(left: Any, z: Any) -> tuple[Any, Any]:
            value = jnp.minimum(jnp.minimum(z[0], left) + 1, z[1] + (x != z[2]))
            return value, value

        first = above[0] + 1
        return jnp.concatenate([first[None], lax.scan(cell, first, (above[1:], above[:-1], b))[1]]), None

    return lax.scan(row, jnp.arange(len(b) + 1), a)[0]


def sparse_product(dense: Any, x: Any) -> Any:
    a = sparse.BCOO.fromdense(dense, nse=12)
    return a @ x, (a.T @ x[:3]).sum(), a.todense()


def replay(transitions: Any, key: Any) -> Any:
    """A buffer that fills in turn, of which batches are drawn."""

    def step(buffer: Any, given: tuple[Any, Any]) -> tuple[Any, Any]:
        i, row = given
        buffer = buffer.at[i % 5].set(row)
        drawn = jax.random.randint(jax.random.fold_in(key, i), (3,), 0, jnp.minimum(i + 1, 5))
        return buffer, buffer[drawn].mean(0)

    return lax.scan(step, jnp.zeros((5, 4)), (jnp.arange(len(transitions)), transitions))


def momentum(w: Any, x: Any) -> Any:
    """Steps of gradient descent whose scale of the loss falls where a gradient overflows f16."""

    def loss(w: Any, scale: Any) -> Any:
        y = jnp.tanh(x.astype(jnp.float16) @ w.astype(jnp.float16)).astype(jnp.float32)
        return ((y - 1) ** 2).mean() * scale

    def step(carry: Any, _: None) -> tuple[Any, Any]:
        w, m, scale = carry
        g = jax.grad(loss)(w, scale) / scale
        good = jnp.isfinite(g).all()
        m = jnp.where(good, 0.9 * m + g, m)
        return (jnp.where(good, w - 0.1 * m, w), m, jnp.where(good, scale * 2, scale / 2)), good

    return lax.scan(step, (w, jnp.zeros_like(w), jnp.float32(2.0**14)), None, length=6)


def solved(w: Any) -> Any:
    """The states of a neural ODE at three times."""
    times = jnp.linspace(0.0, 1.0, 3)
    return odeint(lambda y, t, w: jnp.tanh(w @ y), jnp.ones(2), times, w)  # type: ignore[no-untyped-call]


def gradients(f: Callable[..., Any], numbers: tuple[int, ...]) -> Callable[..., Any]:
    return jax.grad(lambda *a: (f(*a) ** 2).sum(), numbers)


QKV = normal(2, 16, 8), normal(2, 32, 8), normal(2, 32, 8)
ROWS, KERNELS = normal(10, 8), normal(4, 8, 6)
CHOSEN = np.array([2, 0, 3, 3, 0, 2, 2, 3, 0, 3], np.int32)
SCARCE = np.where(np.arange(18).reshape(3, 6) % 3 == 0, normal(3, 6), 0).astype(np.float32)
KEY = np.array([1, 2], np.uint32)

ALGORITHMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "attention by blocks": (attention_by_blocks, QKV),
    "its gradients": (gradients(attention_by_blocks, (0, 1, 2)), QKV),
    "decoding with a cache": (decoding, (normal(20, 8), normal(8, 8), normal(8, 8), np.array([3, 4], np.int32))),
    "beam search": (beam_search, (normal(12, 12),)),
    "experts": (experts, (ROWS, KERNELS, CHOSEN)),
    "gradients of experts": (gradients(experts, (0, 1)), (ROWS, KERNELS, CHOSEN)),
    "quantised product": (quantised, (normal(6, 16), normal(16, 5))),
    "Kalman filter": (kalman, (normal(6, 1),)),
    "gradient of a fixed point": (
        jax.grad(lambda a: fixed_point(lambda a, x: jnp.tanh(a @ x + 1), a).sum()),
        (normal(3, 3) * 0.2,),
    ),
    "edit distance": (edit_distance, (np.array([1, 2, 3, 4, 2], np.int32), np.array([2, 3, 3, 1], np.int32))),
    "sparse product": (sparse_product, (SCARCE, normal(6, 2))),
    "replay buffer": (replay, (normal(8, 4), KEY)),
    "scaled loss": (momentum, (normal(8, 8) * 0.2, normal(4, 8))),
    "gradient of an ODE": (
        jax.grad(lambda w: solved(w).sum()),
        (normal(2, 2) * 0.5,),
    ),
    "recurrence by halves": (
        lambda a, b: lax.associative_scan(lambda x, y: (x[0] * y[0], x[1] * y[0] + y[1]), (a, b)),
        (np.abs(normal(13, 3)) % 1, normal(13, 3)),
    ),
}

SHORT = ("quantised product", "edit distance")
"""Those that take less than a second."""
