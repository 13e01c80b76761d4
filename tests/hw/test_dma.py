"""The RTL of the DMA units under Verilator against the simulator: random copies between all memories."""

import json

import pytest

from systolith.hw.tb.build import run
from systolith.hw.tb.dma_build import changed, dma_top
from systolith.isa.chip import load_chip

BENCH = "systolith.hw.tb.dma_bench"

# Small chunks and the least latencies; large chunks with small granules.
CHANGES: tuple[dict[str, int], ...] = (
    {
        "hbm.chunk": 8,
        "hbm.granule": 8,
        "hbm.p": 3,
        "hbm.q": 2,
        "hbm.latency": 1,
        "dma.segments": 1,
        "dma.local_latency": 1,
    },
    {"hbm.chunk": 64, "hbm.granule": 4, "hbm.p": 48, "dma.segments": 8},
)


@pytest.mark.slow
def test_random_copies() -> None:
    run(dma_top(load_chip("tiny")), BENCH, "random_copies", {"DMA_SEEDS": "0:150"})


@pytest.mark.slow
@pytest.mark.parametrize("changes", CHANGES, ids=lambda c: f"chunk{c['hbm.chunk']}")
def test_other_configurations(changes: dict[str, int]) -> None:
    variables = {"DMA_SEEDS": "1000:1300", "DMA_CHANGES": json.dumps(changes)}
    run(dma_top(changed(load_chip("tiny"), changes)), BENCH, "random_copies", variables)
