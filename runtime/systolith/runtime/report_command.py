"""`systolith report`: pages and figures of runs, from the JSON that `systolith run --json` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import click

from systolith.runtime.console import progress, tell

FILE = click.Path(path_type=Path)
DEFAULT = Path("report.html")


@click.command()
@click.argument("runs", type=FILE, nargs=-1, required=True)
@click.option(
    "-o", "--output", type=FILE, help=f"The HTML file to write.  [default: {DEFAULT}, unless --figures is given]"
)
@click.option("--figures", type=FILE, metavar="DIR", help="Write figures for papers, and their captions, into DIR.")
@click.option(
    "--format",
    "suffix",
    type=click.Choice(["pdf", "svg", "png"]),
    default="pdf",
    show_default=True,
    help="Format of the figures.",
)
def report(runs: tuple[Path, ...], output: Path | None, figures: Path | None, suffix: str) -> None:
    """Write a report of a run (JSON of `run --json`), or a comparison of several with the first."""
    from systolith.isa.files import Fill, make_folder, require_apart, text_fill, write_all
    from systolith.reports.compare import differences, render_comparison
    from systolith.reports.html import render_report
    from systolith.reports.run_data import load_run, timed

    inputs = {f"run {n}": path for n, path in enumerate(runs, 1)}
    if output is None and figures is None:
        output = DEFAULT
    require_apart({"-o": output}, inputs)
    names = run_names(runs)
    found = {name: timed(load_run(path), str(path)) for name, path in zip(names, runs, strict=True)}
    files: dict[Path, Fill] = {}
    with progress() as stage:
        if output:
            stage("writing the report")
            one = len(found) == 1
            files[output] = text_fill(render_report(found[names[0]]) if one else render_comparison(found))
        if figures:
            from systolith.reports.plot import figure_files

            stage("drawing figures")
            drawn, missing = figure_files(found, figures, suffix)
            files |= drawn
            make_folder(figures)
            require_apart({f"--figures' {path.name}": path for path in drawn} | {"-o": output}, inputs)
        write_all(files)
    for line in [*differences(found), *(missing if figures else [])]:
        tell(f"warning: {line}")
    for path in (output, figures):
        if path:
            tell(f"wrote {path}")


def run_names(paths: Sequence[Path]) -> list[str]:
    """A name for each run: its file's, with the folder's in front where names repeat, and then with a number."""
    often = Counter(path.stem for path in paths)
    names: list[str] = []
    for path in paths:
        name = path.stem if often[path.stem] == 1 else f"{path.resolve().parent.name}-{path.stem}"
        numbered = (f"{name}-{n}" for n in count(2))
        names.append(name if name not in names else next(other for other in numbered if other not in names))
    return names
