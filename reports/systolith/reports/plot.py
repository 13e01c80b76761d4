"""Figures for papers: `from systolith import api as sl; sl.plot.roofline("run.json").savefig("roofline.pdf")`.

Each function returns a matplotlib figure, one column of a paper wide (3.3 inches), with its caption in the attribute
`caption`; `save` writes both.  A run is what `systolith run --json` printed (a path, or the object), or a `Run`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from systolith.isa.errors import SystolithError
from systolith.isa.files import Fill, text_fill, write_all
from systolith.reports.attribution import attribute_run
from systolith.reports.charts import data, study
from systolith.reports.compare import compared_runs, numbered, run_names
from systolith.reports.roofline import Peaks, peaks
from systolith.reports.run_data import RunData, load_run, timed

if TYPE_CHECKING:
    from systolith.reports.figures.style import PaperFigure

FORMATS = ("pdf", "svg", "png")


class Recorded(Protocol):
    """A run that has a record: `systolith.runtime.executable.Run`."""

    def record(self) -> dict[str, Any]: ...


AnyRun = RunData | Recorded | Mapping[str, Any] | str | Path


def roofline(run: AnyRun) -> PaperFigure:
    """FLOP/s over FLOP/byte of every fusion group, below the chip's roofs."""
    found, chip = _run(run)
    from systolith.reports.figures import runs as draw

    return draw.roofline(data.roofline(found, chip, attribute_run(found, chip)), _subject(found))


def utilisation(run: AnyRun) -> PaperFigure:
    """Shares of the peaks of MXUs, HBM and the other units."""
    found, chip = _run(run)
    from systolith.reports.figures import runs as draw

    return draw.utilisation(data.utilisation(found, chip), _subject(found))


def stalls(run: AnyRun) -> PaperFigure:
    """Where the cycles of each unit went."""
    found, _ = _run(run)
    from systolith.reports.figures import runs as draw

    return draw.stalls(data.stalls(found), _subject(found))


def timeline(run: AnyRun) -> PaperFigure:
    """The occupancy of the units over time, and the groups."""
    found, chip = _run(run)
    from systolith.reports.figures import runs as draw

    return draw.timeline(data.activity(_having(found, "timeline"), chip), _subject(found))


def traffic(run: AnyRun) -> PaperFigure:
    """HBM traffic over time, below the bandwidth."""
    found, chip = _run(run)
    from systolith.reports.figures import runs as draw

    return draw.traffic(data.traffic(_having(found, "traffic"), chip), _subject(found))


def memory(run: AnyRun) -> PaperFigure:
    """Bytes that VMEM and HBM hold over time."""
    found, chip = _run(run)
    from systolith.reports.figures import runs as draw

    return draw.memory(data.memory(_having(found, "memory"), chip), _subject(found))


def power(run: AnyRun) -> PaperFigure:
    """Power over time, on a chip that states energies."""
    found, chip = _run(run)
    watts = data.power(_having(found, "power"), chip)
    assert watts is not None
    from systolith.reports.figures import runs as draw

    return draw.power(watts, _subject(found))


def comparison(runs: Sequence[AnyRun], names: Sequence[str] | None = None) -> PaperFigure:
    """Simulated times of runs beside the first one.

    Args:
        runs: the baseline first.
        names: one a run; by default those of their files, of others the programs and chips.
    """
    found = [_run(run)[0] for run in runs]
    if not found:
        raise SystolithError("a comparison of no runs")
    titles = list(names or _names(runs, found))
    if len(set(titles)) != len(found):
        raise SystolithError(f"{len(found)} runs need as many names that differ: {', '.join(titles)}")
    from systolith.reports.figures import runs as draw

    return draw.comparison(compared_runs(dict(zip(titles, found, strict=True))))


def _names(runs: Sequence[AnyRun], found: Sequence[RunData]) -> list[str]:
    paths = [Path(run) for run in runs if isinstance(run, str | Path)]
    return run_names(paths) if len(paths) == len(runs) else numbered(f"{run.title}, {run.chip}" for run in found)


def pareto(table: study.Table, x: str, y: str, label: str | None = None, subject: str = "") -> PaperFigure:
    """Design points of a table (DataFrame or list of dicts) and their Pareto front.

    Args:
        table: a row a design point.
        x, y: columns of numbers, the smaller the better.
        label: column of the points' names.
        subject: what the points are of, for the caption.
    """
    _require_matplotlib()
    from systolith.reports.figures import studies

    return studies.pareto(study.pareto(table, x, y, label), subject)


def sensitivity(
    table: study.Table, metric: str, base: float, parameter: str = "parameter", value: str = "value"
) -> PaperFigure:
    """How a metric swings as parameters change one at a time; arguments as for `charts.study.sensitivity`."""
    _require_matplotlib()
    from systolith.reports.figures import studies

    return studies.sensitivity(study.sensitivity(table, metric, base, parameter, value))


def elasticities(table: study.Table, metric: str, parameter: str = "field", value: str = "elasticity") -> PaperFigure:
    """How a metric follows parameters; arguments as for `charts.study.elasticities`."""
    _require_matplotlib()
    from systolith.reports.figures import studies

    return studies.elasticities(study.elasticities(table, metric, parameter, value))


OF_A_RUN = {
    "roofline": roofline, "utilisation": utilisation, "stalls": stalls, "timeline": timeline, "traffic": traffic,
    "memory": memory, "power": power,
}  # fmt: skip


def save(figure: PaperFigure, path: str | Path) -> Path:
    """Write a figure, in the format that the suffix names, and its caption beside it (`.txt`): both or neither.

    Raises:
        SystolithError: another suffix, or a file cannot be written.
    """
    path = Path(path)
    write_all(fills(figure, path))
    return path


def fills(figure: PaperFigure, path: Path) -> dict[Path, Fill]:
    """The figure's file and its caption's, with what fills them."""
    if path.suffix[1:] not in FORMATS:
        raise SystolithError(f"{path}: a figure's suffix must be one of {', '.join('.' + f for f in FORMATS)}")
    drawn = BytesIO()
    from systolith.reports.figures.style import styled

    # Captions travel in the file, too; dates would make equal figures differ.
    keys: dict[str, dict[str, Any]] = {
        "pdf": {"Subject": figure.caption, "CreationDate": None},
        "svg": {"Description": figure.caption, "Date": None},
        "png": {"Description": figure.caption.encode("ascii", "replace").decode()},
    }
    with styled():
        figure.savefig(drawn, format=path.suffix[1:], metadata=keys[path.suffix[1:]])
    image = drawn.getvalue()
    return {path: lambda handle: handle.write(image), path.with_suffix(".txt"): text_fill(figure.caption + "\n")}


def figure_files(runs: Mapping[str, RunData], folder: Path, suffix: str) -> tuple[dict[Path, Fill], list[str]]:
    """Every figure of runs, and of several their comparison.

    Args:
        runs: by name, the baseline first; of several the name is the first part of the files' names.
        folder: of the files.
        suffix: one of FORMATS.

    Returns:
        the files, captions included, with what fills them; a line for each figure that a run has no record for.

    Raises:
        SystolithError: matplotlib is missing, or a run has no cycles.
    """
    files: dict[Path, Fill] = {}
    missing: list[str] = []
    for name, run in runs.items():
        prefix = f"{name}-" if len(runs) > 1 else ""
        for kind, draw in OF_A_RUN.items():
            if lacking := LACKING.get(kind, _nothing)(run):
                missing.append(f"{name}: no figure of the {kind}: {lacking}")
            else:
                files |= fills(draw(run), folder / f"{prefix}{kind}.{suffix}")
    if len(runs) > 1:
        files |= fills(comparison(list(runs.values()), list(runs)), folder / f"comparison.{suffix}")
    return files, missing


def _nothing(run: RunData) -> str:
    return ""


def _times(run: RunData) -> str:
    """Why a run has no figure over time; empty if it has one."""
    return "" if run.timeline.edges else "the record has no times"


def _held(run: RunData) -> str:
    """Why a run has no figure of memory over time; empty if it has one."""
    known = run.timeline.vmem or run.timeline.hbm
    return _times(run) or ("" if known else "the record does not say what memory holds (of a binary none does)")


def _energies(run: RunData) -> str:
    """Why a run has no figure of power over time; empty if it has one."""
    known = run.energy is not None and run.energy.timeline.edges
    return "" if known else f"there are no energy figures in chip {run.chip}"


LACKING = {"timeline": _times, "traffic": _times, "memory": _held, "power": _energies}


def _having(run: RunData, kind: str) -> RunData:
    if lacking := LACKING[kind](run):
        raise SystolithError(f"{run.title}: no figure of the {kind}: {lacking}")
    return run


def _require_matplotlib() -> None:
    """Import it.

    Raises:
        SystolithError: it is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise SystolithError("figures need matplotlib: pip install 'systolith[figures]'") from None


def _run(run: AnyRun) -> tuple[RunData, Peaks]:
    _require_matplotlib()
    if isinstance(run, str | Path):
        path, run = str(run), timed(load_run(run), str(run))
        peaks(run.chip_parameters, path)
    found = timed(run if isinstance(run, RunData | Mapping) else run.record())
    return found, peaks(found.chip_parameters)


def _subject(run: RunData) -> str:
    return f"{run.title} on {run.chip}"
