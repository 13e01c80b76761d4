"""The cost of calling a program, and the host's tracks of timelines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from systolith import api as sl
from systolith.isa.chip import load_chip
from systolith.isa.chip_entries import to_toml
from systolith.reports.run_data import load_run
from systolith.runtime.records.perfetto import perfetto_trace
from systolith.sim.chrome import chrome_trace
from systolith.sim.host_timeline import host_slices
from systolith.sim.host_times import HostTimes
from tests.host.modules import ECHO
from tests.host.test_host_times import ARRAY, LINK, TINY, starts, timed
from tests.runtime.command import systolith


def test_a_launch_is_beside_the_cycles_of_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = {}
    for launch in (0, 7000):
        command = ["run", "examples/axpy.s", "--random", 0, "--set", f"host.launch={launch}"]
        records[launch] = json.loads(systolith(capsys, *command, "--json").out)
        assert records[launch]["launch"] == launch
        line = next(text for text in systolith(capsys, *command).out.splitlines() if text.startswith("Launch"))
        assert f" {launch:,} cycles" in line
    assert records[0]["cycles"] == records[7000]["cycles"]
    assert records[0]["units"] == records[7000]["units"]
    path = tmp_path / "run.json"
    path.write_text(json.dumps(records[7000]))
    assert load_run(path).launch == 7000


def test_the_launch_of_a_chip_that_does_not_state_it_follows(tmp_path: Path) -> None:
    kept = [line for line in to_toml(load_chip("tpu_v3")).splitlines() if not line.startswith("launch")]
    path = tmp_path / "old.toml"
    path.write_text("\n".join(kept))
    chip = load_chip(str(path))
    assert chip.host.launch == 2 * (chip.host.setup + chip.host.latency) == 3000
    assert chip.provenance["host.launch"].label == "derived"


def test_a_run_says_its_launch() -> None:
    exe = sl.Client(chip="tiny").compile(ECHO)
    exe(mode="time")
    assert exe.last_run is not None
    assert exe.last_run.launch == TINY.host.launch
    assert f"launch {TINY.host.launch}" in repr(exe.last_run)


@pytest.mark.parametrize("out", [False, True])
def test_transfers_are_on_tracks_of_their_queues(out: bool) -> None:
    result = timed(2, out, HostTimes({1: [(900, ARRAY), (3000, ARRAY)]}))
    assert result.trace is not None
    launch, *moved = host_slices(result, result.trace)
    assert launch[:4] == ("host", f"launch {result.program.name}", -TINY.host.launch, 0)
    assert [s.track for s in moved] == ["outfeed 1" if out else "infeed 1"] * 2
    assert [s.args["bytes"] for s in moved] == [ARRAY] * 2
    ends = [end for _, end, _ in starts(result)]
    assert [(s.start, s.end) for s in moved] == [(end - LINK, end) for end in ends]
    if not out:
        assert [s.start for s in moved] == [900, 3000]
    track = "outfeed 1" if out else "infeed 1"
    events = chrome_trace(result)["traceEvents"]
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    drawn = [e for e in events if e["ph"] == "X" and threads[e["tid"]] == track]
    clock = TINY.clock_mhz
    assert [(e["ts"], e["dur"]) for e in drawn] == [
        (pytest.approx((TINY.host.launch + s.start) / clock), pytest.approx((s.end - s.start) / clock)) for s in moved
    ]
    assert track.encode() in perfetto_trace(result)


def test_transfers_name_their_operation() -> None:
    exe = sl.Client(chip="tiny").compile(ECHO)
    exe(mode="time")
    assert exe.last_run is not None
    trace = exe.last_run.result.trace
    assert trace is not None
    named = [(s.track, s.name) for s in host_slices(exe.last_run.result, trace)]
    assert named == [
        ("host", "launch echo"),
        ("infeed 0", "96 bytes i"),
        ("infeed 0", "12 bytes i"),
        ("outfeed 0", "12 bytes u"),
        ("outfeed 0", "96 bytes u"),
    ]
