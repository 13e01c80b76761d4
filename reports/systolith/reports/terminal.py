"""The summary that `systolith run` prints: figures, units, and the most expensive groups with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from systolith.reports.attribution import attribute_run
from systolith.reports.causes import OCCUPIED, cause, occupied, unit_label
from systolith.reports.headline import figures
from systolith.reports.numbers import count, decimal, percent, si, size
from systolith.reports.roofline import OF_BOUND, group_roof, peaks
from systolith.reports.run_data import RunData, of_record

MOST_GROUPS = 10
UNUSED = ("ops", "timeline")  # of a record
WIDE = 110  # columns of a terminal, from which on a table has room for sentences


def render_summary(run: RunData | Mapping[str, Any], top: int = MOST_GROUPS) -> list[RenderableType]:
    """The parts of the summary of a run of this process, with the `top` groups; without cycles it is shorter."""
    data = run if isinstance(run, RunData) else of_record({k: v for k, v in run.items() if k not in UNUSED})
    parts: list[RenderableType] = [_title(data)]
    if data.cycles:
        parts += [_figures(data), _units(data)]
        if data.groups and top:
            parts.append(_Groups(data, top))
        parts += _what_if(data)
    else:
        parts.append(
            Text(f"{data.instructions:,} instructions, {si(data.wall_seconds.simulate, 's')} on the host; no cycles")
        )
    return [*parts, *_checks(data)]


def _title(run: RunData) -> Text:
    return Text.assemble((run.title, "bold"), " on ", (run.chip, "bold"), f", mode {run.mode}")


def _figures(run: RunData) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for figure in figures(run, peaks(run.chip_parameters)):
        table.add_row(figure.label, figure.text, figure.note)
    return table


def _units(run: RunData) -> Table:
    table = Table(title="Units", title_justify="left", title_style="bold")
    for head, justify in (("unit", "left"), ("busy", "right"), ("mostly else", "left")):
        table.add_column(head, justify=justify, no_wrap=head != "mostly else")  # type: ignore[arg-type]
    for unit, causes in run.units.items():
        rest = sorted(((n, c) for c, n in causes.items() if c not in OCCUPIED and n), reverse=True)[:3]
        text = ", ".join(f"{cause(c).label} {percent(n / run.total)}" for n, c in rest)
        table.add_row(unit_label(unit), percent(occupied(causes) / run.total), text)
    return table


class _Groups:
    """The groups of most cycles; on a wide terminal with the reasons in a column, else in lines below."""

    def __init__(self, run: RunData, top: int) -> None:
        self._run, self._top = run, top

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        run, wide = self._run, options.max_width >= WIDE
        chip = peaks(run.chip_parameters)
        why = attribute_run(run, chip)
        top = sorted(run.groups, key=lambda g: -g.cycles)[: self._top]
        shown = f", {len(top)} of {len(run.groups)}" if len(top) < len(run.groups) else ""
        table = Table(title=f"Groups by cycles{shown}", title_justify="left", title_style="bold")
        table.add_column("group", overflow="fold", max_width=options.max_width // 3 if wide else None)
        for head in ("cycles", "% of run", "of bound", "flop/byte"):
            table.add_column(head, justify="right", no_wrap=True)
        if wide:
            table.add_column("why slow", overflow="fold", ratio=1)
        for group in top:
            roof = group_roof(group, chip)
            share = percent(group.cycles / run.total)
            cells = [count(group.cycles), share, percent(roof.fraction), decimal(roof.intensity)]
            reason = [Text(why[group.name].sentence)] if wide else []
            table.add_row(Text(group.title), *cells, *reason)
        yield table
        yield Text(f"of bound: {OF_BOUND}", style="dim")
        for group in () if wide else top:
            yield Text.assemble((f"{group.title}: ", "bold"), why[group.name].sentence)


def _what_if(run: RunData) -> list[RenderableType]:
    return [
        Text(f"with {what.name}: {count(run.total)} -> {count(what.cycles)} cycles, {percent(what.cycles / run.total)}")
        for what in run.what_if
    ]


def _checks(run: RunData) -> list[RenderableType]:
    lines: list[RenderableType] = []
    memory = f"VMEM high-water mark {size(run.vmem_high_water)}"
    if run.hbm_allocated:
        memory += f"; HBM {size(sum(run.hbm_allocated.values()))}"
    lines.append(Text(memory, style="dim"))
    done = [
        text
        for amount, text in (
            (run.checks.groups, f"{run.checks.groups} groups against the reference evaluator"),
            (run.checks.expected, f"{run.checks.expected} results against the expected ones"),
        )
        if amount
    ]
    if done:
        error = "" if run.max_abs_error is None else f"; largest error {run.max_abs_error:.3g}"
        relative = "" if run.max_rel_error is None else f" ({run.max_rel_error:.3g} relative)"
        lines.append(Text(f"checked {' and '.join(done)}{error}{relative}"))
    for target in run.checks.without_reference:
        lines.append(Text(f"not checked: custom calls of {target!r}, whose routine has no reference", style="yellow"))
    if run.hazards:
        lines.append(Text(f"{len(run.hazards)} memory hazards", style="bold red"))
    lines.append(Text("ok", style="bold green") if run.ok else Text("a check failed", style="bold red"))
    return lines
