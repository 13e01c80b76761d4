"""Loops fed by the host: the next item comes while one is used."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path

import numpy as np
import pytest

from systolith import api as sl
from systolith.isa.chip import Chip
from systolith.sim.host_times import HostTimes
from tests.host.modules import check
from tests.host.test_feeds import LOOP, TURNS

STEPS = 24
SIZE, BATCH = 64, 128
ITEM = 4 * BATCH * (SIZE + 1)


STEP = run_path(str(Path(__file__).parents[2] / "examples" / "infeed_training.py"))["STEP"]


def cycles_of_a_step(chip: Chip, host: HostTimes | None = None) -> float:
    """Of the example's training loop, from the middle of one run to that of a longer one."""
    taken = []
    for steps in (STEPS, 2 * STEPS):
        model = sl.Client(chip=chip).compile(STEP.format(size=SIZE, batch=BATCH, steps=steps, rate=0.001))
        model(mode="time", host=host or HostTimes())
        assert model.last_run is not None
        assert model.last_run.cycles is not None
        taken.append(model.last_run.cycles)
    return (taken[1] - taken[0]) / STEPS


def test_a_step_takes_as_long_as_the_busier_of_link_and_chip() -> None:
    chip = sl.chip("tpu_v3", {"mxu.count": 1})
    fast = sl.chip("tpu_v3", {"mxu.count": 1, "host.p": 2**20, "host.setup": 0, "host.latency": 1})
    link = 2 * chip.host.setup + ITEM * chip.host.q / chip.host.p
    compute = cycles_of_a_step(fast)
    assert compute < link / 2
    assert cycles_of_a_step(chip) == pytest.approx(link, rel=0.01)  # bound by the link
    wide = sl.chip("tpu_v3", {"mxu.count": 1, "host.p": 1024, "host.setup": 50, "host.latency": 50})
    assert cycles_of_a_step(wide) == pytest.approx(compute, rel=0.05)  # bound by the chip: transfers are hidden
    late = HostTimes({"": [(5000 * n, ITEM) for n in range(2 * STEPS)]})
    assert cycles_of_a_step(chip, late) == pytest.approx(5000, rel=0.01)  # bound by the host


@pytest.mark.parametrize("turns", [1, 2, 5, 6, 7, 8, 9, 11])
def test_values_of_overlapping_iterations(turns: int) -> None:
    """In hostile mode, which finds races; from six turns on they have one of two sets of buffers."""
    client = sl.Client(chip="tiny")
    text = LOOP.replace(f"constant({TURNS})", f"constant({turns})")
    items = [np.full(64, n, np.float32) for n in range(turns)]
    check(client, text, items, np.ones(64, np.float32))
    infeeds = sum(" host" in line for line in client.compile(text).as_text().splitlines() if "dma.load" in line)
    assert (infeeds >= 2) == (turns > 2)
    assert (infeeds >= 4) == (turns >= 6)  # two in the loop, and before it
