"""Dots of small matrices as products of elements and sums: the evaluator's values, exact sums, the chip."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand.small_dots import ReduceSmallDots
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import dtype
from systolith.sim.simulate import simulate
from tests.compiler.machine import Array, compiled, run
from tests.compiler.passes.differential import opcodes, transformed

MANY = 600
"""Of the long dimension."""


def module(spec: str, sizes: dict[str, int], t: str = "f32", result: str = "f32", attributes: str = "") -> str:
    """A dot of a specification such as einsum's, batch first in the result, then free dimensions: `bij,bjk->bik`."""
    left, right, out = spec.replace("->", ",").split(",")
    batch = [d for d in left if d in right and d in out]
    summed = [d for d in left if d in right and d not in out]

    def shape(of: str, labels: str) -> str:
        return f"{of}[{','.join(str(sizes[d]) for d in labels)}]"

    def places(labels: str, of: list[str]) -> str:
        return "{" + ",".join(str(labels.index(d)) for d in of) + "}"

    dims = [
        f"{side}_{kind}_dims={places(labels, of)}"
        for side, labels in (("lhs", left), ("rhs", right))
        for kind, of in (("batch", batch), ("contracting", summed))
        if of
    ]
    return (
        f"HloModule m\nENTRY e {{\n x = {shape(t, left)} parameter(0)\n y = {shape(t, right)} parameter(1)\n"
        f" ROOT r = {shape(result, out)} dot(x, y), {', '.join(dims)}{attributes}\n}}\n"
    )


def operands(text: str, seed: int) -> list[Array]:
    """Small whole numbers, whose sums every type of floats holds."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-3, 4, p.dims).astype(p.shape.dtype.stored) for p in parse_hlo(text).entry.parameters]


def assert_same(want: Array, got: Array) -> None:
    assert want.dtype == got.dtype
    np.testing.assert_array_equal(want.astype(np.float64), got.reshape(want.shape).astype(np.float64))


SPECS = [
    "bij,bjk->bik",
    "bij,bj->bi",
    "ijb,kjb->bik",
    "mi,ij->mj",
    "im,ij->mj",
    "ij,jn->in",
    "ij,nj->in",
    "abij,abj->abi",
]
LONG = {"b", "m", "n"}


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(SPECS), st.integers(1, 5), st.integers(1, 5), st.integers(1, 5), st.sampled_from(["f32", "bf16"])
)
def test_any_small_dot(spec: str, i: int, j: int, k: int, t: str) -> None:
    sizes = {"a": 2, "i": i, "j": j, "k": k} | dict.fromkeys(LONG, MANY)
    text = module(spec, sizes, t)
    read = parse_hlo(text)
    made = transformed(read, ReduceSmallDots())
    given = operands(text, i + j)
    (want,), (got,) = evaluate(read, *given), evaluate(made, *given)
    assert "dot" not in opcodes(made)
    assert_same(want, got)


@pytest.mark.parametrize(
    ("spec", "sizes", "t", "result"),
    [
        ("bij,bjk->bik", {"b": 600, "i": 64, "j": 64, "k": 64}, "f32", "f32"),  # enough for a matrix unit
        ("bij,bjk->bik", {"b": 300, "i": 3, "j": 3, "k": 3}, "f32", "f32"),  # too few
        ("mi,ij->mj", {"m": 4096, "i": 64, "j": 64}, "f32", "f32"),
        ("mi,ij->mj", {"m": 4096, "i": 768, "j": 2}, "f32", "f32"),
        ("bij,bjk->bik", {"b": 600, "i": 3, "j": 3, "k": 3}, "s8", "s32"),
        ("bij,bjk->bik", {"b": 0, "i": 3, "j": 3, "k": 3}, "f32", "f32"),
    ],
)
def test_other_dots_stay(spec: str, sizes: dict[str, int], t: str, result: str) -> None:
    assert not ReduceSmallDots().run(parse_hlo(module(spec, sizes, t, result)))


def test_without_terms() -> None:
    text = module("bij,bjk->bik", {"b": 600, "i": 3, "j": 0, "k": 3})
    made = transformed(parse_hlo(text), ReduceSmallDots())
    (got,) = evaluate(made, *operands(text, 0))
    assert "dot" not in opcodes(made)
    assert got.shape == (600, 3, 3)
    assert not got.any()


@pytest.mark.parametrize("t", ["f32", "bf16", "f16", "f8e4m3fn"])
def test_sums_are_in_f32_and_round_once(t: str) -> None:
    """Of 256 + 1/4 + 1/4 - 256 nothing is lost."""
    text = module("bi,bi->b", {"b": 600, "i": 4}, t, t)
    x = np.tile(np.array([16, 0.25, 0.25, -16], np.float32), (600, 1)).astype(dtype(t).stored)
    y = np.tile(np.array([16, 1, 1, 16], np.float32), (600, 1)).astype(dtype(t).stored)
    made = transformed(parse_hlo(text), ReduceSmallDots())
    assert "dot" not in opcodes(made)
    assert_same(np.full(600, 0.5, dtype(t).stored), evaluate(made, x, y)[0])


@pytest.mark.parametrize("spec", ["bij,bjk->bik", "bij,bj->bi", "mi,ij->mj", "ij,jn->in"])
def test_on_the_chip(spec: str) -> None:
    sizes = {"i": 3, "j": 3, "k": 4} | dict.fromkeys(LONG, 3000)
    text = module(spec, sizes)
    given = operands(text, 7)
    (got,) = run(compiled(text, "small").program, load_chip("small"), given)
    assert_same(evaluate(parse_hlo(text), *given)[0], got)


@pytest.mark.parametrize(
    ("spec", "sizes", "most"),
    [
        ("bij,bj->bi", {"b": 65536, "i": 3, "j": 3}, 2.5),  # 228 times its bytes on a matrix unit
        ("bij,bjk->bik", {"b": 65536, "i": 4, "j": 4, "k": 4}, 3),
        ("mi,ij->mj", {"m": 65536, "i": 3, "j": 3}, 2),
    ],
)
def test_time_near_that_of_their_bytes(spec: str, sizes: dict[str, int], most: float) -> None:
    chip = load_chip("tpu_v3")
    text = module(spec, sizes)
    arrays = [*(p.shape.bytes for p in parse_hlo(text).entry.parameters), parse_hlo(text).entry.result.shape.bytes]
    cycles = simulate(compiled(text, chip).program, chip, mode="time").cycles
    assert cycles is not None
    assert cycles <= most * sum(arrays) * chip.hbm.q / chip.hbm.p + 1000
