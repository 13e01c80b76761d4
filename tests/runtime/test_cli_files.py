"""Files of the commands: no output overwrites another one or an input, and none is left behind cut."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

import pytest

from tests.runtime.command import systolith
from tests.runtime.command_cases import COMMANDS

OUTPUTS = [(name, option) for name, command in COMMANDS.items() for option in command.outputs]
ONTO = [(n, option, word) for n, option in OUTPUTS for word in COMMANDS[n].words.split() if word.startswith("{")]


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def no_room(size: int) -> Iterator[None]:
    """No file can grow beyond `size` bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # Python would keep modules that are cut off
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = kept


@pytest.mark.parametrize(("name", "option", "word"), ONTO)
@pytest.mark.parametrize("spelling", ["as it is", "relative", "link"])
def test_an_output_onto_an_input_is_refused(
    name: str, option: str, word: str, spelling: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = files / word[1:-1]
    if spelling == "relative":
        path = Path("..") / files.name / path.name
    elif spelling == "link":
        (files / "link").symlink_to(path)
        path = files / "link"
    before = contents(files)
    ran = systolith(capsys, *COMMANDS[name].fill(files), option, path)
    assert ran.code == 2
    (line,) = ran.err.splitlines()
    assert f"{option} would overwrite" in line
    assert contents(files) == before


@pytest.mark.parametrize(("one", "other"), list(combinations(COMMANDS["run"].outputs, 2)))
def test_two_outputs_of_one_name_are_refused(
    one: str, other: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "link").symlink_to("out")
    before = contents(files)
    for path in ("out", files / "out", "link"):
        ran = systolith(capsys, *COMMANDS["run"].fill(files), one, "out", other, path)
        assert ran.code == 2
        assert one in ran.err
        assert other in ran.err
        assert contents(files) == before


def test_two_outputs_may_go_to_one_device(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [w for option in COMMANDS["run"].outputs for w in (option, "/dev/null")]
    assert systolith(capsys, *COMMANDS["run"].fill(files), *words).code == 0


@pytest.mark.parametrize("file", ["program.s", "canonical.hlo"])
def test_dumps_overwrite_neither_the_input_nor_the_binary(
    file: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "m.hlo").rename(files / "canonical.hlo")
    before = contents(files)
    folder, output = (files / "dumps", "dumps/program.s") if file == "program.s" else (files, "new.slb")
    folder.mkdir(exist_ok=True)
    words = ["canonical.hlo", "--chip", "tiny", "-o", output, "--dump-dir", folder]
    ran = systolith(capsys, "compile", *words)
    assert ran.code == 2
    assert f"--dump-dir's {file}" in ran.err
    assert contents(files) == before


FULL = [*OUTPUTS, ("compile", "--dump-dir")]


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize(("name", "option"), FULL)
def test_a_full_disk_leaves_no_cut_file(
    name: str, option: str, there: bool, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether the file is new or there before."""
    out = files / "out"
    if there and option != "--dump-dir":
        out.write_text("old")
    words = [option, out] if option != "--dump-dir" else [option, out, "-o", files / "new.slb"]
    before = contents(files)
    command = COMMANDS[name].fill(files)
    with no_room(16):
        ran = systolith(capsys, *command, *words)
    assert ran.code == 2, ran
    (line,) = ran.err.splitlines()
    assert "File too large" in line
    assert contents(files) == before


@pytest.mark.parametrize("path", ["x" * 300, "loop", "m.hlo/x", "none/x"])
@pytest.mark.parametrize(("name", "option"), OUTPUTS)
def test_an_impossible_output_is_refused(
    name: str, option: str, path: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "loop").symlink_to("loop")
    ran = systolith(capsys, *COMMANDS[name].fill(files), option, files / path)
    assert ran.code == 2
    (line,) = ran.err.splitlines()
    assert path in line


@pytest.mark.parametrize("path", ["x" * 300, "loop", "m.hlo/x", "none", "."])
@pytest.mark.parametrize("name", [n for n in COMMANDS if "{" in COMMANDS[n].words])
def test_an_impossible_input_is_refused(name: str, path: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each file that a command reads, in turn."""
    (files / "loop").symlink_to("loop")
    output = ["-o", files / "out"] if "-o" in COMMANDS[name].outputs else []
    words = COMMANDS[name].fill(files)
    for given in COMMANDS[name].inputs(files):
        ran = systolith(capsys, *(files / path if w == str(given) else w for w in words), *output)
        assert ran.code == 2, ran
        (line,) = ran.err.splitlines()
        assert str(files / path) in line
