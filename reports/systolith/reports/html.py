"""The HTML report of a run: one file that needs nothing else, for screens light and dark and for paper."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from systolith.isa.files import text_fill, write_atomic
from systolith.reports.attribution import attribute_run
from systolith.reports.causes import cause, in_order
from systolith.reports.charts import data, time
from systolith.reports.charts.bars import Fill, fills, stacked
from systolith.reports.charts.roofline import roofline
from systolith.reports.headline import figures, shares, verdict
from systolith.reports.numbers import count, percent, size
from systolith.reports.roofline import Peaks, peaks
from systolith.reports.run_data import RunData, timed
from systolith.reports.tables import (
    chip_table,
    energy_op_table,
    energy_unit_table,
    group_table,
    op_table,
    unit_table,
    what_if_table,
)

ROLES = {"parameter": "read", "result": "written", "constant": "shift", "temp": "vpu"}
ROLE_LABELS = {"parameter": "parameters", "result": "results", "constant": "constants", "temp": "temporaries"}


PAPER_ROWS = 20  # of a long table on paper


def write_report(run: RunData | Mapping[str, Any], path: str | Path) -> Path:
    """Write the report of a run.

    Args:
        run: the run, or its JSON object.
        path: the HTML file; replaced if it exists.

    Returns:
        the path.

    Raises:
        SystolithError: the run breaks the schema, has no cycles, or the file cannot be written.
    """
    return save(render_report(timed(run)), path)


def render_report(run: RunData, top: int | None = None) -> str:
    """The report of a timed run as HTML text; the same run gives the same text.

    Args:
        run: the run.
        top: groups and HLO ops in tables; None: all.
    """
    chip = peaks(run.chip_parameters)
    why = attribute_run(run, chip)
    roofs, over_time = data.roofline(run, chip, why), bool(run.timeline.edges)
    held = data.memory(run, chip)
    return environment().get_template("report.html").render(
        run=run,
        figures=figures(run, chip),
        shares=shares(run, why),
        verdict=verdict(run, why),
        what_if_table=what_if_table(run),
        units_chart=stacked(data.stalls(run)),
        units_legend=legend(run),
        units_table=unit_table(run),
        roofline_chart=roofline(roofs),
        unplotted=roofs.undrawn,
        groups_table=group_table(run, chip, why, top),
        ops_table=op_table(run, chip, top),
        power_chart=time.power(watts) if (watts := data.power(run, chip)) else "",
        energy_units=energy_unit_table(run),
        energy_ops=energy_op_table(run),
        traffic_chart=time.traffic(data.traffic(run, chip)) if over_time else "",
        timeline_chart=time.timeline(data.activity(run, chip)) if over_time else "",
        memory_chart=memory_chart(run, chip),
        held_chart=time.memory(held) if held.held else "",
        memory_roles=[(ROLE_LABELS.get(r, r), ROLES.get(r, "other"), size(n)) for r, n in run.hbm_allocated.items()],
        chip_table=chip_table(run),
    )  # fmt: skip


def legend(*runs: RunData) -> list[tuple[str, str, str]]:
    """(label, colour class, meaning) of every colour in the units' bars."""
    names = in_order(c for run in runs for unit in run.units.values() for c, n in unit.items() if n)
    entries: dict[str, tuple[str, str, str]] = {}
    for name in names:
        shown = cause(name)
        # The sequencer's waits for full queues share a colour, and so do the waits for either MXU.
        label = "waiting for a full queue" if shown.css == "full" else MERGED.get(shown.css, shown.label)
        entries.setdefault(shown.css, (label, shown.css, shown.text))
    return list(entries.values())


MERGED = {"wait-w": "waiting for MXU weights", "wait-s": "waiting for MXU stream"}


def memory_chart(run: RunData, chip: Peaks) -> str:
    """Bars of VMEM, HBM by role, and accumulators."""
    used = sum(run.hbm_allocated.values())
    roles = [(ROLE_LABELS.get(role, role), n, ROLES.get(role, "other")) for role, n in run.hbm_allocated.items()]
    bars = [_fill("VMEM", [("high-water mark", run.vmem_high_water, "busy")], run.vmem_high_water, chip.vmem)]
    if run.hbm_allocated:
        bars.append(_fill("HBM", roles, used, chip.hbm_bytes))
    for mxu, rows in run.accumulator_rows.items():
        text = f"{count(rows)} of {count(chip.acc_rows)} rows, {percent(rows / chip.acc_rows)}"
        bars.append(Fill(f"{mxu} accumulators", (("rows", rows, "busy"),), chip.acc_rows, text))
    return fills(bars)


def _fill(label: str, parts: list[tuple[str, int, str]], used: int, capacity: int) -> Fill:
    return Fill(label, tuple(parts), capacity, f"{size(used)} of {size(capacity)}, {percent(used / capacity)}")


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates; only SVG and CSS of our own are not escaped."""
    found = Environment(
        loader=PackageLoader("systolith.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals["paper_rows"] = PAPER_ROWS
    return found


def save(text: str, path: str | Path) -> Path:
    """Write a page.

    Raises:
        OutputError: it cannot be written.
    """
    path = Path(path)
    write_atomic(path, text_fill(text))
    return path
