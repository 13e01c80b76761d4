"""Constants that are tuples, that the text leaves out, or of types that the chip does not have."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.options import Options
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.machine import check, compiled, run

TINY = load_chip("tiny")
WEIGHTS = """HloModule m
ENTRY e {{
  x = f32[8,24] parameter(0)
  w = f32[24,8] constant({0})
  v = f32[24,8] constant({1})
  b = f32[8,8] constant({2})
  d = f32[8,8] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  f = f32[8,8] dot(x, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  g = f32[8,8] multiply(f, b)
  ROOT a = f32[8,8] add(d, g)
}}"""


def test_left_out_constants_are_zeros_and_take_the_time_of_any_values() -> None:
    rng = np.random.default_rng(0)
    drawn = [rng.standard_normal(dims) for dims in ((24, 8), (24, 8), (8, 8))]
    texts = ["{" + ",".join("{" + ",".join(map(str, row)) + "}" for row in x) + "}" for x in drawn]
    real = compiled(WEIGHTS.format(*texts), TINY)
    module = parse_hlo(WEIGHTS.format(*["{...}"] * 3), left_out=True)
    zeros = compile_module(module, TINY, Options(elided="zeros"))
    assert simulate(zeros.program, TINY, mode="time").cycles == simulate(real.program, TINY, mode="time").cycles
    assert len(zeros.program.buffers) == len(real.program.buffers)
    (result,) = run(zeros.program, TINY, [np.ones((8, 24), np.float32)])
    assert not result.any()


@pytest.mark.parametrize(
    "body",
    [
        "t = (f32[3], s32[]) constant(({1, 2, 3}, 4)) a = f32[3] get-tuple-element(t), index=0"
        " ROOT r = f32[3] add(a, x)",
        "ROOT t = (f32[3], (s32[2], pred[])) constant(({1, 2, 3}, ({4, 5}, true)))",
        "t = (f32[3], f32[0]) constant(({1, 2, 3}, {})) ROOT r = (f32[3], (f32[3], f32[0])) tuple(x, t)",
    ],
)
def test_tuples_of_constants(body: str) -> None:
    check(f"HloModule m\nENTRY e {{ x = f32[3] parameter(0) {body} }}", [np.ones(3, np.float32)])


def test_left_out_elements_of_a_tuple() -> None:
    text = """HloModule m
ENTRY e {
  t = (f32[12], s32[]) constant({...})
  a = f32[12] get-tuple-element(t), index=0
  n = s32[] get-tuple-element(t), index=1
  c = f32[] convert(n)
  d = f32[12] broadcast(c), dimensions={}
  ROOT r = f32[12] subtract(d, a)
}"""
    made = compile_module(parse_hlo(text, left_out=True), TINY, Options(elided="zeros"))
    np.testing.assert_array_equal(run(made.program, TINY, [])[0], np.zeros(12, np.float32))
