"""SEQ's RTL alone under Verilator: its arithmetic, and random programs against the simulator.

All of it needs builds and is slow: fast tests see SEQ in the core (`test_core.py`, `test_lockstep.py`).
"""

import json
import re
from dataclasses import replace

import pytest

from systolith.hw.tb.build import BenchError, Top, build, run
from systolith.isa.chip import load_chip

BENCH = "systolith.hw.tb.seq_bench"
# Narrow fetches without a penalty; fetches that are no power of two; the widest instruction in one fetch; several MXUs.
VARIANTS: tuple[tuple[str, dict[str, int]], ...] = (
    ("tiny", {"fetch_words": 6, "branch_penalty": 0}),
    ("tiny", {"fetch_words": 11, "branch_penalty": 1}),
    ("tiny", {"fetch_words": 96, "branch_penalty": 5}),
    ("tpu_v3", {}),
)


def seq_top(name: str = "tiny", **changes: int) -> Top:
    """`seq_tb` for a chip with other fields in its `seq` group."""
    chip = load_chip(name)
    seq = replace(chip.seq, **changes)
    queues = 4 + 2 * chip.mxu.count
    parameters = (("FetchWords", seq.fetch_words), ("BranchPenalty", seq.branch_penalty), ("Queues", queues))
    return Top("seq_tb", parameters, "-".join(["seq_tb", *(str(value) for _, value in parameters)]))


@pytest.mark.slow
def test_arithmetic_is_exact() -> None:
    run(Top("seq_alu_tb", (("Lanes", 256),), "seq_alu_tb"), BENCH, "arithmetic", {"SEQ_OPERANDS": "100000"})


@pytest.mark.slow
def test_wild_programs() -> None:
    run(seq_top(), BENCH, "wild_programs", {"SEQ_SEEDS": "0:30"})


@pytest.mark.slow
def test_programs_with_times_of_the_simulator() -> None:
    run(seq_top(), BENCH, "timed_programs", {"SEQ_SEEDS": "0:12"})


@pytest.mark.slow
def test_a_trap_stops() -> None:
    run(seq_top(), BENCH, "trap", {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("opcode", r"opcode 238 is unknown"),
        ("nest", r"loops nest deeper than 8"),
        ("empty", r"has an empty body"),
        ("misaligned", r"SMEM address 6 is not that of a word"),
        ("queue", r"queue 19, there are 6"),
    ],
)
def test_what_no_program_may_do_is_noticed(fault: str, message: str) -> None:
    folder = build(seq_top())
    before = set(folder.glob("fault-*"))
    with pytest.raises((BenchError, RuntimeError)):  # the simulation may end before the bench
        run(seq_top(), BENCH, "fault", {"SEQ_FAULT": fault})
    logs = [place / "run.log" for place in set(folder.glob("fault-*")) - before]
    assert any(re.search(message, log.read_text()) for log in logs)


@pytest.mark.slow
def test_many_wild_programs() -> None:
    run(seq_top(), BENCH, "wild_programs", {"SEQ_SEEDS": "1000:1400", "SEQ_ITEMS": "90"})


@pytest.mark.slow
@pytest.mark.parametrize(("chip", "changes"), VARIANTS)
@pytest.mark.parametrize("test", ["wild_programs", "timed_programs"])
def test_other_configurations(test: str, chip: str, changes: dict[str, int]) -> None:
    variables = {"SEQ_CHIP": chip, "SEQ_CHANGES": json.dumps(changes), "SEQ_SEEDS": "100:140"}
    run(seq_top(chip, **changes), BENCH, test, variables)
