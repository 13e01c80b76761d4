"""`systolith sweep` as a user types it."""

from __future__ import annotations

import csv
import json
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas
import pytest

from systolith.reports.charts.study import elasticities, pareto
from systolith.runtime.sweep.run import sweep
from systolith.runtime.sweep.work import Job, measure
from tests.runtime.command import systolith
from tests.runtime.sweep.studies import TEXT, toml

ROOT = Path(__file__).resolve().parents[3]


def test_a_sweep_writes_its_table_and_says_what_is_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = toml(tmp_path, TEXT), tmp_path / "r.csv"
    ran = systolith(capsys, "sweep", path, "-o", out, "--jobs", 1)
    assert ran.code == 0, ran
    assert "s: 4 points (0 known before)" in ran.out
    assert "Pareto front" in ran.out
    assert "elasticity" in ran.out
    assert f"wrote {out}" in ran.err
    rows = list(csv.DictReader(out.open()))
    assert [row["vmem.bytes"] for row in rows] == ["4096", "4096", "65536", "65536"]
    assert (tmp_path / "r.sqlite").exists()
    again = systolith(capsys, "sweep", path, "-o", out, "-o", tmp_path / "r.parquet", "--json")
    record = json.loads(again.out)
    assert (record["known"], record["computed"], record["ok"]) == (4, 0, True)
    assert list(csv.DictReader(out.open())) == rows


def test_points_that_break_constraints_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = toml(tmp_path, 'constraints = ["vmem.bytes < 10000"]\n' + TEXT)
    ran = systolith(capsys, "sweep", path, "-o", tmp_path / "r.csv", "--jobs", 1)
    assert "s: 2 points (0 known before), 2 left out by constraints\n" in ran.out
    again = systolith(capsys, "sweep", path, "-o", tmp_path / "r.csv", "--json")
    assert json.loads(again.out)["left_out"] == 2


def test_points_whose_results_break_constraints_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = toml(tmp_path, TEXT.replace("pareto =", 'constraints = ["cycles < 5"]\npareto ='))
    ran = systolith(capsys, "sweep", path, "-o", tmp_path / "r.csv", "--jobs", 1)
    assert ran.code == 0, ran
    assert "s: 4 points (0 known before), 4 with results that break constraints" in ran.out
    ran = systolith(capsys, "sweep", path, "-o", tmp_path / "r.csv", "--jobs", 1, "--json")
    assert json.loads(ran.out)["broken"] == 4


def test_the_summary_has_joules_of_chips_that_state_energies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = toml(tmp_path, TEXT.replace("tiny", "tpu_v3").replace('"vmem.bytes" = ["4KiB", "64KiB"]\n', ""))
    ran = systolith(capsys, "sweep", path, "-o", tmp_path / "r.csv", "--jobs", 1)
    heading, first = (line.split() for line in ran.out.split("Pareto")[0].splitlines()[-3:-1])
    best = pandas.read_csv(tmp_path / "r.csv").sort_values("seconds").joules.iloc[0]
    assert float(first[heading.index("mJ")]) == pytest.approx(best * 1e3, rel=1e-3)


def test_no_figure_of_the_summary_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = '"mxu.acc_rows" = [128, 256]\n"mxu.load_latency" = [10, 12]\n"vpu.trans_latency" = [15, 16]\n'
    path = toml(tmp_path, TEXT.replace("[1, 2]", "[1.23456]") + fields)
    ran = systolith(capsys, "sweep", path, "-o", tmp_path / "r.csv", "--jobs", 1)
    assert ran.code == 0, ran
    assert "…" not in ran.out
    fastest = ran.out.split("fastest")[1].split("Pareto")[0]
    best = pandas.read_csv(tmp_path / "r.csv").sort_values("cycles").iloc[0]
    for text in ("layer.hlo", "1.23456", str(best["vmem.bytes"]), f"{best.cycles:,}", f"{best.seconds * 1e3:.4g}"):
        assert text in fastest.split()


def test_figures_of_the_front_and_of_elasticities(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out, folder = toml(tmp_path, TEXT), tmp_path / "r.csv", tmp_path / "f"
    ran = systolith(capsys, "sweep", path, "-o", out, "--jobs", 1, "--figures", folder, "--format", "svg")
    assert ran.code == 0, ran
    assert f"wrote {out}, {folder}" in ran.err
    names = {file.name for file in folder.iterdir()}
    assert names == {f"{kind}.{end}" for kind in ("pareto-layer", "elasticity-layer-tiny") for end in ("svg", "txt")}
    results = sweep(path, tmp_path / "r.sqlite")
    formulas = results.study.pareto
    front = [tuple(results.value(f, results.rows.index(row)) for f in formulas) for row in results.pareto()]
    every = [{f.text: results.value(f, n) for f in formulas} for n in results.good()]
    drawn = pareto(every, formulas[0].text, formulas[1].text).front
    assert [(p.x, p.y) for p in drawn] == front
    caption = (folder / "pareto-layer.txt").read_text()
    assert f"On the line the {len(front)} points" in caption
    assert re.search(r"design points of layer\.hlo, .* from the left, by [a-z.]+(, [a-z.]+)*: ", caption)


def test_tables_of_the_front_and_of_elasticities(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are read back by pandas, and drawn from as they are."""
    path = toml(tmp_path, TEXT.replace('"vmem.bytes"]', '"vmem.bytes / 1024"]'))
    out, folder = tmp_path / "r.csv", tmp_path / "t"
    ran = systolith(capsys, "sweep", path, "-o", out, "--jobs", 1, "--csv", folder)
    assert ran.code == 0, ran
    assert f"wrote {out}, {folder}" in ran.err
    results = sweep(path, tmp_path / "r.sqlite")
    front = pandas.read_csv(folder / "pareto.csv")
    assert front["cycles"].tolist() == [row["cycles"] for row in results.pareto()]
    assert (front["vmem.bytes / 1024"] == front["vmem.bytes"] / 1024).all()
    every = pandas.read_csv(out)
    for row in front.to_dict("records"):  # nothing is as fast on as little memory
        better = every[(every["seconds"] <= row["seconds"]) & (every["vmem.bytes"] <= row["vmem.bytes"])]
        assert len(better[["seconds", "vmem.bytes"]].drop_duplicates()) == 1
    found = pandas.read_csv(folder / "elasticities.csv")
    assert found.to_dict("records") == [vars(s) for s in results.sensitivities()]
    assert elasticities(found, "time").bars
    assert results.write_tables(tmp_path / "again") == tmp_path / "again"
    for name in ("pareto.csv", "elasticities.csv"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_tables_that_a_study_has_nothing_for_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for line in TEXT.splitlines() if not line.startswith("pareto")]
    path, folder = toml(tmp_path, "\n".join(lines)), tmp_path / "t"
    ran = systolith(capsys, "sweep", path, "-o", tmp_path / "r.csv", "--jobs", 1, "--csv", folder)
    assert ran.code == 0, ran
    assert "no pareto.csv: the study has no formulas in `pareto`" in ran.err
    assert [file.name for file in folder.iterdir()] == ["elasticities.csv"]
    ran = systolith(capsys, "sweep", path, "-o", folder / "pareto.csv", "--csv", folder)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "--csv DIR/pareto.csv" in ran.err


def test_a_refused_point_ends_with_1_and_is_in_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = toml(tmp_path, TEXT.replace('"64KiB"', "7"))
    ran = systolith(capsys, "sweep", path, "-o", tmp_path / "r.csv", "--jobs", 1)
    assert ran.code == 1
    assert "refused: layer.hlo on tiny vmem.bytes=7 hbm.gbps=1: chip tiny: vmem.bytes = 7: must be" in ran.err
    statuses = [row["status"] for row in csv.DictReader((tmp_path / "r.csv").open())]
    assert statuses == ["ok", "ok", "refused", "refused"]


def test_what_is_wrong_ends_with_2_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = toml(tmp_path, TEXT), tmp_path / "r.csv"
    other = toml(tmp_path, TEXT.replace("layer.hlo", "gone.hlo"), "gone.toml")
    cases: list[tuple[tuple[object, ...], str]] = [
        ((other, "-o", out), "models: gone.hlo: no such file"),
        ((tmp_path / "none.toml", "-o", out), "none.toml: No such file"),
        ((path, "-o", tmp_path / "r.txt"), "results are written as .csv, .parquet, .json"),
        ((path, "-o", tmp_path / "no" / "r.csv"), "does not exist"),
        ((path, "-o", out, "--store", path), "would overwrite STUDY"),
        ((path,), "Missing option '-o'"),
        ((path, "-o", out, "--dask", "nonsense"), "--dask nonsense"),
    ]
    before = sorted(tmp_path.iterdir())
    for words, message in cases:
        ran = systolith(capsys, "sweep", *words)
        assert (ran.code, ran.out) == (2, ""), (words, ran)
        assert message in ran.err
        assert sorted(p for p in tmp_path.iterdir() if p.suffix != ".sqlite") == before


def test_a_table_of_which_nothing_is_known_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = toml(tmp_path, TEXT), tmp_path / "r.csv"
    out.write_text("mine\n")
    ran = systolith(capsys, "sweep", path, "-o", out)
    assert ran.code == 2
    assert "no " in ran.err
    assert out.read_text() == "mine\n"


def test_an_interrupted_sweep_says_what_is_kept_and_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = toml(tmp_path, TEXT), tmp_path / "r.csv"
    done = 0

    def interrupted(job: Job) -> Any:
        nonlocal done
        done += 1
        if done > 3:
            raise KeyboardInterrupt
        return measure(job)

    monkeypatch.setattr("systolith.runtime.sweep.pool.measure_alone", interrupted)
    ran = systolith(capsys, "sweep", path, "-o", out, "--jobs", 1)
    store = tmp_path / "r.sqlite"
    assert (ran.code, ran.out) == (130, "")
    said = f"systolith: interrupted: 3 of 4 points are done, their results in {store}: the same command goes on there\n"
    assert ran.err == said
    assert not out.exists()
    monkeypatch.undo()
    assert "s: 4 points (3 known before)" in systolith(capsys, "sweep", path, "-o", out, "--jobs", 1).out


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_sweep_that_is_killed_leaves_no_process_and_goes_on_where_it_was(how: int, tmp_path: Path) -> None:
    values = ", ".join(str(n) for n in range(8, 120, 4))
    path = toml(tmp_path, TEXT + f'"hbm.latency" = [{values}]\n')
    command = [sys.executable, "-m", "systolith", "sweep", str(path), "-o", str(tmp_path / "r.csv"), "--jobs", "2"]
    ran = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    store = tmp_path / "r.sqlite"
    workers: list[str] = []
    while not store.exists() or store.stat().st_size < 20_000:
        assert ran.poll() is None
        workers = Path(f"/proc/{ran.pid}/task/{ran.pid}/children").read_text().split()
        time.sleep(0.1)
    ran.send_signal(how)
    assert ran.wait() == (130 if how == signal.SIGINT else -how)
    until = time.monotonic() + 30
    while time.monotonic() < until and any(Path(f"/proc/{pid}").exists() for pid in workers):
        time.sleep(0.1)
    assert [pid for pid in workers if Path(f"/proc/{pid}").exists()] == []
    with sqlite3.connect(store) as db:
        (count,) = db.execute("select count(*) from results").fetchone()
    assert count > 0
    again = subprocess.run([*command, "--json"], capture_output=True, text=True)
    assert json.loads(again.stdout)["known"] == count


@pytest.mark.slow
def test_the_study_of_the_page_is_the_example_and_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"^```toml\n(.*?)^```$", (ROOT / "docs" / "sweeps.md").read_text(), re.M | re.S)
    example = ROOT / "examples" / "study.toml"
    assert found
    assert found[1] == example.read_text()
    ran = systolith(capsys, "sweep", example, "-o", tmp_path / "r.csv", "--jobs", 1)
    assert ran.code == 0, ran
    assert "study: 8 points" in ran.out


@pytest.mark.slow
@pytest.mark.parametrize("given", [None, "-"], ids=["file", "standard input"])
def test_the_script_of_the_page_runs_as_it_is(given: str | None, tmp_path: Path) -> None:
    found = re.search(r"^```python\n(.*?)^```$", (ROOT / "docs" / "sweeps.md").read_text(), re.M | re.S)
    assert found
    for name in ("study.toml", "mlp_infer.hlo"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    text = found[1].replace('results.sqlite"', 'results.sqlite", workers=2') + "print(found.computed, found.ok)\n"
    (tmp_path / "weigh.py").write_text(text)
    ran = subprocess.run(
        [sys.executable, given or "weigh.py"], cwd=tmp_path, input=text, capture_output=True, text=True, timeout=300
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[-1] == "8 True"
