"""Reductions of f64 in two steps: the same results, and nothing more to do."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.words.wide_sums import SplitWideSums
from tests.compiler.passes.differential import transformed

CASES = [("5,48", "1", "5"), ("16,3,8", "0,2", "3"), ("256", "0", ""), ("4,64", "0,1", ""), ("64,5", "0", "5")]
TEXT = """HloModule m
f {{
 a = f64[] parameter(0)
 b = f64[] parameter(1)
 ROOT r = f64[] {op}(a, b)
}}
ENTRY e {{
 x = f64[{dims}] parameter(0)
 z = f64[] constant(2.5)
 ROOT r = f64[{kept}] reduce(x, z), dimensions={{{reduced}}}, to_apply=f
}}
"""


@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize(("dims", "reduced", "kept"), CASES)
def test_values_stay(dims: str, reduced: str, kept: str, op: str) -> None:
    module = parse_hlo(TEXT.format(op=op, dims=dims, reduced=reduced, kept=kept))
    x = np.random.default_rng(0).standard_normal([int(n) for n in dims.split(",")])
    made = transformed(module, SplitWideSums(enough=32))
    assert sum(i.opcode == "reduce" for i in made.instructions()) == 2
    assert not SplitWideSums(enough=32).run(made)
    np.testing.assert_allclose(evaluate(made, x)[0], evaluate(module, x)[0], rtol=1e-13)


@pytest.mark.parametrize(
    ("dims", "kept", "op"), [("5,49", "5", "add"), ("64,48", "64", "add"), ("5,48", "5", "subtract")]
)
def test_others_stay_as_they_are(dims: str, kept: str, op: str) -> None:
    """Of an odd number of elements, with results enough, by another operation."""
    assert not SplitWideSums(enough=32).run(parse_hlo(TEXT.format(op=op, dims=dims, reduced="1", kept=kept)))
