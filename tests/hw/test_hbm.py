"""The RTL of HBM's arbiter under Verilator against the simulator's and its definition."""

import json

import pytest

from systolith.hw.tb.build import run
from systolith.hw.tb.dma_build import changed, hbm_top
from systolith.isa.chip import load_chip

BENCH = "systolith.hw.tb.hbm_bench"

# A chunk in every cycle, one in a few cycles with a fraction left, one in many.
CHANGES: tuple[dict[str, int], ...] = ({"hbm.p": 32}, {"hbm.p": 23, "hbm.q": 3}, {"hbm.p": 3, "hbm.q": 2})


@pytest.mark.slow
def test_random_requests() -> None:
    run(hbm_top(load_chip("tiny")), BENCH, "random_requests", {"HBM_SEEDS": "0:20"})


@pytest.mark.slow
@pytest.mark.parametrize("changes", CHANGES, ids=lambda c: "-".join(str(v) for v in c.values()))
def test_other_bandwidths(changes: dict[str, int]) -> None:
    variables = {"HBM_SEEDS": "0:10", "HBM_CHANGES": json.dumps(changes)}
    run(hbm_top(changed(load_chip("tiny"), changes)), BENCH, "random_requests", variables)
