"""The reports of a run that the simulator measured, from the JSON that the command line prints."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from systolith.reports.attribution import attribute_run
from systolith.reports.headline import shares
from systolith.reports.html import render_report
from systolith.reports.roofline import group_roof, mxu_use, peaks
from systolith.reports.run_data import RunData, from_json
from systolith.runtime.cli import cli
from tests.reports.test_html import SECTIONS, page


def run_json(path: Path, chip: str) -> dict[str, Any]:
    """The output of `systolith run --json`."""
    result = CliRunner().invoke(cli, ["run", str(path), "--chip", chip, "--mode", "time", "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def raw() -> dict[str, Any]:
    path = Path(__file__).parents[1] / "corpus" / "mlp_infer.hlo"
    return run_json(path, "small")


@pytest.fixture(scope="module")
def run(raw: dict[str, Any]) -> RunData:
    return from_json(raw)


def test_the_json_of_the_command_line_satisfies_the_schema(run: RunData) -> None:
    assert run.cycles
    assert run.chip == "small"
    assert run.groups
    assert run.timeline.edges[-1] == run.cycles
    # Traffic over time adds up to the bytes moved.
    assert sum(run.timeline.read) == pytest.approx(run.hbm_bytes.read)
    assert sum(run.timeline.written) == pytest.approx(run.hbm_bytes.written)


def test_groups_add_up_to_the_run(run: RunData) -> None:
    chip = peaks(run.chip_parameters)
    parts = shares(run, attribute_run(run, chip))
    assert sum(share.cycles for share in parts) == run.cycles
    assert sum(group.macs for group in run.groups) == run.macs


def test_nothing_beats_the_peak_of_the_array(run: RunData) -> None:
    chip = peaks(run.chip_parameters)
    use = mxu_use(run, chip)
    assert use.active is not None
    assert 0 < use.useful <= use.active <= use.busy <= 1
    for group in run.groups:
        roof = group_roof(group, chip)
        assert roof.needs["MXU"] <= group.busy.get("s0", 0)
        assert (roof.fraction or 0) <= 1


def test_the_page(run: RunData) -> None:
    found = page(render_report(run))
    assert [name for name in found.ids if name in SECTIONS] == SECTIONS
    assert f"{run.cycles:,}" in found.text
    for group in run.groups:
        assert group.title in found.text


def test_report_command(raw: dict[str, Any], tmp_path: Path) -> None:
    one = tmp_path / "a.json"
    one.write_text(json.dumps(raw))
    out = tmp_path / "r.html"
    for runs, sections in (([one], "roofline"), ([one, one], "causes")):
        result = CliRunner().invoke(cli, ["report", *map(str, runs), "-o", str(out)])
        assert result.exit_code == 0, result.output
        assert sections in page(out.read_text(encoding="utf-8")).ids
