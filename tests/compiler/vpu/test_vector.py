"""The vectoriser: loops cover every point of a box exactly once, streams have the right addresses, costs decide."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.vpu.vectorise import Access, Work, choose, merge
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import F32
from systolith.isa.kernel import MAX_NEST
from systolith.isa.pattern import MAX_COORDS, Pattern

TINY, SMALL, TPU = (load_chip(name) for name in ("tiny", "small", "tpu_v3"))


def visited(p: Pattern) -> np.ndarray:
    """Addresses of the elements inside, in order of visit."""
    index = np.indices(p.counts).reshape(len(p.counts), -1)
    inside = np.ones(index.shape[1], bool)
    address = np.asarray(p.strides) @ index
    for c in p.coords:
        value = np.asarray(c.coefs) @ index + c.offset
        inside &= (value % c.div == 0) & (value // c.div >= c.lo) & (value // c.div < c.hi)
        address = address + value // c.div * c.stride
    return np.asarray(address[inside])


def dense(dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(4 * prod(dims[d + 1 :]) for d in range(len(dims)))


@given(st.lists(st.integers(1, 20), min_size=0, max_size=4), st.sampled_from([TINY, SMALL]), st.data())
def test_every_point_once(sizes: list[int], chip: object, data: st.DataObject) -> None:
    dims = tuple(sizes)
    order = data.draw(st.permutations(range(len(dims))))
    turned = dense(tuple(dims[d] for d in order))
    transposed = tuple(turned[order.index(d)] for d in range(len(dims)))
    work = merge(Work(dims, (Access(F32, dense(dims)), Access(F32, transposed), Access(F32, (0,) * len(dims)))))
    nest = choose(chip, work)  # type: ignore[arg-type]
    assert nest is not None
    assert len(nest.outer) <= MAX_NEST
    assert nest.sublane.count <= chip.vpu.sublanes  # type: ignore[attr-defined]
    assert nest.lane.count <= chip.vpu.lanes  # type: ignore[attr-defined]
    patterns = [nest.pattern(a) for a in work.accesses]
    assert all(len(p.coords) <= MAX_COORDS for p in patterns)
    straight, across, scalar = map(visited, patterns)
    np.testing.assert_array_equal(np.sort(straight), 4 * np.arange(prod(dims)))
    np.testing.assert_array_equal(np.sort(across), 4 * np.arange(prod(dims)))
    assert (scalar == 0).all()
    index = straight // 4
    place = np.stack(np.unravel_index(index, dims)) if dims else np.zeros((0, 1), int)
    np.testing.assert_array_equal(np.asarray(transposed, int) @ place, across)


def test_dense_array_is_one_loop() -> None:
    work = merge(Work((8, 16, 64), (Access(F32, dense((8, 16, 64))), Access(F32, dense((8, 16, 64))))))
    assert work.dims == (8192,)
    nest = choose(TPU, work)
    assert nest is not None
    assert (nest.outer[0].count, nest.sublane.count, nest.lane.count) == (8, 8, 128)
    assert not nest.tails


def test_lanes_follow_unit_strides() -> None:
    column_major = Access(F32, (4, 4 * 256))
    nest = choose(TPU, merge(Work((256, 64), (column_major, column_major))))
    assert nest is not None
    work = merge(Work((256, 64), (column_major, Access(F32, (256, 4)))))
    mixed = choose(TPU, work)
    assert mixed is not None
    assert mixed.lane.dim in (0, 1)
    assert nest.cycles < mixed.cycles


def test_balanced_tails() -> None:
    nest = choose(TPU, merge(Work((12, 192), (Access(F32, (4 * 200, 4)),))))
    assert nest is not None
    assert (nest.sublane.count, nest.lane.count) == (6, 96)
    assert not nest.tails


def test_reduced_dimensions_are_inner_loops() -> None:
    work = merge(Work((6, 40, 50), (Access(F32, dense((6, 40, 50))), Access(F32, (200, 0, 4))), frozenset({1})))
    nest = choose(TPU, work)
    assert nest is not None
    assert nest.inner == 1
    assert nest.outer[-1].count == 40
    across = choose(TPU, merge(Work((6, 300), (Access(F32, (1200, 4)),), frozenset({1}), lanes_reduced=True)))
    assert across is not None
    assert across.lane.dim in across.reduced
