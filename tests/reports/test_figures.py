"""Figures for papers: their size, text, captions and files; their numbers are tested with `charts.data`."""

import json
import sys
from itertools import combinations, islice
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from matplotlib.collections import PathCollection
from matplotlib.text import Text

from systolith import api as sl
from systolith.isa.errors import SystolithError
from systolith.reports import plot
from systolith.reports.charts.data import Compared, Point, Roofline
from systolith.reports.compare import run_names
from systolith.reports.figures import runs
from systolith.reports.run_data import from_json
from systolith.runtime.cli import cli
from tests.reports.fabricate import fabricate, with_energy

ROWS = [{"area": i, "cycles": (i * 7) % 11 + 100 / i, "name": f"design {i}"} for i in range(1, 30)]
SWINGS = [{"parameter": p, "value": v, "cycles": 90 + 7 * v} for p in ("mxu.count", "hbm.p") for v in (1, 2, 4)]


def figures() -> dict[str, Any]:
    run = with_energy(fabricate())
    drawn = {name: draw(run) for name, draw in plot.OF_A_RUN.items()}
    drawn["comparison"] = plot.comparison([run, fabricate(2.0)], ["base", "slow"])
    drawn["pareto"] = plot.pareto(ROWS, "area", "cycles", "name")
    cost = "10 * mxu.count + vmem.bytes / 1048576 + hbm.gbps / 30"
    drawn["formula"] = plot.pareto([{**row, cost: row["area"]} for row in ROWS], "cycles", cost)
    bars = [{"field": "hbm.gbps", "elasticity": -0.65}, {"field": "vmem.bytes", "elasticity": 0.002}]
    drawn["elasticities"] = plot.elasticities(bars, "time of a model with a name on a chip with a name")
    drawn["sensitivity"] = plot.sensitivity(SWINGS, "cycles", 100)
    return drawn


@pytest.fixture(scope="module")
def drawn() -> dict[str, Any]:
    return figures()


def test_a_column_wide_with_legible_text_inside_it(drawn: dict[str, Any]) -> None:
    for name, figure in drawn.items():
        assert figure.get_figwidth() == 3.3
        assert all(text.get_fontsize() >= 7 for text in figure.findobj(Text)), name
        figure.draw_without_rendering()
        inked = figure.get_tightbbox()  # in inches
        assert inked.x0 >= -0.01, name
        assert inked.y0 >= -0.01, name
        assert inked.x1 <= figure.get_figwidth() + 0.01, name
        assert inked.y1 <= figure.get_figheight() + 0.01, name


def test_a_run_without_groups_has_its_figures(tmp_path: Path) -> None:
    """As of a program in assembly."""
    run = with_energy(fabricate()) | {"groups": [], "ops": []}
    for name, draw in plot.OF_A_RUN.items():
        figure = draw(run)
        sl.plot.save(figure, tmp_path / f"{name}.svg")
        assert "Most cycles" not in figure.caption


def test_captions_say_what_is_counted(drawn: dict[str, Any]) -> None:
    for name, figure in drawn.items():
        assert figure.caption.endswith("."), name
        assert len(figure.caption) > 80, name
    assert "inputs and outputs once" in drawn["roofline"].caption
    assert "(1) dot_gelu_fusion" in drawn["roofline"].caption
    assert "the smaller the better" in drawn["pareto"].caption
    assert "On the front, from the left, by name: design 1" in drawn["pareto"].caption


def test_the_roofline_has_a_circle_a_group(drawn: dict[str, Any]) -> None:
    (circles,) = drawn["roofline"].axes[0].findobj(PathCollection)
    groups = [g for g in fabricate()["groups"] if g["cycles"] and g["flops"]]
    assert len(circles.get_offsets()) == len(groups)
    most = max(g["cycles"] for g in groups)
    sizes = sorted(circles.get_sizes())
    assert sizes[-1] == pytest.approx(94)
    assert sizes[0] == pytest.approx(4 + 90 * min(g["cycles"] for g in groups) / most)


def covering(figure: Any) -> list[tuple[str, str]]:
    """Texts of the first axes that lie on one another or on the legend."""
    figure.draw_without_rendering()
    axes = figure.axes[0]
    found = [(text.get_text(), text.get_window_extent()) for text in axes.texts]
    found.append(("legend", axes.get_legend().get_window_extent()))
    return [(a, b) for (a, at), (b, there) in combinations(found, 2) if at.overlaps(there)]


@pytest.mark.parametrize(
    ("at", "flops"),
    [
        pytest.param(2.5, 2e12, marks=pytest.mark.slow),
        pytest.param(2.0, 1.6e12, marks=pytest.mark.slow),
        (60.0, 6.6e13),
        pytest.param(600.0, 7e13, marks=pytest.mark.slow),
        (200.0, 2.2e12),
        pytest.param(5.0, 2e11, marks=pytest.mark.slow),
    ],
)
def test_names_of_roofs_and_numbers_of_points_do_not_cover_each_other(at: float, flops: float) -> None:
    """Points where the names of the roofs of HBM, the VPU and the MXU would be otherwise."""
    points = [Point("a", at, flops, 900, "HBM", "HBM", 1.0, ""), Point("b", 19.0, 2e13, 90, "MXU", "MXU", 1.0, "")]
    drawn = runs.roofline(Roofline(6.2e13, 1.9e12, 4.5e11, tuple(points), 0), "a model on a chip")
    assert covering(drawn) == []


@pytest.mark.parametrize(("suffix", "start"), [("pdf", b"%PDF"), ("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_files_and_captions(tmp_path: Path, suffix: str, start: bytes) -> None:
    figure = plot.utilisation(fabricate())
    path = plot.save(figure, tmp_path / f"r.{suffix}")
    assert path.read_bytes().startswith(start)
    assert (tmp_path / "r.txt").read_text() == figure.caption + "\n"
    again = plot.save(plot.utilisation(fabricate()), tmp_path / f"again.{suffix}")
    assert again.read_bytes() == path.read_bytes()
    if suffix == "svg":
        texts = ["".join(t.itertext()) for t in ElementTree.parse(path).iter() if t.tag.endswith("text")]
        assert "useful MACs" in texts


def test_a_suffix_that_is_none(drawn: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SystolithError, match=r"\.pdf, \.svg, \.png"):
        plot.save(drawn["stalls"], tmp_path / "r.gif")


def test_runs_are_paths_objects_or_runs(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(fabricate()))

    class Run:
        def record(self) -> dict[str, Any]:
            return fabricate()

    captions = {sl.plot.stalls(run).caption for run in (path, str(path), fabricate(), Run())}
    assert len(captions) == 1


def test_a_comparison_names_runs_by_their_files_and_others_by_program_and_chip(tmp_path: Path) -> None:
    paths = [tmp_path / "base.json", tmp_path / "wide.json"]
    for path in paths:
        path.write_text(json.dumps(fabricate()))
    assert "the ratio to the first, base." in sl.plot.comparison(paths).caption
    again = sl.plot.comparison([from_json(fabricate()), fabricate()])
    labels = [tick.get_text() for tick in again.axes[0].get_yticklabels()]
    assert labels == ["bert_base_layer, tpu_v3", "bert_base_la…r, tpu_v3-2"]
    with pytest.raises(SystolithError, match="names that differ"):
        sl.plot.comparison(paths, ["a", "a"])


def test_the_key_of_a_comparison_has_what_its_bars_show() -> None:
    data = [Compared("a", 1e-3, 1.0, (("compute", 9.99e-4), ("vector", 1e-6))), Compared("b", 2e-3, 2.0, ())]
    (key,) = runs.comparison(data).legends
    assert [text.get_text() for text in key.get_texts()] == ["matrix units"]


def report(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["report", *map(str, arguments)], standalone_mode=False)
    if result.exception is None:
        return 0, result.stderr
    assert isinstance(result.exception, SystolithError), result.exception
    return 2, str(result.exception)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "OF_A_RUN", dict(islice(plot.OF_A_RUN.items(), 2)))
    path = tmp_path / "base.json"
    path.write_text(json.dumps(with_energy(fabricate())))
    code, said = report(path, "--figures", tmp_path / "f", "--format", "svg")
    assert (code, said) == (0, f"wrote {tmp_path / 'f'}\n")
    wanted = {f"{kind}.{suffix}" for kind in plot.OF_A_RUN for suffix in ("svg", "txt")}
    assert {path.name for path in (tmp_path / "f").iterdir()} == wanted
    assert not (tmp_path / "report.html").exists()


def test_several_runs_have_a_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "OF_A_RUN", {"utilisation": plot.utilisation})
    runs = {name: from_json(fabricate(scale)) for name, scale in (("base", 1.0), ("slow", 2.0))}
    files, missing = plot.figure_files(runs, tmp_path, "svg")
    assert not missing
    assert tmp_path / "comparison.svg" in files
    assert tmp_path / "slow-utilisation.svg" in files


def test_what_a_record_lacks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "OF_A_RUN", {"utilisation": plot.utilisation, "memory": plot.memory})
    run = fabricate()
    run["timeline"] |= {"vmem": [], "hbm": []}
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run))
    code, said = report(path, "--figures", tmp_path / "f", "--format", "svg")
    assert code == 0
    assert "run: no figure of the memory" in said
    assert not (tmp_path / "f" / "memory.svg").exists()
    with pytest.raises(SystolithError, match="no figure of the memory"):
        plot.memory(run)
    with pytest.raises(SystolithError, match="no figure of the power: there are no energy figures in chip tpu_v3"):
        plot.power(run)
    with pytest.raises(SystolithError, match="no figure of the timeline: the record has no times"):
        plot.timeline(run | {"timeline": {}})


def test_no_file_where_one_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "OF_A_RUN", {"utilisation": plot.utilisation, "stalls": plot.stalls})
    path = tmp_path / "run.json"
    path.write_text(json.dumps(fabricate()))
    folder = tmp_path / "f"
    (folder / "stalls.svg").mkdir(parents=True)
    code, said = report(path, "--figures", folder, "--format", "svg", "-o", tmp_path / "r.html")
    assert code == 2
    assert "is a folder" in said
    assert [p.name for p in folder.iterdir()] == ["stalls.svg"]
    assert not (tmp_path / "r.html").exists()


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    path = tmp_path / "run.json"
    path.write_text(json.dumps(fabricate()))
    code, said = report(path, "--figures", tmp_path / "f")
    assert (code, said) == (2, "figures need matplotlib: pip install 'systolith[figures]'")
    assert not (tmp_path / "f").exists()
    with pytest.raises(SystolithError, match="pip install"):
        sl.plot.pareto(ROWS, "area", "cycles")


def test_names_of_runs() -> None:
    paths = [Path("a/run.json"), Path("b/run.json"), Path("c.json"), Path("b/run.json")]
    assert run_names(paths) == ["a-run", "b-run", "c", "b-run-2"]
