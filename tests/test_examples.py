"""Every example runs as its text says."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest

from systolith.isa.asm import assemble, disassemble
from systolith.isa.binary import load
from systolith.isa.chip import load_chip
from tests.runtime.command import systolith

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
MODULES = ("mlp_infer", "lenet_infer")
ASSEMBLY = ("axpy",)
SCRIPTS = ("xla_builder_axpy", "served_model", "infeed_training")
JAX_SCRIPTS = ("train_digits", "generate_text")  # run by tests/pjrt


def test_every_example_is_run() -> None:
    assert {p.name for p in EXAMPLES.glob("*.hlo")} == {f"{name}.hlo" for name in MODULES}
    assert {p.name for p in EXAMPLES.glob("*.s")} == {f"{name}.s" for name in ASSEMBLY}
    assert {p.name for p in EXAMPLES.glob("*.py")} == {f"{name}.py" for name in SCRIPTS + JAX_SCRIPTS}


@pytest.mark.parametrize("name", MODULES)
def test_module(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    at = EXAMPLES / name
    ran = systolith(
        capsys, "run", f"{at}.hlo", "--args", f"{at}.in.npz", "--expect", f"{at}.out.npz", "--check", "--precision",
        "highest", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    record = json.loads(ran.out)
    assert record["ok"]
    assert record["checks"]["expected"] == 1


@pytest.mark.slow
def test_a_model_is_served(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    options = "--chip tiny --size 16 --batch 4 --batches 2"
    monkeypatch.setattr(sys, "argv", ["served_model.py", *options.split()])
    run_path(str(EXAMPLES / "served_model.py"), run_name="__main__")
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("serving 1 x tiny at unix:")
    for number, line in enumerate(lines):
        said = re.fullmatch(r"client (\d): 2 batches, relative error at most (0\.\d+)", line)
        assert said
        assert int(said[1]) == number
        assert float(said[2]) < 0.03
    assert len(lines) == 2


def test_training_by_infeed_shows_when_it_waits_for_the_host(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = "--chip tiny --size 8 --batch 16 --steps 12"
    monkeypatch.setattr(sys, "argv", ["infeed_training.py", *options.split()])
    run_path(str(EXAMPLES / "infeed_training.py"), run_name="__main__")
    errors, within, _, _, *rows = capsys.readouterr().out.splitlines()
    first, last = map(float, re.findall(r"([\d.e-]+) in step", errors))
    assert last < first / 1000
    assert float(within.split()[4]) < 0.01
    cycles = [int(row.split()[1].replace(",", "")) for row in rows]
    assert [row.split()[-1] for row in rows] == ["chip"] * 3 + ["host"] * 2
    assert cycles[4] - cycles[3] > 0.9 * (cycles[3] - cycles[0]) > 0


def test_builder_script(capsys: pytest.CaptureFixture[str]) -> None:
    run_path(str(EXAMPLES / "xla_builder_axpy.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert "reference: [ 1.  3.  5.  7.  9. 11. 13. 15.]" in out
    assert "chip:      [ 1.  3.  5.  7.  9. 11. 13. 15.]" in out


@pytest.mark.parametrize("chip", ["tiny", "small", "tpu_v3"])
@pytest.mark.parametrize("name", ASSEMBLY)
def test_assembly(name: str, chip: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source, binary = EXAMPLES / f"{name}.s", tmp_path / f"{name}.slb"
    assert systolith(capsys, "asm", source, "--chip", chip, "-o", binary).code == 0
    ran = systolith(capsys, "run", binary, "--chip", chip, "--random", 0, "--hostile", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["cycles"] > 0
    printed = systolith(capsys, "disasm", binary)
    assert printed.out == disassemble(load(binary))
    assert assemble(printed.out, load_chip(chip)) == load(binary)


def test_axpy_computes_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a, x, y = rng.standard_normal((), np.float32), *rng.standard_normal((2, 8192), np.float32)
    binary, given, results = (tmp_path / name for name in ("axpy.slb", "in.npz", "out.npz"))
    np.savez(given, arg0=a, arg1=x, arg2=y)
    assert systolith(capsys, "asm", EXAMPLES / "axpy.s", "--chip", "tiny", "-o", binary).code == 0
    ran = systolith(capsys, "run", binary, "--chip", "tiny", "--args", given, "--out", results)
    assert ran.code == 0, ran.err
    with np.load(results) as got:
        assert got["out0"].tobytes() == (a * x + y).tobytes()
