"""Host time of a run with values and time over that of XLA's CPU backend: `python -m bench.bench_ratio [CASE ...]`.

Both run by turns in one process.  Ratios of processor time (all threads) depend little on the machine's other load;
wall time counts on a quiet machine only, so the load is printed beside it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from time import perf_counter, process_time

from bench.measure import _random_parameters
from bench.modules import module, native
from systolith.compiler.driver import compile_module
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate

TURNS = 5


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds that a call takes: wall, processor."""
    wall, cpu = perf_counter(), process_time()
    run()
    return perf_counter() - wall, process_time() - cpu


def compare(name: str, chip_name: str = "tpu_v3") -> None:
    chip = load_chip(chip_name)
    program = compile_module(module(name), chip).program
    buffers = _random_parameters(program)

    def ours() -> None:
        simulate(program, chip, dict(buffers))

    theirs = native(name)
    first = timed(ours)
    pairs = [(timed(ours), timed(theirs)) for _ in range(TURNS)]
    best = [[min(p[who][what] for p in pairs) for what in (0, 1)] for who in (0, 1)]
    print(f"{name}: {len(program.code)} instructions, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    for label, (wall, cpu) in (("first run", first), ("best of later runs", best[0]), ("XLA", best[1])):
        print(f"  {label}: {wall:.3f} s ({wall / best[1][0]:.1f}x), processor {cpu:.3f} s ({cpu / best[1][1]:.1f}x)")


if __name__ == "__main__":
    for case in sys.argv[1:] or ["resnet50_1"]:
        compare(case)
