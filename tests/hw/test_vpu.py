"""The vector unit in RTL: the simulator's memories and cycles."""

from pathlib import Path

import pytest

from systolith.hw.tb.dma_build import changed
from systolith.hw.tb.mutants import Mutant, plant
from systolith.hw.tb.vpu_bench import Prepared, bench_chip, check, play, prepare
from systolith.hw.tb.vpu_build import executable
from systolith.hw.tb.vpu_mutants import MUTANTS
from systolith.isa.chip import Chip, load_chip
from systolith.isa.microops import MICROOPS

# Other shapes, several slots of each class, the least latencies that there can be.
CHANGES: tuple[dict[str, int], ...] = (
    {
        "vpu.lanes": 4,
        "vpu.sublanes": 3,
        "vpu.alu_slots": 1,
        "vpu.load_slots": 2,
        "vpu.store_slots": 2,
        "vpu.trans_slots": 2,
        "vpu.alu_latency": 1,
        "vpu.load_latency": 1,
        "vpu.trans_latency": 1,
    },
    {
        "vpu.lanes": 16,
        "vpu.sublanes": 1,
        "vpu.alu_slots": 3,
        "vpu.load_slots": 3,
        "vpu.store_slots": 1,
        "vpu.alu_latency": 4,
        "vpu.load_latency": 6,
        "vpu.trans_latency": 13,
    },
)


@pytest.fixture(scope="module")
def tiny() -> Chip:
    return load_chip("tiny")


@pytest.mark.slow
def test_random_instructions(tiny: Chip) -> None:
    assert check(tiny, range(300)) > 250


@pytest.mark.slow
def test_the_instructions_are_of_every_kind(tiny: Chip) -> None:
    cases = prepare(tiny, range(300))
    kernels = [c.case.program.kernels[c.case.instruction.args["kernel"]] for c in cases]  # type: ignore[index]
    sections = [s for k in kernels for s in (k.prologue, k.body, k.epilogue)]
    assert {m.op for s in sections for m in s.ops} == MICROOPS.keys()
    assert {c.case.instruction.args["serial"] for c in cases} == {0, 1}
    assert {c.case.instruction.args["inner"] for c in cases} == set(range(7))
    patterns = [p for c in cases for p in c.case.program.patterns]
    assert {p.indirect - len(p.counts) for p in patterns if p.indirect >= 0} == set(range(-8, 0))


@pytest.mark.slow
def test_many_random_instructions(tiny: Chip) -> None:
    for first in range(1000, 5000, 200):
        check(tiny, range(first, first + 200))


@pytest.mark.slow
@pytest.mark.parametrize("changes", CHANGES, ids=lambda c: f"{c['vpu.lanes']}x{c['vpu.sublanes']}")
def test_other_configurations(tiny: Chip, changes: dict[str, int]) -> None:
    assert check(changed(tiny, changes), range(300)) > 200


@pytest.fixture(scope="module")
def mutated(tiny: Chip, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Prepared]]:
    sources = plant(tmp_path_factory.mktemp("mutants"), MUTANTS)
    return executable(bench_chip(tiny), sources, "-mutants"), prepare(tiny, range(200))


@pytest.mark.slow
def test_no_mutant_is_no_error(mutated: tuple[Path, list[Prepared]]) -> None:
    play(*mutated)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_a_planted_error_is_found(mutated: tuple[Path, list[Prepared]], mutant: Mutant) -> None:
    with pytest.raises(AssertionError, match=r"seed -?\d+|%Error"):
        play(*mutated, [f"+mutant={MUTANTS.index(mutant) + 1}"])
