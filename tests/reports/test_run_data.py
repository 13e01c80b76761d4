import json
from pathlib import Path
from typing import Any

import pytest

from systolith.isa.errors import SystolithError
from systolith.reports.run_data import RunDataError, from_json, load_run, timed
from tests.reports.fabricate import fabricate


def test_fabricated_run_satisfies_the_schema() -> None:
    raw = fabricate()
    run = from_json(raw)
    assert run.cycles == raw["cycles"]
    assert [group.name for group in run.groups] == [group["name"] for group in raw["groups"]]
    assert run.groups[0].hlo == tuple(raw["groups"][0]["hlo"])


def test_a_file_gives_the_same_run(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(fabricate()))
    assert load_run(path) == from_json(fabricate())


def test_unknown_keys_are_ignored() -> None:
    assert from_json(fabricate() | {"weather": 3.0}) == from_json(fabricate())


def changed(**fields: Any) -> dict[str, Any]:
    return fabricate() | fields


@pytest.mark.parametrize(
    ("raw", "parts"),
    [
        (changed(cycles="many"), ("run.json", "cycles", "'many'")),
        (changed(instructions=-1), ("run.json", "instructions", "-1")),
        (changed(hbm_bytes={"read": 3}), ("run.json", "hbm_bytes.written", "required")),
        (changed(units={"ld": {"busy": 5}}), ("run.json", "units.ld", "add up to 5", str(fabricate()["cycles"]))),
        (changed(timeline={"edges": [0, 9], "read": [], "written": [1.0]}), ("timeline.read", "0 parts", "2 edges")),
        (changed(groups=[{"name": "big", "cycles": 10**9}]), ("groups", "1000000000", "more than cycles")),
        (changed(groups=[{"cycles": 1}]), ("groups.0.name", "required")),
    ],
)
def test_errors_name_file_field_and_value(raw: dict[str, Any], parts: tuple[str, ...]) -> None:
    with pytest.raises(RunDataError) as caught:
        from_json(raw, "run.json")
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(("text", "part"), [("{", "not JSON"), ("[1]", "not a JSON object")])
def test_files_that_hold_no_run(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(SystolithError, match=part):
        load_run(path)
    with pytest.raises(SystolithError, match="No such file"):
        load_run(tmp_path / "missing.json")


def test_a_report_needs_cycles() -> None:
    with pytest.raises(RunDataError, match="mode full or time, not values"):
        timed(changed(mode="values", cycles=None, seconds=None, units={}, groups=[], ops=[], timeline={}))
