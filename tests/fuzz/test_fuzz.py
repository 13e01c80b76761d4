"""Some cases of every fuzzer, and all that have failed before; `make fuzz` does 20,000."""

from pathlib import Path

import pytest

from tests.examples import THOROUGH
from tests.fuzz.fuzzer import Failure, attempt
from tests.fuzz.table import FUZZERS, REGRESSIONS

COUNT = 120 if THOROUGH else 60
LONG = 30 if THOROUGH else 8  # of those whose cases may take a minute
PARTS = 2  # so that two processes share them


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", FUZZERS)
def test_a_file_gives_a_result_or_a_refusal(name: str, part: int) -> None:
    fuzzer = FUZZERS[name]
    count = LONG if fuzzer.seconds >= 60 else COUNT
    outcomes = {seed: attempt(fuzzer, fuzzer.case(seed)) for seed in range(part, count, PARTS)}
    assert {seed: o for seed, o in outcomes.items() if isinstance(o, Failure)} == {}
    wanted = {True, False} if fuzzer.refuses else {True}
    assert set(outcomes.values()) == wanted, "all are taken, or all are refused: nothing is tried"


def test_a_seed_gives_the_same_case_always() -> None:
    for fuzzer in FUZZERS.values():
        assert [fuzzer.case(seed) for seed in (3, 4)] == [fuzzer.case(seed) for seed in (3, 4)]
        assert fuzzer.case(3) != fuzzer.case(4)


@pytest.mark.parametrize("path", sorted(REGRESSIONS.glob("*/*")), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_what_failed_once_fails_no_more(path: Path) -> None:
    outcome = attempt(FUZZERS[path.parent.name], path.read_bytes())
    assert not isinstance(outcome, Failure), outcome
