"""Masks and the like that a loop keeps: made in each iteration, where that is cheap and moves fewer bytes."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.groups.loop_invariants import SinkInvariants
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.base import run_pass
from tests.compiler.machine import CHIPS, check, counting

CHIP = CHIPS[32]
STATE = "(s32[], f32[64,64], f32[64,64])"
SUM = "next = f32[64,64] add(x, mask)"


def text(mask: str, reader: str = SUM, kept: str = "mask") -> str:
    """A loop that has a value which is made before it."""
    return f"""HloModule m

body {{
  state = {STATE} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[64,64] get-tuple-element(state), index=1
  mask = f32[64,64] get-tuple-element(state), index=2
  {reader}
  one = s32[] constant(1)
  following = s32[] add(i, one)
  ROOT all = {STATE} tuple(following, next, {kept})
}}

{counting("condition", STATE, 3)}

ENTRY main {{
  x = f32[64,64] parameter(0)
  row = f32[64] parameter(1)
  first = s32[] constant(0)
  {mask}
  start = {STATE} tuple(first, x, mask)
  done = {STATE} while(start), condition=condition, body=body
  ROOT x.last = f32[64,64] get-tuple-element(done), index=1
}}
"""


OF_INDICES = """rows = s32[64,64] iota(), iota_dimension=0
  columns = s32[64,64] iota(), iota_dimension=1
  seen = pred[64,64] compare(rows, columns), direction=GE
  mask = f32[64,64] convert(seen)"""
OF_A_ROW = "mask = f32[64,64] broadcast(row), dimensions={1}"
PRODUCT = "next = f32[64,64] dot(x, mask), lhs_contracting_dims={1}, rhs_contracting_dims={0}"


@pytest.mark.parametrize(
    ("source", "sunk"),
    [
        (text(OF_INDICES), True),
        (text(OF_A_ROW), True),
        (text("mask = f32[64,64] add(x, x)"), False),  # of as many bytes
        (text("mask = f32[64,64] tanh(x)"), False),
        (text(OF_A_ROW, PRODUCT), False),  # a product would wait for it
        (text(OF_A_ROW, kept="next"), False),  # it changes
    ],
)
def test_cheap_values_are_made_where_they_are_used(source: str, sunk: bool) -> None:
    rng = np.random.default_rng(0)
    given = [rng.standard_normal((64, 64)).astype(np.float32), rng.standard_normal(64).astype(np.float32)]
    module = parse_hlo(source)
    assert run_pass(module, SinkInvariants(CHIP)).changed == sunk
    (loop,) = (i for i in module.entry.instructions if i.opcode == "while")
    whole = sum(s.dims == (64, 64) for s in loop.shape.elements)
    assert whole == (1 if sunk else 2)
    for got, want in zip(evaluate(module, *given), evaluate(parse_hlo(source), *given), strict=True):
        np.testing.assert_array_equal(got, want)
    check(source, given, CHIP)
