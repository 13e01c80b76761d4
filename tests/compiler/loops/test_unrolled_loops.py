"""Loops that copy what they carry, of which several iterations are one and need not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from systolith.compiler.driver import Compiled
from systolith.compiler.groups.loop_unroll import UnrollCarried
from systolith.compiler.passes.base import Outcome
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.loops.scans import hlo
from tests.compiler.machine import CHIPS, Array, checked_run, compiled, error, run, with_vmem
from tests.examples import examples

V3 = load_chip("tpu_v3")
State = tuple[jax.Array, ...]


def neighbours(x: jax.Array) -> jax.Array:
    return jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1)


def heat(i: jax.Array, s: State) -> State:
    (x,) = s
    return (x + 0.1 * (neighbours(x) - 4 * x),)


def wave(i: jax.Array, s: State) -> State:
    before, x = s
    return x, 2 * x - before + 0.2 * (neighbours(x) - 4 * x)


def numbered(i: jax.Array, s: State) -> State:
    """What the number of the iteration decides, too."""
    (x,) = s
    return (jnp.roll(x, i, 0) * 0.5 + jnp.flip(x, 1) * i,)


def loop(step: Callable[[jax.Array, State], State], count: int) -> Callable[..., Any]:
    return lambda *s: lax.fori_loop(0, count, step, s)


def rows(step: Callable[[jax.Array, State], State], count: int) -> Callable[..., Any]:
    return lambda *s: lax.scan(lambda s, i: (step(i, s), (s[0], i)), s, jnp.arange(count, dtype=jnp.int32))


def data(number: int, *dims: int) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(dims).astype(np.float32) for _ in range(number)]


def copies(made: Compiled) -> list[tuple[int, int]]:
    """Of each loop with several iterations in one: bytes that it copies, and did in as many before."""
    found = [d.numbers for d in made.explain if d.chosen.endswith("iterations are one")]
    return [(int(n["bytes copied"]), int(n["before"])) for n in found]


@pytest.mark.parametrize(
    ("form", "count", "step", "number", "copied"),
    [
        pytest.param(*turns, *states, marks=pytest.mark.slow if (n + k) % 3 else ())
        for n, turns in enumerate([(loop, 6), (loop, 7), (rows, 8), (rows, 9), (rows, 25)])
        for k, states in enumerate([(heat, 1, 1), (numbered, 1, 1), (wave, 2, 2)])
    ],
)
def test_values(
    form: Callable[..., Callable[..., Any]], count: int, step: Callable[..., State], number: int, copied: int
) -> None:
    args = data(number, 12, 40)
    text = hlo(form(step, count), args)
    made = compiled(text, CHIPS[256], "highest")
    ((left, before),) = copies(made)
    assert left < before
    assert form is rows or before - left >= 2 * copied * args[0].nbytes  # a row of the state may be read late
    assert step is numbered or "lds" not in [i.op for i in made.program.code]  # no index waits for memory
    found, report = checked_run(made, CHIPS[256], args)
    for got, expected in zip(found, run_xla(text, *args), strict=True):
        assert error(got, expected) < 1e-6
    assert report.executions


def test_grids_that_do_not_fit_in_vmem() -> None:
    args, chip = data(2, 24, 48), with_vmem(CHIPS[16], 4 << 10)
    assert args[0].nbytes > chip.vmem.bytes
    text = hlo(loop(wave, 7), args)
    made = compiled(text, chip, "highest")
    assert copies(made)
    for got, expected in zip(run(made.program, chip, args), run_xla(text, *args), strict=True):
        assert error(got, expected) < 1e-6


@pytest.mark.parametrize(("step", "number"), [(heat, 1), (wave, 2)])
def test_cycles(step: Callable[..., State], number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = hlo(loop(step, 20), data(number, 256, 256))

    def cycles() -> int:
        return simulate(compiled(text, V3).program, V3, mode="time").cycles or 0

    unrolled = cycles()
    monkeypatch.setattr(UnrollCarried, "run", lambda self, module: Outcome(False))
    assert unrolled < 0.65 * cycles()


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("told", [False, True])
def test_loops_that_test(count: int, told: bool) -> None:
    """Two iterations with a test between them; `told`: the state has the outcome."""

    def step(s: Any) -> Any:
        x, w, i, n, _ = s
        y = jnp.roll(x, 1, 0) * w + x
        return y, w, i + 1, n, i + 1 < n

    def run_loop(x: jax.Array, w: jax.Array, n: jax.Array) -> Any:
        test: Callable[[Any], Any] = (
            (lambda s: s[4]) if told else (lambda s: (s[2] < s[3]) & (jnp.abs(s[0]).max() < 30))
        )
        x, w, i, *_ = lax.while_loop(test, step, (x, w, jnp.int32(0), n, n > 0))
        return x, w, i

    args: list[Array] = [*data(2, 24, 40), np.array(count, np.int32)]
    text = hlo(run_loop, args)
    made = compiled(text, CHIPS[256], "highest")
    assert copies(made) == [(0, 2 * args[0].nbytes)]
    groups = [i.name for i in made.module.instructions() if i.opcode == "fusion"]
    assert len({*groups}) == len(groups)  # reports and checks know them by name
    found, report = checked_run(made, CHIPS[256], args)
    for got, expected in zip(found, run_xla(text, *args), strict=True):
        assert error(got, expected) < 1e-6
    assert report.executions


def test_loops_that_stay() -> None:
    """Few iterations; a prime number of them that update rows; nothing is copied; a product that takes far longer."""

    def until(x: jax.Array) -> Any:
        """It tests, and updates rows."""

        def step(s: Any) -> Any:
            return jnp.roll(s[0], 1, 0), s[1].at[s[2]].set(s[0][0]), s[2] + 1

        return lax.while_loop(lambda s: s[0].max() < 3, step, (x, x, jnp.int32(0)))

    x, w = np.ones((8, 2048), np.float32), np.ones((2048, 2048), np.float32)
    cases: list[tuple[Callable[..., Any], list[Array]]] = [
        (loop(heat, 5), data(1, 24, 40)),
        (rows(heat, 11), data(1, 24, 40)),
        (until, data(1, 24, 40)),
        (loop(lambda i, s: (s[0] * s[0].sum(),), 9), data(1, 24, 40)),
        (lambda x, w: lax.fori_loop(0, 9, lambda i, x: jnp.tanh(x @ w), x), [x, w]),
    ]
    for f, args in cases:
        assert not copies(compiled(hlo(f, args), V3))


@examples(5, 300)
@given(st.data())
def test_any_state(draw: st.DataObject) -> None:
    """Elements that change places, depend on others by neighbours or reductions, or stay."""
    number = draw.draw(st.integers(1, 3))
    dims = tuple(draw.draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    sources = draw.draw(st.permutations(range(number)))
    others = [draw.draw(st.integers(0, number - 1)) for _ in range(number)]
    kinds = [draw.draw(st.sampled_from(KINDS)) for _ in range(number)]
    axes = [draw.draw(st.integers(0, len(dims) - 1)) for _ in range(number)]

    def step(i: jax.Array, s: State) -> State:
        return tuple(
            kind(s[a], s[b], axis, i).astype(s[0].dtype)
            for kind, a, b, axis in zip(kinds, sources, others, axes, strict=True)
        )

    form, count = draw.draw(st.sampled_from((loop, rows))), draw.draw(st.integers(5, 9))
    dtype = draw.draw(st.sampled_from((np.int32, np.int8)))
    rng = np.random.default_rng(0)
    args: list[Array] = [rng.integers(-9, 9, dims).astype(dtype) for _ in range(number)]
    text = hlo(form(step, count), args)
    made = compiled(text, CHIPS[32])
    for got, expected in zip(run(made.program, CHIPS[32], args), run_xla(text, *args), strict=True):
        assert np.array_equal(got, expected)


KINDS: Sequence[Callable[..., jax.Array]] = (
    lambda a, b, axis, i: a,
    lambda a, b, axis, i: jnp.roll(a, 1, axis),
    lambda a, b, axis, i: (a + jnp.roll(b, -1, axis) - jnp.roll(a, 2, axis)) // 2,
    lambda a, b, axis, i: jnp.flip(a, axis) + i,
    lambda a, b, axis, i: a - b.max(axis, keepdims=True),
    lambda a, b, axis, i: jnp.roll(a, i, axis),
)
