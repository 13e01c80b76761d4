"""Threads run one program, each with a trip count of its own, as often as the argument says."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp

from systolith.pjrt.plugin import initialize

THREADS = 4


def main() -> None:
    initialize()
    sys.setswitchinterval(1e-5)
    devices = jax.devices("systolith")
    step = jax.jit(lambda n: jax.lax.fori_loop(0, n, lambda _, x: x + 1, jnp.int32(0)))
    counts = [jax.device_put(jnp.int32(3 * n + 1), devices[0]) for n in range(THREADS)]
    step(counts[0]).block_until_ready()

    def work(n: int) -> None:
        for _ in range(int(sys.argv[1])):
            assert int(step(counts[n])) == 3 * n + 1

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))


if __name__ == "__main__":
    main()
