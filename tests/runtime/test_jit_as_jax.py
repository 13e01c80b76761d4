"""`sl.jit` does what `jax.jit` does: arguments, results, decorators, stages; against `jax.jit` on CPUs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith import api as sl
from tests.examples import examples

TINY = sl.Client("tiny")


class Pair(NamedTuple):
    left: object
    right: object


def same(got: Any, want: Any) -> None:
    """The same structure, shapes, element types and values."""
    structures: list[Any] = [jax.tree.structure(got), jax.tree.structure(want)]
    assert structures[0] == structures[1]
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        if jnp.issubdtype(other.dtype, jax.dtypes.prng_key):
            assert one.dtype == other.dtype
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        one, other = np.asarray(one), np.asarray(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=1e-5, atol=1e-6)


def power(x: Any, p: int = 2, *, scale: Any = 1.0, name: str = "square") -> Any:
    """A power of x, scaled."""
    return x**p * scale if name == "square" else -x


def matrix(*shape: int) -> Any:
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


CALLS: dict[str, tuple[dict[str, Any], tuple[Any, ...], dict[str, Any]]] = {
    "static number": ({"static_argnums": 1}, (matrix(4), 3), {}),
    "static number, by name": ({"static_argnums": 1}, (matrix(4),), {"p": 3}),
    "static number, counted from the end": ({"static_argnums": -1}, (matrix(4), 3), {}),
    "static names": ({"static_argnames": ("p", "name")}, (matrix(4), 3), {"name": "other"}),
    "static names, left out": ({"static_argnames": ["p", "name"]}, (matrix(4),), {}),
    "keyword": ({"static_argnames": "name"}, (matrix(4), 3), {"scale": matrix(4), "name": "square"}),
    "a number of Python's": ({}, (3,), {"scale": 2.5}),
    "a number of Python's is weak": ({}, (matrix(3).astype(jnp.bfloat16),), {"scale": 2.5}),
    "f64 becomes f32": ({}, (np.ones(3),), {}),
    "bool": ({}, (np.array([True, False]),), {}),
}


@pytest.mark.filterwarnings("ignore:Some donated buffers")
@pytest.mark.parametrize("name", CALLS)
def test_arguments(name: str) -> None:
    options, args, kwargs = CALLS[name]
    same(sl.jit(power, TINY, **options)(*args, **kwargs), jax.jit(power, **options)(*args, **kwargs))


leaves = st.tuples(st.sampled_from([np.float32, np.int32, jnp.bfloat16]), st.lists(st.integers(1, 3), max_size=2)).map(
    lambda what: np.arange(np.prod(what[1], initial=1)).reshape(what[1]).astype(what[0])
)
trees = st.recursive(
    leaves | st.none(),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.tuples(inner, inner)
        | st.builds(Pair, inner, inner)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    ),
    max_leaves=4,
)


@examples(6, 12)
@given(trees)
def test_any_pytree_in_and_out(tree: Any) -> None:
    def function(t: Any) -> Any:
        return {"t": jax.tree.map(lambda x: x + x, t), "count": len(jax.tree.leaves(t)) * jnp.ones(2)}

    same(sl.jit(function, TINY)(tree), jax.jit(function)(tree))


def test_keys_of_random_numbers() -> None:
    def draw(key: jax.Array, x: jax.Array) -> Any:
        new, used = jax.random.split(key)
        return new, x + jax.random.uniform(used, x.shape), jax.random.split(key, (2, 2))

    keys = jax.random.split(jax.random.key(7, impl="rbg"), 3)
    same(sl.jit(lambda k: (k[1], k), TINY)(keys), (keys[1], keys))
    same(sl.jit(draw, TINY)(jax.random.key(7), matrix(3)), jax.jit(draw)(jax.random.key(7), matrix(3)))


def test_gradients_inside_and_around() -> None:
    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.mean(jnp.tanh(jnp.dot(x, w, precision="highest")) ** 2)

    w, x = matrix(4, 3), matrix(5, 4)
    same(sl.jit(jax.value_and_grad(loss), TINY)(w, x), jax.jit(jax.value_and_grad(loss))(w, x))
    same(jax.grad(sl.jit(loss, TINY))(w, x), jax.grad(loss)(w, x))
    same(jax.vmap(sl.jit(jnp.sin, TINY))(x), jnp.sin(x))


@pytest.mark.parametrize("around", [jax.jit, partial(sl.jit, client=TINY)])
def test_inside_of_a_jitted_function_it_is_that_of_jax(around: Any) -> None:
    held = TINY.put(matrix(4))
    inner = sl.jit(power, TINY, static_argnames="name")

    def outer(x: jax.Array) -> jax.Array:
        return jnp.asarray(inner(x, 3) + inner(held) + inner(matrix(4), name="other"))

    same(around(outer)(matrix(4)), jax.jit(lambda x: x**3 + matrix(4) ** 2 - matrix(4))(matrix(4)))


def test_name_docstring_and_signature_are_those_of_the_function() -> None:
    on_chip = sl.jit(power, TINY)
    assert (on_chip.__name__, on_chip.__doc__) == ("power", "A power of x, scaled.")
    assert inspect.signature(on_chip) == inspect.signature(power)
    assert repr(on_chip) == "<sl.jit of power on tiny>"
    assert "partial" in repr(sl.jit(partial(power, p=3), TINY))


def test_a_decorator_with_arguments_and_of_a_method() -> None:
    class Model:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @sl.jit(client=TINY, static_argnums=0)
        def scaled(self, x: jax.Array) -> jax.Array:
            return x * self.factor

    same(Model(3.0).scaled(matrix(4)), jnp.asarray(matrix(4) * 3))
    same(Model(2.0).scaled(matrix(4)), jnp.asarray(matrix(4) * 2))


def test_one_program_for_each_shape_type_static_value_and_setting() -> None:
    traced: list[int] = []

    @sl.jit(client=TINY, static_argnums=1)
    def function(x: jax.Array, n: Any) -> jax.Array:
        traced.append(1)
        return jnp.multiply(x, n)

    calls: list[Callable[[], object]] = [
        lambda: function(np.ones(3, np.float32), 2),
        lambda: function(np.ones((3, 1), np.float32), 2),
        lambda: function(np.ones(3, np.int32), 2),
        lambda: function(np.ones(3, np.float32), 3),
        lambda: function(np.ones(3, np.int32), 2.0),  # equal to 2, of another type
    ]
    for count, call in enumerate(calls, 1):
        first = call()
        assert len(traced) == count
        same(call(), first)
        assert len(traced) == count
    with jax.enable_x64(True):
        assert function(np.ones(3), 2).dtype == np.float64


def test_buffers_stay_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    client = sl.Client("tiny", devices=2)
    step = sl.jit(lambda w, x: {"w": w - x, "sum": x.sum()}, client)
    x = client.put(matrix(6), device=1)
    with monkeypatch.context() as patched:
        patched.setattr(sl.Buffer, "numpy", lambda _: pytest.fail("copied to the host"))
        out = step(matrix(6), x)
        again = step(out["w"], x)
    assert isinstance(again["w"], sl.Buffer)
    assert again["w"].device is client.devices[1]
    same(again["w"].numpy(), jnp.asarray(matrix(6) - matrix(6) - matrix(6)))
    assert not x.deleted


def test_a_donated_buffer_is_updated_in_place() -> None:
    step = sl.jit(lambda w, x: (w + x, x.sum()), TINY, donate_argnames="w")
    w = TINY.put(matrix(64))
    place = w.offset
    after, _ = step(w, matrix(64))
    assert after.offset == place
    assert w.deleted
    same(after.numpy(), jnp.asarray(matrix(64) * 2))
    with pytest.raises(sl.SystolithError, match="was donated"):
        step(w, matrix(64))


def test_a_buffer_of_another_client_is_refused() -> None:
    with pytest.raises(sl.SystolithError, match="the buffer is on another client's small:0, the run on tiny:0"):
        sl.jit(jnp.sin, TINY)(sl.Client("small").put(matrix(3)))


def test_stages() -> None:
    on_chip = sl.jit(power, TINY, static_argnums=1)
    lowered = on_chip.lower(jnp.ones(4), 3)
    assert repr(lowered).startswith("<LoweredFunction for tiny: ")
    assert "stablehlo.multiply" in lowered.as_text()
    assert lowered.as_text("hlo").startswith("HloModule jit_power")
    assert lowered.out_info.shape == (4,)
    assert lowered.cost_analysis() == jax.jit(power, static_argnums=1).lower(jnp.ones(4), 3).cost_analysis()
    compiled = lowered.compile()
    same(compiled(matrix(4)), jax.jit(power, static_argnums=1)(matrix(4), 3))
    assert compiled.cost_analysis()["flops"] == 8
    assert compiled.memory_analysis().results == 16
    assert compiled.as_text() == compiled.executable.as_text("program.s")
    with pytest.raises(sl.SystolithError, match=r"is compiled for float32\[4\], got float32\[5\]"):
        compiled(matrix(5))
    with pytest.raises(sl.SystolithError, match="dialect 'mhlo': must be stablehlo or hlo"):
        lowered.as_text("mhlo")


def test_the_last_run(tmp_path: Path) -> None:
    on_chip = sl.jit(jnp.sin, TINY)
    with pytest.raises(sl.SystolithError, match="has not been called"):
        on_chip.cost_analysis()
    on_chip(matrix(4))
    assert on_chip.last_run.cycles == on_chip.last_executable.last_run.cycles  # type: ignore[union-attr]
    assert on_chip.cost_analysis()["transcendentals"] == 4
    assert on_chip.report(tmp_path / "r.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("name", ["cholesky", "inv", "det"])
def test_linear_algebra_arrives_as_operations(name: str) -> None:
    function = getattr(jnp.linalg, name)
    a = np.eye(4, dtype=np.float32) * 3 + matrix(4, 4) @ matrix(4, 4).T
    on_chip = sl.jit(function, TINY)
    assert ("cholesky(" in on_chip.lower(a).as_text("hlo")) == (name == "cholesky")
    same(on_chip(a), function(a))


def test_bad_input_is_told_in_one_line() -> None:
    with pytest.raises(sl.SystolithError, match="is no array to JAX"):
        sl.jit(power, TINY)("text")
    with pytest.raises(sl.SystolithError, match=r"a static argument: unhashable type: 'list'"):
        sl.jit(power, TINY, static_argnums=1)(matrix(3), [1])
    with pytest.raises(sl.SystolithError, match="static_argnames"):
        sl.jit(power, TINY, static_argnames="none")
    call = jax.ffi.ffi_call("nobody", jax.ShapeDtypeStruct((3,), np.float32))  # type: ignore[no-untyped-call]
    with pytest.raises(sl.SystolithError, match=r"test_jit_as_jax\.py:\d+: custom-call .*nobody"):
        sl.jit(lambda x: call(x), TINY)(matrix(3))
