"""Random programs in the simulator and on the core; a program whose runs differ is made small and kept.

`python -m systolith.hw.fuzz.campaign FIRST COUNT [--chip tiny] [--into tests/hw/regressions]`
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from systolith.hw import lockstep
from systolith.hw.fuzz.case import Case
from systolith.hw.fuzz.generate import program
from systolith.hw.fuzz.regression import save
from systolith.hw.fuzz.shrink import shrink
from systolith.isa.chip import Chip, load_chip

Check = Callable[[Case], str | None]
"""The failure of a case, in words; None: it passes."""


@dataclass(frozen=True)
class Finding:
    """A program that failed.

    Attributes:
        found: the random program.
        small: the same, shrunk.
        what: failure of the small one.
    """

    found: Case
    small: Case
    what: str


def search(cases: Iterable[Case], check: Check, limit: int = 3000) -> Iterator[Finding]:
    """The cases that fail, made small with up to `limit` tries each."""
    for case in cases:
        if check(case) is not None:
            small = shrink(case, lambda c: check(c) is not None, limit=limit)
            yield Finding(case, small, check(small) or "")


def on_core(core: lockstep.Lockstep, case: Case) -> str | None:
    """How the core differs from the simulator."""
    result = core.run(lockstep.Case(case.program, case.buffers(), case.setup, host=case.host))
    return None if result.difference is None else str(result.difference)


def campaign(seeds: range, chip: Chip, into: Path) -> int:
    """Run random programs; how many failed.  Their small versions are written to the folder `into`."""
    failed = 0
    with lockstep.Lockstep(chip) as core:
        for finding in search((program(seed, chip) for seed in seeds), lambda case: on_core(core, case)):
            failed += 1
            into.mkdir(parents=True, exist_ok=True)
            path = into / f"{finding.found.name}.s"
            save(finding.small, path, finding.what)
            print(f"{finding.found.name}: {finding.what.splitlines()[0]}: {path}", flush=True)
    print(f"{len(seeds)} programs, {failed} failed")
    return failed


def main(arguments: list[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Random programs in the simulator and on the core.")
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--chip", default="tiny")
    parser.add_argument("--into", type=Path, default=Path("tests/hw/regressions"))
    given = parser.parse_args(arguments)
    return int(campaign(range(given.first, given.first + given.count), load_chip(given.chip), given.into) > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
