"""HLO of the benchmarks' models, lowered by JAX once and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.cases import CASES
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo

FOLDER = Path(__file__).resolve().parents[1] / "build" / "bench"


def hlo_path(name: str) -> Path:
    """The text of a case's module; lowered if the models have changed."""
    digest = hashlib.sha256(Path(__file__).with_name("models.py").read_bytes()).hexdigest()[:12]
    path = FOLDER / digest / f"{name}.hlo"
    if not path.exists():
        case = CASES[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(lowered(*case.make(), case.donated))
    return path


def lowered(function: Callable[..., Any], shapes: Sequence[Any], donated: tuple[int, ...] = ()) -> str:
    """HLO text of a JAX function of arguments of these shapes."""
    import jax

    return jax.jit(function, donate_argnums=donated).lower(*shapes).as_text("hlo")


def module(name: str) -> Module:
    """A case's module."""
    path = hlo_path(name)
    return parse_hlo(path.read_text(), str(path))


def native(name: str) -> Callable[[], None]:
    """A case compiled by XLA's CPU backend; each call is one run, the first has been made."""
    import jax
    import numpy as np

    function, shapes = CASES[name].make()
    rng = np.random.default_rng(0)

    def draw(shape: Any) -> Any:
        if np.issubdtype(shape.dtype, np.integer):
            return np.zeros(shape.shape, shape.dtype)
        return rng.standard_normal(shape.shape, np.float32).astype(shape.dtype)

    arguments = jax.device_put(jax.tree.map(draw, shapes))
    compiled = jax.jit(function)

    def run() -> None:
        for leaf in jax.tree.leaves(compiled(*arguments)):
            leaf.block_until_ready()

    run()
    return run


def native_seconds(name: str, repeats: int = 3) -> float:
    """Wall time of XLA's CPU backend, the best of some runs after the first."""
    run, seconds = native(name), []
    for _ in range(repeats):
        started = perf_counter()
        run()
        seconds.append(perf_counter() - started)
    return min(seconds)
