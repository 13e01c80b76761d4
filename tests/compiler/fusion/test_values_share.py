"""How much of VMEM whole values take: less where blocks of a group gain by the room."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from systolith.compiler.driver import Compiled, compile_module
from systolith.compiler.explain import Decision
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.lower.lowering import Lowering
from systolith.compiler.options import Options
from systolith.compiler.plan import read_plan
from systolith.compiler.vmem_pressure import CLEARLY
from systolith.isa.chip import Chip
from systolith.sim.simulate import simulate
from tests.compiler.fusion.test_blocking import attention
from tests.compiler.machine import TINY, compare


def projected(heads: int, length: int, depth: int) -> str:
    """Attention whose operands are products, which lie in VMEM as long as there is room."""
    wide, split = f"f32[{heads},{length},{depth}]", f"f32[{length},{heads},{depth}]"
    flat, square = f"f32[{length},{heads * depth}]", f"f32[{heads * depth},{heads * depth}]"
    text = attention(heads, length, depth)
    for number, name in enumerate("qkv"):
        text = text.replace(
            f" {name} = {wide} parameter({number})\n",
            f" g{name} = {flat} parameter({number})\n w{name} = {square} parameter({number + 4})\n"
            f" p{name} = {flat} dot(g{name}, w{name}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
            f" s{name} = {split} reshape(p{name})\n {name} = {wide} transpose(s{name}), dimensions={{1,0,2}}\n",
        )
    return text


LENGTHS = {7: 24, 11: 48, 17: 48}
"""Rows of the attention, by KiB of VMEM."""


def text(kib: int) -> str:
    return projected(2, LENGTHS[kib], 8)


def chip(kib: int) -> Chip:
    return replace(TINY, vmem=replace(TINY.vmem, bytes=kib << 10), mxu=replace(TINY.mxu, count=2))


def compiled(kib: int, options: Options | None = None) -> Compiled:
    return compile_module(parse_hlo(text(kib)), chip(kib), options)


@cache
def usual(kib: int) -> Compiled:
    """As the compiler does it, once for all tests."""
    return compiled(kib)


def shares(made: Compiled) -> list[Decision]:
    return [d for d in made.explain if d.kind == "memory" and d.chosen.startswith("whole values")]


@pytest.mark.parametrize(
    ("kib", "clearly"), [(7, 0.5), *(pytest.param(*p, marks=pytest.mark.slow) for p in ((11, CLEARLY), (17, 0.5)))]
)
def test_values_make_room_for_blocks(kib: int, clearly: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the estimate alone, or by the cycles of both programs, where it has to be clearer; it is the faster one."""
    monkeypatch.setattr("systolith.compiler.vmem_pressure.CLEARLY", clearly)
    made, small = compiled(kib), chip(kib)
    (choice,) = shares(made)
    assert choice.chosen == "whole values take up to 50% of VMEM"
    assert len(choice.rejected) == (clearly > CLEARLY)
    cycles = simulate(made.program, small, mode="time").cycles
    monkeypatch.setattr(Lowering, "lacks_room", lambda self, values: False)
    without = simulate(compiled(kib).program, small, mode="time").cycles
    assert cycles is not None
    assert without is not None
    assert cycles < without


def test_a_plan_has_the_share(tmp_path: Path) -> None:
    made, plan = usual(7), tmp_path / "plan.json"
    plan.write_text(json.dumps([d.to_json() for d in made.explain]))
    assert shares(made)
    again = compiled(7, Options(plan=read_plan(plan)))
    assert again.stages["program.s"] == made.stages["program.s"]


@pytest.mark.parametrize("kib", [7, *(pytest.param(kib, marks=pytest.mark.slow) for kib in (11, 17))])
def test_values_are_right(kib: int) -> None:
    rng = np.random.default_rng(kib)
    length = LENGTHS[kib]
    flat = [rng.normal(size=(length, 16)).astype(np.float32) for _ in range(3)]
    weights = [rng.normal(size=(16, 16)).astype(np.float32) / 4 for _ in range(3)]
    bias = rng.normal(size=(length, length)).astype(np.float32)
    assert shares(compare(text(kib), [*flat, bias, *weights], chip(kib)))
