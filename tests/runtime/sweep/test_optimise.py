"""An optimiser finds what all points together show, and repeats nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from systolith.runtime.sweep import run
from systolith.runtime.sweep.run import sweep
from tests.runtime.sweep.studies import study


def search(folder: Path, **changes: Any) -> dict[str, Any]:
    vary = {"hbm.p": {"from": 1, "to": 32}, "hbm.latency": {"from": 8, "to": 512, "scale": "log"}}
    sample = {"method": "optimise", "points": 16, "objective": "seconds + 1e-6 * hbm.p"}
    return study(folder, program="fixed", vary=vary, sample=sample, **changes)


def test_it_keeps_constraints_and_comes_close_to_the_best(tmp_path: Path) -> None:
    bounds = ["hbm.p * 4 <= 64", "seconds > 0"]
    found = sweep(search(tmp_path, constraints=bounds), workers=1)
    assert len(found.rows) == 16
    assert all(row["hbm.p"] <= 16 for row in found.rows)
    every = sweep(
        study(tmp_path, program="fixed", vary={"hbm.p": list(range(1, 17)), "hbm.latency": [8]}), workers=1
    )  # fmt: skip
    objective = "seconds + 1e-6 * hbm.p"
    best, least = (r["seconds"] + 1e-6 * r["hbm.p"] for r in (found.best(objective)[0], every.best(objective)[0]))
    assert least <= best <= 1.15 * least


def test_it_is_repeated_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "r.sqlite"
    first = sweep(search(tmp_path), store, workers=1)
    monkeypatch.setattr(run, "pool_for", lambda *_: pytest.fail("work was begun"))
    again = sweep(search(tmp_path), store, workers=1)
    assert [r["cycles"] for r in first.rows] == [r["cycles"] for r in again.rows]
