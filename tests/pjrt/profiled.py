"""A trace taken by `jax.profiler` in the folder that the argument names; prints what the runs in it were."""

from __future__ import annotations

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

from systolith import api as sl
from systolith.pjrt.plugin import initialize


def main() -> None:
    initialize()
    step = jax.jit(lambda a, b: jnp.tanh(a @ b).sum(axis=0))
    a = b = jax.device_put(np.ones((8, 8), np.float32))
    step(a, b).block_until_ready()  # before the trace: not in it
    runs = []
    with jax.profiler.trace(sys.argv[1]):
        for n in range(2):
            x = jax.device_put(np.full((8, 8), n, np.float32))
            step(x, b).block_until_ready()
            run = sl.last_run()
            assert run is not None
            runs.append({"cycles": run.cycles, "launch": run.launch, "instructions": len(run.result.trace.index)})  # type: ignore[union-attr]
    print(json.dumps(runs))


if __name__ == "__main__":
    main()
