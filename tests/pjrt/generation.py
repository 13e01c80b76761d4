"""The example that generates text: the same tokens and logits on the chip, on the CPU, and without a cache."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

example = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[2] / "examples" / "generate_text.py")))
options = example.arguments(
    "7 11 13 --count 4 --layers 2 --heads 2 --width 16 --vocabulary 48 --context 16 --top 8".split()
)
shape = (options.layers, 2, options.context, options.heads, options.width // options.heads)
forward = jax.jit(example.forward, static_argnames="heads")

tokens, logits = {}, {}
for platform in ("systolith", "cpu"):
    with jax.default_device(jax.devices(platform)[0]):
        weights = example.parameters(
            jax.random.key(0), options.layers, options.width, options.vocabulary, options.context
        )
        tokens[platform] = list(example.generate(weights, options.prompt, options))
        ids = jnp.array(options.prompt + tokens[platform][:1])
        prompt, cache = forward(weights, jnp.zeros(shape), ids[:-1], 0, heads=options.heads)
        last, _ = forward(weights, cache, ids[-1:], len(ids) - 1, heads=options.heads)
        whole, _ = forward(weights, jnp.zeros(shape), ids, 0, heads=options.heads)
        np.testing.assert_allclose(last, whole, rtol=1e-4, atol=1e-6)
        assert np.abs(np.asarray(prompt) - np.asarray(last)).max() > 1e-3
        logits[platform] = np.asarray(last)

assert len(tokens["cpu"]) == options.count
assert tokens["systolith"] == tokens["cpu"], tokens
np.testing.assert_allclose(logits["systolith"], logits["cpu"], rtol=1e-4, atol=1e-6)
print("good")
