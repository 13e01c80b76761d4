"""Comparisons of what loops count: those that come out alike are constants, and values stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.pipeline import canonicalise
from systolith.compiler.passes.simplify.while_counters import FoldCounters
from tests.compiler.loops.scans import hlo
from tests.compiler.machine import Array

DIRECTIONS = ("LT", "LE", "GT", "GE", "EQ", "NE")


def text(count: int, first: int, step: int, of: str, direction: str, bound: int, dtype: str = "s32") -> str:
    """A loop that counts, and adds up where something of its counter compares so with a constant."""
    state = f"({dtype}[], s32[])"
    return f"""HloModule m
body {{
  state = {state} parameter(0)
  i = {dtype}[] get-tuple-element(state), index=0
  n = s32[] get-tuple-element(state), index=1
  two = {dtype}[] constant(2)
  nine = {dtype}[] constant(9)
  bound = {dtype}[] constant({bound})
  twice = {dtype}[] multiply(i, two)
  less = {dtype}[] subtract(nine, twice)
  more = {dtype}[] add(twice, less)
  test = pred[] compare({of}, bound), direction={direction}
  one = s32[] constant(1)
  three = s32[] constant(3)
  term = s32[] select(test, one, three)
  sum = s32[] add(n, term)
  step = {dtype}[] constant({step})
  following = {dtype}[] add(i, step)
  ROOT t = {state} tuple(following, sum)
}}
condition {{
  state = {state} parameter(0)
  i = {dtype}[] get-tuple-element(state), index=0
  end = {dtype}[] constant({first + count * step})
  ROOT less = pred[] compare(i, end), direction=NE
}}
ENTRY e {{
  n = s32[] parameter(0)
  i = {dtype}[] constant({first})
  s = {state} tuple(i, n)
  w = {state} while(s), condition=condition, body=body
  ROOT r = s32[] get-tuple-element(w), index=1
}}
"""


@given(
    st.integers(1, 6),
    st.integers(-5, 5),
    st.sampled_from([-2, -1, 1, 3]),
    st.sampled_from(["i", "twice", "less", "more"]),
    st.sampled_from(DIRECTIONS),
    st.integers(-12, 12),
)
@settings(deadline=None)
def test_values_stay(count: int, first: int, step: int, of: str, direction: str, bound: int) -> None:
    module = parse_hlo(text(count, first, step, of, direction, bound))
    (wanted,) = evaluate(module, np.array(5, np.int32))
    folded = FoldCounters().run(module)
    verify(module)
    assert evaluate(module, np.array(5, np.int32))[0] == wanted
    assert not folded or wanted - 5 in (count, 3 * count)


@pytest.mark.parametrize(
    ("of", "direction", "bound", "wanted"),
    [
        ("i", "LT", 0, True),
        ("i", "LT", 3, False),
        ("i", "GE", 0, True),
        ("i", "EQ", 6, True),
        ("i", "EQ", 3, False),
        ("less", "GT", -4, True),
        ("more", "EQ", 9, True),
    ],
)
def test_what_comes_out_alike_is_folded(of: str, direction: str, bound: int, wanted: bool) -> None:
    assert FoldCounters().run(parse_hlo(text(6, 0, 1, of, direction, bound))) == wanted


def test_numbers_that_wrap_are_not() -> None:
    """Twice 100 is -56 in s8."""
    module = parse_hlo(text(3, 98, 1, "twice", "LT", 0, "s8"))
    assert not FoldCounters().run(module)
    assert FoldCounters().run(parse_hlo(text(3, 30, 1, "twice", "LT", 0, "s8")))


@pytest.mark.parametrize(
    "f", [lambda y, i, v: y.at[i].set(v), lambda y, i, v: y.at[i].add(v), lambda y, i, v: y.at[:, i].max(v[:5])]
)
@pytest.mark.parametrize(("first", "count"), [(0, 5), (1, 4), (2, 4)])
def test_scatters_inside_an_array_are_updates(f: Callable[..., jax.Array], first: int, count: int) -> None:
    """The third loop leaves the array, so that its last update is dropped."""

    def loop(y: jax.Array, v: jax.Array) -> Any:
        return lax.fori_loop(first, first + count, lambda i, y: f(y, i, v * i), y)

    args: list[Array] = [np.arange(25, dtype=np.float32).reshape(5, 5) - 9, np.arange(5, dtype=np.float32) - 2]
    module = parse_hlo(hlo(loop, args))
    (wanted,) = evaluate(module, *args)
    canonicalise(module)
    left = [i.opcode for i in module.instructions()]
    assert ("scatter" in left, "dynamic-update-slice" in left) == (
        (True, False) if first + count > 5 else (False, True)
    )
    np.testing.assert_array_equal(evaluate(module, *args)[0], wanted)
    np.testing.assert_array_equal(wanted, np.asarray(loop(*map(jnp.asarray, args))))
