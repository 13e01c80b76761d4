"""Standard output of the commands, and how they end: exit codes, and one line for an error."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path

import click
import pytest

from systolith.isa.errors import SystolithError
from systolith.runtime.commands.exits import TRACEBACK, exit_code
from systolith.runtime.jobs import pass_check
from systolith.runtime.jobs.pass_check import Compared
from tests.runtime.command import Ran, systolith
from tests.runtime.command_cases import COMMANDS

PRINTS = [name for name in COMMANDS if "-o" not in COMMANDS[name].outputs or name == "opt"]


def printing_to(stream: TextIOWrapper, capsys: pytest.CaptureFixture[str], *words: object) -> Ran:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", stream)
        return systolith(capsys, *words)


def closed_pipe() -> TextIOWrapper:
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, "w", encoding="utf-8")


@pytest.mark.parametrize("name", PRINTS)
def test_a_reader_that_goes_away_changes_nothing(name: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closed_pipe() as stream:
        ran = printing_to(stream, capsys, *COMMANDS[name].fill(files))
    assert ran.code == 0, ran
    assert "Broken pipe" not in ran.err


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["--version"]])
def test_a_reader_of_help_that_goes_away_is_no_failure(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with closed_pipe() as stream:
        assert printing_to(stream, capsys, *words).code == 0


FAILING = {
    "--expect": ["run", "m.hlo", "--chip", "tiny", "--args", "args.npz", "--expect", "bad.npz"],
    "--expect --json": ["run", "m.hlo", "--chip", "tiny", "--args", "args.npz", "--expect", "bad.npz", "--json"],
    "opt --check": ["opt", "m.hlo", "--passes", "algsimp", "--check", "1"],
}


@pytest.mark.parametrize("name", FAILING)
def test_a_failed_check_is_one_whoever_reads(
    name: str, files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    monkeypatch.setattr(pass_check, "compare_modules", lambda *_: Compared(1, 0, "all wrong"))
    with closed_pipe() as stream:
        ran = printing_to(stream, capsys, *FAILING[name])
    assert ran.code == 1
    assert "check failed" in ran.err


@pytest.mark.parametrize("name", [*PRINTS, "help"])
def test_a_full_standard_output_is_said_in_one_line(name: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open("/dev/full", "w") as stream:
        ran = printing_to(stream, capsys, *(COMMANDS[name].fill(files) if name in COMMANDS else ["--help"]))
    assert ran.code == 2
    assert ran.err.splitlines()[-1] == "systolith: standard output: No space left on device"


@pytest.mark.parametrize("name", PRINTS)
def test_an_encoding_that_lacks_a_character_gets_an_escape(
    name: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = files / "printed"
    with printed.open("w", encoding="ascii") as stream:
        ran = printing_to(stream, capsys, *COMMANDS[name].fill(files))
    assert ran.code == 0, ran
    assert printed.read_bytes().isascii()
    if name == "run":
        assert "\\xb5s" in printed.read_text()


def raises(error: BaseException) -> Callable[[], int]:
    def command() -> int:
        raise error

    return command


ENDS = {
    "bad input": (SystolithError("what\nand where"), 2, "systolith: what and where"),
    "usage": (click.UsageError("no such option"), 2, "systolith: no such option"),
    "no memory": (MemoryError("Unable to allocate 7 TiB"), 2, "systolith: out of memory: Unable to allocate 7 TiB"),
    "no memory, no words": (MemoryError(), 2, "systolith: out of memory: this needs more than the machine has"),
    "interrupt": (click.Abort(), 130, "systolith: interrupted"),
    "interrupt, with words": (click.Abort("3 of 4"), 130, "systolith: interrupted: 3 of 4"),
    "fault": (KeyError("w1"), 3, "systolith: fault of systolith: KeyError: 'w1'"),
    "fault without words": (AssertionError(), 3, "systolith: fault of systolith: AssertionError"),
    "recursion": (RecursionError("too deep"), 3, "systolith: fault of systolith: RecursionError: too deep"),
    "file": (FileNotFoundError(2, "No such file", "x"), 3, "systolith: fault of systolith: FileNotFoundError"),
}


@pytest.mark.parametrize("name", ENDS)
def test_every_end_has_its_code_and_one_line(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error, code, line = ENDS[name]
    monkeypatch.delenv(TRACEBACK)
    assert exit_code(raises(error)) == code
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(line)
    assert (TRACEBACK in said) == (code == 3)


def test_a_fault_is_raised_where_its_traceback_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRACEBACK, "1")
    with pytest.raises(KeyError):
        exit_code(raises(KeyError("w1")))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_fault_of_any_command_is_one_line(
    name: str, files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> object:
        raise KeyError("w1")

    # Imported while names are patched, it would keep them for later tests.
    import_module("systolith.runtime.inputs.stages")
    monkeypatch.delenv(TRACEBACK)
    for where in (
        "isa.chip.load_chip", "isa.binary.load", "runtime.inputs.sources.read_source",
        "runtime.inputs.sources.read_assembly", "isa.chip.preset_names", "reports.run_data.load_run",
    ):  # fmt: skip
        monkeypatch.setattr(f"systolith.{where}", fails)
    output = ["-o", str(files / "out")] if "-o" in COMMANDS[name].outputs else []
    ran = systolith(capsys, *COMMANDS[name].fill(files), *output)
    assert ran.code == 3
    (line,) = ran.err.splitlines()
    assert line.startswith("systolith: fault of systolith: KeyError: 'w1'")
