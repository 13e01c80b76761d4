"""Calls of Python from programs, with the values and the order of JAX's CPU backend; prints `good` at the end."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

from systolith import api as sl
from systolith.isa import host_functions

Array = np.ndarray[Any, Any]
STRUCT: Any = jax.ShapeDtypeStruct
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def like(x: jax.Array) -> Any:
    return STRUCT(x.shape, x.dtype)


def sine(x: jax.Array) -> Any:
    return jax.pure_callback(np.sin, like(x), x * 2) + 1


def pairs(x: jax.Array) -> Any:
    """A tree of arguments, a tree of results, of several types."""

    def function(given: dict[str, Array], scale: Array) -> tuple[Array, Array, Array]:
        x, n = given["x"], given["n"]
        return np.asarray(x) * scale, np.asarray(n) + 1, np.asarray(x).sum() > 3

    types = (like(x), STRUCT((3,), np.int8), STRUCT((), np.bool_))
    return jax.pure_callback(function, types, {"x": x, "n": jnp.arange(3, dtype=np.int8)}, scale=np.float32(2.5))


def branches(x: jax.Array) -> Any:
    return jax.lax.cond(x.sum() > 0, sine, lambda v: -v, x) + jax.lax.cond(x.sum() > 99, sine, lambda v: -v, x)


def batched(x: jax.Array) -> Any:
    one = lambda v: jax.pure_callback(lambda w: np.asarray(w) * 3, like(v), v, vmap_method="sequential")  # noqa: E731
    return jax.vmap(one)(x)  # type: ignore[no-untyped-call]


def halves(x: jax.Array) -> Any:
    return jax.pure_callback(lambda v: np.asarray(v) + 1, like(x.astype(jnp.bfloat16)), x.astype(jnp.bfloat16))


def logged(log: list[Any], unordered: list[Any]) -> Callable[[jax.Array], Any]:
    """Effects in a loop, in a branch of it, and after it, in one order; one of them without operands."""

    def body(i: jax.Array, s: jax.Array) -> jax.Array:
        io_callback(lambda i, s: log.append((int(i), float(s))), None, i, s.sum(), ordered=True)
        odd = lambda: io_callback(lambda: log.append("odd"), None, ordered=True)  # noqa: E731
        jax.lax.cond(i % 2 == 1, odd, lambda: None)
        count: jax.Array = io_callback(lambda: np.float32(len(log)), STRUCT((), np.float32), ordered=True)
        return s * 2 + count

    def program(x: jax.Array) -> Any:
        r = jax.lax.fori_loop(0, 4, body, x)
        io_callback(lambda: log.append("end"), None, ordered=True)
        jax.debug.callback(lambda v: unordered.append(np.asarray(v).tolist()), x[0])
        return r

    return program


def values() -> None:
    for function in (sine, pairs, branches, batched, halves):
        x = jax.device_put(X, jax.devices("systolith")[0])
        got = jax.jit(function)(x)
        want = jax.jit(function)(jax.device_put(X, jax.devices("cpu")[0]))
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert a.dtype == b.dtype, function
            np.testing.assert_allclose(np.asarray(a, np.float32), np.asarray(b, np.float32), rtol=1e-6)


def effects() -> None:
    logs: dict[str, tuple[list[Any], list[Any]]] = {}
    results = []
    for platform in ("systolith", "cpu"):
        logs[platform] = [], []
        program = jax.jit(logged(*logs[platform]))
        for _ in range(2):
            results.append(np.asarray(program(jax.device_put(X, jax.devices(platform)[0]))))
            jax.effects_barrier()  # type: ignore[no-untyped-call]
    assert logs["systolith"] == logs["cpu"], logs
    assert logs["systolith"][0].count("end") == 2
    for got, want in zip(results[:2], results[2:], strict=True):
        np.testing.assert_allclose(got, want)


def errors() -> None:
    def fail(x: Array) -> Array:
        raise ValueError("the third one is wrong")

    for function, wanted in (
        (fail, "ValueError: the third one is wrong"),
        (lambda x: np.zeros(7, np.float32), "gave float32[7], the call has f32[3]"),
    ):
        program = jax.jit(partial(one_call, function))
        with pytest.raises(jax.errors.JaxRuntimeError) as raised:
            program(jnp.ones(3)).block_until_ready()
        assert wanted in str(raised.value)


def one_call(function: Callable[..., Any], x: jax.Array) -> Any:
    return jax.pure_callback(function, like(x), x)


def without_the_plugin() -> None:
    """`sl.jit`; the registry keeps a function as long as a program can call it."""
    jax.clear_caches()  # type: ignore[no-untyped-call]
    gc.collect()
    before = len(host_functions._FUNCTIONS)
    log: list[Any] = []
    called = logged(log, log)
    program = sl.jit(lambda x: (jax.debug.print("sum {s}", s=x.sum()), called(x), sine(x))[1:], sl.Client("tiny"))
    first, second = program(X)
    np.testing.assert_allclose(second, np.sin(X * 2) + 1, rtol=1e-6)
    assert "end" in log
    assert [0, 1, 2] in log
    assert program.last_run.cycles
    assert len(host_functions._FUNCTIONS) > before
    del program, first, second
    jax.clear_caches()  # type: ignore[no-untyped-call]
    gc.collect()
    assert len(host_functions._FUNCTIONS) == before, host_functions._FUNCTIONS


def main() -> None:
    for part in (values, effects, errors, without_the_plugin):
        part()


if __name__ == "__main__":
    main()
    print("good")
