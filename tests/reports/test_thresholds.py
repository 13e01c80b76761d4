"""`systolith report --check`: figures against thresholds."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from systolith.reports.run_data import from_json
from systolith.reports.thresholds import FIGURES, ThresholdError, check, load_thresholds
from systolith.runtime.cli import cli
from tests.reports.fabricate import fabricate, with_energy

BASE, SLOW = from_json(fabricate()), from_json(fabricate(1.5))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "base.json").write_text(json.dumps(fabricate()))
    (tmp_path / "slow.json").write_text(json.dumps(fabricate(1.5)))
    return tmp_path


def file(folder: Path, text: str) -> Path:
    path = folder / "limits.toml"
    path.write_text(text)
    return path


def test_what_got_worse_than_the_baseline(folder: Path) -> None:
    path = file(
        folder,
        """
        baseline = "base.json"
        [figures.cycles]
        worse = 0.10
        [figures.mxu_useful]
        worse = 0.1
        [figures.hbm_bytes]
        worse = 0
        [groups."softmax_fusion".cycles]
        worse = 0.0
        [groups."dot_gelu_fusion".cycles]
        most = 22_000
        """,
    )
    wanted, base = load_thresholds(path)
    assert check(BASE, wanted, base) == []
    found = [str(f) for f in check(SLOW, wanted, base)]
    assert found == [
        f"cycles: {SLOW.total:,}, baseline {BASE.total:,} (+{100 * (SLOW.total / BASE.total - 1):.1f} %)",
        f"mxu_useful: {SLOW.mxu_utilization:,.6g}, baseline {BASE.mxu_utilization:,.6g}"
        f" ({100 * (BASE.total / SLOW.total - 1):.1f} %)",
        "dot_gelu_fusion cycles: 32,550, at most 22,000 (+48.0 %)",
    ]


@pytest.mark.parametrize("text", ["", 'baseline = "base.json"', "[figures]", '[groups."dot_gelu_fusion"]'])
def test_a_file_that_limits_nothing_is_refused(folder: Path, text: str) -> None:
    with pytest.raises(ThresholdError, match=r"limits.toml: no thresholds: \[figures.cycles\]"):
        load_thresholds(file(folder, text))


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_at_its_limit_and_beyond(folder: Path, figure: str) -> None:
    run = from_json(with_energy(fabricate()))
    value = FIGURES[figure].of(run)
    assert value is not None
    for text, beyond in (
        (f"most = {value}", False), (f"most = {value * 0.99}", True), (f"least = {value}", False),
        (f"least = {value * 1.01}", True),
    ):  # fmt: skip
        wanted, base = load_thresholds(file(folder, f"[figures.{figure}]\n{text}\n"))
        assert bool(check(run, wanted, base)) == beyond, text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("x", "not TOML"),
        ("limits = 1", "limits: unknown key; there are: baseline, figures, groups"),
        ("[figures.cycles]\nmots = 1", r"figures\.cycles\.mots: unknown key; there are: most, least, worse"),
        ("[figures.cycles]\nmost = 'few'", "figures.cycles.most = 'few'"),
        ("[figures.cycles]", "needs most, least or worse"),
        ("[figures.cycles]\nworse = -1", "worse = -1"),
        ("[figures.cycles]\nmost = nan", "most = nan"),
        ("[figures.speed]\nmost = 1", r"figures\.speed: no such figure; there are: cycles"),
        ("[figures.cycles]\nworse = 0.1", r"figures\.cycles\.worse: needs a baseline"),
        ("[groups.g.flops]\nmost = 1", r"groups\.g\.flops: no such figure"),
        ("baseline = 'none.json'\n[figures.cycles]\nworse = 0.1", r"none\.json: No such file"),
    ],
)
def test_bad_files(folder: Path, text: str, part: str) -> None:
    from systolith.isa.errors import SystolithError

    with pytest.raises(SystolithError, match=part) as caught:
        load_thresholds(file(folder, text))
    assert "\n" not in str(caught.value)


def test_groups_and_figures_that_a_run_lacks(folder: Path) -> None:
    wanted, base = load_thresholds(file(folder, "[groups.none.cycles]\nmost = 1"))
    with pytest.raises(ThresholdError, match=r"groups\.none: the run has no such group"):
        check(BASE, wanted, base)
    wanted, base = load_thresholds(file(folder, "[figures.mxu_active]\nmost = 1"))
    with pytest.raises(ThresholdError, match="does not have it"):
        check(replace(BASE, array_active={}), wanted, base)


def test_the_command(folder: Path) -> None:
    limits = file(folder, 'baseline = "base.json"\n[figures.cycles]\nworse = 0.1\n')
    runner = CliRunner()
    good = runner.invoke(cli, ["report", str(folder / "base.json"), "--check", str(limits)], standalone_mode=False)
    assert (good.return_value, good.stdout) == (0, "no figure got worse\n")
    both = [str(folder / f"{name}.json") for name in ("base", "slow")]
    bad = runner.invoke(cli, ["report", *both, "--check", str(limits), "-q"], standalone_mode=False)
    assert bad.return_value == 1
    grown = f"+{100 * (SLOW.total / BASE.total - 1):.1f} %"
    assert bad.stdout == f"worse: slow: cycles: {SLOW.total:,}, baseline {BASE.total:,} ({grown})\n"
    assert {path.name for path in folder.iterdir()} == {"base.json", "slow.json", "limits.toml"}


def test_a_baseline_of_another_module_is_said(folder: Path) -> None:
    (folder / "base.json").write_text(json.dumps(fabricate() | {"program": "another"}))
    limits = file(folder, 'baseline = "base.json"\n[figures.cycles]\nworse = 9\n')
    ran = CliRunner().invoke(cli, ["report", str(folder / "slow.json"), "--check", str(limits)], standalone_mode=False)
    assert ran.return_value == 0
    assert ran.stderr == f"warning: slow and the baseline differ in module: {SLOW.program} and another\n"
