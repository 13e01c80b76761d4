"""Functions of sharded arrays: their modules after XLA's partitioner and CPU compiler, and their results.

Run as a process of its own (`partitioned`): the number of devices is fixed when XLA starts.
"""

import importlib
import pickle
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.compiler.hlo.device_oracle import Array, run_module


@dataclass(frozen=True)
class Partitioned:
    """An optimized module, and for each of its arguments and results the piece of every device."""

    name: str
    text: str
    arguments: list[list[Array]]
    results: list[list[Array]]


def partitioned() -> list[Partitioned]:
    """All cases."""
    found: list[Partitioned] = run_module("tests.compiler.hlo.partitioned_cases", None, JAX_ENABLE_X64="0")
    return found


def _cases() -> list[tuple[str, Any, list[tuple[Any, ...]], list[Array], list[tuple[Any, ...]]]]:
    """Name, function, axes of the mesh (a=2 x b=4) over which arguments are cut, arguments, and axes of results."""
    jax: Any = importlib.import_module("jax")
    jnp, lax = jax.numpy, jax.lax
    rng = np.random.default_rng(0)

    def floats(*sizes: int) -> Array:
        return rng.standard_normal(sizes).astype(np.float32)

    def halo(x: Any, k: Any) -> Any:
        return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def scan(x: Any) -> Any:
        return lax.scan(lambda c, y: (c * 0.5 + y, jnp.sum(c, axis=0)), jnp.zeros((8, 8)), x)

    def loop(x: Any) -> Any:
        return lax.while_loop(lambda s: jnp.sum(s) < 1000, lambda s: s * 1.5, jnp.abs(x))

    def loss(w: Any, v: Any, x: Any) -> Any:
        return jnp.sum(jnp.tanh(x @ w) @ v)

    rows = rng.integers(0, 16, 8).astype(np.int32)
    return [
        ("contraction", lambda x, y: x @ y, [("a", "b"), ("b",)], [floats(16, 32), floats(32, 8)], [("a",)]),
        ("product", lambda x, y: x @ y, [(("a", "b"),), (None, ("a", "b"))], [floats(16, 32), floats(32, 16)],
         [("a", "b")]),
        ("gradient", jax.grad(loss, argnums=(0, 1)), [(None, "b"), ("b",), ("a",)],
         [floats(16, 32), floats(32, 8), floats(8, 16)], [(None, "b"), ("b", "a")]),
        ("softmax", lambda x: jax.nn.softmax(x, axis=-1), [("a", "b")], [floats(8, 16)], [("b", "a")]),
        ("halo", halo, [(None, "b", "a"), ()], [floats(2, 16, 8, 3), floats(3, 3, 3, 4)], [(None, "b", "a")]),
        ("roll", lambda x: jnp.roll(x, 3, axis=0) * jnp.roll(x, -1, axis=1), [("b", "a")], [floats(16, 8)],
         [("b", "a")]),
        ("sort", lambda x: jnp.sort(x, axis=0), [("b", "a")], [floats(16, 8)], [("b", "a")]),
        ("take", lambda x, i: x[i], [("b", "a"), ("a",)], [floats(16, 8), rows], [("a", "b")]),
        ("scatter", lambda x, i: jnp.zeros((16, 8)).at[i].add(x), [("a", "b"), ()], [floats(8, 8), rows], [("a", "b")]),
        ("scan", scan, [(None, "a")], [floats(4, 8, 8)], [("a",), (None, "b")]),
        ("reshape", lambda x: x.reshape(4, 32, 2), [("b", "a")], [floats(16, 16)], [("a", "b")]),
        ("pad", lambda x: jnp.pad(x, ((1, 2), (0, 3)))[1:17:2], [("b", "a")], [floats(16, 8)], [("a",)]),
        ("argmax", lambda x: (jnp.argmax(x, axis=1), jnp.max(x)), [("a", "b")], [floats(16, 8)], [("a",), ()]),
        ("loop", loop, [("a", "b")], [floats(16, 8)], [("a", "b")]),
    ]  # fmt: skip


def _pieces(array: Any) -> list[Array]:
    shards = sorted(array.addressable_shards, key=lambda shard: shard.device.id)
    return [np.asarray(shard.data) for shard in shards]


def compile_and_run() -> list[Partitioned]:
    """All cases, in a process that has 8 devices."""
    jax: Any = importlib.import_module("jax")
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("a", "b"))
    found = []
    for name, function, inputs, arrays, outputs in _cases():
        cut = [jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes)) for axes in (*inputs, *outputs)]
        into, out = tuple(cut[: len(inputs)]), tuple(cut[len(inputs) :])
        arguments = [jax.device_put(x, s) for x, s in zip(arrays, into, strict=True)]
        compiled = jax.jit(function, in_shardings=into, out_shardings=out if len(out) > 1 else out[0])
        compiled = compiled.lower(*arguments).compile()
        results = jax.tree.leaves(compiled(*arguments))
        found.append(Partitioned(name, compiled.as_text(), [*map(_pieces, arguments)], [*map(_pieces, results)]))
    return found


if __name__ == "__main__":
    # By its own name: a script's definitions cannot be read back elsewhere.
    cases: Any = importlib.import_module("tests.compiler.hlo.partitioned_cases")
    sys.stdout.buffer.write(pickle.dumps(cases.compile_and_run()))
