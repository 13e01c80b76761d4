"""JSON that the commands read: runs, recorded decisions, the memory of autotuning."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from systolith.compiler.autotune import Tuned, read_cache, write_cache
from systolith.isa.program import Program
from systolith.reports.compare import render_comparison
from systolith.reports.html import render_report
from systolith.reports.run_data import load_run, timed
from systolith.reports.terminal import render_summary
from systolith.runtime.jobs.decisions import load_decisions
from tests.fuzz.damage import changed, damaged
from tests.fuzz.files import file_of
from tests.fuzz.fuzzer import Fuzzer, draws
from tests.fuzz.tokens import mutated
from tests.reports.fabricate import fabricate

SOUP = (
    '{ } [ ] , : " \\ \\u0000 \\ud800 0 -0 1e400 1E-400 NaN Infinity true null 1.5 \0 é'
    f" {'9' * 5000} {'[' * 100_000} {'{' * 1000}"
).split()
PROGRAM = Program("program", "tiny", "digest")


@cache
def run_sample() -> str:
    """A run as JSON."""
    return json.dumps(fabricate())


def read_run(path: Path) -> None:
    """Reports of a run, alone and with another."""
    run = load_run(path)
    render_summary(run)
    render_report(timed(run))
    render_comparison({"a": timed(run), "b": timed(fabricate())})


def decisions_sample() -> str:
    """A possible record of a run of `PROGRAM`."""
    about = {"program": PROGRAM.name, "chip_digest": PROGRAM.chip_digest, "instructions": 0}
    return json.dumps(about | {"decisions": [0, 1, 2**32 - 1]})


def read_decisions(path: Path) -> None:
    """Read a record for a run of `PROGRAM`."""
    load_decisions(path, PROGRAM)


def cache_sample() -> str:
    """Some results of autotuning."""
    return json.dumps({f"{number:x}": vars(Tuned(f"plan {number}", 8, 1000 + number, 1100)) for number in range(3)})


def read_tuned(path: Path) -> None:
    """Read remembered results, and add to them."""
    known = read_cache(path)
    write_cache(path, {"key": Tuned("", 1, 0, 0)})
    assert read_cache(path) == known | {"key": Tuned("", 1, 0, 0)}, "adding to it changes it"


@dataclass(frozen=True)
class Record(Fuzzer):
    """A JSON file.

    Attributes:
        sample: a good one.
        read: its reader.
    """

    name: str
    sample: Callable[[], str]
    read: Callable[[Path], Any]
    suffix: str = ".json"

    def case(self, seed: int) -> bytes:
        dice = draws(self.name, seed)
        text = self.sample()
        act = dice.random()
        if act < 0.1:
            return damaged(text.encode(), dice)
        if act < 0.3:
            return mutated(text, SOUP, dice).encode("utf-8", "surrogatepass")
        value = json.loads(text)
        for _ in range(min(dice.randint(1, 3), dice.randint(1, 3))):
            value = changed(value, dice)
        return json.dumps(value).encode()

    def check(self, case: bytes) -> None:
        self.read(file_of(case, self.suffix))

    def describe(self, case: bytes) -> str:
        return f"{len(case)} bytes of JSON"


RECORDS = (
    Record("run-record", run_sample, read_run),
    Record("decisions", decisions_sample, read_decisions),
    Record("autotune", cache_sample, read_tuned),
)
