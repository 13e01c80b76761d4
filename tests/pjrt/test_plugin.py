"""The PJRT plugin, as JAX uses it: in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from tests.installed import install

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SMALL = {"SYSTOLITH_CHIP": "tiny", "SYSTOLITH_DEVICES": "2", "SYSTOLITH_PRECISION": "highest"}


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A script of this folder, with the plugin and the CPU."""
    known = {**os.environ, "JAX_PLATFORMS": "systolith,cpu", "PYTHONPATH": str(ROOT), **SMALL, **environment}
    command = [sys.executable, str(HERE / script), *arguments]
    return subprocess.run(command, env=known, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)


@pytest.fixture(scope="module")
def parts() -> subprocess.CompletedProcess[str]:
    """Scripts that ran in one process."""
    return run("parts.py")


@pytest.mark.parametrize(
    "part",
    [
        pytest.param("__main__ ran_programs", id="programs compute what they do on the CPU"),
        pytest.param("tests.pjrt.callbacks main", id="programs call Python"),
        pytest.param("tests.pjrt.behaviour main", id="objects, threads and errors behave as JAX expects"),
    ],
)
def test_a_part_ends_well(part: str, parts: subprocess.CompletedProcess[str]) -> None:
    assert f"{part} ended well" in parts.stdout.splitlines(), parts.stdout + parts.stderr


def test_what_programs_print_is_printed_and_their_process_ends(parts: subprocess.CompletedProcess[str]) -> None:
    assert "sum 15.0" in parts.stdout.splitlines()
    assert parts.returncode == 0, parts.stderr


@pytest.mark.slow
def test_more_programs_compute_what_they_do_on_the_cpu() -> None:
    done = run("programs.py", "slow")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_process_ends_though_a_compilation_was_interrupted() -> None:
    """A thread of jaxlib still waits for it."""
    done = run("interrupted.py")
    assert (done.returncode, done.stdout) == (0, "interrupted 3\n"), done.stdout + done.stderr


@pytest.mark.slow
def test_harnesses_of_jax_give_what_they_do_on_the_cpu() -> None:
    done = run("harnesses.py", "50", JAX_ENABLE_X64="1", SYSTOLITH_CHIP="tpu_v3")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_devices_run_their_parts_of_a_program() -> None:
    done = run("several.py", SYSTOLITH_DEVICES="4")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_two_hundred_programs_leave_nothing() -> None:
    done = run("behaviour.py", "200")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_compiled_program_is_taken_from_the_cache_of_jax(tmp_path: Path) -> None:
    first, second = (run("cached.py", JAX_COMPILATION_CACHE_DIR=str(tmp_path)).stdout.split("|") for _ in range(2))
    assert first[:-1] == second[:-1]
    assert first[0] == "True"
    assert sum(path.name.startswith("jit_") and path.name.endswith("-cache") for path in tmp_path.iterdir()) >= 2
    run("cached.py", JAX_COMPILATION_CACHE_DIR=str(tmp_path), SYSTOLITH_CHIP="small")
    names = {path.name.split("-")[0] for path in tmp_path.iterdir() if path.name.endswith("-cache")}
    files = [path for path in tmp_path.iterdir() if path.name.endswith("-cache")]
    assert len(files) == 2 * len(names), "another chip has other programs"


@pytest.mark.slow
def test_each_of_several_threads_has_its_own_runs_recorded(tmp_path: Path) -> None:
    times = 60
    done = run("recorded.py", str(times), SYSTOLITH_REPORT=str(tmp_path))
    assert done.returncode == 0, done.stderr
    programs = json.loads((tmp_path / "summary.json").read_text())["programs"]
    runs = sorted(line["runs"] for line in programs if "lambda" in line["program"])
    assert runs == [times] * 3 + [times + 1]  # one more: the first call


@pytest.mark.slow
def test_the_example_learns_and_its_runs_are_recorded(tmp_path: Path) -> None:
    """As a user runs it: JAX finds the plugin by its entry point."""
    install(tmp_path, "entry_of_systolith", "", {"jax_plugins": {"systolith": "systolith.pjrt.plugin"}})
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    known = {
        **os.environ,
        "JAX_PLATFORMS": "systolith",
        "SYSTOLITH_REPORT": str(tmp_path / "runs"),
        "PYTHONPATH": paths,
    }
    command = [sys.executable, str(ROOT / "examples" / "train_digits.py")]
    done = subprocess.run(command, env=known, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("on SystolithDevice(id=0, chip=tpu_v3); accuracy 0.")
    assert float(last.removeprefix("accuracy ")) > 0.95
    summary = json.loads((tmp_path / "runs" / "summary.json").read_text())
    step = next(line for line in summary["programs"] if line["program"] == "jit_step")
    assert step["runs"] == 40
    assert summary["cycles"] >= step["total_cycles"] == 40 * step["cycles"]
    record = json.loads((tmp_path / "runs" / step["record"]).read_text())
    assert record["ok"]
    assert record["cycles"] == step["cycles"]


@pytest.mark.slow
def test_generated_text_is_that_of_the_cpu_and_of_a_model_without_a_cache() -> None:
    done = run("generation.py")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_example_generates_text() -> None:
    sizes = "1 2 --count 3 --layers 1 --heads 2 --width 16 --vocabulary 32 --context 8 --top 4"
    done = run("../../examples/generate_text.py", *sizes.split(), JAX_PLATFORMS="systolith")
    assert done.returncode == 0, done.stdout + done.stderr
    first, tokens = done.stdout.splitlines()
    assert first == "on SystolithDevice(id=0, chip=tiny); prompt [1, 2]"
    assert [0 <= int(token) < 32 for token in tokens.split()] == [True] * 3
    refused = run("../../examples/generate_text.py", "99", "--vocabulary", "50", JAX_PLATFORMS="cpu")
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].endswith("error: token ids are 0 to 49")


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
