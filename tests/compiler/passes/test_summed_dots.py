"""Sums of a dot over its batch dimensions: one dot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.passes.simplify.summed_dots import ContractSummedBatches
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.machine import CHIPS, Array, check, compiled
from tests.compiler.passes.differential import assert_unchanged, opcodes, transformed
from tests.examples import examples


def module(
    batch: list[int], free: list[int], terms: int, summed: list[int], dtype: str = "s32", init: str = "0"
) -> str:
    """A dot of [free0, batch..., terms] by [terms, batch..., free1], summed over some of the batch dimensions."""
    rank = len(batch)
    places, kept = list(range(1, 1 + rank)), [n for d, n in enumerate(batch) if d not in summed]

    def array(*dims: int) -> str:
        return f"{dtype}[{','.join(map(str, dims))}]"

    x, y = array(free[0], *batch, terms), array(terms, *batch, free[1])
    order = ",".join(map(str, places))
    return f"""HloModule m
add {{
  a = {array()} parameter(0)
  b = {array()} parameter(1)
  ROOT c = {array()} add(a, b)
}}
ENTRY e {{
  x = {x} parameter(0)
  y = {y} parameter(1)
  d = {array(*batch, *free)} dot(x, y), lhs_batch_dims={{{order}}}, rhs_batch_dims={{{order}}},
    lhs_contracting_dims={{{rank + 1}}}, rhs_contracting_dims={{0}}
  zero = {array()} constant({init})
  ROOT r = {array(*kept, *free)} reduce(d, zero), dimensions={{{",".join(map(str, summed))}}}, to_apply=add
}}
"""


@examples(40, 300)
@given(st.data())
def test_values(draw: st.DataObject) -> None:
    batch = draw.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    free = draw.draw(st.lists(st.integers(0, 4), min_size=2, max_size=2))
    summed = sorted(draw.draw(st.sets(st.integers(0, len(batch) - 1))))
    text = module(batch, free, draw.draw(st.integers(0, 3)), summed)
    after = assert_unchanged(parse_hlo(text), ContractSummedBatches())
    assert opcodes(after).count("reduce") == 0


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_runs(dtype: str) -> None:
    text = module([6, 5], [9, 7], 3, [1], dtype)
    rng = np.random.default_rng(0)
    shapes = [p.shape for p in parse_hlo(text).entry.parameters]
    args: list[Array] = [rng.standard_normal(s.dims).astype(s.dtype.stored) for s in shapes]
    check(text, args, CHIPS[32], most=1e-5 if dtype == "f32" else 2.0**-7)


def test_cycles() -> None:
    chip = load_chip("tpu_v3")
    program = compiled(module([512], [128, 128], 1, [0], "f32"), chip).program
    assert (simulate(program, chip, mode="time").cycles or 0) < 4000  # it was 144,123


def test_sums_that_stay() -> None:
    """From another value than 0; by another operation; of a dot that is needed."""
    text = module([3], [4, 5], 2, [0])
    shape = "s32[3,4,5]"
    needed = text.replace("ROOT r", "r").replace(
        "to_apply=add\n", f"to_apply=add\n  ROOT t = (s32[4,5], {shape}) tuple(r, d)\n"
    )
    for kept in (module([3], [4, 5], 2, [0], init="1"), text.replace("add(a, b)", "multiply(a, b)"), needed):
        assert "reduce" in opcodes(transformed(parse_hlo(kept), ContractSummedBatches()))
