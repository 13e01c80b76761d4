"""A program's use of HBM and VMEM, as the API, the command line and the JSON of a run report it."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

from systolith import api as sl
from systolith.isa.binary import load, save
from systolith.reports.run_data import load_run
from tests.compiler.machine import TINY, with_vmem
from tests.compiler.memory.test_hbm_plan import LENGTH
from tests.compiler.memory.test_hbm_plan import SPILLED as CHAIN
from tests.runtime.command import systolith

TINY_TEXT = (files("systolith.isa") / "chips" / "tiny.toml").read_text()
PIECE = 36 * 20 * 4
WEIGHTS = 20 * 20 * 4
SMALL = with_vmem(TINY, 2048)


@pytest.fixture(scope="module")
def spilled() -> sl.Executable:
    return sl.Client(SMALL).compile(CHAIN)


def test_sizes(spilled: sl.Executable) -> None:
    memory = spilled.memory
    assert (memory.parameters, memory.results, memory.constants, memory.aliased) == (PIECE + WEIGHTS, PIECE, 0, 0)
    assert (memory.temporaries, memory.temporaries_unshared) == (2 * PIECE, (LENGTH - 1) * PIECE)
    assert memory.hbm == 4 * PIECE + WEIGHTS
    assert 0 < sum(memory.vmem_peak.values()) <= memory.vmem <= SMALL.vmem.bytes
    assert memory.instructions == len(spilled.program.code)


def test_the_size_of_the_binary_is_that_of_its_file(spilled: sl.Executable, tmp_path: Path) -> None:
    save(spilled.program, tmp_path / "m.slb")
    assert spilled.memory.binary == (tmp_path / "m.slb").stat().st_size


def test_live_ranges(spilled: sl.Executable) -> None:
    ranges = {r.name: r for r in spilled.memory.ranges}
    assert (ranges["v1"].role, ranges["v1"].first, ranges["v1"].last) == ("temp", "v1", "v2")
    assert (ranges["v0"].role, ranges["v0"].first, ranges["v0"].last) == ("parameter", "v1", "v1")
    assert ranges["w"].last == f"v{LENGTH}"
    assert ranges["result0"].first == f"v{LENGTH}"
    assert {ranges[f"v{n}"].shares for n in range(3, LENGTH, 2)} == {"v1"}
    assert {r.space for r in spilled.memory.ranges} == {"HBM", "VMEM"}


def test_a_binary_has_sizes_but_no_live_ranges(spilled: sl.Executable, tmp_path: Path) -> None:
    save(spilled.program, tmp_path / "m.slb")
    again = sl.Client(SMALL).load(load(tmp_path / "m.slb")).memory
    assert again.to_json() == spilled.memory.to_json() | {"vmem_peak": {}}
    assert again.ranges == ()


def test_as_a_table(spilled: sl.Executable) -> None:
    lines = str(spilled.memory).splitlines()
    assert any(line.split() == ["parameters", f"{PIECE + WEIGHTS:,}"] for line in lines)
    assert any(line.split()[:3] == ["temporaries", f"{2 * PIECE:,}", f"{(LENGTH - 1) * PIECE:,}"] for line in lines)


def test_the_command_line_tells_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(CHAIN)
    chip = tmp_path / "chip.toml"
    chip.write_text(TINY_TEXT.replace("262_144", str(SMALL.vmem.bytes)))
    ran = systolith(capsys, "compile", path, "--chip", chip, "-o", tmp_path / "m.slb", "--dump-dir", tmp_path / "dump")
    assert ran.code == 0
    assert f"{2 * PIECE:,}" in ran.err
    table = (tmp_path / "dump" / "memory.txt").read_text()
    rows = [line.split()[0] for line in table.splitlines() if " temp " in line]
    assert rows == [f"v{n}" for n in range(1, LENGTH)]
    ran = systolith(capsys, "run", tmp_path / "m.slb", "--chip", chip, "--mode", "time", "--json")
    assert ran.code == 0
    record = json.loads(ran.out)
    assert record["memory"]["temporaries"] == record["hbm_allocated"]["temp"] == 2 * PIECE
    (tmp_path / "run.json").write_text(ran.out)
    assert load_run(tmp_path / "run.json").memory.temporaries_unshared == (LENGTH - 1) * PIECE


DONATED = """HloModule d, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY main {
  a = f32[64,64] parameter(0)
  b = f32[64,64] parameter(1)
  s = f32[64,64] subtract(a, b)
  m = f32[64,64] dot(s, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (f32[64,64], f32[64,64]) tuple(s, m)
}
"""


def test_donated_parameters_run_and_check_from_the_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "d.hlo"
    path.write_text(DONATED)
    ran = systolith(
        capsys,
        "run",
        path,
        "--chip",
        "tiny",
        "--random",
        0,
        "--check",
        "--hostile",
        "--json",
        "--out",
        tmp_path / "o.npz",
    )
    assert ran.code == 0
    assert json.loads(ran.out)["memory"]["aliased"] == 64 * 64 * 4
    plain = tmp_path / "p.hlo"
    plain.write_text(DONATED.replace(", input_output_alias={ {0}: (0, {}, may-alias) }", ""))
    ran = systolith(capsys, "run", plain, "--chip", "tiny", "--random", 0, "--expect", tmp_path / "o.npz")
    assert ran.code == 0


def test_an_impossible_alias_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "d.hlo"
    path.write_text(DONATED.replace("{0}: (0,", "{0}: (5,"))
    ran = systolith(capsys, "compile", path, "--chip", "tiny", "-o", tmp_path / "d.slb")
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert "input_output_alias {0}: (5, {}): the entry has 2 parameters" in ran.err
