"""`--max-cycles`: a loop without end is given up, and named with its iterations so far."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from systolith import api as sl
from systolith.isa.asm import assemble
from systolith.isa.chip import load_chip
from systolith.sim.limit import CycleLimitError
from systolith.sim.simulate import simulate
from tests.runtime.command import systolith

ENDLESS = """HloModule m
body {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  t = (s32[], f32[8]) tuple(i, x)
  w = (s32[], f32[8]) while(t), condition=few, body=count
  y = f32[8] get-tuple-element(w), index=1
  z = f32[8] add(y, y)
  ROOT r = (s32[], f32[8]) tuple(i, z)
}
few {
  s = (s32[], f32[8]) parameter(0)
  x = f32[8] get-tuple-element(s), index=1
  e = f32[1] slice(x), slice={[0:1]}
  f = f32[] reshape(e)
  n = f32[] constant(-1)
  ROOT c = pred[] compare(f, n), direction=LT
}
count {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  y = f32[8] add(x, x)
  ROOT r = (s32[], f32[8]) tuple(i, y)
}
always {
  s = (s32[], f32[8]) parameter(0)
  x = f32[8] get-tuple-element(s), index=1
  e = f32[1] slice(x), slice={[0:1]}
  f = f32[] reshape(e)
  n = f32[] constant(-1)
  ROOT c = pred[] compare(f, n), direction=GE
}
ENTRY e {
  i = s32[] constant(0)
  a = f32[8] parameter(0)
  t = (s32[], f32[8]) tuple(i, a)
  w = (s32[], f32[8]) while(t), condition=always, body=body
  ROOT r = f32[8] get-tuple-element(w), index=1
}
"""
FINITE = "HloModule m\nENTRY e {\n a = f32[64] parameter(0)\n ROOT b = f32[64] add(a, a)\n}\n"
ZEROS = np.zeros(8, np.float32)
LOOP = """
.program p
    li r1, 3
outer:
    li r2, 0
inner:
    add r2, r2, 1
    bne r2, r1, inner
    jmp outer
"""


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    path = tmp_path / "endless.hlo"
    path.write_text(ENDLESS)
    np.savez(tmp_path / "zeros.npz", allow_pickle=False, arg0=ZEROS)
    return path


@pytest.mark.parametrize("mode", ["full", "values"])
def test_a_loop_without_end_is_named(mode: str, endless: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", endless, "--args", endless.with_name("zeros.npz"), "--chip", "tiny", "--mode", mode]
    turns = []
    for limit in (2_000, 8_000):
        ran = systolith(capsys, *words, "--max-cycles", limit)
        assert ran.code == 2
        (line,) = ran.err.splitlines()
        found = re.search(rf"m: not done after {limit} cycles, the limit; in iteration (\d+) of while '([^']+)'", line)
        assert found, line
        turns.append(int(found[1]))
        assert found[2].startswith("w")
    assert 1 < turns[0] < turns[1]


def test_in_python_the_result_says_so() -> None:
    executable = sl.Client("tiny").compile(ENDLESS)
    (result,) = executable(ZEROS, max_cycles=5_000)
    with pytest.raises(CycleLimitError, match=r"iteration \d+ of while 'w"):
        result.numpy()
    with pytest.raises(sl.SystolithError, match="max_cycles 0: must be at least 1"):
        executable(ZEROS, max_cycles=0)


@pytest.mark.parametrize("mode", ["full", "time"])
def test_a_run_may_take_its_cycles_and_no_fewer(mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(FINITE)
    words = ["run", path, "--chip", "tiny", "--mode", mode, "--random", 0, "--json"]
    cycles = json.loads(systolith(capsys, *words).out)["cycles"]
    assert systolith(capsys, *words, "--max-cycles", cycles).code == 0
    ran = systolith(capsys, *words, "--max-cycles", cycles - 1)
    assert ran.code == 2
    assert str(cycles - 1) in ran.err


def test_a_loop_that_is_none_of_hlo_is_named_by_its_place() -> None:
    tiny = load_chip("tiny")
    with pytest.raises(CycleLimitError) as caught:
        simulate(assemble(LOOP, tiny), tiny, mode="time", max_cycles=1000)
    found = re.search(r"iteration (\d+) of the loop from instruction 1 to 4", str(caught.value))
    assert found
    inner = re.search(r"iteration (\d+) of the loop from instruction 2 to 3", str(caught.value))
    assert inner is None or 1 <= int(inner[1]) <= 3
    assert int(found[1]) > 10


@pytest.mark.slow
def test_lockstep_has_the_limit(endless: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = systolith(capsys, "lockstep", endless, "--args", endless.with_name("zeros.npz"), "--max-cycles", 5_000)
    assert ran.code == 2
    assert "of while 'w" in ran.err
