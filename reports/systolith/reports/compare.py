"""The comparison of runs: headline figures side by side, groups against each other, and which causes changed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from systolith.isa.errors import SystolithError
from systolith.reports.attribution import Attribution, attribute_run
from systolith.reports.causes import cause, in_order, unit_label
from systolith.reports.charts.bars import compared_chart, stacked
from systolith.reports.charts.data import Compared, compared, stalls
from systolith.reports.headline import BOUNDS, Figure, figures, power_figures, shares
from systolith.reports.html import environment, legend
from systolith.reports.numbers import NONE, count, decimal, percent, ratio, si, size
from systolith.reports.roofline import peaks
from systolith.reports.run_data import RunData
from systolith.reports.svg import shorten
from systolith.reports.tables import OF_OP, OF_UNIT, Cell, Table, name, number, op_name, word

SAME = 0.005  # ratios this near 1 are not coloured
MOST_CAUSES = 25
MOST_PARTS = 25  # units, or HLO ops, whose energy is compared
FEW = 3  # values that a warning names
HEAD = 20  # characters of a run's name in a heading


def render_comparison(runs: Mapping[str, RunData]) -> str:
    """The comparison of timed runs with the first as HTML text; `runs`: by name, two or more.

    Raises:
        SystolithError: there are fewer than two.
    """
    if len(runs) < 2:
        raise SystolithError(f"a comparison takes 2 or more runs, got {len(runs)}")
    each = list(runs.values())
    chips = [peaks(run.chip_parameters) for run in each]
    why = [attribute_run(run, chip) for run, chip in zip(each, chips, strict=True)]
    return environment().get_template("compare.html").render(
        runs=runs,
        base=next(iter(runs)),
        verdict=verdict(runs),
        differences=differences(runs),
        chart=compared_chart(compared_runs(runs)),
        bounds=BOUNDS.values(),
        figures=figure_table(runs),
        groups=group_table(runs, why),
        causes=cause_table(runs),
        energy=energy_tables(runs),
        parameters=parameter_table(runs),
        charts=[(name, run, stacked(stalls(run))) for name, run in runs.items()],
        legend=legend(*each),
    )  # fmt: skip


def run_names(paths: Sequence[Path]) -> list[str]:
    """A name for each run: its file's, with the folder's in front where names repeat, and then with a number."""
    often = Counter(path.stem for path in paths)
    return numbered(p.stem if often[p.stem] == 1 else f"{p.resolve().parent.name}-{p.stem}" for p in paths)


def numbered(names: Iterable[str]) -> list[str]:
    """The names, those that were there before with a number."""
    found: list[str] = []
    for given in names:
        others = (f"{given}-{n}" for n in itertools.count(2))
        found.append(given if given not in found else next(other for other in others if other not in found))
    return found


def compared_runs(runs: Mapping[str, RunData]) -> tuple[Compared, ...]:
    """Simulated times of runs by name, the baseline first, and what bounds their groups."""
    chips = [peaks(run.chip_parameters) for run in runs.values()]
    both = zip(runs.values(), chips, strict=True)
    by_bound = [{s.bound: s.cycles for s in shares(run, attribute_run(run, chip))} for run, chip in both]
    return compared(list(runs.values()), list(runs), chips, by_bound)


def differences(runs: Mapping[str, RunData]) -> list[str]:
    """Warnings of runs whose model, or precision, is not the baseline's: then times are of different work."""
    first, base = next(iter(runs.items()))
    found: dict[tuple[str, str], dict[str, str]] = {}  # what differs from what of the baseline: runs and theirs
    for other, run in runs.items():
        for what, of, before in (
            ("module", run.program, base.program),
            (
                "bytes of parameters",
                size(run.hbm_allocated.get("parameter")),
                size(base.hbm_allocated.get("parameter")),
            ),
            ("useful MACs", count(run.macs), count(base.macs)),
            ("precision", run.precision or NONE, base.precision or NONE),
        ):
            if of != before:
                found.setdefault((what, before or NONE), {})[other] = of or NONE
                break
    return [
        f"{next(iter(others)) if len(others) == 1 else f'{len(others)} runs'} and {first} differ in {what}:"
        f" {_some(others.values())} and {before}"
        for (what, before), others in found.items()
    ]


def same_model(run: RunData, base: RunData) -> bool:
    """Whether the groups of two runs are parts of the same module, as far as their records tell."""
    one, other = (
        (r.program, r.macs, r.hbm_allocated.get("parameter"), r.hbm_allocated.get("result")) for r in (run, base)
    )
    return one == other


def _some(values: Iterable[str]) -> str:
    """The first of several values, and how many more there are."""
    shown = list(dict.fromkeys(values))
    more = f" ({len(shown) - FEW} more)" if len(shown) > FEW else ""
    return ", ".join(shown[:FEW]) + more


def verdict(runs: Mapping[str, RunData]) -> str:
    """How the others stand to the first, in simulated time, and which groups account for most of it."""
    first, *others = runs
    return " ".join(_stands(name, runs[name], first, runs[first]) for name in others)


def _stands(name: str, run: RunData, first: str, base: RunData) -> str:
    factor = (run.seconds or 0.0) / base.seconds if base.seconds else 1.0
    if abs(factor - 1) < SAME:
        change = "as long as"
    elif factor > 1:
        change = f"{ratio(factor, 1.0)} as long as"
    else:
        change = f"{percent(1 - factor)} less time than"
    text = f"{name} takes {change} {first}, in {ratio(run.total, base.total)} its cycles"
    before = {group.name: group.cycles for group in base.groups} if same_model(run, base) else {}
    moved = {g.title: g.cycles - before[g.name] for g in run.groups if g.name in before and g.cycles != before[g.name]}
    largest = sorted(moved, key=lambda group: -abs(moved[group]))[:3]
    most = ", ".join(f"{group} {moved[group]:+,}" for group in largest)
    return f"{text}; most of it: {most} cycles." if most else f"{text}."


def figure_table(runs: Mapping[str, RunData]) -> Table:
    """A row a headline figure, or one of power, a column a run, and ratios to the first."""
    each = [
        {f.key: f for f in (*figures(run, peaks(run.chip_parameters)), *power_figures(run))} for run in runs.values()
    ]
    labels = {key: figure.label for found in sorted(each, key=len, reverse=True) for key, figure in found.items()}
    rows = []
    for key, label in labels.items():
        line = [found.get(key, Figure(key, label, NONE, "not in the record", None)) for found in each]
        cells = (Cell(f.text, f.value, "n", f.note) for f in line)
        rows.append((word(label), *cells, *(_ratio(f.value, line[0].value, False) for f in line[1:])))
    return Table("figures-table", (("figure", ""), *_columns(runs, "")), tuple(rows))


def group_table(runs: Mapping[str, RunData], why: Sequence[Mapping[str, Attribution]]) -> Table:
    """A row a group, by name; groups that a run does not have show a dash, and so do ratios to another model's."""
    base, *others = runs.values()
    alike = [same_model(run, base) for run in others]
    cycles = [{g.name: g.cycles for g in run.groups} for run in runs.values()]
    titles = {g.name: g.title for run in reversed(list(runs.values())) for g in run.groups}
    names = sorted(titles, key=lambda n: -max(run.get(n, 0) for run in cycles))
    rows = []
    for group in names:
        values = [run.get(group) for run in cycles]
        bounds = [w[group].bound if group in w else NONE for w in why]
        changed = " → ".join(bounds) if len(set(bounds)) > 1 else bounds[0]
        rows.append((
            name(titles[group]),
            *(number(v, count(v)) for v in values),
            *(_ratio(v, values[0] if same else None, True) for v, same in zip(values[1:], alike, strict=True)),
            word(changed, "warn" if len(set(bounds)) > 1 else ""),
        ))  # fmt: skip
    heads = (("group", ""), *_columns(runs, "cycles"), ("limited by", "class of the dominant unit, run by run"))
    return Table("groups-table", heads, tuple(rows))


def cause_table(named: Mapping[str, RunData]) -> Table:
    """Cycles of every unit by cause, the largest change between runs first; differences are to the first run."""
    runs = list(named.values())
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
    first, *others = (shorten(name, HEAD) for name in named)
    heads = (
        ("unit", ""),
        ("cause", ""),
        *((f"{x} cycles", "") for x in (first, *others)),
        *((f"{x} − {first}", "difference in cycles") for x in others),
    )
    return Table("causes-table", heads, tuple(cells for _, cells in rows[:MOST_CAUSES]))


def energy_tables(runs: Mapping[str, RunData]) -> list[tuple[str, Table]]:
    """Energy and TOPS/W of units and of HLO ops, with headings; none where no run has energies."""
    if not any(run.energy for run in runs.values()):
        return []
    named = [("By unit", "unit"), ("By HLO op", "HLO op")]
    return [(heading, _energy_table(runs, part)) for heading, part in named]


def _energy_table(runs: Mapping[str, RunData], part: str) -> Table:
    """A row a part, by name, those with most energy first; ops of other models than the baseline's have no ratio."""
    base, *_ = runs.values()
    each = [_energies(run, part) for run in runs.values()]
    alike = [part == "unit" or same_model(run, base) for run in runs.values()]
    ops = {op.name: op for run in reversed(list(runs.values())) for op in run.ops}
    names = {one for amounts, _ in each for one, amount in amounts.items() if amount}
    rows = []
    for one in sorted(names, key=lambda n: (-max(amounts.get(n, 0) for amounts, _ in each), n))[:MOST_PARTS]:
        joules = [amounts[one] * 1e-15 if one in amounts else None for amounts, _ in each]
        tops = [per_watt.get(one) for _, per_watt in each]
        rows.append((
            word(one) if part == "unit" else op_name(one, ops),
            *(number(v, si(v, "J")) for v in joules),
            *(_ratio(v, joules[0] if same else None, True) for v, same in zip(joules[1:], alike[1:], strict=True)),
            *(number(v, decimal(v)) for v in tops),
        ))  # fmt: skip
    texts = [(f"{shorten(run, HEAD)} TOPS/W", OF_UNIT if part == "unit" else OF_OP) for run in runs]
    heads = ((part, ""), *_columns(runs, "energy"), *texts)
    return Table(f"energy-{part.rpartition(' ')[2]}-table", heads, tuple(rows))


def _energies(run: RunData, part: str) -> tuple[Mapping[str, int], Mapping[str, float]]:
    """Femtojoules and TOPS/W of the units of a run, or of its HLO ops."""
    e = run.energy
    if e is None:
        return {}, {}
    if part != "unit":
        return e.by_op, e.tops_per_watt_by_op
    return {**e.by_unit, "idle (clock)": e.idle_fj, "leakage": e.leakage_fj}, e.tops_per_watt_by_unit


def parameter_table(runs: Mapping[str, RunData]) -> Table:
    """Chip parameters in which the runs differ."""
    values = [{row.field: row for row in run.chip_parameters} for run in runs.values()]
    fields = dict.fromkeys(field for chip in values for field in chip if field != "name")
    rows = []
    for field in fields:
        found = [chip.get(field) for chip in values]
        texts = [NONE if row is None else str(row.value) for row in found]
        if len(set(texts)) > 1:
            unit = next(row.unit for row in found if row is not None)
            rows.append((name(field), *(word(text, "n") for text in texts), word(unit)))
    heads = (("parameter", ""), *((shorten(x, HEAD), x) for x in runs), ("unit", ""))
    return Table("chip-table", heads, tuple(rows))


def _columns(runs: Mapping[str, RunData], what: str) -> tuple[tuple[str, str], ...]:
    first, *others = (shorten(name, HEAD) for name in runs)
    heads = zip((first, *others), runs.items(), strict=True)
    values = ((f"{x} {what}".strip(), f"{name}: {run.title} on {run.chip}") for x, (name, run) in heads)
    return (*values, *((f"{x} / {first}", "ratio to the baseline") for x in others))


def _ratio(value: float | None, base: float | None, less_is_better: bool) -> Cell:
    factor = value / base if value is not None and base else None
    css = ""
    if less_is_better and factor is not None and abs(factor - 1) > SAME:
        css = "up" if factor > 1 else "down"
    return number(factor, ratio(value, base), css)
