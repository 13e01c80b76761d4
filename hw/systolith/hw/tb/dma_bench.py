"""A DMA unit against the simulator: random lists of copies, every byte and every time.

Environment: DMA_CHIP (preset), DMA_CHANGES (JSON: its fields as "group.field"), DMA_SEEDS ("first:last",
last not included).
"""

from __future__ import annotations

import json
import os

import cocotb

from systolith.hw.tb.dma_build import changed
from systolith.hw.tb.dma_cases import Case, bench_chip, copies
from systolith.hw.tb.dma_play import Dut, Outcome, begin, compare_memories, play, whole, words
from systolith.isa.chip import Chip, load_chip
from systolith.sim.hbm import Arbiter

WORDS = 15
OTHER = (0, 0, 60, 160, 255)  # how often the other client of HBM asks, of 256


def check_times(dut: Dut, case: Case, chip: Chip, outcome: Outcome, alone: bool) -> None:
    """Raise AssertionError where a copy is done at another time, has another tail or takes other grants."""
    h = chip.hbm
    arbiter = Arbiter(h.p, h.q, h.chunk, 2)
    count = len(case.costs)
    grants, tails = words(dut.grants_o, count), words(dut.tails_o, count)
    for i, cost in enumerate(case.costs):
        start, done = outcome.starts[i], outcome.dones[i]
        what = f"{case.name}: copy {i}, from {start} to {done}"
        assert grants[i] == cost.chunks, f"{what}: {grants[i]} grants, simulator {cost.chunks}"
        if not cost.chunks:
            assert done == start + cost.occupancy, f"{what}: simulator {cost.occupancy} cycles"
            assert tails[i] == cost.latency - cost.occupancy, f"{what}: tail {tails[i]}"
            continue
        assert tails[i] == h.latency, f"{what}: tail {tails[i]}"
        if alone:
            arbiter.submit(0, start, cost.chunks)
            completion = arbiter.advance()
            assert completion is not None
            assert done == completion.end, f"{what}: simulator {completion.end}"


def check_outfeed(dut: Dut, case: Case) -> None:
    """Raise AssertionError where the host got something else."""
    bits, sizes = int(dut.outfeed_o.value), words(dut.outfeed_size_o, len(case.outfeed))
    size = case.infeed.shape[1]
    data = bits.to_bytes(case.infeed.size, "little")
    for n, want in enumerate(case.outfeed):
        got = data[n * size : n * size + sizes[n]]
        assert got == want, f"{case.name}: outfeed {n}: {len(got)} bytes, simulator {len(want)}, or others"


@cocotb.test()
async def random_copies(dut: Dut) -> None:
    changes = json.loads(os.environ.get("DMA_CHANGES", "{}"))
    chip = bench_chip(changed(load_chip(os.environ.get("DMA_CHIP", "tiny")), changes))
    begin(dut)
    first, last = os.environ.get("DMA_SEEDS", "0:10").split(":")
    for seed in range(int(first), int(last)):
        case = copies(chip, seed)
        other = OTHER[seed % len(OTHER)]
        dut.other_i.value = other
        dut.infeed_i.value = whole(case.infeed)
        outcome = await play(dut, case, case.before, WORDS)
        compare_memories(case, outcome.after, case.after)
        check_outfeed(dut, case)
        check_times(dut, case, chip, outcome, other == 0)
