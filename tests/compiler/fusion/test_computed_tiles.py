"""Tiles of operands of products that are computed: how they are divided, and what is looked at once for all."""

from __future__ import annotations

import math
from typing import Any

import pytest

from systolith.compiler.mxu import fused_operand
from systolith.compiler.ops.expression_builder import GroupPlan
from systolith.compiler.vpu.elementwise import TileLoop, tile_loop
from tests.compiler.fusion.test_prologue import LARGE, QUARTER, When, compiled


def test_tiles_of_one_size_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code is that of each tile looked at by itself."""
    unwatched = compiled(LARGE, QUARTER, When.FASTER)
    looked_at = []
    whole = tile_loop

    def counted(*args: Any) -> TileLoop:
        looked_at.append(args)
        return whole(*args)

    monkeypatch.setattr(fused_operand, "tile_loop", counted)
    once = compiled(LARGE, QUARTER, When.FASTER)
    count = len(looked_at)
    monkeypatch.setattr(GroupPlan, "is_uniform", lambda self, box: False)
    each = compiled(LARGE, QUARTER, When.FASTER)
    assert 0 < count * 8 < len(looked_at) - count
    assert once.program.code == each.program.code == unwatched.program.code


def test_one_of_many_tiles_is_in_two_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is loaded for the next one overlaps with what is computed of it."""
    tiles = []
    whole = tile_loop

    def noted(*args: Any) -> TileLoop:
        made = whole(*args)
        tiles.append(math.prod(-(-n // size) for n, size in zip(args[4].dims, made.sizes, strict=True)))
        return made

    monkeypatch.setattr(fused_operand, "tile_loop", noted)
    compiled(LARGE, QUARTER, When.FASTER)
    assert {*tiles} == {2}
