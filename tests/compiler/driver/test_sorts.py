"""Sorts and `topk` on the chip, in hostile mode, to the bit as XLA gives them."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand import sort_blocks, topk
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import compiled, run
from tests.compiler.passes.differential import Array, assert_same_bits
from tests.compiler.passes.test_sort_expander import ONE_ZERO, PLAIN, TOTAL, comparator, sort_of, values

SORTS = {
    "floats in total order": (TOTAL, ["f32"], (27,), 0),
    "floats as JAX sorts them": (ONE_ZERO, ["f32"], (3, 13), 1),
    "narrow floats with others": (ONE_ZERO, ["bf16", "u8", "pred"], (2, 7, 2), 1),
    "columns of bytes": (PLAIN, ["s8"], (18, 20), 0),
    "pairs": (PLAIN, ["u32", "s32"], (19,), 0),
    "four arrays": (PLAIN, ["s16", "f32", "f16", "u32"], (7, 3), 0),
    "64 bits": (PLAIN, ["s64", "s32"], (7,), 0),
}
LOOPED = {"floats as JAX sorts them": 128, "pairs": 64}
"""How many elements at once, of those that are tried in loops, too."""


def sorting(name: str) -> tuple[str, list[Array]]:
    """A module that sorts, and arguments for it."""
    kind, types, dims, dim = SORTS[name]
    before, body = comparator(kind, types, "LT", 0, False), sort_of(dims, dim, types)
    rng = np.random.default_rng(len(name))
    text = f"HloModule m\n{before}\nENTRY e {{\n{body.replace(', to_apply', ', is_stable=true, to_apply')}\n}}\n"
    return text, [values(rng, t, dims) for t in types]


@pytest.mark.parametrize(
    ("name", "chip"),
    [pytest.param(name, "tiny", marks=pytest.mark.slow if name in LOOPED else ()) for name in SORTS]
    + [pytest.param(name, "small", marks=pytest.mark.slow) for name in SORTS],
)
def test_as_xla_sorts(name: str, chip: str) -> None:
    text, args = sorting(name)
    assert_same_bits(run_xla(text, *args), run(compiled(text, chip).program, load_chip(chip), args))


@pytest.mark.parametrize(("name", "at_once"), LOOPED.items())
def test_in_loops(name: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort_blocks, "AT_ONCE", at_once)
    text, args = sorting(name)
    assert_same_bits(evaluate(parse_hlo(text), *args), run(compiled(text).program, load_chip("tiny"), args))


TOPK = """HloModule m
ENTRY e {
 x = %s[%s] parameter(0)
 ROOT t = (%s[%s], s32[%s]) topk(x), k=%s, largest=%s
}"""


@pytest.mark.parametrize(
    ("t", "k", "largest"), [("f32", 5, True), ("bf16", 1, False), ("u32", 9, True), ("pred", 4, True)]
)
def test_topk_of_short_lines(t: str, k: int, largest: bool) -> None:
    text = TOPK % (t, "3,21", t, f"3,{k}", f"3,{k}", k, str(largest).lower())
    x = values(np.random.default_rng(k), t, (3, 21))
    result = compiled(text, "tiny")
    assert_same_bits(evaluate(parse_hlo(text), x), run(result.program, load_chip("tiny"), [x]))


@pytest.mark.parametrize("t", ["f32", pytest.param("s16", marks=pytest.mark.slow)])
def test_topk_of_long_lines(t: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best groups are gathered."""
    monkeypatch.setattr(topk, "LONG", 16)
    text = TOPK % (t, "2,90", t, "2,4", "2,4", 4, "true")
    x = values(np.random.default_rng(1), t, (2, 90))
    assert_same_bits(evaluate(parse_hlo(text), x), run(compiled(text, "tiny").program, load_chip("tiny"), [x]))


def test_topk_of_many_lines_near_the_time_of_their_bytes() -> None:
    """Of 1,024 elements in 128 groups each: few of them go through networks."""
    chip = load_chip("tpu_v3")
    program = compiled(TOPK % ("f32", "2048,1024", "f32", "2048,8", "2048,8", 8, "true"), chip).program
    cycles = simulate(program, chip, mode="time").cycles
    assert cycles is not None
    assert cycles < 3.5 * 2048 * 1024 * 4 * chip.hbm.q / chip.hbm.p
