"""`systolith sweep`: a study from the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from systolith.runtime.commands.console import emit, output_console, tell
from systolith.runtime.commands.exits import FAILED, GOOD
from systolith.runtime.commands.options import FILE, figure_format

if TYPE_CHECKING:
    from rich.console import RenderableType

    from systolith.runtime.sweep.results import Results
    from systolith.runtime.sweep.run import Watch

_SHOWN = 12
_WIDEST = 1000


@click.command()
@click.argument("study", type=FILE)
@click.option(
    "-o",
    "--output",
    "outputs",
    type=FILE,
    multiple=True,
    required=True,
    help="Write the table there: .csv, .parquet or .json; may be given several times.",
)
@click.option(
    "--store",
    type=FILE,
    help="Keep results as they come in this SQLite file, and compute none again.  [default: the first output, .sqlite]",
)
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes.  [default: one for each processor]")
@click.option("--dask", metavar="ADDRESS", help="Work on the Dask cluster of this scheduler, such as tcp://host:8786.")
@click.option("--figures", type=FILE, metavar="DIR", help="Write Pareto fronts and elasticities as figures into DIR.")
@figure_format
@click.option(
    "--csv",
    "tables",
    type=FILE,
    metavar="DIR",
    help="Write the Pareto front, the elasticities, and energies by unit and HLO op into DIR as CSV.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else.")
def sweep(
    study: Path,
    outputs: tuple[Path, ...],
    store: Path | None,
    jobs: int | None,
    dask: str | None,
    figures: Path | None,
    suffix: str,
    tables: Path | None,
    as_json: bool,
) -> int:
    """Explore a design space: simulate every point of STUDY, a TOML file of models, chips and what varies.

    A point that is refused is a row with its reason, and exit code 1.  A sweep that was killed goes on where it was.
    """
    from systolith.isa.errors import SystolithError
    from systolith.isa.files import json_text, make_folder, require_apart, write_all
    from systolith.runtime.sweep.results import TABLES, writer_of
    from systolith.runtime.sweep.run import sweep as run_sweep

    store = store or outputs[0].with_suffix(".sqlite")
    named = {f"-o {n}" if n else "-o": path for n, path in enumerate(outputs)}
    if tables and tables.is_dir():
        named |= {f"--csv DIR/{name}": tables / name for name in TABLES}
    require_apart(named | {"--store": store}, {"STUDY": study})
    for path in outputs:
        writer_of(path)
        if path.is_file() and not store.exists():
            raise SystolithError(
                f"{path}: is there, and no {store} that says of which study: move it, or give another name"
            )
    with _progress(as_json) as watch, _saying_what_is_kept(store, watch) as counted:
        results = run_sweep(study, store, jobs, dask, counted)
    files = {path: fill for path in outputs for path, fill in results.fills(path).items()}
    missing: list[str] = []
    if figures:
        from systolith.runtime.sweep.figures import figure_files

        drawn, missing = figure_files(results, figures, suffix)
        files |= drawn
    if tables:
        written, lacking = results.tables(tables)
        files, missing = files | written, [*missing, *lacking]
    folders = [folder for folder in (figures, tables) if folder]
    for folder in folders:
        make_folder(folder)
    for line in missing:
        tell(line)
    write_all(files)
    if as_json:
        emit(json_text(_record(results)))
    else:
        for item in _summary(results):
            _print(item)
        tell(f"wrote {', '.join(map(str, [*outputs, *folders]))}")
    for row in results.failures[:_SHOWN]:
        where = " ".join(f"{name}={row[name]}" for name in (*results.study.fields, *results.study.options))
        tell(f"{row['status']}: {row['model']} on {row['chip']} {where}: {row['reason']}")
    if len(results.failures) > _SHOWN:
        tell(f"and {len(results.failures) - _SHOWN} more: see the column `reason`")
    return GOOD if results.ok else FAILED


def _record(results: Results) -> dict[str, Any]:
    return {
        "ok": results.ok,
        "study": results.study.name,
        "points": len(results.rows),
        "failed": len(results.failures),
        "known": results.known,
        "left_out": results.left_out,
        "broken": results.broken,
        "computed": results.computed,
        "best": results.best(),
        "pareto": results.pareto() if results.study.pareto else [],
        "sensitivities": [vars(s) for s in results.sensitivities()],
    }


def _print(item: RenderableType) -> None:
    """Print a line or a table, which is as wide as its figures need: none is cut."""
    from rich.measure import Measurement

    console = output_console()
    needed = Measurement.get(console, console.options.update(width=_WIDEST), item).minimum
    console.width = max(console.width, needed)
    console.print(item)


def _summary(results: Results) -> Iterator[RenderableType]:
    from rich.table import Table

    study = results.study
    bad = f", {len(results.failures)} without cycles" if results.failures else ""
    out = f", {results.left_out} left out by constraints" if results.left_out else ""
    broken = f", {results.broken} with results that break constraints" if results.broken else ""
    yield f"{study.name}: {len(results.rows)} points ({results.known} known before){out}{bad}{broken}"
    named = ["chip", *study.fields, *study.options]
    energy = any(row.get("joules") is not None for row in results.rows)
    for title, rows in (("fastest", results.best()), ("Pareto front", results.pareto() if study.pareto else [])):
        if not rows:
            continue
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for heading in ("model", *named, "cycles", "ms", *(["mJ", "W"] if energy else []), "MXU"):
            left = heading in ("model", "chip")
            table.add_column(heading.replace(".", ".\n"), justify="left" if left else "right", no_wrap=not left)
        for row in rows[: 2 * _SHOWN]:
            figures = [f"{row['cycles']:,}", f"{row['seconds'] * 1e3:.4g}"]
            if energy:
                joules, watts = row["joules"], row["average_watts"]
                figures += ["", ""] if joules is None else [f"{joules * 1e3:.4g}", f"{watts:.4g}"]
            utilization = f"{row['mxu_utilization'] or 0:.1%}"
            table.add_row(row["model"], *(_shown(row[n]) for n in named), *figures, utilization)
        yield ""
        yield table
        if len(rows) > 2 * _SHOWN:
            yield f"and {len(rows) - 2 * _SHOWN} more"
    found = results.sensitivities()
    if found:
        table = Table(title="time follows", title_justify="left", box=None, pad_edge=False)
        for heading in ("model", "chip", "parameter", "elasticity", "R2", "points"):
            table.add_column(heading, justify="left" if heading in ("model", "chip", "parameter") else "right")
        for s in sorted(found, key=lambda s: (s.model, s.chip, -abs(s.elasticity))):
            table.add_row(s.model, s.chip, s.field, f"{s.elasticity:+.3f}", f"{s.r2:.2f}", str(s.points))
        yield ""
        yield table


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)


@contextmanager
def _saying_what_is_kept(store: Path, watch: Watch) -> Iterator[Watch]:
    """Say at Ctrl-C how far the sweep came, and where its results are."""
    far = ""

    def counted(done: int, total: int, bad: int) -> None:
        nonlocal far
        far = f"{done} of {total} points are done, their results in {store}: the same command goes on there"
        watch(done, total, bad)

    try:
        yield counted
    except KeyboardInterrupt:
        raise click.Abort(far) from None


@contextmanager
def _progress(quiet: bool) -> Iterator[Watch]:
    """A bar on stderr, on terminals only, with an estimate of the time that is left."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("points", total=None)

        def watch(done: int, total: int, bad: int) -> None:
            bar.update(task, completed=done, total=total, description=f"points, {bad} refused" if bad else "points")

        yield watch
