"""Programs that take from infeed queues which are full: transfers of random sizes, offered at random cycles."""

from __future__ import annotations

import numpy as np

from systolith.hw.lockstep import Case
from systolith.isa.asm import assemble
from systolith.isa.chip import Chip
from systolith.sim.host_times import HostTimes
from systolith.sim.memory import Machine

TRANSFERS = 40
STEPS = 8
LAST = 4000
"""The cycle until which the host offers bytes, about half of the run."""


def full_queues(chip: Chip, seed: int) -> Case:
    """A program that takes from two queues.

    The host offers in all as much as is taken and the queue holds; and until most cycles as much as some transfers take
    and the queue holds or not, or a byte more or less, so that a single credit decides how long it is held.
    """
    rng, room = np.random.default_rng(seed), chip.host.room
    order, words = rng.integers(0, 2, TRANSFERS), rng.choice([1, 7, 40, room // 4], TRANSFERS)
    patterns = "".join(f".pattern w{n} u32 counts=({n}) strides=(4)\n" for n in np.unique(words))
    pairs = zip(order.tolist(), words.tolist(), strict=True)
    copies = "".join(f"    dma.load host({q})[0]:w{n}, vmem[0]:w{n}\n" for q, n in pairs)
    program = assemble(f".program full\n{patterns}{copies}    halt\n", chip)
    taken = [np.cumsum(4 * words[order == q]) for q in (0, 1)]
    data = [rng.integers(0, 256, int(sums[-1]), np.uint8) for sums in taken]

    def fill(machine: Machine) -> None:
        for q, values in enumerate(data):
            machine.infeed[q].push(values)

    def steps(sums: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[tuple[int, int]]:
        some = rng.choice(np.concatenate([sums, sums + room]), STEPS) + rng.integers(-1, 2, STEPS)
        offered = np.sort([*np.minimum(some, sums[-1] + room), sums[-1] + room])
        cycles = np.sort(rng.integers(0, LAST, STEPS + 1))
        return list(zip(cycles.tolist(), np.diff(offered, prepend=0).tolist(), strict=True))

    return Case(program, None, fill, host=HostTimes({q: steps(sums) for q, sums in enumerate(taken)}))
