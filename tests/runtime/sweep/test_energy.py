"""Energy as a column of sweeps: what a run of the same program says, front and refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.options import Options
from systolith.isa.chip import load_chip, to_toml
from systolith.isa.chip_energy import ENERGY
from systolith.isa.errors import SystolithError
from systolith.runtime.sweep.run import sweep
from systolith.sim.simulate import simulate
from tests.runtime.command import systolith
from tests.runtime.sweep.studies import MODEL, study, toml


def chip_file(folder: Path, name: str, femtojoules: int) -> Path:
    """A file of `tiny` with all energies the same."""
    chip = load_chip("tiny", dict.fromkeys(ENERGY, femtojoules) | {"energy.leakage": 1.0})
    path = folder / f"{name}.toml"
    path.write_text(to_toml(chip))
    return path


def energies(rows: list[dict[str, Any]]) -> list[float]:
    return [row["joules"] for row in rows]


def test_joules_are_those_of_a_run(tmp_path: Path) -> None:
    path = chip_file(tmp_path, "one", 1000)
    plan = study(tmp_path, chips=[str(path)], vary={"hbm.gbps": [1, 2]}, pareto=["seconds", "joules"])
    found = sweep(plan, tmp_path / "r.sqlite", 1)
    for row in found.rows:
        chip = load_chip(str(path), {"hbm.gbps": row["hbm.gbps"]})
        run = simulate(compile_module(parse_hlo(MODEL), chip, Options(probes=False)).program, chip, mode="time")
        assert run.energy is not None
        assert row["joules"] == pytest.approx(run.energy.total * 1e-15, rel=1e-12)
    assert len(found.pareto()) >= 1
    assert found.best("joules")[0]["joules"] == min(energies(found.rows))


def test_power_is_that_of_the_record_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = chip_file(tmp_path, "one", 1000)
    plan = study(tmp_path, chips=[str(path)], vary={"hbm.gbps": [1, 2]}, pareto=["1 / tops_per_watt"])
    row, _ = sweep(plan, workers=1).rows
    words = ("--chip", path, "--set", "hbm.gbps=1", "--mode", "time", "--json")
    ran = systolith(capsys, "run", tmp_path / "layer.hlo", *words)
    assert ran.code == 0
    energy = json.loads(ran.out)["energy"]
    for column in ("joules", "average_watts", "peak_watts", "tops_per_watt"):
        assert row[column] == energy[column] > 0
    assert row["average_watts"] == pytest.approx(row["joules"] / row["seconds"])
    assert row["average_watts"] < row["peak_watts"]


def test_energy_by_unit_and_op_is_that_of_the_record_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = chip_file(tmp_path, "one", 1000)
    plan = study(tmp_path, chips=[str(path)], vary={"hbm.gbps": [1, 2]})
    found = sweep(plan, tmp_path / "r.sqlite", 1)
    ran = systolith(
        capsys, "run", tmp_path / "layer.hlo", "--chip", path, "--set", "hbm.gbps=1", "--mode", "time", "--json"
    )
    energy = json.loads(ran.out)["energy"]
    first = [row for row in found.energy() if row["hbm.gbps"] == 1]
    joules = {(row["of"], row["name"]): row["joules"] for row in first}
    tops = {(row["of"], row["name"]): row["tops_per_watt"] for row in first if row["tops_per_watt"] is not None}
    parts = energy["by_unit"] | {"idle": energy["idle_fj"], "leakage": energy["leakage_fj"]}
    amounts = {("unit", name): fj for name, fj in parts.items()} | {("op", n): fj for n, fj in energy["by_op"].items()}
    assert joules == pytest.approx({key: fj * 1e-15 for key, fj in amounts.items()})
    wanted = {("unit", name): n for name, n in energy["tops_per_watt_by_unit"].items()}
    assert tops == pytest.approx(wanted | {("op", name): n for name, n in energy["tops_per_watt_by_op"].items()})
    assert ("op", "y") in tops
    assert ("op", "r") not in tops
    assert sum(parts.values()) == energy["total_fj"]
    again = sweep(plan, tmp_path / "r.sqlite", 1)
    assert (again.computed, again.energy()) == (0, found.energy())


def test_the_command_writes_energies_and_formulas_may_name_a_units(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = chip_file(tmp_path, "one", 1000)
    text = f'models = ["layer.hlo"]\nchips = ["{path}", "tiny"]\n[vary]\n"mxu.count" = [1]\n'
    study_file, out, tables = toml(tmp_path, text), tmp_path / "r.csv", tmp_path / "t"
    ran = systolith(capsys, "sweep", study_file, "-o", out, "--csv", tables, "--jobs", 1)
    assert ran.code == 0, ran.err
    with (tmp_path / "t" / "energy.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["chip"] for row in rows} == {str(path)}
    assert {row["of"] for row in rows} == {"unit", "op"}
    plan = study(tmp_path, chips=[str(path)], pareto=["seconds", "joules_hbm"])
    front = sweep(plan, tmp_path / "s.sqlite", 1).pareto()
    assert all(row["joules_hbm"] > 0 for row in front)


def test_chips_that_differ_in_energies_alone_have_results_of_their_own(tmp_path: Path) -> None:
    """Energies are no part of a chip's digest."""
    chips = [str(chip_file(tmp_path, name, fj)) for name, fj in (("low", 1000), ("high", 2000))]
    found = sweep(study(tmp_path, chips=chips, vary={"hbm.gbps": [1]}), tmp_path / "r.sqlite", 1)
    low, high = energies(found.rows)
    assert found.rows[0]["cycles"] == found.rows[1]["cycles"]
    assert low < high < 2 * low


def test_without_energies_there_are_no_joules_and_formulas_of_them_are_refused(tmp_path: Path) -> None:
    assert energies(sweep(study(tmp_path, vary={"hbm.gbps": [1]}), tmp_path / "r.sqlite", 1).rows) == [None]
    plan = study(tmp_path, pareto=["seconds", "joules"])
    with pytest.raises(SystolithError, match=r"'joules': chip tiny states no energies"):
        sweep(plan, tmp_path / "other.sqlite")
    with pytest.raises(SystolithError, match=r"'peak_watts < 3': chip tiny states no energies"):
        sweep(study(tmp_path, constraints=["peak_watts < 3"]), tmp_path / "other.sqlite")
    assert not (tmp_path / "other.sqlite").exists()


def test_energies_are_varied_with_their_units_and_named_in_formulas(tmp_path: Path) -> None:
    path = chip_file(tmp_path, "one", 1000)
    vary = {"energy.hbm_byte": ["3 pJ", 30_000, "300 pJ"]}
    few = study(tmp_path, chips=[str(path)], vary=vary, constraints=["energy.hbm_byte < 1e5"])
    found = sweep(few, tmp_path / "r.sqlite", 1)
    assert found.left_out == 1
    assert [row["energy.hbm_byte"] for row in found.rows] == [3000, 30_000]
    moved = found.rows[0]["hbm_read_bytes"] + found.rows[0]["hbm_written_bytes"]
    low, high = energies(found.rows)
    assert high - low == pytest.approx(moved * 27_000 * 1e-15)
