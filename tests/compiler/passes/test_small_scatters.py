"""Scatters of many updates into few elements as reductions: the evaluator's values, XLA's, the chip."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand.scatters import SimplifyScatters
from systolith.compiler.passes.expand.small_scatters import ReduceSmallScatters
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import Array, compiled, run
from tests.compiler.passes.differential import opcodes, transformed

OPCODES = {"f32": ("add", "multiply", "maximum", "minimum"), "s32": ("add", "minimum", "and", "or", "xor")}


def module(t: str, opcode: str, dims: tuple[int, int, int], many: int, body: str = "") -> str:
    """Updates `[outer, many, inner]` of an array `[outer, elements, inner]`, at places of its second dimension."""
    outer, elements, inner = dims
    return f"""HloModule m
f {{ a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  {body or f"ROOT c = {t}[] {opcode}(a, b)"} }}
ENTRY e {{
  x = {t}[{outer},{elements},{inner}] parameter(0)
  i = s32[{many}] parameter(1)
  u = {t}[{outer},{many},{inner}] parameter(2)
  ROOT r = {t}[{outer},{elements},{inner}] scatter(x, i, u), to_apply=f, update_window_dims={{0,2}},
    inserted_window_dims={{1}}, scatter_dims_to_operand_dims={{1}}, index_vector_dim=1
}}
"""


def operands(text: str, seed: int) -> list[Array]:
    """Small whole numbers, whose sums are exact; indices of which some are outside."""
    rng = np.random.default_rng(seed)
    x, i, u = (p.shape for p in parse_hlo(text).entry.parameters)
    values = [rng.integers(-3, 4, s.dims).astype(s.dtype.stored) for s in (x, u)]
    return [values[0], rng.integers(-2, x.dims[1] + 2, i.dims, np.int32), values[1]]


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, int]:
    t = draw(st.sampled_from(sorted(OPCODES)))
    dims = draw(st.integers(1, 2)), draw(st.integers(1, 40)), draw(st.integers(1, 3))
    return module(t, draw(st.sampled_from(OPCODES[t])), dims, draw(st.integers(512, 700))), draw(st.integers(0, 99))


@settings(max_examples=30, deadline=None)
@given(cases())
def test_any_small_scatter(case: tuple[str, int]) -> None:
    read, given = parse_hlo(case[0]), operands(*case)
    made = transformed(read, SimplifyScatters(), ReduceSmallScatters())
    assert "scatter" not in opcodes(made)
    np.testing.assert_array_equal(evaluate(made, *given), evaluate(read, *given))


@pytest.mark.parametrize(
    "text",
    [
        module("f32", "add", (1, 2095, 1), 600),  # elements
        module("f32", "add", (1, 8, 1), 511),  # too few updates
        module("f32", "", (1, 8, 1), 600, "ROOT c = f32[] subtract(a, b)"),
        module("f32", "", (1, 8, 1), 600, "z = f32[] negate(a)\n ROOT c = f32[] copy(b)"),
        module("bf16", "add", (1, 8, 1), 600),  # each sum is rounded
        module("s64", "add", (1, 8, 1), 600),
    ],
)
def test_other_scatters_stay(text: str) -> None:
    read = transformed(parse_hlo(text), SimplifyScatters())
    assert not ReduceSmallScatters().run(read)


def test_elements_without_updates_keep_their_sign() -> None:
    text = module("f32", "add", (1, 4, 1), 600)
    x = np.array([-0.0, 0.0, np.nan, np.inf], np.float32).reshape(1, 4, 1)
    given = [x, np.full(600, 1, np.int32), np.full((1, 600, 1), -0.0, np.float32)]
    (got,) = run(compiled(text, "small").program, load_chip("small"), given)
    np.testing.assert_array_equal(got.view(np.uint32).ravel(), x.view(np.uint32).ravel())


@pytest.mark.parametrize("chip", ["tiny", "tpu_v3"])
@pytest.mark.parametrize(("t", "opcode"), [("f32", "add"), ("f32", "maximum"), ("s32", "add"), ("s32", "or")])
def test_on_the_chip_as_by_xla(t: str, opcode: str, chip: str) -> None:
    text = module(t, opcode, (1, 11, 2), 1000)
    given = operands(text, 3)
    (got,) = run(compiled(text, chip).program, load_chip(chip), given)
    (want,) = run_xla(text, *given)
    np.testing.assert_array_equal(got.reshape(want.shape), want)


def test_histograms_take_far_fewer_cycles_than_updates_one_by_one() -> None:
    chip = load_chip("tpu_v3")
    program = compiled(module("s32", "add", (1, 128, 1), 1 << 16), chip).program
    cycles = simulate(program, chip, mode="time").cycles
    assert cycles is not None
    assert cycles < 9 * (1 << 16) / 20
