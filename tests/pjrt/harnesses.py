"""JAX's own harnesses of its primitives on the plugin, against JAX on the CPU.

    JAX_ENABLE_X64=1 JAX_PLATFORMS=systolith,cpu python harnesses.py EVERY [REGEX]

A harness is a call of one primitive with arguments of given shapes and types; JAX tests its platforms with some 7,400
of them.  Takes each EVERY-th of those whose name matches, prints a line for each that differs or fails, and ends with
1 if there is one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.internal_test_util.test_harnesses import Harness, all_harnesses

Array = np.ndarray[Any, Any]

TOLERANCE = {
    "float64": 1e-11,
    "complex128": 1e-11,
    "float32": 1e-4,
    "complex64": 1e-4,
    "float16": 1e-2,
    "bfloat16": 5e-2,
}
"""Of the largest element; other floats have 8 bits and less, and nothing but integers is computed in them."""

OPEN: dict[str, Callable[[Array], Array]] = {
    "cholesky": lambda x: _wide(np.tril(x)) @ _wide(np.tril(x)).mT.conj(),  # factors differ with the condition
    "eig": lambda x: np.sort(np.abs(x), axis=-1),  # in any order
    "eigh": np.abs,  # vectors are known but for a factor of absolute value 1
    "svd": np.abs,
}
"""What a primitive leaves to platforms, by group."""


def main() -> None:
    assert jax.dtypes.canonicalize_dtype(np.float64) == np.float64, (
        "harnesses are made when they are imported: JAX_ENABLE_X64=1"
    )
    every = int(sys.argv[1])
    pattern = re.compile(sys.argv[2] if len(sys.argv) > 2 else "")
    matching = (h for h in all_harnesses if pattern.search(h.fullname) and h.filter("cpu"))
    chosen = list(islice(matching, 0, None, every))
    failed = 0
    for harness in chosen:
        for line in problems(harness):
            failed += 1
            print(f"{harness.fullname}: {line}", flush=True)
    print(f"{len(chosen)} harnesses, {failed} problems")
    raise SystemExit(bool(failed or not chosen))


def problems(harness: Harness) -> Iterator[str]:
    """What is wrong with a harness on the chip."""
    want = [np.asarray(x) for x in _results(harness, "cpu")]
    try:
        got = [np.asarray(x) for x in _results(harness, "systolith")]
    except Exception as problem:
        yield f"{type(problem).__name__}: {problem}"
        return
    form = OPEN.get(harness.group_name, _same)
    if harness.group_name == "sort" and not harness.params["is_stable"]:
        form = _in_any_order
    for n, (g, w) in enumerate(zip(got, want, strict=True)):
        if (g.dtype, g.shape) != (w.dtype, w.shape):
            yield f"result {n} is {g.dtype}{list(g.shape)}, not {w.dtype}{list(w.shape)}"
        elif why := difference(form(g), form(w), TOLERANCE.get(_computed_in(harness, w), 0)):
            yield f"result {n}: {why}"


def _results(harness: Harness, platform: str) -> list[Any]:
    """What a harness gives on a platform; keys of random numbers as their words."""
    with jax.default_device(jax.devices("cpu")[0]):
        arguments = harness.dyn_args_maker(np.random.RandomState(42))
    device = jax.devices(platform)[0]
    with jax.default_device(device):
        there = [jax.device_put(x, device) if isinstance(x, jax.Array) else x for x in arguments]
        found = jax.tree.leaves(jax.jit(harness.dyn_fun)(*there))
    return [jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in found]


def _computed_in(harness: Harness, result: Array) -> str:
    """The type in which XLA's CPU backend computes: convolutions of c64 whatever type is wanted, unlike the chip."""
    convolved = harness.group_name == "conv_general_dilated" and harness.dtype == np.complex64
    return "complex64" if convolved else result.dtype.name


def _same(x: Array) -> Array:
    return x


def _in_any_order(x: Array) -> Array:
    """An unstable sort may exchange elements of equal keys."""
    return np.sort(x, axis=None)


def _wide(x: Array) -> Array:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def difference(got: Array, want: Array, tolerance: float) -> str:
    """How two arrays differ; empty: not."""
    if want.dtype.kind in "iub" or not want.size:
        wrong = np.count_nonzero(got != want)
        return f"{wrong} of {want.size} differ" if wrong else ""
    g, w = _wide(got), _wide(want)
    finite = np.isfinite(w)
    if not np.array_equal(g[~finite], w[~finite], equal_nan=True) or not np.isfinite(g[finite]).all():
        return "infinities or NaNs differ"
    if not finite.any():
        return ""
    error = np.abs(g[finite] - w[finite]).max() / (np.abs(w[finite]).max() or 1)
    return f"{error:.1e} of the largest element" if error > tolerance else ""


if __name__ == "__main__":
    main()
