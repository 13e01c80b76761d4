"""A run's JSON with any value changed: a report, or a refusal of one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from systolith.reports.compare import render_comparison
from systolith.reports.html import render_report, write_report
from systolith.reports.run_data import RunDataError, from_json, load_run, timed
from systolith.reports.terminal import render_summary
from systolith.runtime.cli import cli
from tests.reports.fabricate import fabricate

BAD = [
    float("inf"), float("nan"), -1, -1.5, 0, 0.5, 10**400, 2**63, 1e308, 16**9999, True, None, "", "x" * 99999,
    "\ud800", "\x1b[31m", [], [1], {}, {"x": 1},
]  # fmt: skip
SMALL = fabricate()
SMALL |= {key: SMALL[key][:2] for key in ("groups", "ops")}
SMALL["timeline"] = {"edges": [0, SMALL["cycles"]], "read": [1.0], "written": [1.0], "busy": {"ld": [1.0]}}


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every part of a JSON value, of lists the first item and of a chip's parameters all."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for n, item in enumerate(value if path == ("chip_parameters",) else value[:1]):
            yield from places(item, (*path, n))


def with_value(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    run = deepcopy(SMALL)
    at: Any = run
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return run


CHIP_PLACES = ((), ("value",), ("field",))
PLACES = [p for p in places(SMALL) if p and (p[0] != "chip_parameters" or p[2:] in CHIP_PLACES)]


def reported(raw: dict[str, Any]) -> bool:
    """Whether there is a report of it; else it is refused."""
    problem = ""
    try:
        run = timed(from_json(raw, "run.json"))
        render_summary(run)
        render_report(run)
        render_comparison({"a": timed(SMALL), "b": run})
    except RunDataError as error:
        problem = str(error)
    assert "\n" not in problem
    assert len(problem) < 500
    return not problem


@pytest.mark.parametrize("top", sorted({str(p[0]) for p in PLACES}))
def test_any_value_is_reported_or_refused(top: str) -> None:
    """A tenth of the bad values at each place of a part."""
    for number, path in enumerate(p for p in PLACES if p[0] == top):
        for value in BAD if len(path) == 1 else BAD[number % 10 :: 10]:
            reported(with_value(path, value))
    assert reported(SMALL)


def test_a_name_that_no_encoding_has_is_written_as_an_escape(tmp_path: Path) -> None:
    write_report(with_value(("program",), "a\ud800b"), tmp_path / "r.html")
    assert "a\\ud800b" in (tmp_path / "r.html").read_text()


NO_RUNS = ["[" * 100000, '{"cycles":' * 100000, '{"cycles": 1e400}', "9" * 5000, "\x00", "{", "\xff"]


@pytest.mark.parametrize("text", NO_RUNS, ids=[text[:9] for text in NO_RUNS])
def test_a_text_that_is_no_run_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(RunDataError, match=r"run\.json: "):
        load_run(path)


def test_an_infinite_error_of_a_result_is_reported() -> None:
    assert reported(json.loads(json.dumps(SMALL | {"max_abs_error": float("inf"), "max_rel_error": float("nan")})))


def test_a_chip_that_is_none_is_said_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**fabricate(), "chip_parameters": []}))
    result = CliRunner().invoke(cli, ["report", str(path), "-o", str(tmp_path / "r.html")], standalone_mode=False)
    assert f"{path}: chip_parameters: clock_mhz = None" in str(result.exception)
    assert not (tmp_path / "r.html").exists()
