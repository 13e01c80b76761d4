"""`systolith explain`, and --autotune on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compiler.gemm.test_predict import gemm
from tests.runtime.command import systolith

LENET = Path(__file__).resolve().parents[2] / "examples" / "lenet_infer.hlo"


@pytest.fixture
def dot(tmp_path: Path) -> Path:
    path = tmp_path / "dot.hlo"
    path.write_text(gemm(300, 200, 100))
    return path


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    ran = systolith(capsys, "explain", LENET, "--top", 2)
    assert ran.code == 0
    first = ran.out.splitlines()[0]
    assert "jit_lenet on tpu_v3" in first
    assert "cycles simulated" in first
    assert "groups more" in ran.out
    assert "    not " in ran.out
    assert "schedule: loads ahead" in ran.out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(systolith(capsys, "explain", LENET, "--chip", "small", "--json").out)
    run = json.loads(systolith(capsys, "run", LENET, "--chip", "small", "--mode", "time", "--json").out)
    assert record["cycles"] == run["cycles"]
    known = {g["name"]: g["cycles"] for g in run["groups"]}
    assert all(g["simulated"] == known[g["name"]] for g in record["groups"])
    assert [g["simulated"] for g in record["groups"]] == sorted(
        (g["simulated"] for g in record["groups"]), reverse=True
    )
    assert {d["kind"] for g in record["groups"] for d in g["decisions"]} >= {"fusion", "tiles"}


def test_one_group_without_a_run(capsys: pytest.CaptureFixture[str], dot: Path) -> None:
    record = json.loads(systolith(capsys, "explain", dot, "--group", "d", "--no-simulate", "--json").out)
    (group,) = record["groups"]
    assert record["cycles"] is None
    assert group["simulated"] is None
    assert group["predicted"] == record["predicted"]


def test_bad_input(capsys: pytest.CaptureFixture[str], dot: Path, tmp_path: Path) -> None:
    binary = tmp_path / "dot.slb"
    systolith(capsys, "compile", dot, "-o", binary)
    for words, message in (
        (["explain", dot, "--group", "nobody"], "no group 'nobody'"),
        (["explain", binary], "is a binary"),
        (["run", binary, "--autotune", "2", "--random", "0"], "--autotune is for compiling"),
        (["explain", tmp_path / "none.hlo"], "No such file"),
    ):
        ran = systolith(capsys, *words)
        assert ran.code == 2
        assert message in ran.err
        assert ran.err.count("\n") == 1


def test_autotune(capsys: pytest.CaptureFixture[str], dot: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache.json"
    options = ["--chip", "small", "--autotune", "3", "--autotune-cache", cache]
    out, again = tmp_path / "a.slb", tmp_path / "b.slb"
    assert systolith(capsys, "compile", dot, *options, "-o", out).code == 0
    assert len(json.loads(cache.read_text())) == 1
    assert systolith(capsys, "compile", dot, *options, "-o", again).code == 0
    assert out.read_bytes() == again.read_bytes()
    assert systolith(capsys, "run", dot, *options, "--random", "0", "--check", "--hostile").code == 0
    cache.write_text("{")
    assert systolith(capsys, "compile", dot, *options, "-o", out).code == 0
    assert cache.read_text() == "{"
    assert out.read_bytes() == again.read_bytes()
