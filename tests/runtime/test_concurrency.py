"""Many threads with many runs under way on several devices, some of them cancelled; and nothing grows over time."""

from __future__ import annotations

import gc
import os
import random
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from systolith import api as sl
from systolith.sim.limit import CancelledRunError

ROUNDS = [50, pytest.param(1000, marks=pytest.mark.slow)]
THREADS = 4
AXPY = """HloModule axpy
ENTRY e {
  a = f32[N] parameter(0)
  x = f32[N] parameter(1)
  m = f32[N] add(a, x)
  ROOT r = f32[N] add(m, x)
}
"""
IN_PLACE = AXPY.replace("axpy", "axpy, input_output_alias={ {}: (0, {}, must-alias) }")


def rounds_of(client: sl.Client, executables: dict[int, tuple[sl.Executable, sl.Executable]], seed: int) -> int:
    """One thread's round: chains of runs on random devices, some cancelled; how many were."""
    dice = random.Random(seed)
    n, device = dice.choice(list(executables)), dice.randrange(len(client.devices))
    apart, in_place = executables[n]
    x = np.full(n, dice.randrange(-4, 5), np.float32)
    at = client.put(x, device)
    steps = dice.randrange(1, 6)
    for _ in range(steps):
        if dice.random() < 0.3 and len(client.devices) > 1:
            device = (device + 1) % len(client.devices)
            at = at.to(device)
        (after,) = dice.choice([apart, in_place])(at, x, device=device, mode=dice.choice(["full", "values"]))
        if dice.random() < 0.2:
            at.delete()
        at = after
    if dice.random() < 0.25:
        at.cancel()
    if dice.random() < 0.1:
        at.delete()
        return 0
    try:
        got = at.numpy()
    except CancelledRunError:
        return 1
    assert (got == x * (1 + 2 * steps)).all()
    return 0


@pytest.mark.parametrize("rounds", ROUNDS)
def test_threads_with_runs_under_way(rounds: int) -> None:
    client = sl.Client("tiny", devices=3)
    executables = {
        n: (client.compile(AXPY.replace("[N]", f"[{n}]")), client.compile(IN_PLACE.replace("[N]", f"[{n}]")))
        for n in (5, 1000)
    }
    with ThreadPoolExecutor(THREADS) as pool:
        outcomes = list(pool.map(lambda seed: rounds_of(client, executables, seed), range(rounds)))
    assert len(outcomes) == rounds
    for device in client.devices:
        device.queue.drain()
    gc.collect()
    assert [device.hbm.in_use for device in client.devices] == [0] * 3


def test_one_buffer_is_donated_to_one_of_many() -> None:
    client = sl.Client("tiny")
    in_place = client.compile(IN_PLACE.replace("[N]", "[8]"))
    ones = np.ones(8, np.float32)
    told: list[str] = []
    for _ in range(20):
        x = client.put(ones)
        barrier = threading.Barrier(THREADS)

        def take(x: sl.Buffer = x, barrier: threading.Barrier = barrier) -> sl.Buffer | None:
            barrier.wait(60)
            try:
                return in_place(x, ones)[0]
            except sl.SystolithError as error:
                told.append(str(error))
                return None

        with ThreadPoolExecutor(THREADS) as pool:
            results = [f.result() for f in [pool.submit(take) for _ in range(THREADS)]]
        (got,) = [r for r in results if r is not None]
        assert got.numpy().tolist() == [3] * 8
    assert len(told) == 20 * (THREADS - 1)
    assert all("was donated to axpy" in text for text in told)


def _grown(work: Callable[[], None], times: int) -> tuple[int, int, int]:
    """How many more threads, open files and bytes of Python objects there are after doing something many times."""

    def now() -> tuple[int, int, int]:
        gc.collect()
        return threading.active_count(), len(os.listdir("/proc/self/fd")), tracemalloc.get_traced_memory()[0]

    for _ in range(5):
        work()
    tracemalloc.start()
    try:
        for _ in range(times // 10):
            work()
        before = now()
        for _ in range(times):
            work()
        after = now()
    finally:
        tracemalloc.stop()
    return after[0] - before[0], after[1] - before[1], after[2] - before[2]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files by /proc")
def test_compiles_and_runs_leave_nothing_behind() -> None:
    numbers = iter(range(10**6))

    def work() -> None:
        n = next(numbers) % 7 + 1
        client = sl.Client("tiny")
        executable = client.compile(AXPY.replace("[N]", f"[{n}]"))
        ones = np.ones(n, np.float32)
        (y,) = executable(ones, ones)
        assert y.numpy()[0] == 3
        assert executable.last_run is not None

    threads, files, memory = _grown(work, 500)
    assert threads <= 1
    assert files <= 0
    assert memory < 200_000  # bytes: 400 a round
