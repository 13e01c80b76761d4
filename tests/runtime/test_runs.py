"""Runs from Python: modes, cancellation, records, binaries; what a run leaves behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

from systolith import api as sl
from systolith.runtime.hbm import OutOfMemoryError
from systolith.runtime.task import TaskQueue
from systolith.sim.limit import CancelledRunError

LOOP = """HloModule count
body {
  s = (s32[], s32[], f32[16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  v = f32[16] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  w = f32[16] negate(v)
  ROOT t = (s32[], s32[], f32[16]) tuple(j, n, w)
}
cond {
  s = (s32[], s32[], f32[16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY main {
  n = s32[] parameter(0)
  v = f32[16] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], s32[], f32[16]) tuple(zero, n, v)
  w = (s32[], s32[], f32[16]) while(s), condition=cond, body=body
  ROOT r = f32[16] get-tuple-element(w), index=2
}
"""
ONES = np.ones(16, np.float32)
FOREVER = np.array(2**31 - 1, np.int32)


@pytest.fixture(scope="module")
def client() -> sl.Client:
    return sl.Client("tiny")


@pytest.fixture(scope="module")
def loop(client: sl.Client) -> sl.Executable:
    return client.compile(LOOP)


def test_modes_agree(loop: sl.Executable) -> None:
    (full,) = loop(np.array(5, np.int32), ONES)
    run = loop.last_run
    assert run is not None
    assert loop(mode="time", decisions=run.decisions) == []
    timed = loop.last_run
    assert timed is not None
    assert (timed.cycles, timed.result.mode) == (run.cycles, "time")
    (values,) = loop(np.array(5, np.int32), ONES, mode="values")
    assert (values.numpy() == full.numpy()).all()
    assert loop.last_run is not None
    assert loop.last_run.cycles is None


def test_what_modes_exclude_is_refused(loop: sl.Executable) -> None:
    loop(mode="time")
    with pytest.raises(sl.SystolithError, match=r"decisions=run\.decisions"):
        _ = loop.last_run
    with pytest.raises(sl.SystolithError, match="hostile needs values"):
        loop(mode="time", hostile=True)
    with pytest.raises(sl.SystolithError, match="decisions are for mode time, not for mode full"):
        loop(np.array(5, np.int32), ONES, decisions=[])
    with pytest.raises(sl.SystolithError, match="count takes 2 arguments, got 1"):
        loop(ONES, mode="time")
    with pytest.raises(sl.SystolithError, match="mode 'fast': must be one of full, time, values"):
        loop(np.array(5, np.int32), ONES, mode="fast")


def test_arguments_of_a_run_without_values_are_checked_and_left_alone(client: sl.Client) -> None:
    twice = client.compile("HloModule m\nENTRY e {\n a = f32[8] parameter(0)\n ROOT s = f32[8] add(a, a)\n}\n")
    x = client.put(np.arange(8, dtype=np.float32))
    held = client.devices[0].hbm.in_use
    for good in (x, np.zeros(8, np.float32)):
        assert twice(good, mode="time") == []
        assert twice.last_run is not None
    for wrong, says in (
        (np.zeros(9, np.float32), r"argument 0 \(a\): the module takes f32\[8\], got float32\[9\]"),
        (np.zeros(8), r"the module takes f32\[8\], got float64\[8\]"),
        (client.put(np.zeros(8, np.int32)), r"the module takes f32\[8\], got s32\[8\]"),
        (sl.Client("tiny").put(np.zeros(8, np.float32)), "another client's"),
    ):
        with pytest.raises(sl.SystolithError, match=says):
            twice(wrong, mode="time")
    del wrong
    assert client.devices[0].hbm.in_use == held
    assert (x.numpy() == np.arange(8)).all()
    x.delete()
    with pytest.raises(sl.SystolithError, match="was deleted"):
        twice(x, mode="time")


def test_runs_whose_results_nobody_has_are_cancelled_by_their_device(client: sl.Client, loop: sl.Executable) -> None:
    hbm = client.devices[0].hbm
    before = hbm.in_use
    loop(FOREVER, ONES)[0].delete()
    loop(FOREVER, ONES)
    (queued,) = loop(np.array(4, np.int32), ONES)
    client.devices[0].cancel()
    with pytest.raises(CancelledRunError):
        queued.numpy()
    (later,) = loop(np.array(4, np.int32), ONES)
    assert (later.numpy() == ONES).all()
    client.devices[0].cancel()  # they have ended
    assert (later.numpy() == ONES).all()
    del queued, later
    client.devices[0].queue.drain()
    gc.collect()
    assert hbm.in_use == before


def test_what_a_run_held_is_let_go_without_the_collector() -> None:
    client = sl.Client("tiny")
    executable = client.compile(LOOP)
    gc.collect()
    gc.disable()
    try:
        (result,) = executable(np.array(3, np.int32), ONES)
        result.numpy()
        client.devices[0].queue.drain()
        gone = weakref.ref(client)
        del client, executable, result
        assert gone() is None
    finally:
        gc.enable()


def test_a_cancelled_run_ends_and_gives_its_memory_back(client: sl.Client, loop: sl.Executable) -> None:
    hbm = client.devices[0].hbm
    before = hbm.in_use
    (first,) = loop(FOREVER, ONES)
    (queued,) = loop(FOREVER, first)
    (apart,) = loop(np.array(4, np.int32), ONES)
    queued.cancel()
    assert not queued.ready_event.wait(0.01)
    first.cancel()
    with pytest.raises(CancelledRunError, match=r"count: the run was cancelled, after \d+ instructions"):
        first.numpy()
    with pytest.raises(CancelledRunError, match="count: the run was cancelled"):  # what it needs is not there
        queued.numpy()
    assert (apart.numpy() == ONES).all()
    apart.cancel()  # it has ended
    assert (apart.numpy() == ONES).all()
    del first, queued, apart
    client.devices[0].queue.drain()
    gc.collect()
    assert hbm.in_use == before


def test_a_run_cancelled_before_it_begins_does_not(client: sl.Client, loop: sl.Executable) -> None:
    end = threading.Event()
    client.devices[0].queue.submit(lambda: end.wait(60))
    (result,) = loop(FOREVER, ONES)
    result.cancel()
    end.set()
    with pytest.raises(CancelledRunError, match="the run was cancelled before it began"):
        result.block()


def test_ctrl_c_ends_the_run_that_is_waited_for(loop: sl.Executable) -> None:
    (result,) = loop(FOREVER, ONES)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        result.block()
    with pytest.raises(CancelledRunError):
        result.numpy()


SCRIPT = f"""
import numpy as np
from systolith import api as sl
loop = sl.Client("tiny").compile('''{LOOP}''')
(result,) = loop(np.array(2**31 - 1, np.int32), np.ones(16, np.float32))
print("started", flush=True)
result.block()
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_process() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_memory_that_runs_under_way_hold_is_waited_for() -> None:
    """Each call takes more than a fifth of HBM for its result: calls go on where results of ended runs are dropped."""
    client = sl.Client("tiny")
    n = client.chip.hbm.bytes // 18 // 128 * 128
    negate = client.compile(f"HloModule m\nENTRY e {{\n a = f32[{n}] parameter(0)\n ROOT b = f32[{n}] negate(a)\n}}\n")
    x = client.put(np.ones(n, np.float32))
    end = threading.Event()
    client.devices[0].queue.submit(lambda: end.wait(60))
    threading.Timer(0.1, end.set).start()
    for _ in range(6):
        negate(x, mode="values")
    assert end.is_set()
    kept = [negate(x, mode="values") for _ in range(3)]
    with pytest.raises(OutOfMemoryError) as caught:
        negate(x, mode="values")
    text = str(caught.value)
    assert "\n" not in text
    assert f"held by m {3 * 4 * n} in 3, the host {4 * n} in 1; the largest: f32[{n}] of the host {4 * n}" in text
    assert f"result 0 f32[{n}] of m {4 * n}" in text
    del kept
    assert negate(x, mode="values")[0].numpy()[0] == -1


def test_a_binary_saved_and_loaded(client: sl.Client, loop: sl.Executable, tmp_path: Path) -> None:
    path = loop.save(tmp_path / "count.slb")
    again = sl.Executable.load(path, client)
    assert (again(np.array(3, np.int32), ONES)[0].numpy() == -ONES).all()
    assert again.cost_analysis() == loop.cost_analysis()
    with pytest.raises(sl.SystolithError, match="is for chip"):
        sl.Executable.load(path, sl.Client("small"))


def test_how_objects_print(loop: sl.Executable) -> None:
    loop(np.array(2, np.int32), ONES)[0].block()
    run = loop.last_run
    assert run is not None
    assert repr(loop).startswith("<Executable count for tiny: 2 parameters, 1 results, ")
    assert repr(run).startswith(f"<Run of count on tiny, mode full: {run.cycles:,} cycles, ")
    assert len(repr(run)) < 120
    html = run._repr_html_()
    assert f"<td>{run.cycles:,}</td>" in html
    assert html.count("<tr>") == html.count("</tr>") > 5
    loop(np.array(2, np.int32), ONES, mode="values")
    assert "no cycles" in repr(loop.last_run)
    assert loop.last_run is not None
    assert "no cycles" in loop.last_run._repr_html_()


def test_a_queue_that_waits_for_itself_goes_on() -> None:
    queue = TaskQueue("test")
    assert queue.submit(lambda: queue.drain()).wait(30)
