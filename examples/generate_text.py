"""Generate tokens with a model of GPT-2's shape and random weights; plain JAX that knows nothing of systolith.

    JAX_PLATFORMS=systolith python generate_text.py 7 11 13      # token ids of the prompt
    JAX_PLATFORMS=systolith python generate_text.py --layers 12 --heads 12 --width 768 --vocabulary 50257  # GPT-2 small

The prompt goes through the model at once; then each token goes alone, with the keys and values of those before it in a
cache, whose memory every step takes over (`donate_argnums`).
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp


def parameters(key, layers, width, vocabulary, context):
    """Random weights: matrices of standard deviation 0.02 as in GPT-2, those of a block stacked by layer."""
    shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    keys = iter(jax.random.split(key, len(shapes) + 2))
    blocks = {name: 0.02 * jax.random.normal(next(keys), (layers, *shape)) for name, shape in shapes.items()}
    blocks |= {f"{name}_bias": jnp.zeros((layers, shape[1])) for name, shape in shapes.items()}
    blocks |= {f"norm{n}": jnp.stack([jnp.ones((layers, width)), jnp.zeros((layers, width))], 1) for n in (1, 2)}
    return {
        "tokens": 0.02 * jax.random.normal(next(keys), (vocabulary, width)),
        "positions": 0.02 * jax.random.normal(next(keys), (context, width)),
        "blocks": blocks,
        "norm": jnp.stack([jnp.ones(width), jnp.zeros(width)]),
    }


def normalize(x, norm):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * norm[0] + norm[1]


def attention(x, block, cache, start, heads):
    """Of the tokens `x` from position `start`, to all up to each; the cache with theirs."""
    count, width = x.shape
    q, k, v = (part.reshape(count, heads, -1) for part in jnp.split(x @ block["qkv"] + block["qkv_bias"], 3, 1))
    cache = jax.lax.dynamic_update_slice(cache, jnp.stack([k, v]), (0, start, 0, 0))
    keys, values = cache
    scores = jnp.einsum("qhd,khd->hqk", q, keys) * (width // heads) ** -0.5
    seen = jnp.arange(keys.shape[0]) <= start + jnp.arange(count)[:, None]
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf))
    mixed = jnp.einsum("hqk,khd->qhd", weights, values).reshape(count, width)
    return mixed @ block["out"] + block["out_bias"], cache


def forward(weights, cache, ids, start, heads):
    """Logits after the last of the tokens `ids` from position `start`, and the cache with their keys and values."""
    positions = jax.lax.dynamic_slice_in_dim(weights["positions"], start, len(ids))

    def layer(x, block_and_cache):
        block, cache = block_and_cache
        mixed, cache = attention(normalize(x, block["norm1"]), block, cache, start, heads)
        x = x + mixed
        hidden = jax.nn.gelu(normalize(x, block["norm2"]) @ block["up"] + block["up_bias"])
        return x + hidden @ block["down"] + block["down_bias"], cache

    x, cache = jax.lax.scan(layer, weights["tokens"][ids] + positions, (weights["blocks"], cache))
    return normalize(x[-1], weights["norm"]) @ weights["tokens"].T, cache


def sample(key, logits, temperature, top):
    """A token of the `top` likeliest ones."""
    best, ids = jax.lax.top_k(logits, top)
    return ids[jax.random.categorical(key, best / temperature)]


@partial(jax.jit, static_argnames=("heads", "top"), donate_argnums=1)
def step(weights, cache, ids, start, key, temperature, heads, top):
    """The token after `ids`, and the cache with these."""
    logits, cache = forward(weights, cache, ids, start, heads)
    return sample(key, logits, temperature, top), cache


def generate(weights, prompt, options):
    """The tokens after a prompt, one at a time."""
    layers, _, width = weights["blocks"]["out"].shape
    cache = jnp.zeros((layers, 2, options.context, options.heads, width // options.heads))
    ids, start = jnp.array(prompt), 0
    for key in jax.random.split(jax.random.key(options.seed + 1), options.count):
        token, cache = step(weights, cache, ids, start, key, options.temperature, heads=options.heads, top=options.top)
        start += len(ids)
        ids = token[None]
        yield int(token)


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompt", type=int, nargs="*", default=[1, 2, 3, 5, 8, 13], help="token ids")
    parser.add_argument("--count", type=int, default=8, help="tokens to generate")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=512)
    parser.add_argument("--context", type=int, default=64, help="longest sequence")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top", type=int, default=40, help="sample from so many of the likeliest tokens")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(words)
    if len(options.prompt) + options.count - 1 > options.context:
        parser.error(f"prompt and tokens need a context of {len(options.prompt) + options.count - 1}")
    if not all(0 <= token < options.vocabulary for token in options.prompt):
        parser.error(f"token ids are 0 to {options.vocabulary - 1}")
    if options.width % options.heads or options.top > options.vocabulary:
        parser.error("heads must divide the width, and top be at most the vocabulary")
    return options


def main():
    options = arguments()
    weights = parameters(
        jax.random.key(options.seed), options.layers, options.width, options.vocabulary, options.context
    )
    print(f"on {jax.devices()[0]}; prompt {options.prompt}")
    print(*generate(weights, options.prompt, options))


if __name__ == "__main__":
    main()
