"""Many cases of a fuzzer, by several processes: progress is kept, so that a run goes on where it was interrupted.

A process that dies (a segmentation fault, no memory, a call that does not come back) fails the case that it was at,
and another goes on behind it.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic

from systolith.isa.files import write_atomic
from tests.fuzz.fuzzer import PATIENCE, Failure, Fuzzer, attempt

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("isa", "sim", "compiler", "runtime", "reports", "tests/fuzz")
CHUNK = 100
"""Cases that a process is given at a time."""
START = 60.0
"""Seconds that a process may take to start and to read its samples."""


@cache
def sources_digest() -> str:
    """Of all code that a case may depend on: cases done with other code are not done."""
    found = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()


@dataclass
class Progress:
    """Progress of a campaign, as kept in a file.

    Attributes:
        path: of the file.
        outcomes: a letter for each seed from 0: `t`aken, `r`efused, `f`ailed, `-` not done.
    """

    path: Path
    outcomes: str

    @classmethod
    def load(cls, path: Path, count: int, afresh: bool = False) -> Progress:
        """The file's progress of the first `count` seeds, if it is of this code; else nothing is done."""
        digest, outcomes = path.read_text().split() if path.exists() else ["", ""]
        known = "" if afresh or digest != sources_digest() else outcomes
        return cls(path, known[:count].ljust(count, "-"))

    def save(self) -> None:
        """Write the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path, lambda handle: handle.write(f"{sources_digest()}\n{self.outcomes}\n".encode()))

    def add(self, seed: int, outcome: Failure | bool) -> None:
        """A case is done; from time to time the file is written."""
        letter = "f" if isinstance(outcome, Failure) else "t" if outcome else "r"
        self.outcomes = f"{self.outcomes[:seed]}{letter}{self.outcomes[seed + 1 :]}"
        if seed % CHUNK == CHUNK - 1:
            self.save()

    def todo(self) -> Iterator[range]:
        """Runs of seeds that are not done, of at most `CHUNK`."""
        for run_ in re.finditer(f"-{{1,{CHUNK}}}", self.outcomes):
            yield range(*run_.span())


class _Worker:
    """A process that checks cases.

    Attributes:
        seeds: those that it has still to do.
    """

    def __init__(self, fuzzer: Fuzzer) -> None:
        self._fuzzer = fuzzer
        self.pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(target=_work, args=(fuzzer, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.give(range(0))

    def give(self, seeds: range) -> None:
        """Let it do these cases, the first within its time: beside it the process starts."""
        self.seeds = seeds
        self._since = monotonic() + START
        if seeds:
            self.pipe.send(seeds)

    def heard(self) -> Iterator[tuple[int, Failure | bool]]:
        """Seeds that are done now, and their outcomes; ends with the one that the process died of, if it did."""
        try:
            while self.seeds and self.pipe.poll():
                outcome = self.pipe.recv()
                self._since = monotonic()
                yield self._next(), outcome
        except (EOFError, ConnectionError):
            self._process.join()
            why = f"exit code {self._process.exitcode}"
            yield self._next(), Failure(f"ProcessDied: {why}", why)
        if self.seeds and monotonic() - self._since > 2 * PATIENCE * self._fuzzer.seconds:
            self.end()
            yield self._next(), Failure("OutOfTimeError: the process had to be ended", "native code")

    def _next(self) -> int:
        seed, self.seeds = self.seeds[0], self.seeds[1:]
        return seed

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def end(self) -> None:
        """Stop the process."""
        self._process.kill()
        self._process.join()


def run(fuzzer: Fuzzer, progress: Progress, jobs: int, told: Callable[[int, Failure | bool], object]) -> None:
    """Check the cases that are not done yet.

    Args:
        fuzzer: makes and checks them.
        progress: updated and saved.
        jobs: processes.
        told: called with each seed that is done, and its outcome.
    """
    todo = deque(progress.todo())
    workers = [_Worker(fuzzer) for _ in range(min(jobs, len(todo)))]
    try:
        while True:
            for i, worker in enumerate(workers):
                for seed, outcome in worker.heard():
                    progress.add(seed, outcome)
                    told(seed, outcome)
                if not worker.alive and (worker.seeds or todo):
                    workers[i] = _Worker(fuzzer)
                    workers[i].give(worker.seeds)
                if not workers[i].seeds and todo:
                    workers[i].give(todo.popleft())
            busy = [w.pipe for w in workers if w.seeds]
            if not busy:
                return
            wait(busy, timeout=fuzzer.seconds)
    finally:
        progress.save()
        for worker in workers:
            worker.end()


def _work(fuzzer: Fuzzer, pipe: Connection) -> None:
    while True:
        for seed in pipe.recv():
            pipe.send(attempt(fuzzer, fuzzer.case(seed)))
