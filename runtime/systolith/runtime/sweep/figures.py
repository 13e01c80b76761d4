"""Figures of a sweep: the Pareto front of each model, and how its time follows what varies."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from systolith.isa.files import Fill
from systolith.reports import plot
from systolith.reports.charts.study import shown
from systolith.runtime.sweep.results import Results


def figure_files(results: Results, folder: Path, suffix: str) -> tuple[dict[Path, Fill], list[str]]:
    """The figures and their captions, with what fills them.

    Args:
        results: of a sweep; fronts are over the study's first two formulas of `pareto`.
        folder: of the files.
        suffix: one of `plot.FORMATS`.

    Returns:
        the files, and a line for each kind of figure that the study has nothing for.

    Raises:
        SystolithError: matplotlib is missing.
    """
    files: dict[Path, Fill] = {}
    missing = []
    formulas = results.study.pareto[:2]
    if len(formulas) == 2:
        good, label = results.good(), ", ".join([*results.study.fields, *results.study.options])
        for model in dict.fromkeys(results.rows[n]["model"] for n in good):
            points = [
                {f.text: results.value(f, n) for f in formulas} | {label: _point(results, n)}
                for n in good
                if results.rows[n]["model"] == model
            ]
            figure = plot.pareto(points, formulas[0].text, formulas[1].text, label, str(model))
            files |= plot.fills(figure, folder / f"pareto-{_name(model)}.{suffix}")
    else:
        missing.append("no figure of a front: the study has no two formulas in `pareto`")
    found = sorted(results.sensitivities(), key=lambda s: (s.model, s.chip))
    for (model, chip), group in groupby(found, key=lambda s: (s.model, s.chip)):
        figure = plot.elasticities([vars(s) for s in group], f"time of {model} on {chip}")
        files |= plot.fills(figure, folder / f"elasticity-{_name(model)}-{_name(chip)}.{suffix}")
    if not found:
        missing.append("no figure of elasticities: too few points, or what varies has no numbers above 0")
    return files, missing


def _point(results: Results, n: int) -> str:
    """The values of a point's varied fields and options, in few characters."""
    row = results.rows[n]
    return " ".join(shown(row[name]) for name in (*results.study.fields, *results.study.options))


def _name(text: object) -> str:
    """A name of a file."""
    return re.sub(r"[^\w.-]+", "_", Path(str(text)).stem)
