"""Python's collector of cycles during a sweep: held back, as a look costs a tenth of a point."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from systolith.runtime.sweep import work
from systolith.runtime.sweep.run import sweep
from tests.runtime.sweep.studies import study


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """Generations of the collections so far, by a collector that is on and asked often."""
    found: list[int] = []

    def note(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            found.append(info["generation"])

    often, before, enabled = 700, gc.get_threshold(), gc.isenabled()
    gc.collect()
    gc.set_threshold(often)
    gc.enable()
    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)
    gc.set_threshold(*before)
    if not enabled:
        gc.disable()


def test_no_cycles_are_looked_for_between_points(tmp_path: Path, collections: list[int]) -> None:
    so_far: list[int] = []

    def watch(done: int, total: int, bad: int) -> None:
        assert [[] for _ in range(gc.get_threshold()[0] + 1)]  # enough objects for a collector that is on
        so_far.append(len(collections))

    assert sweep(study(tmp_path), workers=1, watch=watch).ok
    assert len(so_far) == 4
    assert so_far[-1] == so_far[0]
    assert gc.isenabled()


def test_cycles_are_looked_for_when_there_are_many_objects(
    tmp_path: Path, collections: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "UNCOLLECTED", 0)
    assert sweep(study(tmp_path), workers=1).ok
    assert collections.count(2) == 4


@pytest.mark.usefixtures("collections")
def test_the_collector_is_on_again_after_a_sweep_that_failed(tmp_path: Path) -> None:
    def watch(done: int, total: int, bad: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(study(tmp_path), workers=1, watch=watch)
    assert gc.isenabled()
