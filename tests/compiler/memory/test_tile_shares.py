"""Parts of VMEM for tiles: the groups in the way of a buffer without a place have smaller ones, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systolith.compiler import vmem_pressure
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.memory.liveness import Live
from systolith.compiler.memory.residency import TILE_SHARES, TILES
from systolith.compiler.schedule.fitting import Fitted, schedule
from systolith.compiler.tile.builder import TileBuilder
from systolith.isa.chip import load_chip
from tests.compiler.driver.test_plan import compile_it, record
from tests.compiler.machine import check

SIZES = (256, 240, 256, 224)
TEXT = (
    "HloModule m\nENTRY e {\n"
    + "".join(
        f" x{n} = f32[512,{size}] parameter({n})\n y{n} = f32[512,{size}] multiply(x{n}, x{n})\n"
        for n, size in enumerate(SIZES)
    )
    + f" ROOT r = ({', '.join(f'f32[512,{size}]' for size in SIZES)}) tuple(y0, y1, y2, y3)\n}}\n"
)


@pytest.fixture
def cramped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first group's tiles find no place the first time."""
    tried: list[TileBuilder] = []

    def scheduled(ctx: TileBuilder, free: int) -> Fitted:
        fitted = schedule(ctx, free)
        ops = [op for op in fitted.block.ops() if op.origin.group == "y0"]
        buf = next(b for op in ops for b in op.buffers if b in fitted.plan.lives.first)
        tried.append(ctx)
        if len(tried) == 1:
            fitted.plan.failures.append(Live(buf, fitted.plan.lives.first[buf], fitted.plan.lives.last[buf]))
        return fitted

    monkeypatch.setattr(vmem_pressure, "schedule", scheduled)


def shares_of(explain: Any) -> dict[str, str]:
    return {d.group: d.chosen for d in explain if d.kind == "memory" and "free VMEM" in d.chosen}


@pytest.mark.usefixtures("cramped")
def test_groups_in_the_way_and_those_like_them_have_smaller_tiles() -> None:
    made = check(
        TEXT, [np.random.default_rng(n).standard_normal((512, size), np.float32) for n, size in enumerate(SIZES)]
    )
    told = shares_of(made.explain)
    assert told.pop("") == "tiles of a group take up to 40% of the free VMEM"
    assert sorted(told) == ["y0", "y2"]
    assert len(set(told.values())) == 1


@pytest.mark.usefixtures("cramped")
def test_a_plan_says_whose_tiles_are_smaller(tmp_path: Path) -> None:
    chip = load_chip("tiny")
    made = compile_it(TEXT, chip, tmp_path)
    assert len(shares_of(made.explain)) == 3
    again = compile_it(TEXT, chip, tmp_path, record(made, chip))
    assert again.program.code == made.program.code
    assert shares_of(again.explain) == shares_of(made.explain)


def test_shares() -> None:
    first, second = parse_hlo(
        "HloModule m\nENTRY e {\n a = f32[] parameter(0)\n ROOT b = f32[] negate(a)\n}\n"
    ).entry.instructions
    one = TILES.lowered({first: TILE_SHARES[0]})
    assert one is not None
    assert (one.of(first), one.of(second)) == TILE_SHARES[1::-1]
    both = one.all_lowered()
    assert both is not None
    assert both.of(first) == both.of(second) == TILE_SHARES[1]
    while (lower := both.all_lowered()) is not None:
        both = lower
    assert both.of(first) == both.of(second) == TILE_SHARES[-1]
