"""The tables of records as CSV: numbers as they are, one row a thing, for spreadsheets and data frames.

The first column, `run`, is the run's name, so that the tables of several runs are one.  Cells without a value are
empty.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

from systolith.isa.files import Fill, text_fill
from systolith.reports.attribution import attribute_run
from systolith.reports.headline import figures
from systolith.reports.roofline import group_roof, least, peaks, took
from systolith.reports.run_data import Cost, RunData

Row = dict[str, Any]


def csv_files(runs: Mapping[str, RunData], folder: Path) -> dict[Path, Fill]:
    """A file a table, with what fills it; tables without rows are left out.

    Args:
        runs: timed runs, by name.
        folder: of the files.
    """
    files: dict[Path, Fill] = {}
    for name, rows in TABLES.items():
        found = [{"run": run_name} | row for run_name, run in runs.items() for row in rows(run)]
        if found:
            files[folder / f"{name}.csv"] = text_fill(_text(found))
    return files


def _text(rows: list[Row]) -> str:
    """Rows as CSV (RFC 4180, line ends as in Unix); columns in order of their first appearance."""
    columns = dict.fromkeys(column for row in rows for column in row)
    out = StringIO()
    writer = csv.DictWriter(out, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: "" if v is None else v for k, v in row.items()} for row in rows)
    return out.getvalue()


def _figures(run: RunData) -> Iterator[Row]:
    for figure in figures(run, peaks(run.chip_parameters)):
        yield {"figure": figure.key, "value": figure.value, "text": figure.text, "note": figure.note}


def _units(run: RunData) -> Iterator[Row]:
    for unit, causes in run.units.items():
        for cause, cycles in causes.items():
            yield {"unit": unit, "cause": cause, "cycles": cycles}


def _cost(cost: Cost) -> Row:
    """The columns that groups and operations share."""
    row: Row = {key: getattr(cost, key) for key in ("name", "op_name", "source", "cycles", "instructions", "macs")}
    row |= {"hbm_read": cost.hbm_bytes.read, "hbm_written": cost.hbm_bytes.written}
    row |= {"first_start": cost.first_start, "last_retire": cost.last_retire}
    return row | {f"busy_{queue}": n for queue, n in cost.busy.items()}


def _groups(run: RunData) -> Iterator[Row]:
    chip = peaks(run.chip_parameters)
    why = attribute_run(run, chip)
    for group in run.groups:
        roof, reason = group_roof(group, chip), why[group.name]
        row = {"kind": group.kind, "root": group.root, "executions": group.executions, "planned": group.planned}
        row |= {"predicted": group.predicted, "flops": roof.flops, "bytes": roof.bytes, "flop_per_byte": roof.intensity}
        row |= {"transcendentals": group.transcendentals * group.executions}
        row |= {
            "bound_cycles": roof.bound,
            "bound_by": roof.bound_by if roof.bound else None,
            "of_bound": roof.fraction,
        }
        row |= {"limiter": reason.unit, "cause": reason.cause, "limited_by": reason.bound, "why": reason.sentence}
        yield _cost(group) | row


def _ops(run: RunData) -> Iterator[Row]:
    chip = peaks(run.chip_parameters)
    for op in run.ops:
        by = least(op.bound) if op.bound else {}
        cycles = max(by.values(), default=None)
        row: Row = {"bound_cycles": cycles, "bound_by": max(by, key=lambda r: by[r]) if cycles else None}
        yield _cost(op) | row | {"of_bound": cycles / took(op, chip) if cycles is not None and op.cycles else None}


def _stalls(run: RunData) -> Iterator[Row]:
    for group in run.groups:
        for unit, causes in group.stalls.items():
            for cause, cycles in causes.items():
                yield {"group": group.name, "unit": unit, "cause": cause, "cycles": cycles}


def _timeline(run: RunData) -> Iterator[Row]:
    time = run.timeline
    series: dict[str, Sequence[float]] = {
        "read": time.read,
        "written": time.written,
        "vmem_held": time.vmem,
        "hbm_held": time.hbm,
    }
    if run.energy is not None and run.energy.timeline.edges == time.edges:
        series["watts"] = run.energy.timeline.watts
    series |= {f"busy_{queue}": busy for queue, busy in time.busy.items()}
    for n, (start, end) in enumerate(pairwise(time.edges)):
        yield {"start": start, "end": end} | {name: values[n] for name, values in series.items() if values}


def _energy(run: RunData) -> Iterator[Row]:
    if run.energy is None:
        return
    whole = {key: getattr(run.energy, f"{key}_fj") for key in ("total", "dynamic", "host", "idle", "leakage")}
    parts = {"run": whole, "unit": run.energy.by_unit, "event": run.energy.by_event, "group": run.energy.by_group}
    tops = {"run": {"total": run.energy.tops_per_watt}, "unit": run.energy.tops_per_watt_by_unit}
    tops |= {"op": run.energy.tops_per_watt_by_op}
    for kind, amounts in (parts | {"op": run.energy.by_op}).items():
        for name, amount in amounts.items():
            per_watt = tops.get(kind, {}).get(name)
            yield {"of": kind, "name": name, "femtojoules": amount, "tops_per_watt": per_watt}


def _chip(run: RunData) -> Iterator[Row]:
    for row in run.chip_parameters:
        yield asdict(row)


def _what_if(run: RunData) -> Iterator[Row]:
    for what in run.what_if:
        changes = " ".join(f"{field}={value}" for field, value in what.changes.items())
        yield {"name": what.name, "changes": changes, "cycles": what.cycles, "seconds": what.seconds}


TABLES: dict[str, Callable[[RunData], Iterator[Row]]] = {
    "figures": _figures,
    "units": _units,
    "groups": _groups,
    "stalls": _stalls,
    "ops": _ops,
    "timeline": _timeline,
    "energy": _energy,
    "chip": _chip,
    "what_if": _what_if,
}
