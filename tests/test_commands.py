"""The commands and the Python of the README and the pages, run as they are written, in the order of the page."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import pytest

from systolith import api as sl
from systolith.isa import host_functions, routines
from systolith.reports import plot
from systolith.runtime.jobs.feed_files import FeedFiles
from tests.shell import run_here, words_of
from tests.test_examples import JAX_SCRIPTS, SCRIPTS

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "hw" / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("host", "jax", "reports", "service", "sweeps")),
]
PYTHON = ("README", "host", "jax", "reports", "service", "sweeps")  # those with snippets
COMMAND = re.compile(r"^    (?=(?:systolith|python|pip|make|eval|[A-Z_]+=\S+) )")

MODEL = """\
HloModule jit_mlp

relu {
  v = f32[] parameter(0)
  zero = f32[] constant(0)
  ROOT m = f32[] maximum(v, zero)
}

ENTRY main {
  x = f32[8,32] parameter(0)
  w = f32[32,16] parameter(1)
  d = f32[8,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(mlp)/dot_general"}
  ROOT max.19.1 = f32[8,16] map(d), dimensions={0,1}, to_apply=relu
}
"""
TRAIN = "import jax.numpy as jnp\nprint(jnp.ones((4, 4)) @ jnp.ones((4, 4)))\n"
FILES = {
    "model.hlo": MODEL,
    "train.py": TRAIN,
    "my_chip.toml": 'base = "tpu_v3"\nname = "mine"\n[vmem]\nbytes = "8MiB"\n',
    "table.csv": "component,action,energy\nmxu,mac_bf16,1.0\nhbm,byte,30\nvmem,byte,2\n",
    "net.csv": "Layer, M, N, K,\nFC, 32, 32, 32,\n",
    "scale.cfg": "[architecture_presets]\nArrayHeight : 32\nArrayWidth : 32\nIfmapSramSzkB : 64\nFilterSramSzkB : 64\n"
    "OfmapSramSzkB : 64\nDataflow : ws\nBandwidth : 64\n[run_presets]\nInterfaceBandwidth : USER\n",
}


def commands(text: str) -> Iterator[str]:
    """The lines of indented blocks that are commands, without their remarks; one that goes on goes with it."""
    lines = iter(re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S).splitlines())
    for line in lines:
        if COMMAND.match(line):
            while line.endswith("\\"):
                line = line[:-1] + next(lines)
            yield re.sub(r"(\s{2,}|(?<=\s))#\s.*", "", line).strip()


def snippets(text: str) -> Iterator[str]:
    """Fenced Python, and indented blocks that import or call the API."""
    yield from re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    for block in re.findall(r"(?:^    .*\n)+", text, re.M):
        if re.search(r"import api as sl|^    (?:\w+ = )?sl\.", block, re.M):
            yield re.sub("^    ", "", block, flags=re.M)


def limits(reports: str) -> str:
    """The thresholds that the page shows, for the test's model, whose group has the name of the page's."""
    block = next(b for b in re.findall(r"(?:^(?:    .*)?\n)+", reports, re.M) if 'baseline = "base.json"' in b)
    return re.sub("^    ", "", block, flags=re.M).replace("least = 0.3", "least = 0.0001")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader has: a model, arguments and results, a chip, records of runs."""
    folder = tmp_path_factory.mktemp("reader")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "limits.toml").write_text(limits((ROOT / "docs" / "reports.md").read_text()))
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(dims, np.float32) for dims in ((8, 32), (32, 16)))
    np.savez(folder / "in.npz", arg0=x, arg1=w)
    np.savez(folder / "out.npz", out0=np.maximum(x @ w, 0))
    run("systolith run model.hlo --mode time --json -q > run.json", folder)
    for name in ("a", "b", "base", "wide"):
        (folder / f"{name}.json").write_bytes((folder / "run.json").read_bytes())
    return folder


def run(command: str, folder: Path) -> None:
    """Give a command to a shell, where it has to end well."""
    with started(command, folder) as process:
        printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0, f"{command}\n{printed}"


def started(command: str, folder: Path) -> subprocess.Popen[str]:
    """A shell with a command, in a group of processes of its own."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "HOME": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        ("bash", "-euo", "pipefail", "-c", command), cwd=folder, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def serve(command: str, folder: Path) -> None:
    """Give a command to a shell that has to serve until it is stopped."""
    with started(command, folder) as process:
        assert process.stdout is not None
        limit = Timer(60, os.killpg, (process.pid, signal.SIGKILL))
        limit.start()
        said = ""
        try:
            while not re.search(r"^serving 1 x tpu_v3 at (unix:|127\.0\.0\.1:\d+)", said, re.M):
                line = process.stdout.readline()
                assert line, f"{command}\n{said}"
                said += line
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate()
        finally:
            limit.cancel()


def follow(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command, in a folder that is the working one, too, or see that other tests do."""
    if extra := re.search(r"^pip install 'systolith\[(\w+)\]'$", command):
        assert extra[1] in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    elif target := re.match(r"make ([\w-]+)$", command):
        assert re.search(rf"^{target[1]}:", (ROOT / "Makefile").read_text(), re.M)
    elif script := re.search(r"python examples/(\w+)\.py$", command):
        assert script[1] in SCRIPTS + JAX_SCRIPTS  # which have tests of their own
    elif command.startswith("python -m pytest "):
        assert all((ROOT / path).exists() for path in re.findall(r"tests/\w+", command))  # this is one of them
    elif command.startswith("python -m systolith.hw.fuzz.campaign "):
        run(command.replace(" 1000", " 3"), folder)
    elif command.startswith("systolith serve"):
        serve(command.replace(":8470", ":0"), folder)
    elif command.startswith("systolith sweep"):
        run_here(words_of(f"{command} --jobs 1"), capsys)  # processes of sweeps have tests of their own
    elif here := words_of(command):
        run_here(here, capsys)
    else:
        run(command, folder)


def own(page: Path) -> list[str]:
    """The commands of a page that are on none before it."""
    before = {c for other in PAGES[: PAGES.index(page)] for c in commands(other.read_text())}
    return [command for command in commands(page.read_text()) if command not in before]


def pages() -> Iterator[object]:
    for page in PAGES:
        for slow in (False, True):
            if any(is_slow(c) is slow for c in own(page)):
                marks = [pytest.mark.slow] if slow else []
                name = page.relative_to(ROOT).with_suffix("").as_posix()
                yield pytest.param(page, slow, id=name + ("-slow" if slow else ""), marks=marks)


def is_slow(command: str) -> bool:
    return any(part in command for part in ("lockstep", "JAX_PLATFORMS", "systolith.hw."))


@pytest.mark.parametrize(("page", "slow"), list(pages()))
def test_the_commands_of_the_page_work(
    page: Path,
    slow: bool,
    prepared: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for path in prepared.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / ".config" / "fish" / "completions").mkdir(parents=True)
    found = [command for command in own(page) if is_slow(command) is slow]
    assert found
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(plot, "OF_A_RUN", {"utilisation": plot.utilisation})
    for command in found:
        follow(command, tmp_path, capsys)


def test_what_is_a_command() -> None:
    text = "Words.\n\n    systolith run a.hlo --x 1 \\\n        --y     # a remark\n    (no command)\n\n    make demo\n"
    assert list(commands(text)) == ["systolith run a.hlo --x 1         --y", "make demo"]
    assert len(list(commands((ROOT / "README.md").read_text()))) > 30


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of a service."""
    command = [sys.executable, "-m", "systolith", "serve", f"unix:{tmp_path / 'socket'}", "--chip", "tiny"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        yield said.split(" at ")[1].strip()
        process.terminate()


@pytest.mark.parametrize("name", PYTHON)
def test_the_python_of_the_page_works(
    name: str, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    jax = pytest.importorskip("jax")
    page = next(page for page in PAGES if page.stem == name)
    for path in ("run.json", "in.npz"):
        (tmp_path / path).write_bytes((prepared / path).read_bytes())
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    study = (ROOT / "examples" / "study.toml").read_text()
    (tmp_path / "study.toml").write_text(study.replace('["default", "highest"]', '"default"'))
    (tmp_path / "mlp_infer.hlo").symlink_to(ROOT / "examples" / "mlp_infer.hlo")
    monkeypatch.chdir(tmp_path)
    given = np.load(ROOT / "examples" / "mlp_infer.in.npz")
    builder = sl.XlaBuilder("double")
    builder.add(*[builder.parameter(0, sl.make_shape("f32", (2,)), "x")] * 2)
    if name == "service":
        monkeypatch.setattr(sl, "connect", partial(sl.connect, request.getfixturevalue("served")))
    monkeypatch.setattr(sl, "sweep", partial(sl.sweep, workers=1))
    points = ((1, 9), (2, 6), (3, 5))
    names = {
        "sl": sl,
        "jax": jax,
        "arrays": [given[f"arg{n}"] for n in range(len(given.files))],
        "rows": [{"area": a, "cycles": c, "name": f"p{a}", "parameter": "vmem.bytes", "value": a} for a, c in points],
        "computation": builder.build(),
        "table": np.arange(9),
        "text": "    halt\n",
        **training(jax),
    }
    found = list(snippets(page.read_text()))
    assert found
    try:
        for text in found:
            exec(compile(text, str(page), "exec"), names)
    finally:
        host_functions.unregister("lookup")
        routines.unregister("scaled_sum")


def training(jax: Any) -> dict[str, Any]:
    """A step of training, and what it is called with."""

    def train_step(weights: Any, batch: Any, lr: float) -> tuple[Any, Any]:
        loss, slope = jax.value_and_grad(lambda w: ((batch @ w) ** 2).mean())(weights)
        return weights - lr * slope, loss

    weights, batch = np.ones((8, 4), np.float32), np.ones((2, 8), np.float32)
    return {"client": sl.Client("tiny"), "train_step": train_step, "weights": weights, "batch": batch}


def test_the_times_of_the_host_on_the_page_are_some(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "host.md").read_text()
    path = tmp_path / "times.json"
    path.write_text(next(b for b in re.findall(r"(?:^    .*\n)+", page, re.M) if '{"infeed"' in b))
    times = FeedFiles(None, path).times
    assert dict(times.infeed) == {"": [(0, 33280), (20000, 33280)], "labels": [(0, 512), (20000, 512)]}


def test_a_command_that_fails_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failing = (
        "systolith ops missing.hlo",
        "systolith --version; systolith ops missing.hlo",
        "systolith --version; false",
        "systolith serve --chip missing",
        "make nothing-of-this-name",
        "python examples/missing.py",
    )
    for command in failing:
        with pytest.raises(AssertionError):
            follow(command, tmp_path, capsys)
