"""Errors of one cycle or one bit, planted in each unit: lockstep finds every one in a few programs."""

from __future__ import annotations

from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from systolith.hw.fuzz.campaign import on_core
from systolith.hw.fuzz.case import Case
from systolith.hw.fuzz.generate import program
from systolith.hw.lockstep import Lockstep
from systolith.hw.tb.core_mutants import MUTANTS
from systolith.hw.tb.mutants import Mutant, plant
from systolith.isa.chip import load_chip
from tests.hw.full_queues import full_queues

PROGRAMS = 300
FULL = 8
TINY = load_chip("tiny")

pytestmark = pytest.mark.slow


@cache
def random_program(seed: int) -> Case:
    return program(seed, TINY)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plant(tmp_path_factory.mktemp("mutants") / "hw", MUTANTS)


def found(folder: Path, number: int, programs: int) -> int | None:
    """The first program, full queues before random ones, that shows mutant `number`; None: none of them does."""
    with Lockstep(TINY, root=folder, plusargs=(f"+mutant={number}",)) as core:
        full = (not core.run(full_queues(TINY, seed)).ok for seed in range(FULL))
        random = (on_core(core, random_program(seed)) is not None for seed in range(programs))
        return next((n for n, differs in enumerate(chain(full, random)) if differs), None)


@pytest.mark.parametrize(("number", "mutant"), list(enumerate(MUTANTS, 1)), ids=lambda m: getattr(m, "name", ""))
def test_each_is_found(planted: Path, number: int, mutant: Mutant) -> None:
    assert found(planted, number, PROGRAMS) is not None, mutant


def test_without_one_nothing_is_found(planted: Path) -> None:
    assert found(planted, 0, 30) is None
