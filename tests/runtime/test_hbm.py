"""The HBM allocator."""

from __future__ import annotations

import numpy as np
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


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9000), st.integers(0, 50)), max_size=60))
def test_statistics_are_those_of_a_plain_model(steps: list[tuple[bool, int, int]]) -> None:
    """The model: a flag for each unit of the alignment."""
    units = 48
    hbm, taken = HbmAllocator(units * ALIGNMENT), [False] * units
    live: list[Range] = []
    peak = count = largest = 0

    def longest() -> int:
        return max(map(len, "".join("x" if t else " " for t in taken).split("x"))) * ALIGNMENT

    for take, size, which in steps:
        if take:
            need = max(-(-size // ALIGNMENT), 1) * ALIGNMENT
            if need > longest():
                with pytest.raises(OutOfMemoryError, match=f"{size} bytes wanted"):
                    hbm.allocate(size)
                continue
            live.append(hbm.allocate(size))
            count, largest = count + 1, max(largest, need)
        elif live:
            hbm.release(live.pop(which % len(live)))
        taken = [any(r.offset <= n * ALIGNMENT < r.end for r in live) for n in range(units)]
        used = sum(taken) * ALIGNMENT
        peak = max(peak, used)
        free = hbm.capacity - used
        assert (hbm.in_use, hbm.high_water) == (used, peak)
        assert (hbm.allocations, hbm.largest) == (count, largest)
        assert hbm.largest_free == longest()
        assert hbm.fragmentation == (1 - longest() / free if free else 0)
        assert sorted(r.offset for _, r in hbm.held()) == sorted(r.offset for r in live)


def test_memory_stats_of_a_device() -> None:
    device = sl.Client("tiny").devices[0]
    kept = [device.put(np.ones(300, np.float32)) for _ in range(3)]
    kept.pop(1)
    stats = device.memory_stats()
    assert stats["bytes_in_use"] == 2 * 1536
    assert stats["peak_bytes_in_use"] == 3 * 1536
    assert stats["bytes_limit"] == device.chip.hbm.bytes
    assert stats["largest_free_block_bytes"] == device.chip.hbm.bytes - 3 * 1536
    assert (stats["num_allocs"], stats["largest_alloc_size"]) == (3, 1536)
    assert 0 < stats["fragmentation"] < 1


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
