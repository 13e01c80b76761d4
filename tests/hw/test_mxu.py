"""The matrix unit's RTL under Verilator: against exact arithmetic, and in lockstep with the simulator."""

import json
from pathlib import Path

import numpy as np
import pytest

from systolith.hw.lockstep import lockstep
from systolith.hw.tb.build import HW, BenchError, Top, mxu_top, run, variant
from systolith.hw.tb.mutants import MUTANTS, Mutant, plant
from systolith.isa.chip import Chip, load_chip
from systolith.isa.dtypes import DTYPES
from systolith.isa.instruction import Instruction, Space, Stream
from systolith.isa.pattern import Pattern
from systolith.isa.program import Program, TokenDecl
from systolith.sim.memory import Machine

MXU_BENCH = "systolith.hw.tb.mxu_bench"
MUTANT_SEEDS = "0:20"

# Other shapes, narrow ports, and the least latencies there can be.
CHANGES: tuple[dict[str, int], ...] = (
    {"rows": 4, "cols": 4, "acc_rows": 64, "segments": 1, "segment_bytes": 4, "load_latency": 1, "pipeline": 3},
    {"rows": 4, "cols": 8, "acc_rows": 32, "segments": 3, "segment_bytes": 8, "load_latency": 5, "pipeline": 9},
    {"rows": 16, "cols": 16, "segments": 4, "segment_bytes": 64},
)


@pytest.fixture(scope="module")
def tiny() -> Chip:
    return load_chip("tiny")


@pytest.mark.slow
@pytest.mark.parametrize("test", ["fused_multiply_add", "addition", "parts", "widening"])
def test_arithmetic_is_exact(test: str) -> None:
    run(
        Top("arith_tb", (("Lanes", 16),), "arith_tb"), "systolith.hw.tb.arith_bench", test, {"ARITH_OPERANDS": "100000"}
    )


@pytest.mark.slow
def test_random_programs_in_lockstep(tiny: Chip) -> None:
    run(mxu_top(tiny), MXU_BENCH, "random_programs", {"MXU_SEEDS": "0:24"})


def test_a_program_that_also_writes_memory_in_lockstep(tiny: Chip) -> None:
    """Between two matmuls, a copy overwrites the rows of the second."""
    program = Program("copy", tiny.name, "")
    program.patterns = [Pattern(DTYPES["bf16"], (8, 8), (16, 2))]
    program.tokens = [TokenDecl("w0", "s0"), TokenDecl("s0", "ld"), TokenDecl("ld", "s0")]
    a, b = Stream(Space.VMEM, 0), Stream(Space.VMEM, 0, 4096)
    common = {"row_loops": 1, "part": 0, "integer": 0}
    program.code = [
        Instruction("mxu.load", {"src": b, "transpose": 0, **common}, signals=(0,)),
        Instruction("mxu.latch", waits=(0,)),
        Instruction("mxu.matmul", {"src": a, "acc": 0, "accumulate": 0, **common}, signals=(1,)),
        Instruction("dma.load", {"src": b, "dst": a}, waits=(1,), signals=(2,)),
        Instruction("mxu.matmul", {"src": a, "acc": 0, "accumulate": 1, **common}, waits=(2,)),
        Instruction("halt"),
    ]

    def setup(machine: Machine) -> None:
        machine.vmem[:128] = np.arange(128) % 61
        machine.vmem[4096:4224] = np.arange(128) % 53

    result = lockstep(program, tiny, setup=setup)
    assert result.ok, result.difference


@pytest.mark.slow
def test_many_random_programs_in_lockstep(tiny: Chip) -> None:
    run(mxu_top(tiny), MXU_BENCH, "random_programs", {"MXU_SEEDS": "1000:1200", "MXU_TILES": "10"})


@pytest.mark.slow
@pytest.mark.parametrize("changes", CHANGES, ids=lambda c: f"{c['rows']}x{c['cols']}")
def test_other_configurations_in_lockstep(tiny: Chip, changes: dict[str, int]) -> None:
    variables = {"MXU_CHANGES": json.dumps(changes), "MXU_SEEDS": "100:140"}
    run(mxu_top(variant(tiny, **changes)), MXU_BENCH, "random_programs", variables)


@pytest.fixture(scope="module")
def mutated(tiny: Chip, tmp_path_factory: pytest.TempPathFactory) -> Top:
    return mxu_top(tiny, plant(tmp_path_factory.mktemp("mutants")), "-mutants")


@pytest.mark.slow
def test_no_mutant_is_no_error(mutated: Top) -> None:
    run(mutated, MXU_BENCH, "random_programs", {"MXU_SEEDS": MUTANT_SEEDS})


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_a_planted_error_is_found(mutated: Top, mutant: Mutant) -> None:
    number = MUTANTS.index(mutant) + 1
    with pytest.raises(BenchError, match=r"seed \d+|\$error|%Error|Assertion"):
        run(mutated, MXU_BENCH, "random_programs", {"MXU_SEEDS": MUTANT_SEEDS}, [f"+mutant={number}"])


def test_modules_are_small() -> None:
    for path in Path(HW / "rtl").glob("*.sv"):
        assert len(path.read_text().splitlines()) <= 350, path.name
