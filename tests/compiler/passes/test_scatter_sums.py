"""Scatters into zeros that are added to a product: they add to the product."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand.scatter_sums import MergeScatterSums
from systolith.isa.chip import load_chip
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import compiled, run
from tests.compiler.passes.differential import opcodes, transformed

DOT = "d = T[6,5] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}"


def module(t: str = "f32", zero: str = "0", product: str = DOT, opcode: str = "add", root: str = "add(g, d)") -> str:
    """The gradient of a table that is looked up in and multiplied by."""
    text = f"""HloModule m
f {{ p = T[] parameter(0)
  q = T[] parameter(1)
  ROOT r = T[] {opcode}(p, q) }}
ENTRY e {{
  a = T[4,6] parameter(0)
  b = T[4,5] parameter(1)
  i = s32[9] parameter(2)
  u = T[9,5] parameter(3)
  z = T[] constant({zero})
  x = T[6,5] broadcast(z), dimensions={{}}
  g = T[6,5] scatter(x, i, u), to_apply=f, update_window_dims={{1}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1
  {product}
  ROOT s = T[6,5] {root}
}}
"""
    return text.replace("T[", f"{t}[")


TURNED = """c = T[5,6] dot(b, a), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  d = T[6,5] transpose(c), dimensions={1,0}"""


@pytest.mark.parametrize("text", [module(), module(root="add(d, g)"), module("s32"), module(product=TURNED)])
@pytest.mark.parametrize("chip", ["tiny", "tpu_v3"])
def test_the_scatter_adds_to_the_product(text: str, chip: str) -> None:
    """Indices are equal, or outside; whole numbers have exact sums."""
    read = parse_hlo(text)
    made = transformed(read, MergeScatterSums())
    assert "add" not in [i.opcode for i in made.entry.instructions]
    rng = np.random.default_rng(0)
    given = [rng.integers(-3, 4, p.dims).astype(p.shape.dtype.stored) for p in read.entry.parameters]
    given[2] = np.array([0, 5, 5, 2, -1, 6, 5, 0, 3], np.int32)
    (want,) = run_xla(text, *given)
    np.testing.assert_array_equal(evaluate(made, *given)[0], want)
    (got,) = run(compiled(text, chip).program, load_chip(chip), given)
    np.testing.assert_array_equal(got.reshape(want.shape), want)


@pytest.mark.parametrize(
    "text",
    [
        module(zero="1"),
        module(opcode="maximum"),
        module("bf16"),  # each sum is rounded
        module(product="d = T[6,5] negate(x)"),  # -0, to which 0 makes a difference
        module(root="multiply(g, d)"),
        module(root="add(g, y)", product=f"{DOT}\n  w = T[6,5] negate(g)\n  y = T[6,5] add(w, d)"),
    ],
)
def test_other_sums_stay(text: str) -> None:
    read = parse_hlo(text)
    assert "scatter" in opcodes(read)
    assert not MergeScatterSums().run(read)
