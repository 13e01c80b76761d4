"""`python -m tests.mutants`: small changes of the code that some test must notice; lists those that none does.

The suite runs once to see which tests reach which mutants; then each mutant is tried with its tests, quick ones first.
What has been tried is kept in build/mutants: a run that is interrupted goes on there.  A mutant is tried again if its
module has changed, or, with `--again`, if no test failed.
"""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import click

from tests.mutants.campaign import ROOT, Case, Outcome, copy_project, drawn, end_all, load, recorded, save, tried
from tests.mutants.reach import Reach, load_reach

STATE = ROOT / "build" / "mutants"
NOTICED = ("killed", "timeout")
WORDS = (*NOTICED, "survived", "unfinished", "unreached")


@click.command()
@click.option("--count", default=200, show_default=True, help="Mutants.")
@click.option("--seed", default=0, show_default=True, help="What they are drawn by.")
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option("--limit", default=240, show_default=True, help="Seconds for the tests of one mutant.")
@click.option("--again", is_flag=True, help="Try those again that no test has noticed.")
def main(count: int, seed: int, jobs: int, limit: int, again: bool) -> None:
    """Change compiler, simulator and ISA in one place at a time, and run the tests that can see it."""
    cases = drawn(count, seed)
    outcomes = load(STATE / "results.json")
    todo = [c for c in cases if c.key not in outcomes or (again and outcomes[c.key].what not in NOTICED)]
    try:
        _campaign(todo, _reach(todo, jobs), outcomes, jobs, limit)
    finally:
        _report([outcomes[c.key] for c in cases if c.key in outcomes], count)


def _reach(todo: list[Case], jobs: int) -> Reach:
    """Which tests reach what is to do: as recorded, if that was for these mutants."""
    reach = load_reach(STATE / "reach.json")
    if not {c.key for c in todo} <= {*reach.cases}:
        copy_project(STATE / "marked")
        reach = recorded(todo, STATE / "marked", jobs)
        reach.save(STATE / "reach.json")
    return reach


def _campaign(todo: list[Case], reach: Reach, outcomes: dict[str, Outcome], jobs: int, limit: int) -> None:
    """Try what is to do; add to `outcomes`, in memory and in the file."""
    trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for n in range(min(jobs, len(todo))):
        copy_project(STATE / f"tree{n}")
        trees.put(STATE / f"tree{n}")
    sound: set[str] = set()

    def one(case: Case) -> Outcome:
        tree = trees.get()
        try:
            return tried(case, tree, reach, limit, sound)
        finally:
            trees.put(tree)

    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(one, case): case for case in todo}
        try:
            for done in as_completed(running):
                outcome = outcomes[running[done].key] = done.result()
                save(STATE / "results.json", outcomes)
                click.echo(f"{outcome.what} {outcome.path}:{outcome.line} {outcome.by} ({outcome.seconds} s)")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            end_all()
            raise


def _report(found: list[Outcome], count: int) -> None:
    """Those that no test noticed, and how many did."""
    for o in sorted(found, key=lambda o: (o.path, o.line)):
        if o.what not in NOTICED:
            click.echo(f"\n{o.path}:{o.line}: {o.what}\n{o.diff}")
    kinds = [o.what for o in found]
    words = ", ".join(f"{kinds.count(what)} {what}" for what in WORDS)
    click.echo(f"\n{len(found)} of {count} mutants tried: {words}")


if __name__ == "__main__":
    main()
