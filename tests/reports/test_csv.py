"""`systolith report --csv`: read back by pandas."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from systolith.runtime.cli import cli
from tests.reports.fabricate import fabricate, with_energy


def frames(folder: Path) -> dict[str, Any]:
    return {path.stem: pd.read_csv(path, keep_default_na=False) for path in folder.iterdir()}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("csv")
    paths = [folder / "base.json", folder / "slow.json"]
    for path, scale in zip(paths, (1.0, 2.0), strict=True):
        raw = with_energy(fabricate(scale)) | {
            "what_if": [{"name": 'fast, "very"', "changes": {"hbm.p": "9"}, "cycles": 9, "seconds": 0.5}]
        }
        path.write_text(json.dumps(raw))
    result = CliRunner().invoke(cli, ["report", *map(str, paths), "--csv", str(folder / "t")], standalone_mode=False)
    assert result.return_value == 0, result.output
    assert not Path("report.html").exists()
    return frames(folder / "t")


def test_every_table_has_every_row_of_every_run(tables: dict[str, Any]) -> None:
    raw = fabricate()
    rows = {
        "groups": len(raw["groups"]), "ops": len(raw["ops"]), "chip": len(raw["chip_parameters"]), "what_if": 1,
        "timeline": len(raw["timeline"]["read"]), "units": sum(map(len, raw["units"].values())), "stalls": 2,
        "energy": 11,
    }  # fmt: skip
    assert set(tables) == {*rows, "figures"}
    for name, number in rows.items():
        assert list(tables[name]["run"]) == ["base"] * number + ["slow"] * number, name


def test_values_are_those_of_the_record(tables: dict[str, Any]) -> None:
    raw = fabricate()
    units = tables["units"]
    assert units[units.run == "base"].groupby("unit").cycles.sum().to_dict() == dict.fromkeys(
        raw["units"], raw["cycles"]
    )
    groups = tables["groups"][tables["groups"].run == "base"].set_index("name")
    for group in raw["groups"]:
        row = groups.loc[group["name"]]
        assert (row.cycles, row.macs, row.hbm_read) == (group["cycles"], group["macs"], group["hbm_bytes"]["read"])
        assert str(row.busy_vpu) == str(group["busy"].get("vpu", ""))
    line = tables["timeline"][tables["timeline"].run == "base"]
    assert list(line.end) == raw["timeline"]["edges"][1:]
    assert list(line.vmem_held) == raw["timeline"]["vmem"]
    energy = tables["energy"][tables["energy"].run == "base"]
    assert energy[energy["of"] == "unit"].femtojoules.sum() == 6 * 10**12
    tops = energy.set_index("name").tops_per_watt.astype(str)
    assert tops[["mxu", "dot.0", "leakage"]].tolist() == ["0.6", "0.4", ""]
    assert line.watts.tolist()[:2] == pytest.approx([40, 40 + 60 / 9])
    assert list(tables["what_if"].name) == ['fast, "very"'] * 2
    cycles = tables["figures"][tables["figures"].figure == "cycles"]
    assert cycles.value.astype(float).tolist() == [raw["cycles"], fabricate(2.0)["cycles"]]
