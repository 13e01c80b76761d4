"""Single operations at a size that fills the chip: most move 16 MiB or more, so that HBM should set their time.

Sorts, factors of matrices and distances, which have much more to do than to move, are smaller, and so are some that are
slow at the sizes that models have: one line, a few rows of logits, groups of channels, pairs, recurrences.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import ShapeDtypeStruct, lax, nn, vjp

from bench.models import Model

Tree = Any


def _dropout(key: jax.Array, x: jax.Array) -> jax.Array:
    keep = jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, x.shape)
    return jnp.where(keep, x / 0.9, 0)


def _group_norm(x: jax.Array) -> jax.Array:
    groups = x.reshape(*x.shape[:-1], 8, -1)
    mean, variance = (f(groups, (1, 2, 4), keepdims=True) for f in (jnp.mean, jnp.var))
    return ((groups - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape)


def _rope_pairs(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    a, b = x[..., ::2], x[..., 1::2]
    return jnp.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)


def _moving_average(xs: jax.Array) -> Tree:
    return lax.scan(lambda h, x: (0.9 * h + 0.1 * x, h), jnp.zeros(xs.shape[1:]), xs)[1]


def _state_space(x: jax.Array, dt: jax.Array, a: jax.Array, b: jax.Array, c: jax.Array) -> Tree:
    """A selective state space model: rows of x and dt are channels, those of b and c states."""

    def step(h: jax.Array, row: Tree) -> Tree:
        x, dt, b, c = row
        h = jnp.exp(dt[:, None] * a) * h + (dt * x)[:, None] * b
        return h, (h * c).sum(-1)

    return lax.scan(step, jnp.zeros(a.shape), (x, dt, b, c))[1]


def _heat(x: jax.Array) -> Tree:
    """Steps of a stencil: each point of the grid needs its neighbours."""

    def step(_: int, x: jax.Array) -> jax.Array:
        return x + 0.1 * (jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1) - 4 * x)

    return lax.fori_loop(0, 20, step, x)


def _filtered(x: jax.Array, w: jax.Array) -> jax.Array:
    labels, groups = ("NHWC", "HWIO", "NHWC"), x.shape[-1]
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=labels, feature_group_count=groups)


def _recurrent_gradient(xs: jax.Array, w: jax.Array, u: jax.Array) -> Tree:
    def loss(w: jax.Array, u: jax.Array) -> jax.Array:
        return (lax.scan(lambda h, x: (jnp.tanh(x @ w + h @ u), h), jnp.zeros(xs.shape[1:]), xs)[1] ** 2).sum()

    return jax.grad(loss, argnums=(0, 1))(w, u)


def _f32(*dims: int) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(dims, jnp.float32)  # type: ignore[no-untyped-call]  # JAX has no types here


def _window(x: Tree, start: float, combine: Callable[..., Tree], first: int = 1) -> Tree:
    """Windows of 3x3, two apart, over two dimensions from the first of them on."""
    moved = [d in (first, first + 1) for d in range(4)]
    sizes, strides, padding = ([there if m else still for m in moved] for there, still in ((3, 1), (2, 1), (1, 0)))
    return lax.reduce_window(x, start, combine, sizes, strides, [(n, n) for n in padding])


def _indices(count: int) -> ShapeDtypeStruct:
    return ShapeDtypeStruct((count,), jnp.int32)  # type: ignore[no-untyped-call]


def _layer_norm(x: Tree, scale: Tree, offset: Tree) -> Tree:
    from_mean = x - x.mean(-1, keepdims=True)
    return from_mean * lax.rsqrt((from_mean**2).mean(-1, keepdims=True) + 1e-5) * scale + offset


def _rope(x: Tree, cosine: Tree, sine: Tree) -> Tree:
    """Rotary embeddings of positions: pairs of halves, turned."""
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * cosine - b * sine, b * cosine + a * sine], -1)


def _bf16(*dims: int) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(dims, jnp.bfloat16)  # type: ignore[no-untyped-call]


KEY = ShapeDtypeStruct((2,), jnp.uint32)  # type: ignore[no-untyped-call]
ROWS = _f32(4096, 1024)
IMAGES = _f32(8, 112, 112, 64)
HEADS = _f32(8, 512, 12, 64)

OPERATIONS: dict[str, Model] = {
    "add": (lambda x, y: x + y, (ROWS, ROWS)),
    "gelu": (lambda x: nn.gelu(x, approximate=True), (ROWS,)),
    "convert_bf16": (lambda x: x.astype(jnp.bfloat16), (ROWS,)),
    "add_row": (lambda x, b: x + b, (ROWS, _f32(1024))),
    "add_column": (lambda x, b: x + b[:, None], (ROWS, _f32(4096))),
    "sum_rows": (lambda x: x.sum(1), (ROWS,)),
    "sum_columns": (lambda x: x.sum(0), (ROWS,)),
    "sum_all": (lambda x: x.sum(), (ROWS,)),
    "argmax_rows": (lambda x: jnp.argmax(x, 1), (ROWS,)),
    "argmax_logits": (lambda x: jnp.argmax(x, 1), (_f32(8, 50257),)),
    "sum_images": (lambda x: x.sum((0, 1, 2)), (IMAGES,)),
    "moments_images": (lambda x: (x.mean((0, 1, 2)), (x * x).mean((0, 1, 2))), (IMAGES,)),
    "max_pool": (lambda x: _window(x, -jnp.inf, lax.max), (IMAGES,)),
    "max_pool_gradient": (
        lambda x, d: vjp(lambda y: _window(y, -jnp.inf, lax.max), x)[1](d)[0],
        (IMAGES, _f32(8, 56, 56, 64)),
    ),
    "max_pool_nchw": (lambda x: _window(x, -jnp.inf, lax.max, 2), (_f32(8, 64, 112, 112),)),
    "max_pool_nchw_gradient": (
        lambda x, d: vjp(lambda y: _window(y, -jnp.inf, lax.max, 2), x)[1](d)[0],
        (_f32(8, 64, 112, 112), _f32(8, 64, 56, 56)),
    ),
    "average_pool": (lambda x: _window(x, 0.0, lax.add), (IMAGES,)),
    "cumsum_columns": (lambda x: jnp.cumsum(x, 0), (ROWS,)),
    "cumsum_rows": (lambda x: jnp.cumsum(x, 1), (ROWS,)),
    "cumsum_line": (lambda x: jnp.cumsum(x), (_f32(4 << 20),)),
    "cumsum_short_line": (lambda x: jnp.cumsum(x), (_f32(4000),)),
    "filter": (_filtered, (_f32(8, 256, 256, 1), _f32(3, 3, 1, 1))),
    "depthwise_weights": (
        lambda x, w, d: vjp(partial(_filtered, x), w)[1](d)[0],
        (_f32(8, 28, 28, 96), _f32(3, 3, 1, 96), _f32(8, 28, 28, 96)),
    ),
    "moving_average": (_moving_average, (_f32(1000, 512),)),
    "heat": (_heat, (_f32(512, 512),)),
    "state_space": (_state_space, (_f32(256, 64), _f32(256, 64), _f32(64, 16), _f32(256, 16), _f32(256, 16))),
    "recurrent_gradient": (_recurrent_gradient, (_f32(64, 16, 256), _f32(256, 256), _f32(256, 256))),
    "random_bits": (lambda k: jax.random.bits(jax.random.wrap_key_data(k), (4096, 4096)), (KEY,)),
    "dropout": (_dropout, (KEY, ROWS)),
    "transpose": (lambda x: x.T, (ROWS,)),
    "transpose_bf16": (lambda x: x.T, (ShapeDtypeStruct((4096, 2048), jnp.bfloat16),)),  # type: ignore[no-untyped-call]
    "transpose_heads": (lambda x: x.transpose(0, 2, 1, 3), (HEADS,)),
    "transpose_keys": (lambda x: x.transpose(0, 2, 3, 1), (HEADS,)),
    "concatenate_rows": (lambda x, y: jnp.concatenate([x, y]), (ROWS, ROWS)),
    "concatenate_columns": (lambda x, y: jnp.concatenate([x, y], 1), (ROWS, ROWS)),
    "pad": (lambda x: jnp.pad(x, ((1, 1), (1, 1))), (ROWS,)),
    "pad_interior": (lambda x: lax.pad(x, jnp.float32(0), ((0, 0, 0), (0, 0, 1))), (_f32(4096, 512),)),
    "slice": (lambda x: x[:, 100:900], (ROWS,)),
    "slice_strided": (lambda x: x[::2], (ROWS,)),
    "reverse": (lambda x: x[:, ::-1], (ROWS,)),
    "broadcast": (lambda x: jnp.broadcast_to(x, (4096, 1024)), (_f32(1024),)),
    "reshape": (lambda x: x.reshape(1024, 4096) + 1.0, (ROWS,)),
    "dynamic_slice": (
        lambda x, i: lax.dynamic_slice(x, (i, 0), (2048, 1024)),
        (ROWS, ShapeDtypeStruct((), jnp.int32)),  # type: ignore[no-untyped-call]
    ),
    "gather_rows": (lambda x, i: jnp.take(x, i, 0, mode="clip"), (_f32(50257, 768), _indices(100_000))),
    "scatter_add_rows": (
        lambda x, i, u: x.at[i].add(u),
        (_f32(100_000, 128), _indices(100_000), _f32(100_000, 128)),
    ),
    "layer_norm_gradient": (
        lambda x, g, b, d: vjp(_layer_norm, x, g, b)[1](d),
        (ROWS, _f32(1024), _f32(1024), ROWS),
    ),
    "distances": (lambda x: ((x[:, None] - x[None]) ** 2).sum(-1), (_f32(512, 64),)),
    "group_norm": (_group_norm, (_f32(8, 32, 32, 128),)),
    "rope_pairs": (_rope_pairs, (_f32(2, 512, 16, 64), _f32(512, 1, 32), _f32(512, 1, 32))),
    "rope": (_rope, (_f32(4, 16, 1024, 128), _f32(1024, 64), _f32(1024, 64))),
    "causal_mask": (lambda x: jnp.where(jnp.tril(jnp.ones(x.shape, bool)), x, -1e9), (_f32(4, 1024, 1024),)),
    "softmax_top_k": (lambda x: lax.top_k(nn.softmax(x), 8), (ROWS,)),
    "gather_dot": (
        lambda t, i, w: jnp.take(t, i, 0, mode="clip") @ w,
        (_bf16(50257, 1024), _indices(4096), _bf16(1024, 1024)),
    ),
    "dot_scatter_add": (
        lambda t, i, x, w: t.at[i].add(x @ w),
        (_f32(50257, 1024), _indices(4096), _f32(4096, 1024), _f32(1024, 1024)),
    ),
    "segment_sum": (lambda x, s: jnp.zeros(128).at[s].add(x), (_f32(1 << 20), _indices(1 << 20))),
    "scatter_add_unique_rows": (
        lambda x, i, u: x.at[i].add(u, unique_indices=True),
        (_f32(100_000, 128), _indices(100_000), _f32(100_000, 128)),
    ),
    "fft": (jnp.fft.fft, (ShapeDtypeStruct((1 << 16,), jnp.complex64),)),  # type: ignore[no-untyped-call]
    "cholesky": (lambda x: jnp.linalg.cholesky(x @ x.T + 1024 * jnp.eye(1024)), (_f32(1024, 1024),)),
    "lu": (lambda x: lax.linalg.lu(x)[:2], (_f32(1024, 1024),)),
    "qr": (jnp.linalg.qr, (_f32(1024, 1024),)),
    "sort_integers": (jnp.sort, (_indices(1 << 20),)),
    "sort_line": (jnp.sort, (_f32(1 << 20),)),
    "sort_rows": (jnp.sort, (_f32(1024, 1024),)),
    "top_k": (lambda x: lax.top_k(x, 64), (_f32(1 << 20),)),
    "dynamic_update_slice": (
        lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 0)),
        (ROWS, _f32(1024, 1024), ShapeDtypeStruct((), jnp.int32)),  # type: ignore[no-untyped-call]
    ),
}
