"""Variants of chips in commands and in Python: a variant runs a module rightly, or is refused in one line."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from systolith import api as sl
from systolith.isa.chip import load_chip, parse_chip
from systolith.runtime.run import last_run
from tests.isa.chip_variants import changes
from tests.runtime.command import systolith

TEXT = """HloModule dot

ENTRY main {
  x = f32[6,20] parameter(0)
  w = f32[20,12] parameter(1)
  d = f32[6,12] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={highest,highest}
  t = f32[6,12] tanh(d)
  c = f32[12,6] transpose(t), dimensions={1,0}
  ROOT r = (f32[12,6], f32[6,12]) tuple(c, d)
}
"""
MODULE = sl.parse_hlo(TEXT)
RNG = np.random.default_rng(0)
ARGUMENTS = [RNG.standard_normal((6, 20), np.float32), RNG.standard_normal((20, 12), np.float32)]
RESULTS = sl.evaluate(MODULE, *ARGUMENTS)


def assert_runs_rightly(chip: sl.Chip) -> None:
    client = sl.Client(chip)
    results = client.compile(MODULE)(*(client.put(a) for a in ARGUMENTS))
    for got, want in zip(results, RESULTS, strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)


@given(changes())
def test_a_variant_runs_rightly_or_is_refused(given: dict[str, Any]) -> None:
    with suppress(sl.SystolithError):
        assert_runs_rightly(sl.chip("tiny", given))


@pytest.mark.parametrize("size", ["100kB", "65540", "0.125 MiB", 300_000, 3_252_920])
def test_vmem_of_any_size(size: object) -> None:
    assert_runs_rightly(sl.chip("tiny", {"vmem.bytes": size}))


GATHER = """HloModule gather

ENTRY main {
  x = f32[50,24] parameter(0)
  i = s32[9] iota(), iota_dimension=0
  g = f32[9,24] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,24}
  s = f32[9,10] slice(g), slice={[0:9],[3:23:2]}
  ROOT r = f32[9,10] reverse(s), dimensions={1}
}
"""  # noqa: E501


@pytest.mark.parametrize("size", [3_252_920, "24 MiB", 5_578_436])
def test_lists_of_indices_are_aligned_in_vmem_of_any_size(size: object) -> None:
    """Its size decides the unit of addresses, which stays a power of two."""
    client = sl.Client(sl.chip("tiny", {"vmem.bytes": size, "hbm.bytes": "1 GiB"}))
    x = np.arange(50 * 24, dtype=np.float32).reshape(50, 24)
    (got,) = client.compile(GATHER)(client.put(x))
    np.testing.assert_array_equal(got.numpy(), x[:9, 3:23:2][:, ::-1])


@pytest.mark.parametrize(
    "command",
    [
        "run m.hlo --random 0 --json",
        "run p.s --random 0 --json",
        "explain m.hlo --json",
        "compile m.hlo -o new.slb",
        "cost m.hlo --json",
        "asm p.s -o new.slb",
        "opt m.hlo --passes canonicalize",
    ],
)
def test_commands_take_a_variant(command: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "p.s").write_text("halt\n")
    ran = systolith(capsys, *command.split(), "--chip", "tiny", "--set", "vmem.bytes=64KiB", "--set", "hbm.gbps=3.2")
    assert ran.code == 0, ran
    ran = systolith(capsys, *command.split(), "--chip", "tiny", "--set", "vmem.bits=64KiB")
    assert ran.code == 2
    assert ran.err == "systolith: chip tiny: vmem.bits = '64KiB': unknown field; did you mean vmem.bytes?\n"


def test_the_name_of_a_group_of_fields_is_answered_with_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    ran = systolith(capsys, "chips", "tiny", "--set", "smem=3")
    assert ran.code == 2
    assert ran.err == "systolith: chip tiny: smem = '3': unknown field; fields of smem: bytes\n"


@pytest.mark.parametrize("bad", ["vmem.bytes", "=3", "vmem.bytes=", ""])
def test_a_change_is_a_field_and_a_value(bad: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = systolith(capsys, "run", "m.hlo", "--set", bad)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "must be FIELD=VALUE, such as vmem.bytes=8MiB" in ran.err


def test_the_record_says_what_was_derived(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("run", "m.hlo", "--chip", "tiny", "--random", 0, "--json")
    ran = systolith(capsys, *words, "--set", "hbm.gbps=4.8")
    assert ran.code == 0
    record = json.loads(ran.out)
    chunk = next(row for row in record["chip_parameters"] if row["field"] == "hbm.chunk")
    assert (chunk["value"], chunk["provenance"]) == (64, "derived")
    assert "hbm.p = 48" in chunk["source"]
    assert record["chip"] == "tiny hbm.gbps=4.8"
    assert record["cycles"] < json.loads(systolith(capsys, *words).out)["cycles"]


def test_a_binary_of_a_variant_runs_on_it(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    variant = ("--chip", "tiny", "--set", "vmem.bytes=100kB")
    assert systolith(capsys, "compile", "m.hlo", "-o", "new.slb", *variant).code == 0
    assert systolith(capsys, "run", "new.slb", "--random", 0).code == 0
    assert systolith(capsys, "run", "new.slb", "--random", 0, *variant).code == 0
    refused = systolith(capsys, "run", "new.slb", "--random", 0, "--set", "mxu.count=2")
    assert refused.code == 2
    assert "mxu.count 1 and not 2" in refused.err


def test_chips_prints_a_file_that_is_the_chip(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("chips", "tpu_v3", "--set", "hbm.gbps=1800", "--set", "vmem.bytes=8MiB")
    printed = systolith(capsys, *words, "--toml")
    assert parse_chip(printed.out, "f") == load_chip("tpu_v3", {"hbm.gbps": 1800, "vmem.bytes": "8MiB"})
    assert "derived" in systolith(capsys, *words).out
    assert systolith(capsys, "chips", "--toml").code == 2


def test_a_client_of_a_variant() -> None:
    chip = sl.chip("tiny", {"hbm.gbps": "3.2 GB/s"})
    assert_runs_rightly(chip)
    run = last_run()
    assert run is not None
    assert run.chip is chip


@pytest.mark.parametrize("width", [80, 160])
def test_a_line_of_chips_has_a_field_its_value_and_its_provenance(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = systolith(capsys, "chips", "tpu_v3").out.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("hbm.granule "))
    assert lines[first].split()[:4] == ["hbm.granule", "32", "bytes", "inferred"]
    assert len(lines[first : next(n for n, line in enumerate(lines) if line.startswith("hbm.latency "))]) <= 3
    assert max(map(len, lines)) <= width
