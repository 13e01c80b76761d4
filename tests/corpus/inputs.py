"""Arguments for the modules here whose weights are too large to store.

    python inputs.py resnet50_infer_224 args.npz        # arg0, arg1, ... in parameter order

Plain numpy; the same numbers on every machine (legacy RandomState streams are frozen).
"""

import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]


class Draw:
    """Normal draws from one seeded stream."""

    def __init__(self, seed: int) -> None:
        self.rs = np.random.RandomState(seed)

    def __call__(self, *shape: int, scale: float = 1.0, dtype: DTypeLike = np.float32) -> Array:
        return np.asarray(self.rs.randn(*shape) * scale).astype(dtype)


def leaves(tree: object) -> list[Array]:
    """Flatten dicts by sorted key, lists and tuples in order: JAX's pytree order."""
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key])]
    if isinstance(tree, list | tuple):
        return [leaf for item in tree for leaf in leaves(item)]
    return [np.asarray(tree)]


def resnet(draw: Draw, depth: int, classes: int, size: int) -> object:
    """He-initialised ResNet-18 or -50 with inference batch norm, and one NHWC image."""

    def norm(c: int) -> dict[str, Array]:
        mean, variance = draw(c, scale=0.1), np.abs(draw(c)) + 0.5
        return {"m": mean, "v": variance, "g": np.abs(draw(c, scale=0.1)) + 0.9, "b": draw(c, scale=0.1)}

    def kernel(k: int, i: int, o: int) -> Array:
        return draw(k, k, i, o, scale=float(np.sqrt(2 / (k * k * i))))

    blocks = {18: [2, 2, 2, 2], 50: [3, 4, 6, 3]}[depth]
    params: dict[str, object] = {"stem": kernel(7, 3, 64), "sbn": norm(64)}
    channels, body = 64, []
    for stage, count in enumerate(blocks):
        width = 64 * 2**stage
        for index in range(count):
            stride = 2 if index == 0 and stage > 0 else 1
            out = width if depth == 18 else 4 * width
            # (size, channels in, channels out) of each convolution on the way through the block
            convolutions = (
                [(3, channels, width), (3, width, width)]
                if depth == 18
                else [(1, channels, width), (3, width, width), (1, width, out)]
            )
            block: dict[str, object] = {}
            for number, (k, i, o) in enumerate(convolutions, start=1):
                block[f"w{number}"] = kernel(k, i, o)
                block[f"n{number}"] = norm(o)
            if stride != 1 or channels != out:
                block["wd"] = kernel(1, channels, out)
                block["nd"] = norm(out)
            body.append(block)
            channels = out
    params["blk"] = body
    params["fc"] = (draw(channels, classes, scale=0.02), draw(classes, scale=0.02))
    return params, draw(1, size, size, 3)


def transformer(draw: Draw, dtype: DTypeLike = np.float32) -> dict[str, Array]:
    """Weights of one 768-wide, 12-head, 3072-hidden transformer block."""
    d, f = 768, 3072

    def q(*shape: int) -> Array:
        return draw(*shape, scale=0.02).astype(dtype)

    # The order of the draws is part of the numbers.
    return {
        "wqkv": q(d, 3 * d),
        "bqkv": q(3 * d),
        "wo": q(d, d),
        "bo": q(d),
        "g1": np.ones(d, dtype),
        "b1": q(d),
        "g2": np.ones(d, dtype),
        "b2": q(d),
        "w1": q(d, f),
        "c1": q(f),
        "w2": q(f, d),
        "c2": q(d),
    }


def bert(draw: Draw) -> object:
    """One BERT-base layer's weights, 128 tokens, and a mask that hides the last 28."""
    mask = np.zeros((1, 128), np.float32)
    mask[:, 100:] = -1e9
    return transformer(draw), draw(1, 128, 768), mask


CASES: dict[str, Callable[[Draw], object]] = {
    "resnet18_infer_32_small": lambda d: resnet(d, 18, 10, 32),
    "resnet18_infer_224": lambda d: resnet(d, 18, 1000, 224),
    "resnet50_infer_224": lambda d: resnet(d, 50, 1000, 224),
    "bert_base_layer": bert,
    "gpt2_block": lambda d: (transformer(d), d(1, 128, 768)),
    "gpt2_block_bf16": lambda d: (transformer(d, ml_dtypes.bfloat16), d(1, 128, 768, dtype=ml_dtypes.bfloat16)),
}


def arguments(name: str) -> list[Array]:
    """The module's arguments in parameter order, bf16 as its bits in uint16."""
    args = leaves(CASES[name](Draw(sum(map(ord, name)))))
    return [a.view(np.uint16) if a.dtype == ml_dtypes.bfloat16 else a for a in args]


def main(name: str, path: str) -> None:
    """Write the module's arguments to an .npz file."""
    if name not in CASES:
        sys.exit(f"{name}: its arguments are stored beside it, or it has none; this makes {', '.join(sorted(CASES))}")
    arrays: dict[str, Any] = {f"arg{i}": a for i, a in enumerate(arguments(name))}
    np.savez(path, **arrays)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
