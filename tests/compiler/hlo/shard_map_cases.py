"""Functions under `jax.shard_map`: the module that JAX prints before partitioning, and results of XLA's CPU backend.

Run as a process of its own (`shard_maps`): the number of devices is fixed when XLA starts.
"""

import importlib
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.compiler.hlo.device_oracle import Array, run_module


@dataclass(frozen=True)
class Lowered:
    """A module's text, its arguments and its results, all of them global arrays."""

    name: str
    text: str
    arguments: list[Array]
    results: list[Array]


def shard_maps(shardy: bool) -> list[Lowered]:
    """All cases, lowered for the Shardy partitioner or for the one before it."""
    found: list[Lowered] = run_module(
        "tests.compiler.hlo.shard_map_cases", None, JAX_USE_SHARDY_PARTITIONER=str(shardy)
    )
    return found


def _cases() -> list[tuple[str, Callable[..., Any], tuple[Any, ...], tuple[Any, ...], tuple[Array, ...], set[str]]]:
    """Name, function, specifications of arguments and results, arguments, axes it is for; the mesh is a=2 x b=4."""
    jax: Any = importlib.import_module("jax")
    lax, spec = jax.lax, jax.sharding.PartitionSpec
    rng = np.random.default_rng(0)
    x = rng.integers(-8, 8, (32, 4)).astype(np.float32)
    y = rng.integers(-8, 8, (16, 2)).astype(np.float32)

    def everything(x: Any, y: Any) -> Any:
        ring = [(0, 1), (1, 2), (3, 3)]
        return (
            lax.psum(x, "a") + lax.axis_index("b"),
            lax.all_gather(y, ("a", "b"), tiled=True),
            lax.ppermute(x, "b", ring),
            lax.all_to_all(y, "b", 0, 0, tiled=True),
            lax.psum_scatter(x, "b", tiled=True),
        )

    def loop(x: Any) -> Any:
        trips = lax.axis_index("a") * 2 + 1
        local = lax.while_loop(lambda s: s[0] < trips, lambda s: (s[0] + 1, s[1] * 2), (0, x))[1]
        return lax.fori_loop(0, 3, lambda n, s: lax.pmax(s, "b") - n, local)

    def branch(x: Any) -> Any:
        return lax.cond(lax.axis_index("a") == 0, lambda x: lax.psum(x, "b"), lambda x: lax.psum(2 * x, "b") + 1, x)

    def partial(x: Any) -> Any:
        return lax.all_gather(lax.psum(x, "a") - x, "a", axis=1, tiled=True)

    over, both = spec(("a", "b")), {"a", "b"}
    return [
        ("everything", everything, (over, spec("b", "a")),
         (spec("b"), spec(), spec(("b", "a")), spec("b", "a"), over), (x, y), both),
        ("loop", loop, (over,), (over,), (x,), both),
        ("branch", branch, (over,), (over,), (x,), both),
        ("partial", partial, (spec("a"),), (spec(None, "a"),), (x,), {"a"}),
    ]  # fmt: skip


def lower_and_run() -> list[Lowered]:
    """All cases, in a process that has 8 devices."""
    jax: Any = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", False)
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("a", "b"))
    found = []
    for name, function, inputs, outputs, arguments, axes in _cases():
        if axes != {"a", "b"} and not jax.config.jax_use_shardy_partitioner:
            continue  # the partitioner before Shardy aborts on a mesh that is for some axes only
        out = outputs if len(outputs) > 1 else outputs[0]
        over = {"mesh": mesh, "in_specs": inputs, "out_specs": out, "axis_names": axes, "check_vma": False}
        mapped = jax.jit(jax.shard_map(function, **over))
        text = mapped.lower(*arguments).compiler_ir("hlo").as_hlo_text(print_large_constants=True)
        results = [np.asarray(r) for r in jax.tree.leaves(mapped(*arguments))]
        found.append(Lowered(name, text, [np.asarray(a) for a in arguments], results))
    return found


if __name__ == "__main__":
    # By its own name: a script's definitions cannot be read back elsewhere.
    cases: Any = importlib.import_module("tests.compiler.hlo.shard_map_cases")
    sys.stdout.buffer.write(pickle.dumps(cases.lower_and_run()))
