"""Random programs for the whole core: legal, free of races because of their tokens, the same every time, and varied."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from systolith.hw.fuzz.coverage import cover
from systolith.hw.fuzz.edits import without_tokens
from systolith.hw.fuzz.generate import program
from systolith.isa.asm import disassemble
from systolith.isa.binary import from_bytes, to_bytes
from systolith.isa.chip import load_chip
from systolith.isa.verify import verify_program
from systolith.sim.simulate import simulate

TINY = load_chip("tiny")
BLOCK = 25


def digest(seed: int) -> str:
    case = program(seed, TINY)
    parts = [to_bytes(case.program), *(repr(p).encode() for p in case.pieces)]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def check(first: int, count: int) -> None:
    for seed in range(first, first + count):
        case = program(seed, TINY)
        verify_program(case.program, TINY)
        result = case.run(hostile=True)
        assert not result.hazards, f"seed {seed}: {result.hazards[0]}"
        assert result.cycles is not None
        assert result.cycles < 50_000


@pytest.mark.parametrize("first", [0, pytest.param(BLOCK, marks=pytest.mark.slow)])
def test_programs_are_legal_and_free_of_races(first: int) -> None:
    check(first, BLOCK)


@pytest.mark.slow
@pytest.mark.parametrize("first", [50, *range(300, 1000, 250), *range(1000, 3000, 250)])
def test_many_more_programs_are_legal_and_free_of_races(first: int) -> None:
    check(first, 250)


@pytest.mark.parametrize("chip", ["small", "tpu_v3"])
def test_other_chips_have_legal_programs(chip: str) -> None:
    for seed in range(4):
        case = program(seed, load_chip(chip))
        verify_program(case.program, case.chip)
        assert case.run(hostile=True).ok


def test_a_chip_whose_tokens_count_too_little_is_refused() -> None:
    chip = replace(TINY, token=replace(TINY.token, max=TINY.fifo.depth + 1))
    with pytest.raises(ValueError, match=r"token\.max"):
        program(0, chip)


def test_chips_with_other_parts_have_legal_programs() -> None:
    two = replace(TINY, mxu=replace(TINY.mxu, count=2))
    alone = replace(TINY, host=replace(TINY.host, queues=0), link=replace(TINY.link, count=0))
    tight = replace(TINY, fifo=replace(TINY.fifo, depth=2), token=replace(TINY.token, max=4))
    for chip in (two, alone, tight):
        for seed in range(5):
            case = program(seed, chip)
            verify_program(case.program, chip)
            assert case.run(hostile=True).ok


def test_the_same_seed_gives_the_same_program_in_another_process() -> None:
    seeds = range(40, 46)
    here = [digest(s) for s in seeds]
    assert len(set(here)) == len(here)
    code = f"from tests.hw.test_fuzz import digest; print(*[digest(s) for s in {list(reversed(seeds))}])"
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == here[::-1]


def test_runs_are_repeatable() -> None:
    case = program(5, TINY)
    runs = [case.run() for _ in range(2)]
    assert runs[0].cycles == runs[1].cycles
    assert runs[0].units == runs[1].units


def test_programs_survive_the_binary() -> None:
    for seed in range(20):
        made = program(seed, TINY).program
        assert disassemble(from_bytes(to_bytes(made))) == disassemble(made)


def test_it_is_the_tokens_that_keep_programs_free_of_races() -> None:
    raced = 0
    for seed in range(20):
        case = program(seed, TINY)
        tokens = set(range(len(case.program.tokens)))
        bare = without_tokens(case.program, tokens)
        raced += bool(simulate(bare, TINY, case.buffers(), hostile=True, setup=case.setup).hazards)
    assert raced >= 15


def test_units_work_at_the_same_time() -> None:
    together = total = 0
    for seed in range(30):
        result = program(seed, TINY).run()
        assert result.trace is not None
        assert result.cycles is not None
        busy = np.zeros(result.cycles + 1, np.int64)
        units = result.trace.queue > 0
        np.add.at(busy, result.trace.start[units], 1)
        np.add.at(busy, result.trace.end[units], -1)
        occupied = np.cumsum(busy)
        together += int((occupied > 1).sum())
        total += int((occupied > 0).sum())
    assert together > 0.2 * total


def test_few_programs_cover_most() -> None:
    coverage = cover(range(25), TINY)
    done = len(coverage.goals) - len(coverage.missing())
    assert done > 0.75 * len(coverage.goals)
    assert "missing: " in coverage.text()


@pytest.mark.slow
def test_300_programs_cover_everything() -> None:
    assert cover(range(300), TINY).missing() == []
