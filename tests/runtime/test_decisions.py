"""Mode `time` of a module whose control depends on data: decisions recorded by a run with values, and replayed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.runtime.test_cli_bad_input import Command, command, refused

__all__ = ["command"]

WHILE = """HloModule countdown

body {
  state = (s32[], f32[8]) parameter(0)
  n = s32[] get-tuple-element(state), index=0
  x = f32[8] get-tuple-element(state), index=1
  one = s32[] constant(1)
  less = s32[] subtract(n, one)
  twice = f32[8] add(x, x)
  ROOT next = (s32[], f32[8]) tuple(less, twice)
}

condition {
  state = (s32[], f32[8]) parameter(0)
  n = s32[] get-tuple-element(state), index=0
  zero = s32[] constant(0)
  ROOT more = pred[] compare(n, zero), direction=GT
}

ENTRY main {
  n = s32[] parameter(0)
  x = f32[8] parameter(1)
  state = (s32[], f32[8]) tuple(n, x)
  ROOT repeat = (s32[], f32[8]) while(state), condition=condition, body=body
}
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "countdown.hlo"
    path.write_text(WHILE)
    return path


def test_time_follows_what_a_full_run_recorded(command: Command, module: Path, tmp_path: Path) -> None:
    trace = tmp_path / "decisions.json"
    words = ("run", module, "--chip", "tiny", "--json")
    full = json.loads(command(*words, "--random", 5, "--record-decisions", trace).out)
    timed = json.loads(command(*words, "--mode", "time", "--decisions", trace).out)
    assert timed["cycles"] == full["cycles"]
    longer = json.loads(trace.read_text())
    longer["decisions"] = [1, 1, 1, 1, 1, 0]
    trace.write_text(json.dumps(longer))
    assert json.loads(command(*words, "--mode", "time", "--decisions", trace).out)["cycles"] > full["cycles"]
    trace.write_text(json.dumps(longer | {"decisions": [1, 0, 0]}))
    refused(command(*words, "--mode", "time", "--decisions", trace), "3 reads")


def test_without_decisions_the_loop_is_named(command: Command, module: Path) -> None:
    refused(command("run", module, "--chip", "tiny", "--mode", "time"), "repeat", "--record-decisions")


def test_decisions_of_something_else(command: Command, module: Path, tmp_path: Path) -> None:
    trace = tmp_path / "decisions.json"
    words = ("run", module, "--chip", "tiny", "--mode", "time", "--decisions", trace)
    refused(command(*words), "No such file")
    trace.write_text("[]")
    refused(command(*words), "not a decision trace")
    trace.write_text('{"program": "other", "chip_digest": "0", "instructions": 3, "decisions": [1]}')
    refused(command(*words), "other", "countdown")
    refused(command("run", module, "--random", 0, "--decisions", trace), "--mode time")
    refused(command("run", module, "--mode", "time", "--record-decisions", trace), "--record-decisions")
