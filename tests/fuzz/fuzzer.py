"""The interface of fuzzers, and one case: within limits of time and memory, an answer or a `SystolithError`."""

from __future__ import annotations

import resource
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType
from typing import Protocol

from systolith.isa.errors import SystolithError

LONGEST = 2000
"""Characters of an error's message."""
PATIENCE = 10
"""Seconds of time for each second of the processor that a case may take."""
_PAGE = resource.getpagesize()


class Fuzzer(Protocol):
    """Makes cases and checks them; a case is the contents of one file, so that a failure is kept as that file.

    Attributes:
        name: in the table, of the folder of its regressions.
        suffix: of a file with a case, with its dot.
        seconds: of the processor that a case may take; of time, ten times as many.
        gigabytes: of address space that a case may take, beyond that of the process.
        refuses: whether some of its cases are to be refused.
    """

    name: str
    suffix: str
    seconds: float = 10
    gigabytes: float = 3
    refuses: bool = True

    def case(self, seed: int) -> bytes:
        """The case of a seed: the same on every machine and in every process."""

    def check(self, case: bytes) -> None:
        """Treat a case as the commands treat the file.

        Raises:
            SystolithError: the case is refused, as it may be.
            Exception: any other: a failure.
        """

    def describe(self, case: bytes) -> str:
        """One line about a case, for people."""


@dataclass(frozen=True)
class Failure:
    """A case that ended otherwise than it may.

    Attributes:
        what: the error: type and message.
        where: the innermost line of this project on the way to it; with the type it tells failures apart.
        trace: the traceback.
    """

    what: str
    where: str
    trace: str = ""

    @property
    def kind(self) -> str:
        """The same for failures of one cause."""
        return f"{self.what.split(':')[0]} at {self.where}"


class OutOfTimeError(BaseException):
    """A case takes too long; no `except Exception` catches it."""


def draws(name: str, seed: int) -> Random:
    """The random numbers of a case."""
    return Random(f"{name} {seed}")


def attempt(fuzzer: Fuzzer, case: bytes) -> Failure | bool:
    """Check one case: whether it was taken, and not refused, or how it failed."""
    try:
        with _limits(fuzzer.seconds, fuzzer.gigabytes):
            fuzzer.check(case)
    except SystolithError as error:
        if len(str(error)) > LONGEST:
            return Failure(f"LongMessage: {str(error)[:200]}...", _place(error))
        return False
    except (Exception, OutOfTimeError) as error:
        what = f"{type(error).__name__}: {error}"
        return Failure(what[:LONGEST], _place(error), "".join(traceback.format_exception(error, limit=-30)))
    return True


def _place(error: BaseException) -> str:
    """The innermost line of this project in the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/systolith/" in f.filename or "/tests/" in f.filename] or list(frames)
    ours = [f for f in ours if f.filename != __file__] or ours
    return f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else "nowhere"


@contextmanager
def _limits(seconds: float, gigabytes: float) -> Iterator[None]:
    """Interrupt a case that takes longer; let no more memory be had."""

    def late(_signal: int, _frame: FrameType | None) -> None:
        raise OutOfTimeError(f"more than {seconds:g} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    has = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
    before = {s: signal.signal(s, late) for s in (signal.SIGPROF, signal.SIGALRM)}
    resource.setrlimit(resource.RLIMIT_AS, (has + int(gigabytes * 2**30), hard))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        for number, handler in before.items():
            signal.signal(number, handler)
