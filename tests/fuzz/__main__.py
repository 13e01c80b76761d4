"""`python -m tests.fuzz [NAME ...]`: many cases of each fuzzer; a failure becomes a regression test.

A failure's case is written to `tests/fuzz/regressions/NAME/`, one for each kind of failure, made smaller where that is
quick; tests/fuzz/test_fuzz.py checks it ever after.  Progress is kept in build/fuzz: a run that is
interrupted goes on there, unless the code has changed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.fuzz import campaign
from tests.fuzz.fuzzer import Failure, Fuzzer, attempt
from tests.fuzz.shrink import shrunk
from tests.fuzz.table import FUZZERS, REGRESSIONS

STATE = campaign.ROOT / "build" / "fuzz"


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(FUZZERS)))
@click.option("--count", default=20_000, show_default=True, help="Cases of each, of seeds 0, 1, ...")
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option("--afresh", is_flag=True, help="Do what has been done, too.")
@click.option("--into", type=click.Path(path_type=Path), default=REGRESSIONS, help="Where failures are written.")
@click.option("--show", type=int, metavar="SEED", help="Only write the case of this seed to stdout, and check it.")
def main(names: tuple[str, ...], count: int, jobs: int, afresh: bool, into: Path, show: int | None) -> None:
    """Check random files of every format: a result or one line of refusal, soon; nothing else."""
    chosen = [FUZZERS[name] for name in names or sorted(FUZZERS)]
    if show is not None:
        sys.exit(max(_show(fuzzer, show) for fuzzer in chosen))
    sys.exit(sum(_campaign(fuzzer, count, jobs, afresh, into) for fuzzer in chosen) > 0)


def _campaign(fuzzer: Fuzzer, count: int, jobs: int, afresh: bool, into: Path) -> int:
    """Do the cases of one fuzzer that are to do; how many have failed, now or before."""
    console = Console(stderr=True)
    progress = campaign.Progress.load(STATE / f"{fuzzer.name}.txt", count, afresh)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    kinds: set[str] = set()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(fuzzer.name, total=count, completed=count - progress.outcomes.count("-"))

        def told(seed: int, outcome: Failure | bool) -> None:
            bar.advance(task)
            if isinstance(outcome, Failure) and outcome.kind not in kinds:
                kinds.add(outcome.kind)
                path = _keep(fuzzer, seed, outcome, into)
                line = f"{fuzzer.name} {seed}: {outcome.what} ({outcome.where}): {path}\n"
                console.print(line + outcome.trace, markup=False, highlight=False, soft_wrap=True)

        campaign.run(fuzzer, progress, jobs, told)
    letters = {what: progress.outcomes.count(what[0]) for what in ("taken", "refused", "failed")}
    click.echo(f"{fuzzer.name}: {count} cases: " + ", ".join(f"{n} {what}" for what, n in letters.items()))
    return letters["failed"]


def _show(fuzzer: Fuzzer, seed: int) -> bool:
    case = fuzzer.case(seed)
    sys.stdout.buffer.write(case)
    outcome = attempt(fuzzer, case)
    click.echo(f"{fuzzer.name} {seed}: {fuzzer.describe(case)}: {outcome}", err=True)
    return isinstance(outcome, Failure)


def _keep(fuzzer: Fuzzer, seed: int, failure: Failure, into: Path) -> Path:
    """The file that a failure is written to."""
    path = into / fuzzer.name / f"{seed}{fuzzer.suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    case = fuzzer.case(seed)
    path.write_bytes(shrunk(fuzzer, case, failure) if failure.trace else case)
    return path


if __name__ == "__main__":
    main()
