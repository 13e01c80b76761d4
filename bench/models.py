"""Models that the benchmarks compile: plain JAX, weights as arguments, functions with the shapes of their arguments.

Sources of the architectures: ResNet-50 (He et al., 2016, v1.5: the stride in the 3 x 3), BERT-base (Devlin et al.,
2019), GPT-2 small (Radford et al., 2019), an LSTM (Hochreiter and Schmidhuber, 1997).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import ShapeDtypeStruct, lax

Tree = Any
Model = tuple[Callable[..., Any], tuple[Tree, ...]]
"""A function, and the shapes of its arguments."""

Norm = Callable[[Tree, Tree], Tree]
Pool = Callable[[Tree], Tree]


def _shape(dtype: Any, *dims: int) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(dims, dtype)  # type: ignore[no-untyped-call]  # JAX has no types here


def _f32(*dims: int) -> ShapeDtypeStruct:
    return _shape(jnp.float32, *dims)


def _bf16(*dims: int) -> ShapeDtypeStruct:
    return _shape(jnp.bfloat16, *dims)


def gemm(m: int, k: int, n: int) -> Model:
    """A bf16 matrix product with a bf16 result."""
    return lambda a, b: a @ b, (_bf16(m, k), _bf16(k, n))


def linear(m: int, k: int, n: int) -> Model:
    """A layer of f32 whose weights lie as [n, k]: a transpose, then a product."""
    return lambda x, w: x @ w.T, (_f32(m, k), _f32(n, k))


@dataclass(frozen=True)
class Conv:
    """A convolution layer, NHWC and HWIO.

    Attributes:
        size: height and width of the input.
        kernel, stride: of the window; the padding is (kernel - 1) / 2.
        groups: feature groups.
    """

    batch: int
    size: int
    channels: int
    features: int
    kernel: int
    stride: int = 1
    groups: int = 1


def conv(layer: Conv) -> Model:
    """An f32 convolution at default precision."""

    def apply(x: Tree, w: Tree) -> Tree:
        return _conv(x, w, layer.stride, layer.groups)

    inputs = _f32(layer.batch, layer.size, layer.size, layer.channels)
    return apply, (inputs, _f32(layer.kernel, layer.kernel, layer.channels // layer.groups, layer.features))


def weight_gradient(layer: Conv) -> Model:
    """The gradient of a convolution's weights, from its input and the gradient of its result."""

    def apply(x: Tree, result: Tree) -> Tree:
        (made,) = jax.vjp(lambda w: _conv(x, w, layer.stride), jnp.zeros(weights.shape, weights.dtype))[1](result)
        return made

    forward, (inputs, weights) = conv(layer)
    return apply, (inputs, jax.eval_shape(forward, inputs, weights))


def _conv(x: Tree, w: Tree, stride: int = 1, groups: int = 1) -> Tree:
    pad = (w.shape[0] - 1) // 2
    return lax.conv_general_dilated(
        x,
        w,
        (stride, stride),
        ((pad, pad), (pad, pad)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def resnet50_layers(batch: int) -> dict[str, Conv]:
    """Every different convolution of ResNet-50, by a name such as `56x56_64_256_k1`."""
    layers = [Conv(batch, 224, 3, 64, 7, 2)]
    size, channels = 56, 64
    for stage in range(4):
        width, stride = 64 << stage, 1 if stage == 0 else 2
        layers += [Conv(batch, size, channels, width, 1), Conv(batch, size, width, width, 3, stride)]
        layers += [Conv(batch, size, channels, 4 * width, 1, stride)]
        size //= stride
        layers += [Conv(batch, size, width, 4 * width, 1), Conv(batch, size, 4 * width, width, 1)]
        layers += [Conv(batch, size, width, width, 3)]
        channels = 4 * width
    return {f"{c.size}x{c.size}_{c.channels}_{c.features}_k{c.kernel}s{c.stride}": c for c in layers}


GIVEN = ("mean", "var", "scale", "bias")
"""Parameters of batch norm with given statistics."""

TRAINED = ("scale", "bias")
"""Parameters of batch norm that are trained."""


def _norm_shapes(channels: int, names: tuple[str, ...]) -> Tree:
    return {name: _f32(channels) for name in names}


def _batch_norm(x: Tree, p: Tree) -> Tree:
    return (x - p["mean"]) * (p["scale"] * lax.rsqrt(p["var"] + 1e-5)) + p["bias"]


def _train_norm(x: Tree, p: Tree) -> Tree:
    mean = jnp.mean(x, axis=(0, 1, 2))
    variance = jnp.mean(jnp.square(x - mean), axis=(0, 1, 2))
    return _batch_norm(x, {**p, "mean": mean, "var": variance})


def _residual_blocks(counts: tuple[int, ...]) -> list[tuple[str, int, dict[str, tuple[int, int, int]]]]:
    """Name, stride, and kernels (size, channels, features) of each block of a network of bottleneck blocks."""
    found, channels = [], 64
    for stage, count in enumerate(counts):
        width = 64 << stage
        for index in range(count):
            kernels = {"w1": (1, channels, width), "w2": (3, width, width), "w3": (1, width, 4 * width)}
            if index == 0:
                kernels["wd"] = (1, channels, 4 * width)
            found.append((f"block{stage}_{index}", 2 if index == 0 and stage else 1, kernels))
            channels = 4 * width
    return found


def _residual_params(counts: tuple[int, ...], norm: tuple[str, ...]) -> Tree:
    params: dict[str, Any] = {"stem": _f32(7, 7, 3, 64), "stem_norm": _norm_shapes(64, norm)}
    for name, _, kernels in _residual_blocks(counts):
        params[name] = {key: _f32(k, k, i, o) for key, (k, i, o) in kernels.items()}
        params[name] |= {f"n{key[1]}": _norm_shapes(o, norm) for key, (_, _, o) in kernels.items()}
    return params | {"head": _f32(128 << len(counts), 1000), "head_bias": _f32(1000)}


def _residual(p: Tree, x: Tree, counts: tuple[int, ...], norm: Norm, pool: Pool) -> Tree:
    """Logits of a network of bottleneck blocks."""

    def block(x: Tree, p: Tree, stride: int) -> Tree:
        y = jax.nn.relu(norm(_conv(x, p["w1"]), p["n1"]))
        y = jax.nn.relu(norm(_conv(y, p["w2"], stride), p["n2"]))
        y = norm(_conv(y, p["w3"]), p["n3"])
        shortcut = norm(_conv(x, p["wd"], stride), p["nd"]) if "wd" in p else x
        return jax.nn.relu(y + shortcut)

    x = pool(jax.nn.relu(norm(_conv(x, p["stem"], 2), p["stem_norm"])))
    for name, stride, _ in _residual_blocks(counts):
        x = block(x, p[name], stride)
    return jnp.mean(x, axis=(1, 2)) @ p["head"] + p["head_bias"]


_POOL = ((1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
"""Window, strides and padding of the pooling after the first convolution."""

RESNET50 = (3, 4, 6, 3)
"""Blocks of each stage."""


def resnet50(batch: int) -> Model:
    """Logits of f32 images; batch norm with given statistics."""

    def pool(x: Tree) -> Tree:
        return lax.reduce_window(x, -jnp.inf, lax.max, *_POOL)

    def apply(p: Tree, x: Tree) -> Tree:
        return _residual(p, x, RESNET50, _batch_norm, pool)

    return apply, (_residual_params(RESNET50, GIVEN), _f32(batch, 224, 224, 3))


def resnet_train(batch: int, size: int = 224, counts: tuple[int, ...] = RESNET50) -> Model:
    """A step of gradient descent: batch norm with the batch's statistics, average pooling, one-hot labels."""

    def pool(x: Tree) -> Tree:
        return lax.reduce_window(x, 0.0, lax.add, *_POOL) / 9

    def loss(p: Tree, x: Tree, labels: Tree) -> Tree:
        return -jnp.mean(jnp.sum(labels * jax.nn.log_softmax(_residual(p, x, counts, _train_norm, pool)), axis=-1))

    def step(p: Tree, x: Tree, labels: Tree) -> Tree:
        value, gradient = jax.value_and_grad(loss)(p, x, labels)
        return value, jax.tree.map(lambda w, g: w - 0.1 * g, p, gradient)

    return step, (_residual_params(counts, TRAINED), _f32(batch, size, size, 3), _f32(batch, 1000))


def layer_norm(x: Tree, scale: Tree, bias: Tree) -> Tree:
    """Over the last dimension."""
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), axis=-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias


def attention(q: Tree, k: Tree, v: Tree, mask: Tree | None = None) -> Tree:
    """Of [batch, heads, length, depth]; where `mask` is false nothing is attended to."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / (q.shape[-1] ** 0.5)
    if mask is not None:
        scores = jnp.where(mask, scores, -1e9)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), v)


HEADS, WIDTH, LAYERS = 12, 768, 12


def _block_shapes() -> Tree:
    return {
        "qkv": _f32(WIDTH, 3 * WIDTH), "qkv_bias": _f32(3 * WIDTH),
        "out": _f32(WIDTH, WIDTH), "out_bias": _f32(WIDTH),
        "up": _f32(WIDTH, 4 * WIDTH), "up_bias": _f32(4 * WIDTH),
        "down": _f32(4 * WIDTH, WIDTH), "down_bias": _f32(WIDTH),
        "scale1": _f32(WIDTH), "bias1": _f32(WIDTH), "scale2": _f32(WIDTH), "bias2": _f32(WIDTH),
    }  # fmt: skip


def _heads(x: Tree) -> Tree:
    return x.reshape(*x.shape[:2], HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)


def _merged(x: Tree) -> Tree:
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], WIDTH)


def _qkv(x: Tree, p: Tree) -> list[Tree]:
    return [_heads(part) for part in jnp.split(x @ p["qkv"] + p["qkv_bias"], 3, axis=-1)]


def _mlp(x: Tree, p: Tree) -> Tree:
    return jax.nn.gelu(x @ p["up"] + p["up_bias"], approximate=True) @ p["down"] + p["down_bias"]


def bert(batch: int, length: int, layers: int = LAYERS) -> Model:
    """The encoder of BERT-base on embeddings, f32."""

    def apply(params: Tree, x: Tree) -> Tree:
        for p in params:
            y = _merged(attention(*_qkv(x, p))) @ p["out"] + p["out_bias"]
            x = layer_norm(x + y, p["scale1"], p["bias1"])
            x = layer_norm(x + _mlp(x, p), p["scale2"], p["bias2"])
        return x

    return apply, ([_block_shapes()] * layers, _f32(batch, length, WIDTH))


def gpt2_prefill(length: int, layers: int = LAYERS) -> Model:
    """The blocks of GPT-2 small on the embeddings of a prompt, f32; batch 1."""

    def apply(params: Tree, x: Tree) -> Tree:
        mask = jnp.tril(jnp.ones((length, length), bool))
        for p in params:
            q, k, v = _qkv(layer_norm(x, p["scale1"], p["bias1"]), p)
            x = x + _merged(attention(q, k, v, mask)) @ p["out"] + p["out_bias"]
            x = x + _mlp(layer_norm(x, p["scale2"], p["bias2"]), p)
        return x

    return apply, ([_block_shapes()] * layers, _f32(1, length, WIDTH))


VOCABULARY = 50257
"""Tokens that GPT-2 knows."""


def _adam(params: Tree, mean: Tree, square: Tree, count: Tree, gradient: Tree) -> Tree:
    """A step of Adam (Kingma and Ba, 2015), the one that has number `count`."""
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
    square = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, square, gradient)
    rate = 1e-4 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    return jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-8), params, mean, square), mean, square, count


def dense_adam(rows: int, inputs: int, outputs: int) -> Model:
    """The gradient of a layer's weights and a step of Adam with it, f32."""

    def step(p: Tree, mean: Tree, square: Tree, count: Tree, x: Tree, dy: Tree) -> Tree:
        return _adam(p, mean, square, count + 1, x.T @ dy)

    w = _f32(inputs, outputs)
    return step, (w, w, w, _f32(), _f32(rows, inputs), _f32(rows, outputs))


def gpt2_train(batch: int, length: int, layers: int = LAYERS) -> Model:
    """A step of Adam of GPT-2 small, f32: next tokens, the embedding shared with the output."""
    prefill, (blocks, _) = gpt2_prefill(length, layers)

    def loss(p: Tree, tokens: Tree) -> Tree:
        x = prefill(p["blocks"], p["tokens"][tokens] + p["positions"])
        logits = layer_norm(x, p["scale"], p["bias"]) @ p["tokens"].T
        scores = jax.nn.log_softmax(logits[:, :-1])
        return -jnp.mean(jnp.take_along_axis(scores, tokens[:, 1:, None], -1))

    def step(p: Tree, mean: Tree, square: Tree, count: Tree, tokens: Tree) -> Tree:
        return _adam(p, mean, square, count + 1, jax.grad(loss)(p, tokens))

    params = {
        "blocks": blocks,
        "tokens": _f32(VOCABULARY, WIDTH),
        "positions": _f32(length, WIDTH),
        "scale": _f32(WIDTH),
        "bias": _f32(WIDTH),
    }
    return step, (params, params, params, _f32(), _shape(jnp.int32, batch, length))


def gpt2_decode(context: int, layers: int = LAYERS) -> Model:
    """One token of GPT-2 small with a cache of `context` positions, all but the last of them filled; f32, batch 1."""

    def apply(params: Tree, caches: Tree, x: Tree, position: Tree) -> Tree:
        mask = jnp.arange(context) <= position
        updated = []
        for p, (keys, values) in zip(params, caches, strict=True):
            q, k, v = _qkv(layer_norm(x, p["scale1"], p["bias1"]), p)
            keys = lax.dynamic_update_slice(keys, k, (0, 0, position, 0))
            values = lax.dynamic_update_slice(values, v, (0, 0, position, 0))
            updated.append((keys, values))
            x = x + _merged(attention(q, keys, values, mask)) @ p["out"] + p["out_bias"]
            x = x + _mlp(layer_norm(x, p["scale2"], p["bias2"]), p)
        return x, updated

    cache = _f32(1, HEADS, context, WIDTH // HEADS)
    shapes = ([_block_shapes()] * layers, [(cache, cache)] * layers, _f32(1, 1, WIDTH))
    return apply, (*shapes, _shape(jnp.int32))


def lstm(batch: int, steps: int, width: int) -> Model:
    """An LSTM layer over a sequence, f32."""

    def apply(w: Tree, u: Tree, bias: Tree, xs: Tree) -> Tree:
        def step(state: Tree, x: Tree) -> Tree:
            h, c = state
            i, f, g, o = jnp.split(x @ w + h @ u + bias, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((batch, width), jnp.float32)
        return lax.scan(step, (zeros, zeros), xs)[1]

    return apply, (_f32(width, 4 * width), _f32(width, 4 * width), _f32(4 * width), _f32(steps, batch, width))


def softmax(rows: int, width: int) -> Model:
    """Over the last dimension, f32."""
    return lambda x: jax.nn.softmax(x, axis=-1), (_f32(rows, width),)


def group_norm(*dims: int) -> Model:
    """Of f32 [batch, height, width, groups, channels of a group]: mean and variance of each group."""

    def apply(x: Tree, scale: Tree, bias: Tree) -> Tree:
        mean = jnp.mean(x, axis=(1, 2, 4), keepdims=True)
        variance = jnp.mean(jnp.square(x - mean), axis=(1, 2, 4), keepdims=True)
        return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias

    return apply, (_f32(*dims), _f32(*dims[3:]), _f32(*dims[3:]))


def column_sum(*dims: int) -> Model:
    """f32, summed over all dimensions but the last."""
    return lambda x: jnp.sum(x, axis=tuple(range(x.ndim - 1))), (_f32(*dims),)


def norm(rows: int, width: int) -> Model:
    """Layer norm over the last dimension, f32."""
    return layer_norm, (_f32(rows, width), _f32(width), _f32(width))


def heads(batch: int, length: int) -> Model:
    """Attention with 12 heads of 64, f32."""
    x = _f32(batch, HEADS, length, WIDTH // HEADS)
    return attention, (x, x, x)


def heads_of_rows(batch: int, length: int, many: int) -> Model:
    """Attention with so many heads of 64, f32, of rows that a dense layer gives; queries get a bias and a scale before
    they are cut into heads, as Flax's do.
    """

    def apply(q: Tree, k: Tree, v: Tree, bias: Tree) -> Tree:
        q, k, v = (x.reshape(batch, length, many, 64) for x in ((q + bias) / 8, k, v))
        p = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k), axis=-1)
        return jnp.einsum("bhqk,bkhd->bqhd", p, v)

    x = _f32(batch, length, many * 64)
    return apply, (x, x, x, _f32(many * 64))


def heads_gradient(batch: int, length: int) -> Model:
    """Attention with 12 heads of 64 and its gradients, f32; what comes back depends on all that it gave."""

    def apply(q: Tree, k: Tree, v: Tree, w: Tree) -> Tree:
        made, back = jax.vjp(attention, q, k, v)
        return made, back(jnp.einsum("bhqd,de->bhqe", made, w))

    x, w = _f32(batch, HEADS, length, WIDTH // HEADS), _f32(WIDTH // HEADS, WIDTH // HEADS)
    return apply, (x, x, x, w)


def joined_heads_gradient(batch: int, length: int) -> Model:
    """The same where queries, keys and values are one array, whose gradient is summed over rows, as a bias needs it."""

    def heads(x: Tree) -> Tree:
        return _merged(attention(*map(_heads, jnp.split(x, 3, axis=-1))))

    def apply(x: Tree, w: Tree) -> Tree:
        made, back = jax.vjp(heads, x)
        (gradient,) = back(made @ w)
        return made, gradient, jnp.sum(gradient, axis=(0, 1))

    return apply, (_f32(batch, length, 3 * WIDTH), _f32(WIDTH, WIDTH))


def loss_train(rows: int, width: int, classes: int) -> Model:
    """The cross entropy of so many rows and its gradients, as optax has it for labels that are numbers."""

    def loss(x: Tree, w: Tree, labels: Tree) -> Tree:
        logs = jax.nn.log_softmax(x @ w)
        return -jnp.mean(jnp.take_along_axis(logs, labels[:, None], axis=-1))

    return jax.value_and_grad(loss, argnums=(0, 1)), (_f32(rows, width), _f32(width, classes), _shape(jnp.int32, rows))


def mlp_train(batch: int, width: int) -> Model:
    """A step of gradient descent of three layers of `width`, f32, squared error."""

    def loss(params: Tree, x: Tree, y: Tree) -> Tree:
        for w, bias in params:
            x = jax.nn.relu(x @ w + bias)
        return jnp.mean(jnp.square(x - y))

    def step(params: Tree, x: Tree, y: Tree) -> Tree:
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, jax.grad(loss)(params, x, y))

    return step, ([(_f32(width, width), _f32(width))] * 3, _f32(batch, width), _f32(batch, width))


def bert_train(batch: int, length: int, layers: int) -> Model:
    """Gradients of the parameters of BERT's encoder layers for squared error, and one step along them; f32."""
    forward, (params, x) = bert(batch, length, layers)

    def loss(p: Tree, x: Tree, y: Tree) -> Tree:
        return jnp.mean(jnp.square(forward(p, x) - y))

    def step(p: Tree, x: Tree, y: Tree) -> Tree:
        return jax.tree.map(lambda w, g: w - 0.01 * g, p, jax.grad(loss)(p, x, y))

    return step, (params, x, x)
