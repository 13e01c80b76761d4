"""Random numbers as arithmetic: those of the evaluator, which have the distributions that are asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.rng import ExpandRng
from systolith.isa.dtypes import dtype
from tests.compiler.machine import Array, check, compiled, error
from tests.compiler.passes.differential import opcodes, transformed
from tests.runtime.command import systolith

INTEGERS = ("s32", "u8", "s16", "u32", "s64")
DIMS = st.lists(st.integers(0, 6), max_size=3)


def text(t: str, dims: list[int], distribution: str) -> str:
    """Two instructions with equal operands, which give other numbers."""
    shape = f"{t}[{','.join(map(str, dims))}]"
    return (
        f"HloModule m\nENTRY e {{\n a = {t}[] parameter(0)\n b = {t}[] parameter(1)\n"
        f" x = {shape} rng(a, b), distribution=rng_{distribution}\n"
        f" y = {shape} rng(a, b), distribution=rng_{distribution}\n ROOT r = ({shape}, {shape}) tuple(x, y)\n}}\n"
    )


def scalars(t: str, *values: float) -> list[Array]:
    return [np.asarray(v).astype(dtype(t).stored) for v in values]


@settings(max_examples=30)
@given(
    st.sampled_from([("f32", "uniform"), ("bf16", "uniform"), ("f16", "normal"), ("f32", "normal")])
    | st.tuples(st.sampled_from(INTEGERS), st.just("uniform")),
    DIMS,
    st.integers(0, 100),
    st.integers(0, 100),
)
def test_numbers(kind: tuple[str, str], dims: list[int], low: int, high: int) -> None:
    t, distribution = kind
    module, arguments = parse_hlo(text(t, dims, distribution)), scalars(t, low, high)
    made = transformed(module, ExpandRng())
    assert "rng" not in opcodes(made)
    for got, want in zip(evaluate(made, *arguments), evaluate(module, *arguments), strict=True):
        assert error(got, want) <= (0 if t in INTEGERS else 1e-6 if t == "f32" else 2**-8)


@pytest.mark.parametrize(
    ("t", "distribution"), [("f32", "uniform"), ("bf16", "normal"), ("f32", "normal"), ("u8", "uniform")]
)
def test_numbers_of_the_chip(t: str, distribution: str) -> None:
    most = 0 if t in INTEGERS else 1e-5 if t == "f32" else 2**-7
    check(text(t, [3, 7], distribution), scalars(t, 2, 9), most=most)


def test_one_in_a_loop_is_refused() -> None:
    """Each iteration would have to give other numbers."""
    loop = """HloModule m
cond { s = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(2)
  ROOT c = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(s), index=0 one = s32[] constant(1)
  j = s32[] add(i, one) a = f32[] constant(0) b = f32[] constant(1) r = f32[4] rng(a, b), distribution=rng_uniform
  ROOT t = (s32[], f32[4]) tuple(j, r) }
ENTRY e { x = f32[4] parameter(0) i = s32[] constant(0)
  t = (s32[], f32[4]) tuple(i, x)
  ROOT w = (s32[], f32[4]) while(t), condition=cond, body=body }"""
    with pytest.raises(CompileError, match=r"rng 'r' \(f32\[4\]\)"):
        compiled(loop)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = tmp_path / "numbers.hlo"
    module.write_text(text("f32", [40], "normal"))
    ran = systolith(capsys, "run", module, "--random", 3, "--chip", "tiny", "--check", "--hostile")
    assert ran.code == 0, ran.err
