"""`python -m bench [NAME ...]`: measure, print; all of them also write bench/RESULTS.md.

`python -m bench anchors` sets published figures of TPUs beside ours, and writes bench/ANCHORS.md.

A NAME is a case, or how the names of some begin (`gemm`, `conv_56x56`).  Everything is measured in this one run, on
this machine, each case in a process of its own; cycles do not depend on the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

import click
from rich.console import Console
from rich.progress import track

from bench.anchors import PARTS
from bench.anchors import report as report_anchors
from bench.cases import CASES, VALUES
from bench.measure import Measured, measure
from bench.results import line, report
from bench.scaling import CASES as SCALED
from bench.scaling import scale

P = ParamSpec("P")
R = TypeVar("R")
N = TypeVar("N")

RESULTS = Path(__file__).with_name("RESULTS.md")
ANCHORS = Path(__file__).with_name("ANCHORS.md")


@click.command()
@click.argument("names", nargs=-1)
@click.option("--chip", default="tpu_v3", show_default=True)
@click.option("--native/--no-native", default=True, help="Time XLA's CPU backend, too.")
@click.option("--values/--no-values", default=True, help="Time runs with values, too, where XLA's are timed.")
@click.option("--list", "listing", is_flag=True, help="Print the names.")
def main(names: Sequence[str], chip: str, native: bool, values: bool, listing: bool) -> None:
    """Measure the compiled code, the compiler and the simulator."""
    if names == ("anchors",):
        ANCHORS.write_text(report_anchors({part: list(rows()) for part, rows in _progress(PARTS.items())}))
        click.echo(f"wrote {ANCHORS}")
        return
    if listing:
        click.echo("\n".join(CASES))
        return
    chosen = [n for n in CASES if not names or n.startswith(tuple(names))]
    if not chosen:
        raise click.UsageError(f"no case begins with {' or '.join(names)}; --list prints them")
    rows: list[Measured] = []
    for name in _progress(chosen):
        rows.append(_alone(measure, name, chip, native and CASES[name].native, values and name in VALUES))
        click.echo(line(rows[-1]))
    if not names:
        scaled = [_alone(scale, name, chip) for name in _progress(SCALED)]
        RESULTS.write_text(report(chip, rows, scaled))
        click.echo(f"wrote {RESULTS}")


def _progress(names: Collection[N]) -> Iterable[N]:
    return track(names, "measuring", console=Console(stderr=True), disable=not sys.stderr.isatty())


def _alone(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function in a new process, so that its memory is its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *args, **kwargs).result()


if __name__ == "__main__":
    main()
