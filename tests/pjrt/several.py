"""Programs for several devices of which none needs another's values, against JAX on as many CPUs.

Prints a line for each that differs, and ends with 1 if there is one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"  # before JAX looks for devices

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from systolith.pjrt.plugin import initialize

A = np.arange(16, dtype=np.float32).reshape(4, 4) / 8
S = partial(PartitionSpec)
Program = Callable[[list[Any]], Any]


def mapped(function: Callable[..., Any], given: Any, made: Any, *arguments: Any, donate: bool = False) -> Program:
    """`shard_map` of a function over a mesh of two by two devices."""

    def program(devices: list[Any]) -> Any:
        mesh = Mesh(np.array(devices).reshape(2, 2), ("i", "j"))
        local = jax.shard_map(function, mesh=mesh, in_specs=given, out_specs=made)
        placed = [jax.device_put(a, NamedSharding(mesh, s)) for a, s in zip(arguments, given, strict=True)]
        return jax.jit(local, donate_argnums=(0,) if donate else ())(*placed)

    return program


def replicated(devices: list[Any]) -> Any:
    everywhere = NamedSharding(Mesh(np.array(devices), ("k",)), S())
    return jax.jit(lambda a: (a @ a, a.sum()))(jax.device_put(A, everywhere))


def everyone(function: Callable[..., Any], *arguments: Any, **options: Any) -> Program:
    """`pmap` of a function."""
    return lambda devices: jax.pmap(function, devices=devices, **options)(*arguments)


def twice(devices: list[Any]) -> Any:
    mesh = Mesh(np.array(devices), ("k",))
    local: Callable[..., Any] = jax.shard_map(lambda a: a * 2, mesh=mesh, in_specs=S("k"), out_specs=S("k"))
    return jax.jit(lambda a: local(local(a)))(A)


def two_ways(devices: list[Any]) -> Any:
    """One array, split along either axis of the mesh."""
    mesh = Mesh(np.array(devices).reshape(2, 2), ("i", "j"))
    given, made = (S("i"), S("j")), S(("i", "j"))
    local: Callable[..., Any] = jax.shard_map(lambda a, b: a - b, mesh=mesh, in_specs=given, out_specs=made)
    return jax.jit(lambda a: local(a, a))(A)


swapped = partial(lax.ppermute, axis_name="i", perm=[(0, 1), (1, 0)])
CASES: dict[str, Program] = {
    "replicated": replicated,
    "pmap": everyone(lambda a: jnp.sin(a) * 2, A),
    "pmap of two": everyone(lambda a, b: (a @ b, b.sum()), A, A, in_axes=(0, None)),
    "rows": mapped(lambda a: a * 2, (S("i"),), S("i"), A),
    "tiles": mapped(lambda a, b: (a * b, b + 1), (S("j", "i"), S()), (S("j", "i"), S()), A, np.float32(3)),
    "both axes": mapped(lambda a: a + 1, (S(("i", "j")),), S(("i", "j")), A),
    "other order": mapped(lambda a: a + 1, (S(("j", "i")),), S(("j", "i")), A),
    "transposed": mapped(lambda a: a.T, (S("i", "j"),), S("j", "i"), A),
    "top_k": mapped(lambda a: tuple(lax.top_k(a, 2)), (S("i"),), (S("i"), S("i")), A),
    "the argument": mapped(lambda a: (a, a), (S("i"),), (S("i"), S("i")), A),
    "donated": mapped(lambda a: a * 2, (S("i"),), S("i"), A, donate=True),
    "gradient": mapped(jax.vmap(jax.grad(lambda r: jnp.sin(r).sum())), (S("j"),), S("j"), A),
    "scan": mapped(partial(jnp.cumsum, axis=0), (S(None, "i"),), S(None, "i"), A),
    "twice": twice,
}
REFUSED: dict[str, tuple[Program, str]] = {
    "sum": (mapped(partial(lax.psum, axis_name="i"), (S("i"),), S(), A), "all-reduce "),
    "number": (mapped(lambda a: a + lax.axis_index("i"), (S("i"),), S("i"), A), "partition-id "),
    "two ways": (two_ways, "parameter "),
    "neighbour": (mapped(swapped, (S("i"),), S("i"), A), "collective-permute "),
}


def difference(program: Program) -> str:
    got, want = (jax.tree.leaves(program(jax.devices(platform)[:4])) for platform in ("systolith", "cpu"))
    for ours, theirs in zip(got, want, strict=True):
        if ours.sharding.spec != theirs.sharding.spec:
            return f"{ours.sharding} instead of {theirs.sharding}"
        if not np.allclose(ours, theirs, rtol=1e-4, atol=1e-5):
            return f"{ours} instead of {theirs}"
    return ""


def main() -> int:
    initialize()
    failures = 0
    for name, program in CASES.items():
        if why := difference(program):
            failures += 1
            print(f"{name}: {why}")
    for name, (program, said) in REFUSED.items():
        try:
            program(jax.devices("systolith"))
            print(f"{name}: not refused")
            failures += 1
        except jax.errors.JaxRuntimeError as error:
            if said not in str(error) or "UNIMPLEMENTED: systolith: " not in str(error):
                failures += 1
                print(f"{name}: {error}")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
