"""The RTL of the cross-lane unit under Verilator against the simulator: random shuffles and reductions."""

import json

import pytest

from systolith.hw.tb.build import run
from systolith.hw.tb.dma_build import changed, xlu_top
from systolith.isa.chip import load_chip

BENCH = "systolith.hw.tb.xlu_bench"

# A tree without registers of its own, and one with one at each level and time to spare.
CHANGES: tuple[dict[str, int], ...] = (
    {"vpu.lanes": 4, "vpu.sublanes": 1, "xlu.latency": 2},
    {"vpu.lanes": 16, "vpu.sublanes": 4, "xlu.latency": 9},
)


@pytest.mark.slow
def test_random_instructions() -> None:
    run(xlu_top(load_chip("tiny")), BENCH, "random_instructions", {"XLU_SEEDS": "0:150"})


@pytest.mark.slow
@pytest.mark.parametrize("changes", CHANGES, ids=lambda c: f"lanes{c['vpu.lanes']}")
def test_other_configurations(changes: dict[str, int]) -> None:
    variables = {"XLU_SEEDS": "1000:1300", "XLU_CHANGES": json.dumps(changes)}
    run(xlu_top(changed(load_chip("tiny"), changes)), BENCH, "random_instructions", variables)
