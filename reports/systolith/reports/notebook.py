"""The summary of a run as a table of HTML, which notebooks show."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from systolith.reports.headline import figures
from systolith.reports.roofline import peaks
from systolith.reports.run_data import from_json


def summary_html(record: Mapping[str, Any]) -> str:
    """Title and headline figures of a run; of one without cycles its instructions.

    Raises:
        SystolithError: the JSON object breaks the schema.
    """
    run = from_json(record)
    if run.cycles:
        rows = [(f.label, f.text, f.note) for f in figures(run, peaks(run.chip_parameters))]
    else:
        rows = [("Instructions", f"{run.instructions:,}", "no cycles")]
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    title = f"<b>{escape(run.title)}</b> on <b>{escape(run.chip)}</b>, mode {escape(run.mode)}"
    return f"<div>{title}</div><table>{lines}</table>"
