"""Traces of `jax.profiler`, read back by jaxlib's own reader."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systolith import api as sl
from systolith.pjrt import xplane
from systolith.runtime.device import Device

jax = pytest.importorskip("jax")
ROOT = Path(__file__).resolve().parents[2]
ADD = "HloModule m\nENTRY e {\n a = f32[8] parameter(0)\n ROOT s = f32[8] add(a, a)\n}\n"


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, int]]]:
    """The folder of a trace's files, and the runs in it."""
    folder = tmp_path_factory.mktemp("trace")
    command = [sys.executable, "-m", "tests.pjrt.profiled", str(folder)]
    environment = {**os.environ, "JAX_PLATFORMS": "systolith", "SYSTOLITH_CHIP": "tiny"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=ROOT)
    (made,) = folder.glob("plugins/profile/*")
    return made, json.loads(done.stdout)


def _lines(plane: Any) -> dict[str, list[Any]]:
    return {line.name: list(line.events) for line in plane.lines}


def test_the_devices_timeline_is_a_plane(traced: tuple[Path, list[dict[str, int]]]) -> None:
    folder, runs = traced
    (path,) = folder.glob("*.xplane.pb")
    planes = {plane.name: plane for plane in jax.profiler.ProfileData.from_file(str(path)).planes}
    lines = _lines(planes["/device:CUSTOM:systolith 0 (tiny)"])
    clock = sl.chip("tiny").clock_mhz
    programs = lines["XLA Modules"]
    assert [e.duration_ns for e in programs] == [pytest.approx(run["cycles"] * 1000 / clock) for run in runs]
    assert [dict(e.stats)["cycles"] for e in programs] == [run["cycles"] for run in runs]
    for launch, program, run in zip(lines["host"], programs, runs, strict=True):
        assert launch.duration_ns == pytest.approx(run["launch"] * 1000 / clock)
        assert launch.start_ns + launch.duration_ns == pytest.approx(program.start_ns)
    queues = [name for name in lines if name in ("seq", "ld", "st", "w0", "s0", "vpu", "xlu")]
    assert sum(len(lines[name]) for name in queues) == sum(run["instructions"] for run in runs)
    assert [(e.name, dict(e.stats)["bytes"]) for e in lines["copies"]] == [("copy to device", 256)] * 2
    for events in lines.values():
        for before, after in pairwise(events):
            assert before.start_ns <= after.start_ns
    assert any("dot" in e.name for e in lines["XLA Ops"])


def test_it_is_in_the_trace_for_perfetto(traced: tuple[Path, list[dict[str, int]]]) -> None:
    (path,) = traced[0].glob("*.trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    mine = [e for e in events if "systolith" in names.get(e.get("pid"), "") and e.get("ph") == "X"]
    assert sum(e["name"].startswith("launch") for e in mine) == 2


def test_later_runs_of_long_traces_have_no_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    exe = sl.Client("tiny").compile(ADD)
    exe(np.ones(8, np.float32))[0].block()
    run = exe.last_run
    assert run is not None
    device = Device(run.chip, 3)
    noted = [xplane.Noted(n, device, run, False, 0) for n in (1000, 90_000)]
    monkeypatch.setattr(xplane, "MOST_INSTRUCTIONS", run.result.instructions)
    space: Any = xplane._declared().message_class("XSpace").FromString(xplane.xspace(noted))
    (plane,) = space.planes
    assert plane.name == "/device:CUSTOM:systolith 3 (tiny)"
    counts = defaultdict(int, {line.name: len(line.events) for line in plane.lines})
    assert counts["XLA Modules"] == 2
    assert counts["ld"] == sum(i.op == "dma.load" for i in run.program.code)
    assert len(space.warnings) == 1
