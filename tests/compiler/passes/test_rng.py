"""Random numbers as arithmetic: those of the evaluator, which have the distributions that are asked for."""

from __future__ import annotations

from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand.rng import ExpandRng
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import dtype
from tests.compiler.machine import Array, check, compiled, error, run
from tests.compiler.passes.differential import assert_unchanged, opcodes, transformed
from tests.examples import examples, with_slow
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


@examples(5, 30)
@given(
    st.sampled_from(
        [
            ("f32", "uniform"),
            ("bf16", "uniform"),
            ("f16", "normal"),
            ("f32", "normal"),
            ("f64", "uniform"),
            ("f64", "normal"),
        ]
    )
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
        assert error(got, want) <= (0 if t in INTEGERS else 1e-14 if t == "f64" else 1e-6 if t == "f32" else 2**-8)


@pytest.mark.parametrize(
    ("t", "distribution"), [("f32", "uniform"), ("bf16", "normal"), ("f32", "normal"), ("u8", "uniform")]
)
def test_numbers_of_the_chip(t: str, distribution: str) -> None:
    most = 0 if t in INTEGERS else 1e-5 if t == "f32" else 2**-7
    check(text(t, [3, 7], distribution), scalars(t, 2, 9), most=most)


STATE = "(s32[], s32[4], u64[2])"
PARTS = f""" s = {STATE} parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = s32[4] get-tuple-element(s), index=1
 c = u64[2] get-tuple-element(s), index=2
 one = s32[] constant(1)
 low = s32[] constant(-50)
 high = s32[] constant(1000)
"""
DRAW = "draw {\n a = s32[] parameter(0)\n b = s32[] parameter(1)\n r = s32[4] rng(a, b), distribution=rng_uniform\n" \
    " k = u64[2] rng-get-and-update-state(), delta=7\n ROOT t = (s32[4], u64[2]) tuple(r, k)\n}\n"  # fmt: skip
LESS = f"less {{\n{PARTS} n = s32[] constant(3)\n ROOT r = pred[] compare(i, n), direction=LT\n}}\n"
STEP = f"""step {{
{PARTS} j = s32[] add(i, one)
 d = (s32[4], u64[2]) call(low, high), to_apply=draw
 r = s32[4] get-tuple-element(d), index=0
 k = u64[2] get-tuple-element(d), index=1
 y = s32[4] add(x, r)
 m = u64[2] xor(c, k)
 ROOT t = {STATE} tuple(j, y, m)
}}
"""
DRAWN = STEP.replace("step", "drawn").replace("add(x, r)", "subtract(x, r)")
SIDES = f"plain {{\n ROOT s = {STATE} parameter(0)\n}}\n" + DRAWN
ENTRY = f"""ENTRY e {{
 x = s32[4] parameter(0)
 p = pred[] parameter(1)
 z = s32[] constant(0)
 c = u64[2] constant({{0, 0}})
 s = {STATE} tuple(z, x, c)
"""
MOVED = {
    "a loop": (DRAW + LESS + STEP, f" ROOT w = {STATE} while(s), condition=less, body=step\n"),
    "two loops": (
        DRAW + LESS + STEP,
        f" w = {STATE} while(s), condition=less, body=step\n y = s32[4] get-tuple-element(w), index=1\n"
        f" k = u64[2] get-tuple-element(w), index=2\n t = {STATE} tuple(z, y, k)\n"
        f" ROOT v = {STATE} while(t), condition=less, body=step\n",
    ),
    "calls": (
        DRAW,
        " a = s32[] constant(3)\n b = s32[] constant(90)\n d = (s32[4], u64[2]) call(a, b), to_apply=draw\n"
        " f = (s32[4], u64[2]) call(a, b), to_apply=draw\n"
        " ROOT t = ((s32[4], u64[2]), (s32[4], u64[2])) tuple(d, f)\n",
    ),
    "a branch": (
        DRAW + SIDES,
        f" w = {STATE} conditional(p, s, s), true_computation=drawn, false_computation=plain\n"
        f" ROOT v = {STATE} conditional(p, w, w), true_computation=drawn, false_computation=drawn\n",
    ),
    "a branch in a loop": (
        DRAW + LESS + SIDES + f"""step {{
{PARTS} n = s32[] constant(1)
 q = pred[] compare(i, n), direction=NE
 w = {STATE} conditional(q, s, s), true_computation=drawn, false_computation=plain
 y = s32[4] get-tuple-element(w), index=1
 k = u64[2] get-tuple-element(w), index=2
 j = s32[] add(i, one)
 ROOT t = {STATE} tuple(j, y, k)
}}
""",
        f" ROOT w = {STATE} while(s), condition=less, body=step\n",
    ),
}  # fmt: skip


SLOW = ("a loop", "two loops", "a branch")


@pytest.mark.parametrize("name", with_slow(MOVED, SLOW))
def test_states_go_through_loops_branches_and_calls(name: str) -> None:
    head, body = MOVED[name]
    text = f"HloModule m\n{head}{ENTRY}{body}}}\n"
    for p in (True, False) if "p, " in body else (True,):
        arguments = [np.arange(4, dtype=np.int32), np.asarray(p)]
        made = assert_unchanged(parse_hlo(text), ExpandRng(), arguments=arguments)
        assert not any(i.opcode.startswith("rng") for i in made.instructions())
        check(text, arguments)


def test_states_of_the_condition_of_a_loop_are_refused() -> None:
    loop = """HloModule m
cond { s = f32[] parameter(0) a = f32[] constant(0) b = f32[] constant(1)
  r = f32[] rng(a, b), distribution=rng_uniform ROOT c = pred[] compare(r, s), direction=LT }
body { s = f32[] parameter(0) half = f32[] constant(0.5) ROOT t = f32[] multiply(s, half) }
ENTRY e { x = f32[] parameter(0) ROOT w = f32[] while(x), condition=cond, body=body }"""
    with pytest.raises(CompileError, match=r"rng 'r' \(f32\[\]\): .* in conditions of loops"):
        compiled(loop)


@pytest.mark.slow
@pytest.mark.parametrize("t", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_distributions(distribution: str, t: str) -> None:
    """Kolmogorov's distance of 20,000 numbers on the chip: above 2 / sqrt(n) once in 1,500 draws."""
    target = load_chip("tiny")
    program = compiled(text(t, [20000], distribution), target).program
    for values in run(program, target, scalars(t, *((-3, 5) if distribution == "uniform" else (1, 2)))):
        x = np.sort(values.astype(np.float64))
        share = (x + 3) / 8 if distribution == "uniform" else np.vectorize(NormalDist(1, 2).cdf)(x)
        steps = np.searchsorted(x, x, "right") / len(x)  # narrow types have equal numbers
        assert np.abs(steps - share).max() < 2 / np.sqrt(len(x)) + 2 * float(dtype(t).finfo.eps)
        assert (x[0] >= -3 and x[-1] < 5) or distribution == "normal"


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = tmp_path / "numbers.hlo"
    module.write_text(text("f32", [40], "normal"))
    ran = systolith(capsys, "run", module, "--random", 3, "--chip", "tiny", "--check", "--hostile")
    assert ran.code == 0, ran.err
