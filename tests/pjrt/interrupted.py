"""A program whose compilation is interrupted, as by Ctrl-C, long before it is done; then the process ends."""

from __future__ import annotations

import signal
from typing import Any

import jax
import jax.numpy as jnp


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def main() -> None:
    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    lowered = jax.jit(lambda x: jnp.linalg.eigh(x)[0]).lower(jnp.eye(6, dtype=jnp.complex128))
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        lowered.compile()
    except KeyboardInterrupt:
        print("interrupted", jnp.add(1, 2))


main()
