"""Passes of a contraction: chip and evaluator, which each decide by themselves, ask for the same."""

from __future__ import annotations

from itertools import product

import pytest

from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values import contraction
from systolith.compiler.mxu.precision import ALGORITHMS, PRECISIONS, passes_of
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import BF16, F32
from systolith.sim.simulate import simulate
from tests.compiler.machine import compiled


def dot(attribute: str = "") -> Instruction:
    text = f"""HloModule t
ENTRY e {{
  a = f32[4,4] parameter(0)
  ROOT d = f32[4,4] dot(a, a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{attribute and ", " + attribute}
}}
"""
    return parse_hlo(text).entry.result


CONFIGURATIONS = [
    "",
    *(f"operand_precision={{{a},{b}}}" for a, b in product(PRECISIONS, repeat=2)),
    *(f"algorithm={name}" for name in ALGORITHMS),
    "algorithm=dot_unset",
    "operand_precision={highest,highest}, algorithm=dot_bf16_bf16_f32",
]


@pytest.mark.parametrize("override", [None, *PRECISIONS])
@pytest.mark.parametrize("attribute", CONFIGURATIONS)
def test_chip_and_evaluator_ask_for_the_same(attribute: str, override: str | None) -> None:
    i = dot(attribute)
    want = {"default": 1, "high": 3, "highest": 6}[contraction.requested_precision(i, override)]
    assert len(passes_of(i, override, F32, F32)) == want


def test_both_know_the_same_names() -> None:
    assert ALGORITHMS.keys() == contraction.ALGORITHMS.keys()
    assert tuple(PRECISIONS) == contraction.PRECISIONS


def test_parts_of_bf16_that_are_zero_are_dropped() -> None:
    i = dot("operand_precision={highest,highest}")
    assert passes_of(i, None, BF16, BF16) == ((0, 0),)
    assert passes_of(i, None, F32, BF16) == ((2, 0), (1, 0), (0, 0))
    assert passes_of(i, None, BF16, F32) == ((0, 2), (0, 1), (0, 0))


def test_an_unknown_algorithm_is_refused_by_name() -> None:
    i = dot()
    i.attributes["algorithm"] = "dot_of_tomorrow"
    with pytest.raises(CompileError, match=r"dot 'd' \(f32\[4,4\]"):
        passes_of(i, None, F32, F32)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_passes_do_not_add_useful_multiplications(precision: str) -> None:
    text = """HloModule t
ENTRY e {
  a = f32[20,13] parameter(0)
  b = f32[13,9] parameter(1)
  ROOT d = f32[20,9] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    program = compiled(text, "tiny", precision).program
    assert simulate(program, load_chip("tiny"), mode="time").macs == 20 * 13 * 9
