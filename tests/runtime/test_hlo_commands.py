"""`systolith opt` and `systolith cost`: output, exit codes, errors of one line."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.pass_table import table
from systolith.runtime.jobs.pass_check import compare_modules
from tests.corpus.load import HERE, load
from tests.runtime.command import Ran, systolith

MODULE = """HloModule m

ENTRY e {
  x = s32[4] parameter(0)
  y = s32[4] negate(x)
  z = s32[4] negate(y)
  ROOT r = s32[4] add(z, z)
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.hlo"
    path.write_text(MODULE)
    return path


def refused(ran: Ran, *parts: str) -> None:
    assert ran.code == 2, ran
    first, *rest = ran.err.splitlines()
    assert first.startswith("systolith: ")
    assert len(rest) <= 2
    assert not ran.out
    for part in parts:
        assert part in first


def test_opt_prints_the_module(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = systolith(capsys, "opt", file, "--passes", "algsimp,dce")
    assert (ran.code, ran.err) == (0, "")
    assert [i.opcode for i in parse_hlo(ran.out).entry.instructions] == ["parameter", "add"]


def test_opt_without_passes_is_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    case = load("mlp_infer")
    assert systolith(capsys, "opt", case.path).out == case.text


def test_opt_reads_stdin_and_writes_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(MODULE.encode())))
    output = tmp_path / "out.hlo"
    ran = systolith(capsys, "opt", "-", "--passes", "ALGSIMP".lower(), "-o", output)
    assert (ran.code, ran.out) == (0, "")
    assert parse_hlo(output.read_text()).entry.result.name == "r"


def test_opt_lists_passes(capsys: pytest.CaptureFixture[str]) -> None:
    ran = systolith(capsys, "opt", "--list")
    assert [line.split()[0] for line in ran.out.splitlines()] == list(table())


def test_opt_refuses(file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    refused(systolith(capsys, "opt", file, "--passes", "algsmip"), "no pass is called 'algsmip'", "'algsimp'")
    refused(systolith(capsys, "opt", "--passes", "dce"), "FILE")
    refused(systolith(capsys, "opt", tmp_path / "none.hlo"), "none.hlo")
    refused(systolith(capsys, "opt", file, "-o", tmp_path / "no" / "out.hlo"), "out.hlo")
    broken = tmp_path / "broken.hlo"
    broken.write_text(MODULE.replace("negate(y)", "negat(y)"))
    refused(systolith(capsys, "opt", broken), "broken.hlo:6")
    refused(systolith(capsys, "cost", broken), "broken.hlo:6")


def test_check(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = systolith(capsys, "opt", file, "--passes", "algsimp,dce", "--check", 3, "-o", file.with_suffix(".out"))
    assert (ran.code, ran.err.strip()) == (0, "3 random inputs: 3 of 3 results the same to the bit")


def test_check_sees_differences() -> None:
    good = parse_hlo(MODULE)
    assert "differ" in str(compare_modules(good, parse_hlo(MODULE.replace("add(z, z)", "add(z, y)")), 2, 0).difference)
    floats = MODULE.replace("s32", "f32")
    other = parse_hlo(floats.replace("negate(x)", "abs(x)"))
    assert "differs by" in str(compare_modules(parse_hlo(floats), other, 2, 0).difference)
    assert compare_modules(parse_hlo(floats), parse_hlo(floats), 2, 0).same == 2


def test_check_lets_rounding_pass() -> None:
    first = "HloModule m\n\nENTRY e {\n  x = f32[4] parameter(0)\n  ROOT r = f32[4] exponential(x)\n}\n"
    less_one = (
        "h = f32[4] exponential-minus-one(x)\n  o = f32[] constant(1)\n  b = f32[4] broadcast(o), dimensions={}\n"
        "  ROOT r = f32[4] add(h, b)"
    )
    other = first.replace("ROOT r = f32[4] exponential(x)", less_one)
    assert compare_modules(parse_hlo(first), parse_hlo(other), 5, 0).difference is None


DEPTHWISE = """HloModule m

ENTRY e {
  x = f32[1,8,8,16] parameter(0)
  w = f32[3,3,1,16] parameter(1)
  ROOT y = f32[1,8,8,16] convolution(x, w),
    window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=16
}
"""


def test_check_lets_products_become_more_precise(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Fusion gives this convolution to the vector unit, which multiplies f32: no rounding to bf16 as before."""
    (tmp_path / "m.hlo").write_text(DEPTHWISE)
    ran = systolith(capsys, "opt", tmp_path / "m.hlo", "--passes", "fusion", "--chip", "tiny", "--check", 2)
    assert (ran.code, ran.err.strip()) == (0, "2 random inputs: 2 of 2 results the same to the bit")


def test_check_sees_products_that_lose_precision() -> None:
    precise = parse_hlo(DEPTHWISE.replace("=16\n", "=16, operand_precision={highest,highest}\n"))
    assert "differs by" in str(compare_modules(precise, parse_hlo(DEPTHWISE), 2, 0).difference)


def test_cost_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    ran = systolith(capsys, "cost", load("mlp_infer").path, "--json", "--top", 2, "--chip", "tpu_v3")
    record = json.loads(ran.out)
    assert record["properties"]["flops"] == 15049024.0
    assert record["products"] == 2 * 32 * (784 * 256 + 256 * 128 + 128 * 10)
    assert [row["opcode"] for row in record["rows"]] == ["dot", "dot"]
    assert record["rows"][0]["bound"] in ("MXU", "HBM")
    np.testing.assert_allclose(record["rows"][0]["seconds"], 4 * (784 * 256 + 32 * 784 + 32 * 256) / (450e9), rtol=1e-3)


def test_cost_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    ran = systolith(capsys, "cost", HERE / "lenet_infer.hlo", "--by-op", "--chip", "tpu_v3")
    assert "by itself: at the peaks of the units, operands and results over HBM" in ran.out  # no bound of a run
    assert "at least" not in ran.out
    ran = systolith(capsys, "cost", HERE / "lenet_infer.hlo", "--by-op")
    assert ran.code == 0
    assert ran.out.splitlines()[1].startswith("convolution")
    assert "in dots and convolutions" in ran.out.splitlines()[-1]


def test_cost_refuses(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(systolith(capsys, "cost", file, "--chip", "nonsense"), "nonsense")
