"""`lockstep --wave`: its file is whole or not there; a file that cannot be written is refused before the first run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import pytest

from systolith.hw.compare import Difference
from systolith.hw.lockstep import Case, Result, Wave
from systolith.hw.model import ModelError
from systolith.isa.chip import Chip
from systolith.runtime.jobs import lockstep
from tests.programs.cases import HERE
from tests.runtime.command import systolith

BITS = HERE / "bits.s"
DIFFERENCE = Difference("start", 1000, "vpu", "", "", "1000", "1001")


class Core:
    """Both sides, without a build: writes waves by the file's name, as Verilator does, then acts as a test says."""

    difference: Difference | None = None
    after: Callable[[], None] = staticmethod(lambda: None)
    runs: list[Wave | None] = []  # noqa: RUF012 - each test has a list of its own

    def __init__(self, chip: Chip, wave: Wave | None = None) -> None:
        self.chip, self.wave = chip, wave

    def __enter__(self) -> Core:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if self.wave:
            with self.wave.path.open("ab") as file:
                file.write(b", closed")

    def run(self, case: Case) -> Result:
        self.runs.append(self.wave)
        if self.wave:
            self.wave.path.write_text("waves")
            self.after()
        return Result(case.program.name, self.chip, 10, 3, 2, 5, 0.5, self.difference)


@pytest.fixture(autouse=True)
def core(monkeypatch: pytest.MonkeyPatch) -> type[Core]:
    """Stands for the simulator and the RTL."""
    monkeypatch.setattr(Core, "runs", [])
    monkeypatch.setattr(lockstep, "Lockstep", Core)
    monkeypatch.setattr(lockstep, "has_verilator", lambda: True)
    return Core


@pytest.mark.parametrize("suffix", [".vcd", ".fst"])
@pytest.mark.parametrize("difference", [None, DIFFERENCE])
def test_waves_are_there_once_they_are_whole(
    suffix: str,
    difference: Difference | None,
    core: type[Core],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    wave = tmp_path / f"waves{suffix}"
    seen: list[bool] = []
    monkeypatch.setattr(core, "difference", difference)
    monkeypatch.setattr(core, "after", staticmethod(lambda: seen.append(wave.exists())))
    ran = systolith(capsys, "lockstep", BITS, "--random", 0, "--wave", wave)
    assert ran.code == (1 if difference else 0)
    assert seen == [False]
    assert wave.read_text() == "waves, closed"
    assert os.listdir(tmp_path) == [wave.name]
    first, second = core.runs
    assert first is None
    assert second is not None
    assert (second.first, second.last) == ((800, 1200) if difference else (0, 1 << 62))


def fail() -> None:
    raise ModelError("the simulation of the core ended with code 9")


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("stop", "code"), [(fail, 2), (interrupt, 130)])
@pytest.mark.parametrize("before", [None, "older waves"])
def test_nothing_is_left_of_waves_that_are_not_whole(
    stop: Callable[[], None],
    code: int,
    before: str | None,
    core: type[Core],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    wave = tmp_path / "waves.vcd"
    if before:
        wave.write_text(before)
    monkeypatch.setattr(core, "after", staticmethod(stop))
    ran = systolith(capsys, "lockstep", BITS, "--random", 0, "--wave", wave)
    assert ran.code == code
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == ({wave.name: before} if before else {})


def test_waves_that_cannot_be_written_are_refused_before_the_first_run(
    core: type[Core], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.vcd")
    Path("folder.vcd").mkdir()
    for wave, why in {
        "waves": "waves are written to .fst or .vcd files",
        "waves.txt": "waves are written to .fst or .vcd files",
        ".vcd": "waves are written to .fst or .vcd files",
        "/dev/null": "is no regular file",
        "pipe.vcd": "is no regular file",
        "folder.vcd": "is a folder",
        "nowhere/waves.vcd": "does not exist",
    }.items():
        ran = systolith(capsys, "lockstep", "missing.hlo", "--random", 0, "--wave", wave)
        assert (ran.code, core.runs) == (2, [])
        assert ran.err.startswith(f"systolith: {wave}: "), ran.err
        assert why in ran.err
    assert sorted(os.listdir()) == ["folder.vcd", "pipe.vcd"]
