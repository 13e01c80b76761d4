"""Tiles cover the axes once; kernels with few channels pack into few tiles."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.mxu.gemm_tiles import Tile, box_tiles, packed_tiles, union

sizes = st.lists(st.integers(1, 12), min_size=1, max_size=3)


def _covers(tiles: list[Tile], axes: list[str], dims: list[int], limit: int) -> None:
    seen: set[tuple[int, ...]] = set()
    for tile in tiles:
        assert prod(n for _, n in tile.values()) <= limit
        points = set(product(*(range(tile[a][0], tile[a][0] + tile[a][1]) for a in axes)))
        assert not seen & points
        seen |= points
    assert len(seen) == prod(dims)
    assert union(tiles) == {a: (0, n) for a, n in zip(axes, dims, strict=True)}


@given(sizes, st.integers(1, 40))
def test_boxes_cover_everything_once(dims: list[int], limit: int) -> None:
    axes = [f"a{i}" for i in range(len(dims))]
    by_name = dict(zip(axes, dims, strict=True))
    _covers(box_tiles(axes, by_name, limit), axes, dims, limit)
    _covers(packed_tiles(axes, by_name, limit), axes, dims, limit)


@pytest.mark.parametrize(
    ("dims", "rows", "tiles"),
    [((3, 3, 64), 128, 5), ((7, 7, 3), 128, 2), ((5, 5, 1), 8, 4), ((3, 3, 512), 128, 36), ((4096,), 128, 32)],
)
def test_taps_share_tiles(dims: tuple[int, ...], rows: int, tiles: int) -> None:
    axes = [f"a{i}" for i in range(len(dims))]
    assert len(packed_tiles(axes, dict(zip(axes, dims, strict=True)), rows)) == tiles
