"""Fixtures of all tests: the corpus, hypothesis profiles, and an environment in which Verilator is found."""

import fcntl
import gc
import os
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from systolith.hw.toolchain import environment
from tests.corpus.load import Case, load
from tests.examples import examples

# An exception that is no SystolithError is a fault, whose traceback pytest is to show: the command line raises it.
os.environ.setdefault("SYSTOLITH_TRACEBACK", "1")
# A pass that breaks a module is to be named.
os.environ.setdefault("SYSTOLITH_VERIFY", "1")
# Before anything imports jax: never wait for an accelerator that is not there.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.update(environment())
# The programs that tests start, workers among them, load the modules that another has compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A shell has what it runs in the background ignore Ctrl-C, and so would the programs that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# `ci` draws the same examples on every run; `explore` is for looking further by hand: HYPOTHESIS_PROFILE=explore.
hypothesis.settings.register_profile("local", examples(10, 60))
hypothesis.settings.register_profile("ci", examples(10, 60), derandomize=True, database=None)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "local"))


@pytest.fixture(scope="session")
def corpus() -> Callable[[str], Case]:
    """`corpus(name)` is the module of tests/corpus called `name`."""
    return load


@pytest.fixture(scope="session", autouse=True)
def records_keep_the_schema() -> Iterator[None]:
    """Every record that a test has written breaks no rule of the schema, and has no key that it does not describe."""
    from systolith.runtime.jobs.job import Outcome
    from systolith.runtime.run import Run
    from tests.reports.records import require_schema

    with pytest.MonkeyPatch.context() as patch:
        for kind in (Run, Outcome):
            write = kind.record

            def checked(self: Any, write: Callable[[Any], dict[str, Any]] = write) -> dict[str, Any]:
                record = write(self)
                require_schema(record)
                return record

            patch.setattr(kind, "record", checked)
        yield


# Imported modules and the 10,000 tests stay: not looked through again in every collection of garbage.  JAX and
# hypothesis call back at each, which makes many small ones dear.  Nor is what earlier modules have left, such as what
# JAX has compiled: a full collection, which tests of memory ask for, would take most of a second in the end.

_MODULES = count(1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect in one process at a time: the next one reads the bytecode that the first has written, half of the time
    in a fresh clone, and the lint runs on the other core.
    """
    gc.disable()
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return (yield)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(500_000, 20, 100)
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _what_earlier_modules_left_stays() -> None:
    if next(_MODULES) % 16 == 0:
        gc.collect()
        gc.freeze()
