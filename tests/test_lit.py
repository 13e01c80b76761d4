"""Files of HLO and tile IR with the passes to run on them and the expected output: see `tests/lit/`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "tests" / "lit"
LIT = (sys.executable, "-c", "from lit.main import main; main()", "-v", "-j1")


def test_files_of_passes() -> None:
    ran = subprocess.run((*LIT, HERE), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert ran.returncode == 0, ran.stdout


def test_a_file_whose_checks_do_not_match_fails(tmp_path: Path) -> None:
    config = (HERE / "lit.cfg.py").read_text().replace("Path(__file__).resolve().parents[2]", f"Path({str(ROOT)!r})")
    (tmp_path / "lit.cfg.py").write_text(config)
    head = "// RUN: systolith opt %s | filecheck %s\n"
    module = "HloModule m\nENTRY e { ROOT x = f32[2] parameter(0) }\n"
    (tmp_path / "good.hlo").write_text(f"{head}// CHECK: ROOT x\n{module}")
    (tmp_path / "bad.hlo").write_text(f"{head}// CHECK: ROOT y\n{module}")
    (tmp_path / "broken.hlo").write_text(f"{head}// CHECK: ROOT x\nHloModule m\n")
    ran = subprocess.run((*LIT, tmp_path), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert ran.returncode == 1
    for name, outcome in (("good", "PASS"), ("bad", "FAIL"), ("broken", "FAIL")):
        assert f"{outcome}: systolith :: {name}.hlo" in ran.stdout
