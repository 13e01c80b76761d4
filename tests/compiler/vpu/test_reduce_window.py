"""`reduce-window` of every window, type and computation, on the chip."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.isa.chip import load_chip
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.index_cases import Draw, numbers
from tests.compiler.machine import compiled, run
from tests.compiler.window_cases import reduce_window_module, window_arguments
from tests.examples import examples

TYPES = ("f32", "bf16", "s32", "u32", "u8", "s8", "s16", "pred")


def on_chip(module: Module, seed: int, chip: str = "tiny") -> None:
    arguments = window_arguments(module, seed)
    program = compiled(print_hlo(module), chip).program
    with np.errstate(all="ignore"):
        wanted = evaluate(module, *arguments)
    for a, b in zip(run(program, load_chip(chip), arguments), wanted, strict=True):
        assert a.dtype == b.dtype
        whole = np.int64 if a.dtype.kind in "biu" else np.float64
        np.testing.assert_array_equal(a.astype(whole), b.astype(whole))


@examples(12, 25)
@given(numbers(), st.integers(0, 1000))
def test_any_window(draw: Draw, seed: int) -> None:
    on_chip(reduce_window_module(draw, TYPES), seed)


@pytest.mark.slow
@settings(max_examples=500)
@given(numbers(), st.integers(0, 1000), st.sampled_from(["tiny", "small", "tpu_v3"]))
def test_any_larger_window(draw: Draw, seed: int, chip: str) -> None:
    on_chip(reduce_window_module(draw, TYPES, 9), seed, chip)


ORDERED = """HloModule m
c {
 a = s32[] parameter(0)
 b = s32[] parameter(1)
 d = s32[] add(a, a)
 ROOT r = s32[] subtract(d, b)
}
ENTRY e {
 x = s32[7] parameter(0)
 i = s32[] constant(1)
 ROOT r = s32[5] reduce-window(x, i), window={size=3 rhs_reversal=1}, to_apply=c
}
"""


def test_a_reversed_window_has_its_elements_in_the_same_order() -> None:
    """As XLA has them, where the computation depends on the order."""
    x = np.arange(7, dtype=np.int32)
    (want,) = run_xla(ORDERED, x)
    np.testing.assert_array_equal(evaluate(parse_hlo(ORDERED), x)[0], want)
    np.testing.assert_array_equal(run(compiled(ORDERED).program, load_chip("tiny"), [x])[0], want)


@pytest.mark.parametrize("body", ["add(a, b)", "multiply(a, b)", "subtract(b, a)"])
@pytest.mark.parametrize(
    ("window", "count"),
    [
        ("size=3 pad=1_1", 6),
        ("size=3 stride=2 pad=2_0", 3),
        ("size=4 pad=4_0", 7),
        ("size=6 pad=5_0", 6),
        ("size=3 pad=1_1 lhs_dilate=2", 11),
        ("size=2 pad=1_1 rhs_dilate=2", 6),
    ],
)
def test_what_a_window_sees_beyond_its_operand_adds_nothing(body: str, window: str, count: int) -> None:
    """The initial value is no neutral element, so it shows how often it counts: on the chip, too."""
    text = f"""HloModule m
c {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] {body}
}}
ENTRY e {{
  x = f32[6] parameter(0)
  i = f32[] constant(10)
  ROOT w = f32[{count}] reduce-window(x, i), window={{{window}}}, to_apply=c
}}"""
    x = np.arange(1, 7, dtype=np.float32)
    (want,) = run_xla(text, x)
    np.testing.assert_array_equal(evaluate(parse_hlo(text), x)[0], want)
    np.testing.assert_array_equal(run(compiled(text).program, load_chip("tiny"), [x])[0], want)
