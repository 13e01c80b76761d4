"""Tiles cover the axes once; kernels with few channels pack into few tiles."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.index.affine import Box
from systolith.compiler.mxu.gemm_candidates import orders_of
from systolith.compiler.mxu.gemm_tiles import box_tiles, packed_tiles
from tests.compiler.index.points import points

sizes = st.lists(st.integers(1, 12), min_size=0, max_size=3)


def _covers(tiles: list[Box], dims: list[int], limit: int) -> None:
    seen: set[tuple[int, ...]] = set()
    for tile in tiles:
        assert tile.elements <= limit
        assert seen.isdisjoint(points(tile))
        seen.update(points(tile))
    assert len(seen) == prod(dims)
    assert Box.hull(tiles) == Box.whole(dims)


@given(sizes, st.integers(1, 40))
def test_boxes_cover_everything_once(dims: list[int], limit: int) -> None:
    _covers(box_tiles(dims, limit), dims, limit)
    _covers(packed_tiles(dims, limit), dims, limit)


@pytest.mark.parametrize(
    ("dims", "rows", "tiles"),
    [((3, 3, 64), 128, 5), ((7, 7, 3), 128, 2), ((5, 5, 1), 8, 4), ((3, 3, 512), 128, 36), ((4096,), 128, 32)],
)
def test_taps_share_tiles(dims: tuple[int, ...], rows: int, tiles: int) -> None:
    assert len(packed_tiles(dims, rows)) == tiles


def test_an_order_takes_all_taps_of_some_channels_before_the_next() -> None:
    tiles = packed_tiles((3, 3, 512), 128)
    found = [tiles for tiles, chunks in orders_of(tiles) if 9 in chunks]
    assert all(len(order) == len(tiles) and {*order} == {*tiles} for order in found)
    assert any(all(Box.hull(order[n : n + 9]).dims == (3, 3, 128) for n in range(0, 36, 9)) for order in found)
