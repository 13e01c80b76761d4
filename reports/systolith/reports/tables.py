"""The tables of a report: cells with the text that is shown and the value that sorts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from systolith.reports.attribution import Attribution
from systolith.reports.causes import cause as shown
from systolith.reports.causes import in_order, unit_label
from systolith.reports.numbers import NONE, count, decimal, percent, si, size
from systolith.reports.roofline import OF_BOUND, Peaks, group_roof, least, took
from systolith.reports.run_data import Cost, RunData
from systolith.reports.svg import shorten


@dataclass(frozen=True)
class Cell:
    """A cell: text, sort value (None sorts last), colour class, tooltip, a second line."""

    text: str
    value: float | str | None = None
    css: str = ""
    tip: str = ""
    more: str = ""


@dataclass(frozen=True)
class Table:
    """A table: an id, heads with tooltips, rows of cells, and a last row that sorting leaves where it is."""

    id: str
    heads: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Cell, ...], ...]
    foot: tuple[Cell, ...] = ()


def number(value: float | None, text: str, css: str = "") -> Cell:
    """A cell that sorts by a number."""
    return Cell(text, value, f"n {css}".strip())


def name(text: str, tip: str = "", source: str = "") -> Cell:
    """A cell with an identifier; a very long one is shortened, and whole in the tooltip.

    Args:
        text: the identifier.
        tip: more for the tooltip.
        source: file and line that it is from; the line below has the file's name without its folders.
    """
    short = shorten(text, 64)
    tips = (text if short != text else "", tip, source)
    return Cell(short, text, "id", "\n".join(filter(None, tips)), source.rpartition("/")[2])


def word(text: str, css: str = "") -> Cell:
    """A cell with words."""
    return Cell(text, text, css)


GROUP_HEADS = (
    ("group", "fusion group; the tooltip lists its HLO ops"),
    ("kind", "kind of the fusion"),
    ("cycles", "cycles in which one of its instructions was the oldest unfinished one; adds up over the run"),
    ("% of run", "cycles over the cycles of the run"),
    ("runs", "executions"),
    ("flops", "all executions, as XLA counts them"),
    ("bytes", "inputs and outputs once per execution"),
    ("flop/byte", "arithmetic intensity"),
    ("of bound", OF_BOUND),
    ("bound by", "the resource of that bound"),
    ("why slow", "what dominates its cycles"),
)


def group_table(run: RunData, chip: Peaks, why: Mapping[str, Attribution], top: int | None = None) -> Table:
    """Fusion groups by cycles, the `top` ones."""
    rows = []
    for group in sorted(run.groups, key=lambda g: -g.cycles)[:top]:
        roof = group_roof(group, chip)
        of_run = group.cycles / run.total
        rows.append((
            name(group.title, "\n".join(filter(None, (group.op_name, *group.hlo))), group.source),
            word(group.kind or NONE),
            number(group.cycles, count(group.cycles)),
            number(of_run, percent(of_run), "share"),
            number(group.executions, count(group.executions)),
            number(roof.flops, count(roof.flops)),
            number(roof.bytes, size(roof.bytes)),
            number(roof.intensity, decimal(roof.intensity)),
            number(roof.fraction, percent(roof.fraction)),
            word(roof.bound_by if roof.bound else NONE),
            word(why[group.name].sentence, "why"),
        ))  # fmt: skip
    return Table("groups-table", GROUP_HEADS, tuple(rows))


def op_table(run: RunData, chip: Peaks, top: int | None = None) -> Table:
    """HLO ops by cycles, the `top` ones."""
    queues = [q for q in run.units if any(op.busy.get(q) for op in run.ops)]
    heads = (
        ("HLO op", "the HLO instruction whose result the instructions make"),
        ("cycles", "as for groups"),
        ("% of run", "cycles over the cycles of the run"),
        ("instructions", "executed"),
        ("HBM bytes", "moved by its transfers"),
        ("useful MACs", "multiply-accumulates"),
        ("of bound", OF_BOUND),
        *((unit_label(q), "occupied cycles") for q in queues),
    )
    rows = []
    for op in sorted(run.ops, key=lambda o: -o.cycles)[:top]:
        moved = op.hbm_bytes.read + op.hbm_bytes.written
        of_bound = max(least(op.bound).values()) / took(op, chip) if op.bound and op.cycles else None
        busy = (number(op.busy.get(q, 0), count(op.busy[q]) if q in op.busy else NONE) for q in queues)
        rows.append((
            name(op.title if op.name else "(no op)", op.op_name, op.source),
            number(op.cycles, count(op.cycles)),
            number(op.cycles / run.total, percent(op.cycles / run.total), "share"),
            number(op.instructions, count(op.instructions)),
            number(moved, size(moved)),
            number(op.macs, count(op.macs)),
            number(of_bound, percent(of_bound)),
            *busy,
        ))  # fmt: skip
    return Table("ops-table", heads, tuple(rows))


def what_if_table(run: RunData) -> Table:
    """Cycles of the same program under other times of the chip."""
    heads = (
        ("with", "the same program, not compiled again"),
        ("cycles", ""),
        ("of the run", "cycles over those of the run"),
        ("time", "simulated"),
        ("changed", "fields of the chip"),
    )
    rows = [
        (
            word(what.name),
            number(what.cycles, count(what.cycles)),
            number(what.cycles / run.total, percent(what.cycles / run.total)),
            number(what.seconds, si(what.seconds, "s")),
            word(", ".join(f"{field} = {value}" for field, value in what.changes.items())),
        )
        for what in run.what_if
    ]
    return Table("what-if-table", heads, tuple(rows))


def unit_table(run: RunData) -> Table:
    """Causes by unit, in cycles; the foot adds up to the run."""
    causes = in_order(c for unit in run.units.values() for c, n in unit.items() if n)
    heads = (("cause", ""), *((unit_label(unit), f"queue {unit}") for unit in run.units), ("meaning", ""))
    rows = [
        (
            word(shown(c).label),
            *(number(unit.get(c, 0), count(unit[c]) if unit.get(c) else NONE) for unit in run.units.values()),
            word(shown(c).text, "why"),
        )
        for c in causes
    ]
    sums = (number(sum(unit.values()), count(sum(unit.values())), "sum") for unit in run.units.values())
    foot = (word("total"), *sums, word("cycles of the run"))
    return Table("units-table", heads, tuple(rows), foot)


def energy_unit_table(run: RunData) -> Table:
    """Energy by unit; the foot is that of the run."""
    if run.energy is None:
        return Table("energy-table", (), ())
    e = run.energy
    heads = (("unit", ""), ("energy", ""), ("% of run", "of the energy of the run"), ("TOPS/W", OF_UNIT))
    parts = [*e.by_unit.items(), ("idle (clock)", e.idle_fj), ("leakage", e.leakage_fj)]
    parts.sort(key=lambda part: -part[1])
    tops = e.tops_per_watt_by_unit
    rows = (_energy_row(word(unit), amount, e.total_fj, tops.get(unit)) for unit, amount in parts if amount)
    foot = _energy_row(word("total"), e.total_fj, e.total_fj, e.tops_per_watt)
    return Table("energy-table", heads, tuple(rows), foot)


def energy_op_table(run: RunData) -> Table:
    """Energy of the events of HLO ops: without what the clock, leakage and the rest of the chip take meanwhile."""
    heads = (
        ("HLO op", "the HLO instruction whose result the instructions make"),
        ("energy", ""),
        ("% of run", ""),
        ("TOPS/W", OF_OP),
    )
    if run.energy is None:
        return Table("energy-ops-table", heads, ())
    e, titles = run.energy, {op.name: op for op in run.ops}
    rows = (_energy_row(op_name(op, titles), n, e.total_fj, e.tops_per_watt_by_op.get(op)) for op, n in e.by_op.items())
    return Table("energy-ops-table", heads, tuple(rows))


OF_UNIT = "useful operations of all products, two a product, over the energy of this unit alone"
OF_OP = "its useful operations, two a product, over the energy of its events"


def op_name(op: str, ops: Mapping[str, Cost]) -> Cell:
    """A cell with the name of an HLO op for people, if it is one of those on record."""
    return name(ops[op].title, ops[op].op_name, ops[op].source) if op and op in ops else name(op or "(no op)")


def _energy_row(first: Cell, amount: int, total: int, tops: float | None) -> tuple[Cell, ...]:
    share = amount / max(1, total)
    energy = number(amount, si(amount * 1e-15, "J"))
    return first, energy, number(share, percent(share), "share"), number(tops, decimal(tops))


def chip_table(run: RunData) -> Table:
    """The chip's parameters and where each is from."""
    heads = (("parameter", ""), ("value", ""), ("unit", ""), ("meaning", ""), ("provenance", ""), ("source", ""))
    rows = []
    for row in (r for r in run.chip_parameters if r.field != "name"):
        plain = isinstance(row.value, int) and not isinstance(row.value, bool)
        text = count(int(row.value)) if plain else str(row.value)
        rows.append((
            name(row.field),
            Cell(text, row.value if isinstance(row.value, int | float) else text, "n"),
            word(row.unit),
            word(row.text),
            word(row.provenance, f"prov-{row.provenance}"),
            word(row.source, "why"),
        ))  # fmt: skip
    return Table("chip-table", heads, tuple(rows))
