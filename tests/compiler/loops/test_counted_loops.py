"""HLO loops of known trip counts: what they count is in registers, iterations overlap, values are XLA's."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from systolith.compiler.driver import Compiled
from systolith.sim.simulate import simulate
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.loops.scans import PROGRAMS, arguments, backwards, hlo
from tests.compiler.machine import CHIPS, TINY, Array, checked, compiled, counting, error, run, with_vmem
from tests.examples import examples, with_slow


def made(name: str) -> tuple[Compiled, str, list[Array]]:
    args = arguments(name)
    text = hlo(PROGRAMS[name][0], args)
    return compiled(text, TINY, "highest"), text, args


def joined(program: Compiled) -> list[str]:
    return [d.why for d in program.explain if d.kind == "repeat" and "SEQ joins" in d.chosen]


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_xla(name: str) -> None:
    program, text, args = made(name)
    for got, wanted in zip(run(program.program, TINY, args), run_xla(text, *args), strict=True):
        assert error(got, wanted) < 2e-5


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in ("one_turn", "two_turns", "shifted")])
def test_iterations_overlap(name: str) -> None:
    program, _, _ = made(name)
    ops = [i.op for i in program.program.code]
    assert "loop" in ops
    assert "lds" not in ops  # no index waits for memory
    assert not joined(program)


def test_a_loop_takes_less_than_its_instructions_one_after_another() -> None:
    """What is next is loaded while another iteration computes."""
    args: list[Array] = [np.zeros(s, np.float32) for s in [(40, 400), (400,)]]
    program = compiled(hlo(backwards, args), TINY).program
    trace = simulate(program, TINY, mode="time").trace
    assert trace is not None
    first = next(n for n, i in enumerate(program.code) if i.op == "loop") + 1
    loads = [k for k, n in enumerate(trace.index) if n > first and program.code[n].op == "dma.load"]
    same = [k for k in loads if trace.index[k] == trace.index[loads[0]]]
    begin, end = same[5], same[6]
    busy = int((trace.end[begin:end] - trace.start[begin:end]).sum())
    assert trace.start[end] - trace.start[begin] < 0.8 * busy


STREAMED = {
    "recurrence": (16, [(31, 8, 20), (20, 20)]),
    "backwards": (16, [(101, 60), (60,)]),
    "gradient": (4, [(40, 2, 10), (10, 10)]),
}
"""KiB of VMEM, and dimensions."""
QUICK_OR_SLOW = with_slow(STREAMED, {"gradient"})


def streamed(name: str) -> tuple[Compiled, Counter[str]]:
    """A program whose rows come from HBM and go there, and its probes by group; every group of every iteration is
    compared with the evaluator, and the results with XLA's.
    """
    kib, shapes = STREAMED[name]
    chip = with_vmem(TINY, kib << 10)
    rng = np.random.default_rng(0)
    args: list[Array] = [(rng.standard_normal(s) / 8).astype(np.float32) for s in shapes]
    text = hlo(PROGRAMS[name][0], args)
    made = compiled(text, chip, "highest")
    program = made.program
    for got, wanted in zip(run(program, chip, args), run_xla(text, *args), strict=True):
        assert error(got, wanted) < 2e-5
    report = checked(made, chip, args)
    times = {g.name: g.executions for g in program.groups}
    assert report.executions == sum(times[group] for group in {p.group for p in program.probes if p.outputs})
    return made, Counter(p.group for p in program.probes)


@pytest.mark.parametrize("name", QUICK_OR_SLOW)
def test_two_sets_of_buffers(name: str) -> None:
    _, probes = streamed(name)
    assert max(probes.values()) >= 4  # two iterations, and those before the loop


@pytest.mark.parametrize("name", QUICK_OR_SLOW)
def test_one_set_of_buffers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long iterations have it, in which small loads have memory for themselves."""
    monkeypatch.setattr("systolith.compiler.lower.double_buffering.LARGEST", 0)
    monkeypatch.setattr("systolith.compiler.lower.control.SMALL", 16)
    made, probes = streamed(name)
    assert max(probes.values()) == 2
    assert any(" source holds " in line for line in made.stages["tile.txt"].splitlines())


@examples(7, 400)
@given(
    count=st.integers(0, 14),
    first=st.integers(-4, 12),
    step=st.sampled_from([-2, -1, 1, 2, 3]),
    scale=st.sampled_from([-1, 1, 2]),
    offset=st.integers(-3, 8),
    dtype=st.sampled_from(["s32", "u32", "s16", "s8", "u8"]),
    width=st.sampled_from([5, 300]),
    kib=st.sampled_from([16, 32, 256]),
)
def test_any_index_that_is_counted(
    count: int, first: int, step: int, scale: int, offset: int, dtype: str, width: int, kib: int
) -> None:
    """Rows are read and written where XLA does, clamped where they are outside, with indices of any type that wrap.

    They are in VMEM, or in HBM and loaded in one of two sets of buffers.
    """
    if dtype[0] == "u":
        first, step = abs(first), abs(step)
    end = first + step * count
    text = f"""HloModule m
body {{
  s = ({dtype}[], f32[17,{width}], f32[17,{width}]) parameter(0)
  i = {dtype}[] get-tuple-element(s), index=0
  xs = f32[17,{width}] get-tuple-element(s), index=1
  ys = f32[17,{width}] get-tuple-element(s), index=2
  by = {dtype}[] constant({step})
  scale = {dtype}[] constant({scale if dtype[0] == "s" else abs(scale)})
  offset = {dtype}[] constant({offset if dtype[0] == "s" else abs(offset)})
  zero = {dtype}[] constant(0)
  scaled = {dtype}[] multiply(i, scale)
  at = {dtype}[] add(scaled, offset)
  back = {dtype}[] subtract(offset, i)
  row = f32[2,{width}] dynamic-slice(xs, at, zero), dynamic_slice_sizes={{2,{width}}}
  old = f32[2,{width}] dynamic-slice(ys, back, zero), dynamic_slice_sizes={{2,{width}}}
  sum = f32[2,{width}] add(row, old)
  made = f32[17,{width}] dynamic-update-slice(ys, sum, back, zero)
  next = {dtype}[] add(i, by)
  ROOT r = ({dtype}[], f32[17,{width}], f32[17,{width}]) tuple(next, xs, made)
}}
condition {{
  s = ({dtype}[], f32[17,{width}], f32[17,{width}]) parameter(0)
  i = {dtype}[] get-tuple-element(s), index=0
  end = {dtype}[] constant({end})
  ROOT less = pred[] compare(i, end), direction=NE
}}
ENTRY main {{
  xs = f32[17,{width}] parameter(0)
  ys = f32[17,{width}] parameter(1)
  first = {dtype}[] constant({first})
  s = ({dtype}[], f32[17,{width}], f32[17,{width}]) tuple(first, xs, ys)
  w = ({dtype}[], f32[17,{width}], f32[17,{width}]) while(s), condition=condition, body=body
  last = {dtype}[] get-tuple-element(w), index=0
  out = f32[17,{width}] get-tuple-element(w), index=2
  ROOT r = ({dtype}[], f32[17,{width}]) tuple(last, out)
}}
"""
    rng = np.random.default_rng(count)
    args: list[Array] = [rng.standard_normal((17, width)).astype(np.float32) for _ in range(2)]
    for got, wanted in zip(
        run(compiled(text, CHIPS[kib]).program, CHIPS[kib], args), run_xla(text, *args), strict=True
    ):
        assert (np.asarray(got).reshape(np.shape(wanted)) == wanted).all()


def test_rows_at_clamped_places_are_in_order() -> None:
    """The last two iterations write one row: how far an index moves in the first two says nothing of these."""
    rows, width, chip = 24, 400, CHIPS[32]
    text = f"""HloModule m
body {{
  s = (s32[], f32[{rows},{width}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  ys = f32[{rows},{width}] get-tuple-element(s), index=1
  one = s32[] constant(1)
  zero = s32[] constant(0)
  before = s32[] subtract(i, one)
  next = s32[] add(i, one)
  row = f32[1,{width}] dynamic-slice(ys, before, zero), dynamic_slice_sizes={{1,{width}}}
  sum = f32[1,{width}] add(row, row)
  made = f32[{rows},{width}] dynamic-update-slice(ys, sum, next, zero)
  ROOT r = (s32[], f32[{rows},{width}]) tuple(next, made)
}}
{counting("condition", f"(s32[], f32[{rows},{width}])", rows)}
ENTRY main {{
  ys = f32[{rows},{width}] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[{rows},{width}]) tuple(zero, ys)
  w = (s32[], f32[{rows},{width}]) while(s), condition=condition, body=body
  ROOT out = f32[{rows},{width}] get-tuple-element(w), index=1
}}
"""
    given_rows = np.random.default_rng(0).standard_normal((rows, width)).astype(np.float32)
    (got,), (wanted,) = run(compiled(text, chip).program, chip, [given_rows]), run_xla(text, given_rows)
    assert (np.asarray(got).reshape(wanted.shape) == wanted).all()


@pytest.mark.slow
def test_checks_of_rows_that_tile_loops_store() -> None:
    """The register with a row's place moves with the tiles of the row: checks do not know where the row began."""

    def rows(x: jax.Array, y: jax.Array) -> Any:
        def step(c: jax.Array, i: jax.Array) -> tuple[jax.Array, jax.Array]:
            return c / 2 + jnp.roll(x, i, 0), jnp.einsum("pqr,qrp->qp", c, y) * 2 + 1

        return lax.scan(step, x, jnp.arange(2))

    args: list[Array] = [np.ones(s, np.float32) for s in [(60, 41, 27), (41, 27, 60)]]
    report = checked(compiled(hlo(rows, args), CHIPS[16], "highest"), CHIPS[16], args)
    assert report.unchecked >= 2 * 60 * 41
