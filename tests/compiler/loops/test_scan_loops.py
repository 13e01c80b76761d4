"""Loops of elementwise operations as scans: values, what stays a loop, and the cycles of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from systolith.compiler.driver import Compiled, compile_groups
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.ops.group import read_groups
from systolith.compiler.options import Options
from systolith.hw.lockstep import Case, Lockstep
from systolith.isa.chip import load_chip
from systolith.runtime.jobs.checks import Checker
from systolith.runtime.memories import bind
from systolith.sim.simulate import simulate
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.loops.scans import hlo
from tests.compiler.machine import CHIPS, TINY, Array, checked, compiled, error, memory, run
from tests.examples import examples

V3 = load_chip("tpu_v3")


def average(xs: jax.Array) -> Any:
    return lax.scan(lambda h, x: (0.9 * h + 0.1 * x, h), jnp.zeros(xs.shape[1:]), xs)


def rewards(r: jax.Array, v: jax.Array, done: jax.Array) -> Any:
    """Generalised advantage estimation: from the last row to the first, which overlap."""

    def step(a: jax.Array, t: Any) -> tuple[jax.Array, jax.Array]:
        reward, value, following, end = t
        a = reward + 0.99 * following - value + 0.9405 * a * (1 - end)
        return a, a

    return lax.scan(step, jnp.zeros(r.shape[1:]), (r, v[:-1], v[1:], done), reverse=True)[1]


def state_space(x: jax.Array, dt: jax.Array, a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    """A selective state space model: rows are sums over what is carried."""

    def step(h: jax.Array, t: Any) -> tuple[jax.Array, jax.Array]:
        x, dt, b, c = t
        h = jnp.exp(dt[:, None] * a) * h + (dt * x)[:, None] * b
        return h, (h * c).sum(-1)

    return lax.scan(step, jnp.zeros(a.shape), (x, dt, b, c))[1]


def attention(q: jax.Array, k: jax.Array, v: jax.Array, decay: jax.Array) -> jax.Array:
    """Linear attention: outer products are carried, products of a vector by them are rows."""

    def step(s: jax.Array, t: Any) -> tuple[jax.Array, jax.Array]:
        q, k, v, w = t
        s = s * w[..., None] + k[..., None] * v[..., None, :]
        return s, jnp.einsum("hd,hde->he", q, s)

    return lax.scan(step, jnp.zeros((*k.shape[1:], v.shape[-1])), (q, k, v, decay))[1]


def linear_recurrence(xs: jax.Array, w: jax.Array, a: jax.Array, v: jax.Array) -> Any:
    """Products before and after what is carried, which need not wait for it."""

    def step(h: jax.Array, x: jax.Array) -> tuple[jax.Array, Any]:
        h = jnp.tanh(a * h + x @ w)
        return h, (v @ h, jnp.max(h), jnp.argmax(h))

    return lax.scan(step, jnp.zeros(a.shape), xs)


def fractal(x: jax.Array, y: jax.Array) -> Any:
    """Iterations without rows."""

    def step(i: jax.Array, s: Any) -> Any:
        a, b, n = s
        return a * a - b * b + x, 2 * a * b + y, n + (a * a + b * b < 4)

    return lax.fori_loop(0, 20, step, (x * 0, y * 0, jnp.zeros(x.shape, jnp.int32)))


def shift_register(xs: jax.Array) -> Any:
    """Carries a row, and a count."""

    def step(c: Any, x: jax.Array) -> Any:
        before, n = c
        return (x, n + 2), (x - before, n * jnp.ones(x.shape, jnp.int32))

    return lax.scan(step, (xs[0], jnp.int32(5)), xs)


def optimiser(w: jax.Array, gradients: jax.Array) -> Any:
    """Scalars beside arrays: a power of a decay, of which rows are left, too."""

    def step(s: Any, g: jax.Array) -> Any:
        w, m, v, decay = s
        m, v, decay = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g, decay * 0.99
        return (w - 0.1 * m / (jnp.sqrt(v / (1 - decay)) + 1e-8), m, v, decay), decay

    return lax.scan(step, (w, w * 0, w * 0, 1.0), gradients)


def narrow(xs: jax.Array) -> Any:
    half, table = xs.astype(jnp.bfloat16), jnp.arange(xs.shape[1]).astype(jnp.bfloat16) / 8
    return lax.scan(lambda h, x: (h * x + table, x > h), half[0], half, reverse=True)


def integers(xs: jax.Array) -> Any:
    return lax.scan(lambda h, x: ((h ^ x) * 31, h), jnp.uint8(7), jnp.abs(xs * 50).astype(jnp.uint8))


SCANS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "average": (average, [(40, 33)]),
    "average of scalars": (average, [(50,)]),
    "average of one": (average, [(7, 1)]),
    "average, two dimensions": (average, [(100, 3, 17)]),
    "rewards": (rewards, [(12, 20), (13, 20), (12, 20)]),
    "state space": (state_space, [(9, 20), (9, 20), (20, 8), (9, 8), (9, 8)]),
    "attention": (attention, [(6, 2, 8), (6, 2, 8), (6, 2, 12), (6, 2, 8)]),
    "linear recurrence": (linear_recurrence, [(11, 6), (6, 12), (12,), (5, 12)]),
    "fractal": (fractal, [(12, 30), (12, 30)]),
    "shift register": (shift_register, [(6, 25)]),
    "optimiser": (optimiser, [(60,), (20, 60)]),
    "narrow": (narrow, [(30, 21)]),
    "integers": (integers, [(40,)]),
}


def module(name: str) -> tuple[str, list[Array]]:
    rng = np.random.default_rng(0)
    f, shapes = SCANS[name]
    args: list[Array] = [(rng.standard_normal(s) / 2).astype(np.float32) for s in shapes]
    return hlo(f, args), args


def is_scan(made: Compiled) -> bool:
    return [d.chosen for d in made.explain if d.kind == "loop"] == ["scan"]


def correct(made: Compiled, text: str, chip: Any, args: list[Array]) -> None:
    """Values are XLA's, and within the bounds of every group."""
    for got, wanted in zip(run(made.program, chip, args), run_xla(text, *args), strict=True):
        assert error(got, wanted) < (2e-2 if got.dtype.name == "bfloat16" else 2e-5)
    assert checked(made, chip, args).executions


@pytest.mark.parametrize("name", SCANS)
def test_values_of_scans_are_those_of_xla(name: str) -> None:
    text, args = module(name)
    for chip in (CHIPS[16], V3):
        made = compiled(text, chip, "highest")
        assert chip is not V3 or is_scan(made)
        correct(made, text, chip, args)


@pytest.mark.parametrize("name", ["average", "state space", "linear recurrence"])
def test_the_printed_groups_are_the_same_program(name: str) -> None:
    text, _ = module(name)
    made = compiled(text, TINY, "highest")
    again = compile_groups(read_groups(parse_hlo(made.stages["grouped.hlo"])), TINY, Options(precision="highest"))
    assert again.program.code == made.program.code


def test_in_lockstep_with_the_rtl() -> None:
    with Lockstep(TINY) as both:
        for name in ("average of scalars", "rewards", "shift register"):
            text, args = module(name)
            program = compiled(text, TINY, "highest").program
            given = [a.reshape(-1).view(np.uint8).copy() for a in args]
            results = [np.zeros(b.bytes, np.uint8) for b in program.buffers if b.role == "result"]
            result = both.run(Case(program, bind(program, given, results)))
            assert result.ok, result.difference


def batched_state_space(x: jax.Array, dt: jax.Array, a: jax.Array, b: jax.Array, c: jax.Array) -> Any:
    def step(h: jax.Array, t: Any) -> Any:
        x, dt, b, c = t
        h = jnp.exp(dt[..., None] * a) * h + (dt * x)[..., None] * b[:, None]
        return h, ((h * c[:, None]).sum(-1), h)

    return lax.scan(step, jnp.ones((x.shape[1], *a.shape)), (x, dt, b, c), reverse=x.shape[0] % 2 == 0)


@examples(2, 15)
@given(*[st.integers(1, n) for n in (9, 3, 40, 9)], st.sampled_from([16, 256]))
def test_states_of_short_rows(n: int, batch: int, channels: int, states: int, kib: int) -> None:
    """Lanes hold channels, of which there are more: what is carried has its dimensions in another order then."""
    rng = np.random.default_rng(n)
    shapes = [(n, batch, channels)] * 2 + [(channels, states)] + [(n, batch, states)] * 2
    args: list[Array] = [(rng.standard_normal(s) / 2).astype(np.float32) for s in shapes]
    text = hlo(batched_state_space, args)
    for chip in (CHIPS[kib], V3):
        correct(compiled(text, chip, "highest"), text, chip, args)


def test_cycles_of_a_state_space_model() -> None:
    """With 16 states in the lanes it took 102,000; as a loop 480,371."""
    zeros = [np.zeros(s, np.float32) for s in [(256, 2, 256)] * 2 + [(256, 16)] + [(256, 2, 16)] * 2]
    made = compiled(hlo(lambda *args: batched_state_space(*args)[1][0], zeros), V3)
    assert 0 < (simulate(made.program, V3, mode="time").cycles or 0) < 17_000


OPERATIONS: list[Callable[..., jax.Array]] = [
    jnp.add,
    jnp.multiply,
    jnp.maximum,
    jnp.subtract,
    jnp.minimum,
    lambda a, b: jnp.where(a > b, a, b * b),
]


@examples(4, 25)
@given(
    st.lists(st.sampled_from([1, 2, 3, 9, 40]), max_size=3),
    st.integers(1, 30),
    st.sampled_from(["float32", "bfloat16", "int32", "int8"]),
    st.booleans(),
    st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=6),
    st.integers(0, 3),
    st.sampled_from([16, 32, 256]),
)
def test_any_scan(
    dims: list[int], n: int, dtype: str, backwards: bool, steps: list[tuple[int, int, int]], rows: int, kib: int
) -> None:
    """Any operations on what is carried, rows and a count."""
    t, floats = jnp.dtype(dtype), dtype.startswith(("f", "b"))

    def step(c: Any, row: Any) -> Any:
        a, b, count = c
        values = [a, b, row[0], jnp.broadcast_to(row[1], a.shape), jnp.full(a.shape, count).astype(t)]
        for op, x, y in steps:
            values.append(OPERATIONS[op % 6](values[x % len(values)], values[-1 - y % len(values)]))
        last = values[-1] / 2 if floats else values[-1]
        return (jnp.tanh(last) if floats else last, values[-2] + a, jnp.maximum(count + 3, 0)), tuple(
            values[-rows:] if rows else ()
        )

    def f(a: jax.Array, b: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        (a, b, _), out = lax.scan(step, (a, b, jnp.int32(-4)), (x, y), reverse=backwards)
        return a, b, out

    rng = np.random.default_rng(len(steps))
    args = [np.asarray(rng.uniform(-2, 2, s)).astype(t) for s in (dims, dims, (n, *dims), (n,))]
    chip = CHIPS[kib]
    made = compiled(hlo(f, args), chip, "highest")
    checked(made, chip, args)
    if not floats:
        for got, wanted in zip(run(made.program, chip, args), run_xla(hlo(f, args), *args), strict=True):
            assert error(got, wanted) == 0


def rows_of_products(xs: jax.Array, w: jax.Array) -> Any:
    return lax.map(lambda x: (jax.nn.softmax(jnp.tanh(x @ w)), x.sum(), jnp.argmax(x)), xs)


def rows_by_number(xs: jax.Array, w: jax.Array) -> Any:
    return lax.fori_loop(0, xs.shape[0], lambda i, y: y.at[xs.shape[0] - 1 - i].set(xs[i] * i + w[0, 0]), xs * 0)


@pytest.mark.parametrize("f", [rows_of_products, rows_by_number])
def test_iterations_that_depend_on_no_other_are_one(f: Callable[..., Any]) -> None:
    args: list[Array] = [np.random.default_rng(0).uniform(-1, 1, s).astype(np.float32) for s in ((9, 20), (20, 7))]
    text = hlo(f, args)
    for chip in (CHIPS[32], V3):
        made = compiled(text, chip, "highest")
        assert [d.chosen for d in made.explain if d.kind == "loop"] == ["all iterations at once"]
        correct(made, text, chip, args)


def reads_what_it_writes(xs: jax.Array) -> Any:
    def step(i: jax.Array, ys: jax.Array) -> jax.Array:
        return ys.at[i].set(ys[i - 1] * 2 + ys[i])

    return lax.fori_loop(1, xs.shape[0], step, xs)


def every_second(xs: jax.Array) -> Any:
    return lax.fori_loop(0, xs.shape[0] // 2, lambda i, h: h / 2 + xs[2 * i], xs[0])


def beyond_the_end(xs: jax.Array) -> Any:
    return lax.fori_loop(0, xs.shape[0], lambda i, h: h / 2 + lax.dynamic_index_in_dim(xs, i + 3, 0, False), xs[0])


def neighbours(xs: jax.Array) -> Any:
    return lax.scan(lambda h, x: (h[::-1] / 2 + x, h), xs[0], xs)


def sums(xs: jax.Array) -> Any:
    return lax.scan(lambda h, x: (h / 2 + x - jnp.sum(h), h), xs[0], xs)


def until(xs: jax.Array) -> Any:
    return lax.while_loop(lambda c: (c[0] < 30) & (jnp.max(c[1]) < 9), lambda c: (c[0] + 1, c[1] * 1.2), (0, xs[0]))


@pytest.mark.parametrize("f", [reads_what_it_writes, every_second, beyond_the_end, neighbours, sums, until])
def test_loops_that_are_no_scans(f: Callable[..., Any]) -> None:
    args: list[Array] = [np.random.default_rng(0).uniform(-1, 1, (8, 20)).astype(np.float32)]
    text = hlo(f, args)
    made = compiled(text, TINY, "highest")
    assert not is_scan(made)
    correct(made, text, TINY, args)


def test_a_step_takes_as_long_as_its_chain() -> None:
    """A loop took 85 cycles an iteration; a multiplication and an addition take two each."""
    made = compiled(hlo(average, [np.zeros((1000, 512), np.float32)]), V3)
    assert 0 < (simulate(made.program, V3, mode="time").cycles or 0) < 9200
    assert len(made.program.code) < 40


def test_large_states_with_long_chains_stay_loops() -> None:
    """Many vectors overlap in an iteration of a loop, which hides how long each takes."""
    zeros = np.zeros((512, 512), np.float32)
    assert not is_scan(compiled(hlo(fractal, [zeros, zeros]), V3))


def test_rows_that_a_loop_makes_where_they_go_are_compared() -> None:
    """Where such a row lies only the run knows: in the array, at a place in a register."""

    def f(h: jax.Array, xs: jax.Array) -> Any:
        return lax.scan(lambda h, x: (h[::-1] / 4 + jnp.abs(x), jnp.abs(x) / 2 + h), h, xs)

    rng = np.random.default_rng(0)
    args: list[Array] = [rng.standard_normal(s).astype(np.float32) for s in [(8, 128), (16, 8, 128)]]
    made = compiled(hlo(f, args), CHIPS[16], "highest")
    placed = {p.group for p in made.program.probes if any(o.register for o in p.outputs)}
    assert placed
    report = checked(made, CHIPS[16], args)
    assert not report.unchecked
    checker = Checker(made.program, _with_another_constant(made), "highest")
    simulate(made.program, CHIPS[16], memory(made.program, args), observer=checker)
    assert all(any(name in failure for name in placed) for failure in checker.report().failures)
    assert checker.report().failures


def _with_another_constant(made: Compiled) -> Compiled:
    """As if the rows were to be another fraction."""
    text = made.stages["grouped.hlo"]
    assert "constant(0.5)" in text
    return compile_groups(read_groups(parse_hlo(text.replace("constant(0.5)", "constant(0.75)"))), CHIPS[16])
