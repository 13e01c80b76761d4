"""A campaign: goes on where it was interrupted, outlives its processes, and shrinks failures."""

import os
import signal
import time
from pathlib import Path

import pytest

from systolith.isa.errors import SystolithError
from tests.fuzz import campaign
from tests.fuzz.fuzzer import Failure, Fuzzer, attempt
from tests.fuzz.shrink import shrunk


class Fake(Fuzzer):
    """Fails in every way, by the first word of the case."""

    name, suffix, seconds, gigabytes = "fake", ".txt", 0.1, 1

    def case(self, seed: int) -> bytes:
        how = {3: "error", 5: "segv", 6: "loop", 7: "sleep", 8: "hang", 9: "memory"}
        return f"{how.get(seed, 'refused' if seed % 2 else 'good')}\nmore\nand more\n".encode()

    def check(self, case: bytes) -> None:
        match case.split()[0]:
            case b"error":
                raise KeyError("x")
            case b"segv":
                os.kill(os.getpid(), signal.SIGSEGV)
            case b"loop":
                while True:
                    pass
            case b"sleep":
                time.sleep(60)
            case b"hang":
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
                time.sleep(60)
            case b"memory":
                bytearray(2 << 30)
            case b"refused":
                raise SystolithError("no")

    def describe(self, case: bytes) -> str:
        return case.decode()


def test_every_case_has_an_outcome_whatever_it_does(tmp_path: Path) -> None:
    progress = campaign.Progress.load(tmp_path / "fake.txt", 12)
    failures: dict[int, str] = {}

    def told(seed: int, outcome: Failure | bool) -> None:
        if isinstance(outcome, Failure):
            failures[seed] = outcome.what.split(":")[0]

    campaign.run(Fake(), progress, 1, told)
    assert progress.outcomes == "trtftffffftr"
    late = dict.fromkeys((6, 7, 8), "OutOfTimeError")
    assert failures == {3: "KeyError", 5: "ProcessDied", **late, 9: "MemoryError"}


def test_a_run_goes_on_where_it_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "fake.txt"
    campaign.Progress(path, "trt-----").save()
    progress = campaign.Progress.load(path, 6)
    assert list(progress.todo()) == [range(3, 6)]
    assert campaign.Progress.load(path, 6, afresh=True).outcomes == "------"
    monkeypatch.setattr(campaign, "sources_digest", lambda: "of other code")
    assert campaign.Progress.load(path, 6).outcomes == "------"


def test_a_failure_is_made_smaller() -> None:
    case = Fake().case(3)
    failure = attempt(Fake(), case)
    assert isinstance(failure, Failure)
    assert failure.where == "test_campaign.py:check"
    assert shrunk(Fake(), case, failure) == b"error"
