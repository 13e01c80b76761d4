"""Parts of one operand that lie far apart: tiles are staged part by part, and a program grows with its tiles only."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compiler.machine import CHIPS, check, compiled
from tests.examples import examples


def module(lines: str) -> str:
    adder = "add {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b)\n}\n"
    return f"HloModule m\n{adder}ENTRY e {{\n{lines}\n}}\n"


def halves(n: int, gap: int) -> str:
    k = n - gap
    return module(
        f"x = f32[{n}] parameter(0)\na = f32[{k}] slice(x), slice={{[0:{k}]}}\n"
        f"b = f32[{k}] slice(x), slice={{[{gap}:{n}]}}\nROOT c = f32[{k}] multiply(a, b)"
    )


def reversed_sum(n: int, gap: int) -> str:
    return module(
        f"x = f32[{n}] parameter(0)\na = f32[{n}] reverse(x), dimensions={{0}}\nROOT c = f32[{n}] multiply(a, x)"
    )


def rolled(n: int, gap: int) -> str:
    return module(
        f"x = f32[{n}] parameter(0)\na = f32[{n - gap}] slice(x), slice={{[{gap}:{n}]}}\n"
        f"b = f32[{gap}] slice(x), slice={{[0:{gap}]}}\nc = f32[{n}] concatenate(a, b), dimensions={{0}}\n"
        f"ROOT d = f32[{n}] multiply(c, x)"
    )


def padded(n: int, gap: int) -> str:
    return module(
        f"x = f32[{n}] parameter(0)\nz = f32[] constant(3)\na = f32[{n + gap}] pad(x, z), padding=0_{gap}\n"
        f"b = f32[{n + gap}] pad(x, z), padding={gap}_0\nROOT d = f32[{n + gap}] multiply(a, b)"
    )


def row_sums(n: int, gap: int) -> str:
    k = n - gap
    return module(
        f"x = f32[{n},9] parameter(0)\nz = f32[] constant(0)\na = f32[{k},9] slice(x), slice={{[0:{k}],[0:9]}}\n"
        f"b = f32[{k},9] slice(x), slice={{[{gap}:{n}],[0:9]}}\nc = f32[{k},9] multiply(a, b)\n"
        f"ROOT d = f32[{k}] reduce(c, z), dimensions={{1}}, to_apply=add"
    )


Case = Callable[[int, int], str]
CASES: tuple[Case, ...] = (halves, reversed_sum, rolled, padded, row_sums)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("n", [20_003, 300_001])
def test_instructions_grow_with_tiles(case: Case, n: int) -> None:
    for gap in (7, n // 2, n // 10 + 1):
        assert len(compiled(case(n, gap), "tpu_v3").program.code) < 250


@examples(6, 12)
@given(st.sampled_from(CASES), st.integers(5_000, 30_000), st.data())
def test_any_length_and_distance(case: Case, n: int, draw: st.DataObject) -> None:
    text = case(n, draw.draw(st.integers(1, n - 1)))
    dims = (n, 9) if case is row_sums else (n,)
    check(text, [np.random.default_rng(n).standard_normal(dims).astype(np.float32)], "small")


@examples(5, 10)
@given(st.lists(st.integers(1, 200), min_size=3, max_size=40), st.integers(0, 300))
def test_operands_that_only_some_tiles_read(rows: list[int], low: int) -> None:
    """Pieces of a concatenation, padded: the first tiles read nothing of an operand that later ones read whole."""
    lines = [f"q{k} = f32[{n},64] parameter({k})" for k, n in enumerate(rows)]
    lines += [f"m{k} = f32[{n},64] negate(q{k})" for k, n in enumerate(rows)]
    total = sum(rows)
    lines.append(f"c = f32[{total},64] concatenate({', '.join(f'm{k}' for k in range(len(rows)))}), dimensions={{0}}")
    lines += ["z = f32[] constant(9)", f"ROOT r = f32[{total + low},64] pad(c, z), padding={low}_0x0_0"]
    check(module("\n".join(lines)), [np.full((n, 64), k, np.float32) for k, n in enumerate(rows)])


@pytest.mark.parametrize("second", ["b", "r"])
def test_parts_of_later_tiles(second: str) -> None:
    """A step of a merge: both pieces of the result are made of both halves of the operand, the second one reversed."""
    text = module(
        "x = f32[2,64,130] parameter(0)\na = f32[1,64,130] slice(x), slice={[0:1],[0:64],[0:130]}\n"
        "b = f32[1,64,130] slice(x), slice={[1:2],[0:64],[0:130]}\nr = f32[1,64,130] reverse(b), dimensions={1}\n"
        f"l = f32[1,64,130] minimum(a, {second})\nh = f32[1,64,130] maximum(a, {second})\n"
        "ROOT c = f32[2,64,130] concatenate(l, h), dimensions={0}"
    )
    check(text, [np.random.default_rng(0).standard_normal((2, 64, 130), np.float32)], CHIPS[32])
