"""Donated arguments: results take over their memory on the device."""

from __future__ import annotations

import gc
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from systolith import api as sl
from systolith.isa.binary import save
from tests.compiler.memory.test_donors import CHAIN, SMALL, SUM, module

UPDATE = """HloModule push, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY main {
  c = f32[64,32] parameter(0)
  u = f32[1,32] parameter(1)
  i = s32[] parameter(2)
  z = s32[] constant(0)
  d = f32[64,32] dynamic-update-slice(c, u, i, z)
  n = f32[1,32] negate(u)
  ROOT t = (f32[64,32], f32[1,32]) tuple(d, n)
}
"""
PLUS = """HloModule plus, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY main {
  a = f32[8] parameter(0)
  b = f32[8] parameter(1)
  ROOT s = f32[8] add(a, b)
}
"""


@pytest.fixture(scope="module")
def client() -> sl.Client:
    return sl.Client(chip="tiny")


def row(number: int) -> np.ndarray:
    return np.full((1, 32), number, np.float32)


def test_a_result_has_the_memory_of_the_donated_buffer(client: sl.Client) -> None:
    push = client.compile(UPDATE)
    cache = client.put(np.zeros((64, 32), np.float32))
    place, used = cache.offset, client.devices[0].hbm.in_use
    for step in range(4):
        cache, _ = push(cache, row(step + 1), np.array(step, np.int32))
        assert cache.offset == place
    want = np.zeros((64, 32), np.float32)
    want[:4] = np.arange(1, 5)[:, None]
    assert (cache.numpy() == want).all()
    del _
    assert client.devices[0].hbm.in_use == used
    cache.delete()
    assert client.devices[0].hbm.in_use < used


def test_a_donated_buffer_is_gone(client: sl.Client) -> None:
    push = client.compile(UPDATE)
    cache = client.put(np.zeros((64, 32), np.float32))
    push(cache, row(1), np.array(0, np.int32))
    assert "was donated to push" in repr(cache)
    for use in (cache.numpy, cache.block, lambda: push(cache, row(1), np.array(0, np.int32))):
        with pytest.raises(sl.SystolithError, match=r"f32\[64,32\] was donated to push") as caught:
            use()
        assert "\n" not in str(caught.value)


def test_a_call_that_is_refused_takes_nothing(client: sl.Client) -> None:
    push = client.compile(UPDATE)
    cache = client.put(np.ones((64, 32), np.float32))
    with pytest.raises(sl.SystolithError, match="argument 1"):
        push(cache, np.zeros((2, 32), np.float32), np.array(0, np.int32))
    assert (cache.numpy() == 1).all()


def test_a_donated_buffer_is_not_another_argument(client: sl.Client) -> None:
    plus = client.compile(PLUS)
    x = client.put(np.ones(8, np.float32))
    with pytest.raises(sl.SystolithError, match="plus: arguments 0 and 1 are one buffer"):
        plus(x, x)
    y = client.put(np.ones(8, np.float32))
    (z,) = plus(x, y)
    (again,) = plus(z, y)
    assert (again.numpy() == 3).all()
    assert (y.numpy() == 1).all()


def test_runs_that_wait_keep_what_they_were_given(client: sl.Client) -> None:
    """A buffer that is deleted or dropped after a call was still read by it."""
    plus = client.compile(PLUS)
    x, y = client.put(np.ones(8, np.float32)), client.put(np.full(8, 2, np.float32))
    (z,) = plus(x, y)
    y.delete()
    assert (z.numpy() == 3).all()


def test_arrays_of_the_host_are_not_changed(client: sl.Client) -> None:
    plus = client.compile(PLUS)
    a = np.ones(8, np.float32)
    assert (plus(a, a)[0].numpy() == 2).all()
    assert (a == 1).all()


def test_a_binary_knows_its_aliases(client: sl.Client, tmp_path: Path) -> None:
    save(client.compile(UPDATE).program, tmp_path / "push.slb")
    push = client.load(tmp_path / "push.slb")
    assert push.memory.aliased == 64 * 32 * 4
    cache = client.put(np.zeros((64, 32), np.float32))
    after, _ = push(cache, row(7), np.array(63, np.int32))
    assert (after.numpy()[63] == 7).all()
    with pytest.raises(sl.SystolithError, match="donated to push"):
        cache.numpy()


def test_jit_donates() -> None:
    def push(cache: jax.Array, x: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
        cache = lax.dynamic_update_slice(cache, x, (at, 0))
        return cache, cache.sum(axis=0)

    cache = np.arange(128 * 32, dtype=np.float32).reshape(128, 32)
    args = (cache, row(3), np.int32(90))
    on_chip = sl.jit(push, sl.Client("tiny"), donate_argnums=0)
    got = on_chip(*args)
    for a, b in zip(got, push(*map(jnp.asarray, args)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    memory = on_chip.last_executable.memory
    assert memory.aliased == cache.nbytes
    assert (cache == np.arange(128 * 32, dtype=np.float32).reshape(128, 32)).all()


TURNED = """HloModule turned, buffer_donor={ (0, {}) }
ENTRY main {
  a = f32[8,16] parameter(0)
  b = f32[8,16] parameter(1)
  s = f32[8,16] add(a, b)
  ROOT t = f32[128] reshape(s)
}
"""


def test_a_result_takes_the_memory_of_a_donor_whatever_its_shape(client: sl.Client) -> None:
    turned = client.compile(TURNED)
    x, y = client.put(np.ones((8, 16), np.float32)), client.put(np.full((8, 16), 2, np.float32))
    place = x.offset
    (z,) = turned(x, y)
    assert (z.offset, z.shape) == (place, (128,))
    assert (z.numpy() == 3).all()
    with pytest.raises(sl.SystolithError, match=r"f32\[8,16\] was donated to turned"):
        x.numpy()


def test_a_donor_that_only_temporaries_take_is_gone_and_its_memory_free() -> None:
    client = sl.Client(SMALL)
    chain = client.compile(module("(0, {})", CHAIN).replace("ENTRY", SUM + "ENTRY"))
    assert chain.memory.hosted
    assert not chain.memory.aliased
    used = client.devices[0].hbm.in_use
    x = client.put(np.ones((32, 52), np.float32))
    (r,) = chain(x, np.eye(52, dtype=np.float32))
    with pytest.raises(sl.SystolithError, match="was donated to t"):
        x.numpy()
    assert (r.numpy() == 52).all()
    del r
    chain.last_run  # noqa: B018  the run has ended
    gc.collect()
    assert client.devices[0].hbm.in_use == used


def test_a_donor_that_temporaries_take_is_not_another_argument(client: sl.Client) -> None:
    turned = client.compile(TURNED)
    x = client.put(np.ones((8, 16), np.float32))
    with pytest.raises(sl.SystolithError, match="arguments 0 and 1 are one buffer"):
        turned(x, x)


def test_what_jax_donates_without_saying_to_which_result() -> None:
    """JAX leaves it to the compiler where no result has the argument's shape, but one has its size."""

    def twice(x: jax.Array, w: jax.Array) -> jax.Array:
        return (jnp.tanh(x @ w) @ w).reshape(32, 64)

    x = np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32)
    w = np.eye(32, dtype=np.float32)
    lowered = jax.jit(twice, donate_argnums=0).lower(x, w)
    assert "buffer_donor={ (0, {}) }" in lowered.compiler_ir("hlo").as_hlo_text()  # type: ignore[union-attr]
    on_chip = sl.jit(twice, sl.Client("tiny"), donate_argnums=0)
    np.testing.assert_allclose(on_chip(x, w), twice(jnp.asarray(x), jnp.asarray(w)), atol=1e-2)
    assert on_chip.last_executable.memory.aliased == x.nbytes


SIZED = """HloModule grow, input_output_alias={ OUT: (0, {}, must-alias) }
ENTRY main {
  a = f32[<=8,4] parameter(0)
  b = f32[<=8,4] parameter(1)
  ROOT s = f32[<=8,4] add(a, b)
}
"""
SIZED_TUPLE = """HloModule grow, input_output_alias={ {1}: (0, {}, must-alias) }, buffer_donor={ (1, {}) }
ENTRY main {
  a = f32[<=8,4] parameter(0)
  b = f32[<=8,4] parameter(1)
  s = f32[<=8,4] add(a, b)
  d = f32[<=8,4] multiply(b, b)
  ROOT t = (f32[<=8,4], f32[<=8,4]) tuple(d, s)
}
"""
SIZED_INSIDE = """HloModule grow, input_output_alias={ {}: (0, {}, must-alias) }
ENTRY main {
  a = f32[8] parameter(0)
  n = s32[] constant(3)
  c = f32[<=8] set-dimension-size(a, n), dimensions={0}
  d = f32[<=8] add(c, c)
  e = s32[] constant(8)
  f = f32[8] set-dimension-size(d, e), dimensions={0}
  ROOT s = f32[8] add(a, a)
}
"""


@pytest.mark.parametrize("text", [SIZED.replace("OUT", "{}"), SIZED_TUPLE])
def test_arrays_of_dynamic_sizes_are_updated_in_place(client: sl.Client, text: str) -> None:
    grow = client.compile(text)
    ones = np.ones((5, 4), np.float32)
    (x, *_), y = (
        client.compile(SIZED.replace(", input_output_alias={ OUT: (0, {}, must-alias) }", ""))(ones, ones),
        ones,
    )
    place = x.offset
    *others, result = grow(x, y * 3)
    assert result.offset == place
    assert (result.numpy() == 5).all()
    assert result.numpy().shape == (5, 4)
    assert [o.numpy().tolist() for o in others] == [[[9.0] * 4] * 5] * len(others)
    with pytest.raises(sl.SystolithError, match="was donated to grow"):
        x.numpy()


def test_dynamic_sizes_inside_leave_donation_as_it_is(client: sl.Client) -> None:
    grow = client.compile(SIZED_INSIDE)
    x = client.put(np.ones(8, np.float32))
    place = x.offset
    (result,) = grow(x)
    assert (result.offset, result.numpy().tolist()) == (place, [2] * 8)
