"""Initial values of reductions that are computed in their group, from elements of arrays."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from tests.compiler.vpu.test_reducers import on_chip, show, small
from tests.examples import examples

OPS: dict[str, np.ufunc] = {"add": np.add, "maximum": np.maximum, "minimum": np.minimum}

INITS = {
    "element": " e = s32[1,1] slice(y), slice={[1:2], [2:3]}\n i = s32[] reshape(e)",
    "last": " v = s32[2,3] reverse(y), dimensions={0,1}\n e = s32[1,1] slice(v), slice={[0:1], [0:1]}\n"
    " i = s32[] reshape(e)",
    "negated": " e = s32[1,1] slice(y), slice={[1:2], [2:3]}\n s = s32[] reshape(e)\n i = s32[] negate(s)",
    "scalar": " e = s32[1,1] slice(y), slice={[1:2], [2:3]}\n s = s32[] reshape(e)\n one = s32[] constant(1)\n"
    " i = s32[] add(s, one)",
}
VALUES: dict[str, Callable[[np.ndarray], int]] = {
    "element": lambda y: int(y[1, 2]),
    "last": lambda y: int(y[1, 2]),
    "negated": lambda y: -int(y[1, 2]),
    "scalar": lambda y: int(y[1, 2]) + 1,
}


MOST = 40**3
"""Elements of an operand: about what VMEM holds, so that there are chunks; of 40**4 HBM could not hold the result."""


@pytest.mark.parametrize("init", sorted(INITS))
@given(
    op=st.sampled_from(sorted(OPS)),
    dims=st.lists(st.sampled_from([1, 2, 3, 5, 17, 40]), min_size=1, max_size=5)
    .map(tuple)
    .filter(lambda dims: prod(dims) <= MOST),
    data=st.data(),
)
@examples(4, 80)
def test_initial_values_computed_from_elements(init: str, op: str, dims: tuple[int, ...], data: st.DataObject) -> None:
    reduced = tuple(sorted(data.draw(st.sets(st.integers(0, len(dims) - 1)))))
    kept = tuple(n for d, n in enumerate(dims) if d not in reduced)
    text = f"""HloModule m
f {{
 a = s32[] parameter(0)
 b = s32[] parameter(1)
 ROOT r = s32[] {op}(a, b)
}}
ENTRY e {{
 x = s32[{show(dims)}] parameter(0)
 y = s32[2,3] parameter(1)
{INITS[init]}
 ROOT r = s32[{show(kept)}] reduce(x, i), dimensions={{{show(reduced)}}}, to_apply=f
}}
"""
    x, y = small(1, "s32", dims), small(2, "s32", (2, 3))
    start = VALUES[init](y)
    want = OPS[op].reduce(x, axis=reduced, initial=start) if reduced else OPS[op](x, start)
    for (got,) in (on_chip(text, [x, y]), evaluate(parse_hlo(text), x, y)):
        np.testing.assert_array_equal(got, want)


def test_stored_values_that_no_kernel_reduces_in_their_lanes() -> None:
    """The initial value comes from an element, and the rows of a chunk have an order that no kernel has."""
    text = f"""HloModule m
f {{
 a = s32[] parameter(0)
 b = s32[] parameter(1)
 ROOT r = s32[] add(a, b)
}}
ENTRY e {{
 x = s32[40,40,1,2,5] parameter(0)
 y = s32[2,3] parameter(1)
{INITS["scalar"]}
 ROOT r = s32[1,2] reduce(x, i), dimensions={{0,1,4}}, to_apply=f
}}
"""
    x, y = small(1, "s32", (40, 40, 1, 2, 5)), small(2, "s32", (2, 3))
    (got,) = on_chip(text, [x, y])
    np.testing.assert_array_equal(got, x.sum((0, 1, 4)) + VALUES["scalar"](y))


@pytest.mark.parametrize("count", [2, 5, 6, 9])
def test_any_number_of_operands_is_reduced_at_once(count: int) -> None:
    names = [f"{c}{n}" for c in "ab" for n in range(count)]
    body = "\n".join(f" {name} = s32[] parameter({k})" for k, name in enumerate(names))
    parts = "\n".join(f" r{n} = s32[] {sorted(OPS)[n % len(OPS)]}(a{n}, b{n})" for n in range(count))
    listed = ", ".join(f"r{n}" for n in range(count))
    operands = ", ".join("xy"[n % 2] for n in range(count))
    scalars, rows = ", ".join(["s32[]"] * count), ", ".join(["s32[8]"] * count)
    text = f"""HloModule m
f {{
{body}
{parts}
 ROOT r = ({scalars}) tuple({listed})
}}
ENTRY e {{
 x = s32[7,8] parameter(0)
 i = s32[] parameter(1)
 y = s32[7,8] negate(x)
 ROOT r = ({rows}) reduce({operands}, {", ".join("i" * count)}), dimensions={{0}}, to_apply=f
}}
"""
    x, i = small(1, "s32", (7, 8)), np.array(3, np.int32)
    for n, got in enumerate(on_chip(text, [x, i])):
        want = OPS[sorted(OPS)[n % len(OPS)]].reduce(-x if n % 2 else x, axis=0, initial=3)
        np.testing.assert_array_equal(got, want)
