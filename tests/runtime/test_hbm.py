"""The HBM allocator."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith import api as sl
from systolith.runtime.hbm import ALIGNMENT, HbmAllocator, OutOfMemoryError, Range


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5000), st.integers(0, 50)), max_size=60))
def test_ranges_never_overlap_and_everything_comes_back(steps: list[tuple[bool, int, int]]) -> None:
    hbm = HbmAllocator(64 * ALIGNMENT)
    live: list[Range] = []
    for take, size, which in steps:
        if take:
            try:
                got = hbm.allocate(size)
            except OutOfMemoryError:
                continue
            assert got.size >= size
            assert got.offset % ALIGNMENT == 0
            assert got.offset + got.size <= hbm.capacity
            assert all(got.offset >= r.offset + r.size or r.offset >= got.offset + got.size for r in live)
            live.append(got)
        elif live:
            hbm.release(live.pop(which % len(live)))
        assert hbm.in_use == sum(r.size for r in live)
    for r in live:
        hbm.release(r)
    assert hbm.allocate(hbm.capacity).size == hbm.capacity


def test_full_memory_says_how_much_is_free() -> None:
    hbm = HbmAllocator(4 * ALIGNMENT)
    hbm.allocate(3 * ALIGNMENT)
    with pytest.raises(OutOfMemoryError, match=r"1024 bytes wanted, 512 of 2048 free, largest free range 512"):
        hbm.allocate(1024)


def test_releasing_twice_is_an_error() -> None:
    hbm = HbmAllocator(4 * ALIGNMENT)
    taken = hbm.allocate(1)
    hbm.release(taken)
    with pytest.raises(ValueError, match="not allocated"):
        hbm.release(taken)


def test_what_the_machine_has_no_room_for_is_refused_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> object:
        raise MemoryError("Unable to allocate")

    device = sl.Client("tiny").devices[0]
    monkeypatch.setattr("systolith.runtime.device.np.zeros", full)
    with pytest.raises(OutOfMemoryError, match=r"the machine has no room for f32\[4\]: Unable to allocate"):
        device.empty(sl.F32, (4,))
    assert device.hbm.in_use == 0
