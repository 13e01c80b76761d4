"""Factors of sums: which move behind the sum, and that results are those of numpy in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.groups.factor_sums import FactorSums
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.base import run_pass
from systolith.isa.chip import load_chip
from tests.compiler.fusion.test_blocking import FOLDS
from tests.compiler.machine import compiled, run
from tests.compiler.passes.differential import transformed

Array = np.ndarray[Any, np.dtype[Any]]

CHIP = load_chip("tiny")
DIMS = (4, 32, 32, 8)
WHOLE, ROW = "f32[4,32,32,8]", "f32[8]"


def module(lines: str, summed: str) -> str:
    """The sum of one value, after another one over the same elements: of `x` times `y`."""
    return f"""HloModule m
{FOLDS}
ENTRY e {{
 x = {WHOLE} parameter(0)
 y = {WHOLE} parameter(1)
 r = {ROW} parameter(2)
 zero = f32[] constant(0)
 xy = {WHOLE} multiply(x, y)
 first = {ROW} reduce(xy, zero), dimensions={{0,1,2}}, to_apply=add
 c = {ROW} multiply(first, r)
 cs = {WHOLE} broadcast(c), dimensions={{3}}
 rs = {WHOLE} broadcast(r), dimensions={{3}}
{lines}
 sum = {ROW} reduce({summed}), dimensions={{0,1,2}}, to_apply=add
 ROOT t = ({ROW}, {ROW}) tuple(first, sum)
}}
"""


SCALED = module(f" a = {WHOLE} multiply(cs, x)\n b = {WHOLE} divide(a, rs)\n n = {WHOLE} negate(b)", "n, zero")


def summed(made: Module) -> set[str]:
    """The opcodes of what is summed."""
    return {i.operands[0].opcode for i in made.entry.instructions if i.opcode == "reduce"}


def arguments() -> list[Array]:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, *DIMS)).astype(np.float32)
    return [x, y, rng.uniform(0.5, 2, DIMS[-1]).astype(np.float32)]


def test_factors_that_wait_for_a_sum() -> None:
    made = transformed(parse_hlo(SCALED), FactorSums(CHIP))
    assert summed(made) == {"multiply", "parameter"}
    assert not [i for i in made.entry.instructions if i.opcode in ("divide", "negate") and i.dims == DIMS]


@pytest.mark.parametrize(
    "text",
    [
        module(f" n = {WHOLE} multiply(rs, x)", "n, zero"),  # its factor is there before any sum
        module(f" n = {WHOLE} divide(cs, x)", "n, zero"),  # a quotient by the elements
        module(f" n = {WHOLE} multiply(xy, x)", "n, zero"),  # no factor at all
        module(f" n = {WHOLE} multiply(cs, x)", "n, one").replace("zero =", "one = f32[] constant(1)\n zero ="),
        SCALED.replace("to_apply=add", "to_apply=max"),
        SCALED.replace("[4,32,32,8]", "[1,32,8,8]"),  # a small array
        SCALED.replace("broadcast(c), dimensions={3}", "broadcast(first4), dimensions={0}").replace(
            " c =", " first4 = f32[4] reduce(xy, zero), dimensions={1,2,3}, to_apply=add\n c ="
        ),  # it varies along the sum
    ],
)
def test_others_stay(text: str) -> None:
    assert not run_pass(parse_hlo(text), FactorSums(CHIP)).changed


@given(st.lists(st.sampled_from(("multiply({}, cs)", "multiply(rs, {})", "divide({}, rs)", "negate({})")), max_size=4))
def test_values(scalings: list[str]) -> None:
    names = ["x", *(f"v{n}" for n in range(len(scalings)))]
    steps = zip(names[1:], scalings, names[:-1], strict=True)
    lines = "\n".join(f" {name} = {WHOLE} {scaling.format(before)}" for name, scaling, before in steps)
    made = parse_hlo(module(lines, f"{names[-1]}, zero"))
    run_pass(made, FactorSums(CHIP))
    assert summed(made) == {"multiply", "parameter"} or not any("cs" in s for s in scalings)
    np.testing.assert_allclose(evaluate(made, *arguments())[1], expected(scalings), rtol=2e-5)


def expected(scalings: list[str]) -> Array:
    """In f64."""
    x, y, r = (a.astype(np.float64) for a in arguments())
    c = (x * y).sum((0, 1, 2)) * r
    value = x
    for scaling in scalings:
        value = {"m": value * (c if "cs" in scaling else r), "d": value / r, "n": -value}[scaling[0]]
    return np.asarray(value.sum((0, 1, 2)))


def test_one_pass_on_the_chip() -> None:
    """JAX reduces what has one index once more; both large sums are one group, and its results are numpy's."""
    again = f""" ones = f32[1,1,1,8] reshape(sum)
 last = {ROW} reduce(ones, zero), dimensions={{0,1,2}}, to_apply=add
 ROOT t = ({ROW}, {ROW}) tuple(first, last)"""
    text = SCALED.replace(f" ROOT t = ({ROW}, {ROW}) tuple(first, sum)", again)
    made = compiled(text, CHIP, "highest")
    large = 4 * int(np.prod(DIMS))
    assert [g.opcodes.count("reduce") for g in made.program.groups if g.bytes > large] == [2]
    got = run(made.program, CHIP, arguments())[1]
    np.testing.assert_allclose(got, expected(["multiply({}, cs)", "divide({}, rs)", "negate({})"]), rtol=2e-5)


def test_a_factor_that_thousands_of_small_values_lead_to() -> None:
    steps = "\n".join(f" c{n + 1} = {ROW} add(c{n}, r)" for n in range(3000))
    chain = f" c0 = {ROW} multiply(first, r)\n{steps}\n fs = {WHOLE} broadcast(c3000), dimensions={{3}}"
    made = parse_hlo(module(f"{chain}\n a = {WHOLE} multiply(fs, x)", "a, zero"))
    assert run_pass(made, FactorSums(CHIP)).changed
