"""A program whose compilation JAX may find in its cache; prints its result and the seconds of compilation."""

from __future__ import annotations

from time import perf_counter

import jax
import jax.numpy as jnp

from systolith import api as sl
from systolith.pjrt.plugin import initialize


def main() -> None:
    initialize()
    for option in ("jax_persistent_cache_min_compile_time_secs", "jax_persistent_cache_min_entry_size_bytes"):
        jax.config.update(option, 0)  # type: ignore[no-untyped-call]
    step = jax.jit(lambda a, b: (jnp.sin(a) @ b, a + 1), donate_argnums=0)
    a, b = jnp.arange(12.0).reshape(3, 4), jnp.ones((4, 2))
    started = perf_counter()
    compiled = step.lower(a, b).compile()
    seconds = perf_counter() - started
    product, more = compiled(a, b)
    run = sl.last_run()
    assert run is not None
    print(a.is_deleted(), product.tolist(), more.tolist(), run.cycles, seconds, sep="|")


if __name__ == "__main__":
    main()
