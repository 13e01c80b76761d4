"""Comparators of `sort`: any computation, at once on all elements where it is elementwise, orders or not."""

import importlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo import evaluate, parse_hlo
from systolith.compiler.hlo.values import evaluator
from tests.compiler.hlo.oracle import run_xla

pytest.importorskip("jax")

WAYS = {
    "bits": """f { a = f32[] parameter(0) b = f32[] parameter(1)
        i = s32[] bitcast-convert(a) j = s32[] bitcast-convert(b) ROOT c = pred[] compare(i, j), direction=LT }""",
    "call": """g { x = f32[] parameter(0) ROOT y = u32[] bitcast-convert(x) }
        f { a = f32[] parameter(0) b = f32[] parameter(1) i = u32[] call(a), to_apply=g j = u32[] map(b), to_apply=g
        ROOT c = pred[] compare(i, j), direction=LT }""",
    "barrier": """f { a = f32[] parameter(0) b = f32[] parameter(1) x = f32[] opt-barrier(a)
        y = f32[] custom-call(b), custom_call_target="Sharding", sharding={replicated}
        ROOT c = pred[] compare(x, y), direction=LT }""",
}


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each `compare` that the evaluator runs, on a scalar or on an array."""
    calls: list[int] = []
    run = evaluator.HANDLERS["compare"]

    def counting(*given: Any) -> Any:
        calls.append(1)
        return run(*given)

    monkeypatch.setitem(evaluator.HANDLERS, "compare", counting)
    return calls


@pytest.mark.parametrize("way", WAYS)
def test_elementwise_comparators_run_on_all_elements_at_once(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = "ENTRY e { x = f32[1000] parameter(0) ROOT s = f32[1000] sort(x), dimensions={0}, to_apply=f }"
    calls = counted(monkeypatch)
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32) ** 2
    (result,) = evaluate(parse_hlo(f"HloModule m\n{WAYS[way]}\n{entry}"), x)
    np.testing.assert_array_equal(result, np.sort(x))
    assert len(calls) < 200


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "complex64", "int8"])
def test_comparators_of_jax_run_on_all_elements_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jax: Any = importlib.import_module("jax")
    x = np.random.default_rng(0).standard_normal(500).astype(np.float32)
    x[:4] = (np.nan, -0.0, 0.0, -np.inf)
    array = np.asarray(jax.numpy.asarray(np.clip(x * 9, -9, 9)[4:] if name == "int8" else x).astype(name))
    text = jax.jit(jax.numpy.sort).lower(array).compiler_ir("hlo").as_hlo_text(print_large_constants=True)
    (wanted,) = run_xla(text, array)
    calls = counted(monkeypatch)
    (result,) = evaluate(parse_hlo(text), array)
    np.testing.assert_array_equal(result.astype(np.complex64), wanted.astype(np.complex64))
    assert len(calls) < 2000


@given(st.integers(0, 40), st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.integers(0, 31))
def test_a_comparator_that_is_no_order_gives_some_permutation(n: int, left: int, right: int, bit: int) -> None:
    text = f"""HloModule m
f {{
  a = u32[] parameter(0)
  b = u32[] parameter(1)
  s = s32[] parameter(2)
  t = s32[] parameter(3)
  k = u32[] constant({left | 1})
  l = u32[] constant({right | 1})
  n = u32[] constant({bit})
  c = u32[] multiply(a, k)
  d = u32[] multiply(b, l)
  e = u32[] xor(c, d)
  h = u32[] shift-right-logical(e, n)
  i = u32[] constant(1)
  j = u32[] and(h, i)
  ROOT r = pred[] compare(i, j), direction=EQ
}}
ENTRY e {{
  x = u32[2,{n}] parameter(0)
  y = s32[2,{n}] iota(), iota_dimension=1
  ROOT z = (u32[2,{n}], s32[2,{n}]) sort(x, y), dimensions={{1}}, to_apply=f
}}"""
    x = np.random.default_rng(n).integers(0, 8, (2, n)).astype(np.uint32)
    keys, places = evaluate(parse_hlo(text), x)
    np.testing.assert_array_equal(np.sort(places, axis=1), np.broadcast_to(np.arange(n), (2, n)))
    np.testing.assert_array_equal(np.take_along_axis(x, places.astype(np.int64), axis=1), keys)
