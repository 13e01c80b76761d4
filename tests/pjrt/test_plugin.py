"""The PJRT plugin, as JAX uses it: each test is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SMALL = {"SYSTOLITH_CHIP": "tiny", "SYSTOLITH_DEVICES": "2", "SYSTOLITH_PRECISION": "highest"}


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A script of this folder, with the plugin and the CPU."""
    known = {**os.environ, "JAX_PLATFORMS": "systolith,cpu", **SMALL, **environment}
    command = [sys.executable, str(HERE / script), *arguments]
    return subprocess.run(command, env=known, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)


def test_programs_compute_what_they_do_on_the_cpu() -> None:
    done = run("programs.py", "fast")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_more_programs_compute_what_they_do_on_the_cpu() -> None:
    done = run("programs.py", "slow")
    assert done.returncode == 0, done.stdout + done.stderr


def test_objects_threads_and_errors_behave_as_jax_expects() -> None:
    done = run("behaviour.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "good"


def test_the_entry_point_is_the_plugin() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["jax_plugins"]
    assert callable(import_module(points["systolith"]).initialize)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SYSTOLITH_CHIP", "no_chip", "SYSTOLITH_CHIP: "),
        ("SYSTOLITH_DEVICES", "0", "SYSTOLITH_DEVICES: '0': must be a number of devices from 1 to 4096"),
        ("SYSTOLITH_PRECISION", "best", "SYSTOLITH_PRECISION: precision 'best': must be one of"),
    ],
)
def test_a_bad_setting_is_refused_by_its_name(name: str, value: str, said: str) -> None:
    done = run("programs.py", "fast", **{name: value})
    assert done.returncode != 0
    assert said in done.stderr.splitlines()[-1]
