"""The study of the benchmarks is one: its models are there, and it has 600 points."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import design_space
from systolith.runtime.sweep.points import Space
from systolith.runtime.sweep.study import read_study


def test_the_study_reads_and_has_600_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hlo_path(name: str) -> Path:
        path = tmp_path / f"{name}.txt"
        path.write_text(f"HloModule {name}\nENTRY e {{\n  ROOT x = f32[2] parameter(0)\n}}\n")
        return path

    monkeypatch.setattr(design_space, "hlo_path", hlo_path)
    study = read_study(design_space.write(tmp_path / "study"))
    points = list(Space(study).points())
    assert len(points) == 600
    assert all(point.chip is not None for point in points)
    assert len({point.key for point in points}) == 600
