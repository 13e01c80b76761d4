"""The distributions: a wheel and an sdist that hold what a user needs and no more, and a wheel that works by itself."""

from __future__ import annotations

import email
import email.message
import json
import os
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

from systolith.hw.toolchain import has_verilator

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
AREAS = ("isa", "sim", "compiler", "hw", "runtime", "reports")
DOT = """HloModule dot

ENTRY main {
  x = f32[16,24] parameter(0)
  w = f32[24,8] parameter(1)
  ROOT d = f32[16,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def _run(*command: str | Path, cwd: Path, given: str = "", **variables: str) -> str:
    """The output of a command that must end well, with no way to this checkout but its arguments and its input."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON") and k != "VIRTUAL_ENV"} | variables
    done = subprocess.run(command, cwd=cwd, env=environment, input=given, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist, as the build backend makes them of this checkout."""
    folder = tmp_path_factory.mktemp("built")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    _run(*pip, "--target", folder / "tools", *PROJECT["build-system"]["requires"], cwd=folder)
    _run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT, PYTHONPATH=str(folder / "tools"))
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def _names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return sorted(archive.namelist())


@pytest.fixture(scope="module")
def bare(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that has the wheel and its dependencies; of this checkout it sees nothing."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "--python",
        python,
        "install",
        "--no-compile",
    )
    _run(*pip, "--no-deps", "--no-index", built[0], cwd=folder)
    places = {str(Path(np.__file__).parents[1]), *(p for p in sys.path if p.endswith("site-packages"))}
    site = next((folder / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text("\n".join(sorted(places)) + "\n")
    show = "import sys; from systolith.hw import model; print(model.__file__, *sys.path, sep='\\n')"
    found, *path = _run(python, "-c", show, cwd=folder).split("\n")
    assert found.startswith(str(site))
    assert not [p for p in path if Path(p).is_relative_to(ROOT) and "site-packages" not in p]
    return folder / "bin"


def test_wheel_holds_what_is_needed_and_no_more(built: tuple[Path, Path]) -> None:
    names = _names(built[0])
    info = f"systolith-{PROJECT['project']['version']}.dist-info"
    tops = {"/".join(name.split("/")[:2]) for name in names}
    parts = {f"systolith/{part}" for part in (*AREAS, "pjrt", "api.py", "__main__.py", "docs", "examples")}
    assert tops == parts | {
        f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses")
    }
    needed = [f"systolith/{package}/py.typed" for package in (*AREAS, "pjrt")]
    needed += ["systolith/hw/rtl/core.sv", "systolith/hw/gen/systolith_pkg.sv", "systolith/hw/sim/main.cpp"]
    needed += ["systolith/isa/chips/tiny.toml", "systolith/reports/templates/report.html"]
    needed += ["systolith/docs/isa.md", "systolith/docs/operations.md", "systolith/examples/mlp_infer.hlo"]
    assert not set(needed) - set(names)
    suffixes = {Path(name).suffix for name in names if not name.startswith(info)}
    known = ".py .typed .toml .html .css .js .sv .svh .vlt .cpp .h .md .s .hlo .npz .proto"
    assert suffixes == set(known.split())
    assert not [name for name in names if "/tb/" in name or "/fuzz/" in name or "test" in Path(name).name]


def test_sdist_holds_the_checkout(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert {"PKG-INFO", "LICENSE", "README.md", "pyproject.toml", "Makefile", "tests/conftest.py"} <= names
    assert not [name for name in names if name.startswith(("build/", "dist/", ".venv")) or name.endswith(".pyc")]


@pytest.mark.slow
def test_the_sdist_makes_the_same_wheel(built: tuple[Path, Path], tmp_path: Path) -> None:
    wheel, sdist = built
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "sdist", filter="data")
    (source,) = (tmp_path / "sdist").iterdir()
    again, tools = tmp_path / "again", str(wheel.parent / "tools")
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", again, cwd=source, PYTHONPATH=tools)
    assert _names(next(again.iterdir())) == _names(wheel)


def test_metadata_is_whole(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("/METADATA"))
        said: email.message.Message = email.message_from_bytes(archive.read(name))
        licence = archive.read(name.replace("METADATA", "licenses/LICENSE")).decode()
    project = PROJECT["project"]
    assert (said["Name"], said["Version"], said["Summary"]) == (
        project["name"],
        project["version"],
        project["description"],
    )
    assert (said["License-Expression"], said["License-File"]) == ("Apache-2.0", "LICENSE")
    assert "Apache License" in licence
    assert said["Description-Content-Type"] == "text/markdown"
    assert said.get_payload() == (ROOT / "README.md").read_text()
    assert said["Requires-Python"] == project["requires-python"]
    assert said.get_all("Provides-Extra") == sorted(project["optional-dependencies"])


SEVERAL = """
import shlex, sys
from contextlib import redirect_stdout
from systolith.runtime.cli import cli

for line in sys.stdin.read().splitlines():
    words, _, into = line.partition(" > ")
    with open(into or "printed", "w") as file, redirect_stdout(file):
        assert not cli.main(shlex.split(words), "systolith", standalone_mode=False), words
"""


def test_every_command_works_from_the_wheel(bare: Path, tmp_path: Path) -> None:
    """The first ones as processes, the others in one."""
    (tmp_path / "dot.hlo").write_text(DOT)
    assert "lockstep" in _run(bare / "python", "-m", "systolith", "--help", cwd=tmp_path)
    assert _run(bare / "systolith", "--version", cwd=tmp_path).split()[-1] == PROJECT["project"]["version"]
    mlp = next(bare.parent.glob("lib/python*/site-packages/systolith/examples")) / "mlp_infer"
    lines = (
        "chips > chips",
        "run dot.hlo --chip tiny --random 0 --check --json --report one.html --trace trace.json > run.json",
        "report run.json run.json -o both.html",
        "compile dot.hlo --chip tiny -o dot.slb --dump-dir stages",
        "disasm dot.slb > dot.s",
        "asm dot.s -o again.slb",
        "opt dot.hlo --passes algsimp,dce > opt",
        "cost dot.hlo --chip tiny > cost",
        "explain dot.hlo --chip tiny > explain",
        f"run {mlp}.hlo --args {mlp}.in.npz --expect {mlp}.out.npz > mlp",
    )
    _run(bare / "python", "-c", SEVERAL, cwd=tmp_path, given="\n".join(lines))
    assert json.loads((tmp_path / "run.json").read_text())["ok"]
    assert (tmp_path / "again.slb").read_bytes() == (tmp_path / "dot.slb").read_bytes()
    for name, part in (
        ("chips", "tpu_v3"), ("both.html", "</html>"), ("opt", "dot"), ("cost", "FLOP"), ("explain", "dot"),
        ("mlp", "mlp"),
    ):  # fmt: skip
        assert part in (tmp_path / name).read_text()


@pytest.mark.skipif(not has_verilator(), reason="Verilator is not installed")
def test_lockstep_works_from_the_wheel(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "dot.hlo").write_text(DOT)
    command = "lockstep dot.hlo --chip tiny --random 0 --json"
    found = json.loads(_run(bare / "systolith", *command.split(), cwd=tmp_path))
    assert found["equal"]
    assert not list(bare.parent.rglob("*.build"))
