"""Random programs in lockstep: simulator and RTL agree about everything; a failing seed is in the message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from systolith.hw.fuzz.campaign import on_core
from systolith.hw.fuzz.generate import program
from systolith.hw.fuzz.regression import load
from systolith.hw.lockstep import Lockstep
from systolith.isa.chip import load_chip

CHIPS = Path(__file__).parent / "chips"
REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.s"))
BLOCK = 25


@pytest.fixture(scope="module")
def tiny() -> Iterator[Lockstep]:
    with Lockstep(load_chip("tiny")) as both:
        yield both


def agree(both: Lockstep, first: int) -> None:
    for seed in range(first, first + BLOCK):
        difference = on_core(both, program(seed, both.chip))
        assert difference is None, f"seed {seed}: {difference}"


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(BLOCK, 200, BLOCK))])
def test_random_programs(tiny: Lockstep, first: int) -> None:
    agree(tiny, first)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 20_000, BLOCK))
def test_ten_thousand_random_programs(tiny: Lockstep, first: int) -> None:
    agree(tiny, first)


@pytest.mark.slow
def test_random_programs_on_another_chip() -> None:
    with Lockstep(load_chip(str(CHIPS / "twin16.toml"))) as both:
        for first in range(0, 100, BLOCK):
            agree(both, first)


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda p: p.stem)
def test_what_once_failed(tiny: Lockstep, path: Path) -> None:
    assert on_core(tiny, load(path, tiny.chip)) is None
