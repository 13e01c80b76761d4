"""`systolith report`: pages and figures of runs, from the JSON that `systolith run --json` prints."""

from __future__ import annotations

from pathlib import Path

import click

from systolith.runtime.commands.console import emit, progress, tell
from systolith.runtime.commands.exits import FAILED, GOOD
from systolith.runtime.commands.options import FILE, figure_format

DEFAULT = Path("report.html")


@click.command()
@click.argument("runs", type=FILE, nargs=-1, required=True)
@click.option(
    "-o", "--output", type=FILE, help=f"The HTML file to write.  [default: {DEFAULT}, unless others are asked for]"
)
@click.option("--figures", type=FILE, metavar="DIR", help="Write figures for papers, and their captions, into DIR.")
@figure_format
@click.option("--csv", "tables", type=FILE, metavar="DIR", help="Write every table as CSV into DIR.")
@click.option(
    "--check",
    "limits",
    type=FILE,
    metavar="FILE",
    help="Compare figures with the thresholds of a TOML file; exit 1, and say which got worse.",
)
@click.option(
    "--top", type=click.IntRange(min=1), metavar="N", help="Only the N most expensive groups and ops in tables."
)
@click.option("-q", "--quiet", is_flag=True, help="Say only what is wrong.")
def report(
    runs: tuple[Path, ...],
    output: Path | None,
    figures: Path | None,
    suffix: str,
    tables: Path | None,
    limits: Path | None,
    top: int | None,
    quiet: bool,
) -> int:
    """Write a report of a run (JSON of `run --json`), or a comparison of several with the first."""
    from systolith.isa.files import Fill, make_folder, require_apart, text_fill, write_all
    from systolith.reports.compare import differences, render_comparison, run_names
    from systolith.reports.csv_files import csv_files
    from systolith.reports.html import render_report
    from systolith.reports.roofline import peaks
    from systolith.reports.run_data import load_run, timed
    from systolith.reports.thresholds import check, load_thresholds

    inputs: dict[str, Path | None] = {f"run {n}": path for n, path in enumerate(runs, 1)}
    inputs["--check"] = limits
    if output is None and figures is None and tables is None and limits is None:
        output = DEFAULT
    require_apart({"-o": output}, inputs)
    names = run_names(runs)
    found = {name: timed(load_run(path), str(path)) for name, path in zip(names, runs, strict=True)}
    for run, file in zip(found.values(), runs, strict=True):
        peaks(run.chip_parameters, str(file))  # a chip that is no chip is said with its file
    thresholds = load_thresholds(limits) if limits else None
    worse = [f"{name}: {line}" for name, run in found.items() for line in check(run, *thresholds)] if thresholds else []
    files: dict[Path, Fill] = {}
    with progress(quiet) as stage:
        if output:
            stage("writing the report")
            one = len(found) == 1
            files[output] = text_fill(render_report(found[names[0]], top) if one else render_comparison(found))
        if figures:
            from systolith.reports.plot import figure_files

            stage("drawing figures")
            drawn, missing = figure_files(found, figures, suffix)
            files |= drawn
        if tables:
            files |= csv_files(found, tables)
        for folder in filter(None, (figures, tables)):
            make_folder(folder)
        require_apart({path.name: path for path in files}, inputs)
        write_all(files)
    against = {"the baseline": thresholds[1]} if thresholds and thresholds[1] else {}
    for line in [*differences({**against, **found}), *(missing if figures else [])]:
        tell(f"warning: {line}")
    for path in (output, figures, tables):
        if path and not quiet:
            tell(f"wrote {path}")
    for line in worse:
        emit(f"worse: {line}")
    if thresholds and not worse and not quiet:
        emit("no figure got worse")
    return FAILED if worse else GOOD


@click.command()
def schema() -> None:
    """Print the JSON schema of a record: of what `run --json` prints and `report` reads."""
    from systolith.isa.files import json_text
    from systolith.reports.run_data import json_schema

    emit(json_text(json_schema(), indent=2))
