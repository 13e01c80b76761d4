from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from systolith.reports.terminal import render_summary
from tests.reports.fabricate import fabricate


def printed(raw: dict[str, Any], width: int = 140) -> str:
    console = Console(width=width, record=True, file=StringIO())
    for part in render_summary(raw):
        console.print(part)
    return console.export_text()


def test_the_summary_has_figures_units_and_groups() -> None:
    raw = fabricate()
    text = printed(raw)
    for part in (
        f"{raw['cycles']:,}",
        "77.2 µs",
        "Useful MACs",
        "DMA load",
        "dot_gelu_fusion",
        "29.9 %",
        "against the reference",
    ):
        assert part in text
    assert text.rstrip().endswith("ok")
    assert "of bound: the least cycles of any program for it" in text


def test_at_most_ten_groups() -> None:
    raw = fabricate()
    raw["groups"] += [{"name": f"tiny.{i}", "cycles": 1} for i in range(20)]
    text = printed(raw)
    assert "Groups by cycles, 10 of 30" in text
    assert text.count("tiny.") == 1


def test_a_run_without_cycles() -> None:
    raw = fabricate() | {
        "mode": "values",
        "cycles": None,
        "seconds": None,
        "units": {},
        "groups": [],
        "ops": [],
        "timeline": {},
    }
    text = printed(raw)
    assert "no cycles" in text
    assert "Units" not in text


def test_reasons_stand_beside_groups_where_there_is_room_and_below_elsewhere() -> None:
    assert "│ DMA load is occupied for" not in printed(fabricate(), 80)
    assert "dot_gelu_fusion: DMA load is occupied for" in " ".join(printed(fabricate(), 80).split())
    assert "│ DMA load is occupied for" in printed(fabricate(), 200)


def test_as_many_groups_as_are_asked_for() -> None:
    from systolith.reports.run_data import from_json

    parts = render_summary(from_json(fabricate()), top=0)
    assert len(parts) + 1 == len(render_summary(fabricate(), top=3))


@pytest.mark.parametrize("width", [60, 80, 200])
def test_it_fits_the_terminal(width: int) -> None:
    assert max(len(line) for line in printed(fabricate(), width).splitlines()) <= width


def test_failures_and_hazards_show() -> None:
    text = printed(fabricate() | {"ok": False, "hazards": ["a race"]})
    assert "1 memory hazards" in text
    assert text.rstrip().endswith("a check failed")
