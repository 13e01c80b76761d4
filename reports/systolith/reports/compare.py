"""The comparison of runs: headline figures side by side, groups against each other, and which causes changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from systolith.isa.errors import SystolithError
from systolith.reports.attribution import Attribution, attribute_run
from systolith.reports.causes import cause, in_order, unit_label
from systolith.reports.charts.bars import stacked
from systolith.reports.charts.data import stalls
from systolith.reports.headline import figures
from systolith.reports.html import environment, legend, save
from systolith.reports.numbers import NONE, count, percent, ratio
from systolith.reports.roofline import peaks
from systolith.reports.run_data import RunData, timed
from systolith.reports.tables import Cell, Table, name, number, word

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SAME = 0.005  # ratios this near 1 are not coloured
MOST_CAUSES = 25


def write_comparison(runs: Sequence[RunData | Mapping[str, Any]], path: str | Path) -> Path:
    """Write a comparison of runs; the others are compared with the first.

    Args:
        runs: 2 to 26 runs, or their JSON objects.
        path: the HTML file; replaced if it exists.

    Returns:
        the path.

    Raises:
        SystolithError: too few or too many runs, one breaks the schema or has no cycles, the file cannot be written.
    """
    return save(render_comparison([timed(run) for run in runs]), path)


def render_comparison(runs: Sequence[RunData]) -> str:
    """The comparison of timed runs as HTML text."""
    if not 2 <= len(runs) <= len(LETTERS):
        raise SystolithError(f"a comparison takes 2 to {len(LETTERS)} runs, got {len(runs)}")
    chips = [peaks(run.chip_parameters) for run in runs]
    why = [attribute_run(run, chip) for run, chip in zip(runs, chips, strict=True)]
    return environment().get_template("compare.html").render(
        runs=list(zip(LETTERS, runs, strict=False)),
        verdict=verdict(runs),
        figures=figure_table(runs),
        groups=group_table(runs, why),
        causes=cause_table(runs),
        parameters=parameter_table(runs),
        charts=[
            (letter, run, stacked(stalls(run)))
            for letter, run in zip(LETTERS, runs, strict=False)
        ],
        legend=legend(*runs),
    )  # fmt: skip


def verdict(runs: Sequence[RunData]) -> str:
    """How the others stand to the first, in simulated time, and which groups account for most of it."""
    return " ".join(_stands(letter, run, runs[0]) for letter, run in zip(LETTERS[1:], runs[1:], strict=False))


def _stands(letter: str, run: RunData, base: RunData) -> str:
    factor = (run.seconds or 0.0) / base.seconds if base.seconds else 1.0
    if abs(factor - 1) < SAME:
        change = "as long as"
    elif factor > 1:
        change = f"{ratio(factor, 1.0)} as long as"
    else:
        change = f"{percent(1 - factor)} less time than"
    text = f"{letter} takes {change} A, in {ratio(run.total, base.total)} its cycles"
    before = {group.name: group.cycles for group in base.groups}
    moved = {g.title: g.cycles - before[g.name] for g in run.groups if g.name in before and g.cycles != before[g.name]}
    largest = sorted(moved, key=lambda group: -abs(moved[group]))[:3]
    most = ", ".join(f"{group} {moved[group]:+,}" for group in largest)
    return f"{text}; most of it: {most} cycles." if most else f"{text}."


def figure_table(runs: Sequence[RunData]) -> Table:
    """A row a headline figure, a column a run, and ratios to the first."""
    each = [figures(run, peaks(run.chip_parameters)) for run in runs]
    rows = []
    for line in zip(*each, strict=True):
        cells = (Cell(f.text, f.value, "n", f.note) for f in line)
        rows.append((word(line[0].label), *cells, *(_ratio(f.value, line[0].value, False) for f in line[1:])))
    return Table("figures-table", (("figure", ""), *_columns(runs, "")), tuple(rows))


def group_table(runs: Sequence[RunData], why: Sequence[Mapping[str, Attribution]]) -> Table:
    """A row a group, by name; groups that a run does not have show a dash."""
    cycles = [{g.name: g.cycles for g in run.groups} for run in runs]
    titles = {g.name: g.title for run in reversed(runs) for g in run.groups}
    names = sorted(titles, key=lambda n: -max(run.get(n, 0) for run in cycles))
    rows = []
    for group in names:
        values = [run.get(group) for run in cycles]
        bounds = [w[group].bound if group in w else NONE for w in why]
        changed = " → ".join(bounds) if len(set(bounds)) > 1 else bounds[0]
        rows.append((
            name(titles[group]),
            *(number(v, count(v)) for v in values),
            *(_ratio(v, values[0], True) for v in values[1:]),
            word(changed, "warn" if len(set(bounds)) > 1 else ""),
        ))  # fmt: skip
    heads = (("group", ""), *_columns(runs, "cycles"), ("limited by", "class of the dominant unit, run by run"))
    return Table("groups-table", heads, tuple(rows))


def cause_table(runs: Sequence[RunData]) -> Table:
    """Cycles of every unit by cause, the largest change between runs first; differences are to the first run."""
    units = dict.fromkeys(unit for run in runs for unit in run.units)
    rows = []
    for unit in units:
        for key in in_order(c for run in runs for c in run.units.get(unit, {})):
            values = [run.units.get(unit, {}).get(key, 0) for run in runs]
            moved = max(values) - min(values)
            if moved:
                cells = (number(v, count(v)) for v in values)
                deltas = (number(v - values[0], f"{v - values[0]:+,}") for v in values[1:])
                rows.append((moved, (word(unit_label(unit)), word(cause(key).label), *cells, *deltas)))
    rows.sort(key=lambda row: -row[0])
    letters = LETTERS[: len(runs)]
    heads = (
        ("unit", ""),
        ("cause", ""),
        *((f"{x} cycles", "") for x in letters),
        *((f"{x} − A", "difference in cycles") for x in letters[1:]),
    )
    return Table("causes-table", heads, tuple(cells for _, cells in rows[:MOST_CAUSES]))


def parameter_table(runs: Sequence[RunData]) -> Table:
    """Chip parameters in which the runs differ."""
    values = [{row.field: row for row in run.chip_parameters} for run in runs]
    fields = dict.fromkeys(field for chip in values for field in chip if field != "name")
    rows = []
    for field in fields:
        found = [chip.get(field) for chip in values]
        texts = [NONE if row is None else str(row.value) for row in found]
        if len(set(texts)) > 1:
            unit = next(row.unit for row in found if row is not None)
            rows.append((name(field), *(word(text, "n") for text in texts), word(unit)))
    heads = (("parameter", ""), *((x, "") for x in LETTERS[: len(runs)]), ("unit", ""))
    return Table("chip-table", heads, tuple(rows))


def _columns(runs: Sequence[RunData], what: str) -> tuple[tuple[str, str], ...]:
    letters = LETTERS[: len(runs)]
    values = ((f"{x} {what}".strip(), f"{run.title} on {run.chip}") for x, run in zip(letters, runs, strict=True))
    return (*values, *((f"{x} / A", "ratio to the first run") for x in letters[1:]))


def _ratio(value: float | None, base: float | None, less_is_better: bool) -> Cell:
    factor = value / base if value is not None and base else None
    css = ""
    if less_is_better and factor is not None and abs(factor - 1) > SAME:
        css = "up" if factor > 1 else "down"
    return number(factor, ratio(value, base), css)
