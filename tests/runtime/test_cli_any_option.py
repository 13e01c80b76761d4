"""Any option of any command with any value: a result, or a refusal of one line."""

from __future__ import annotations

import random
from pathlib import Path

import click
import pytest

from systolith.reports import plot
from systolith.runtime.cli import cli
from tests.runtime.command import systolith
from tests.runtime.command_cases import COMMANDS

VALUES = [
    "", "-", "-1", "0", "1", "3", "1.5", "9" * 5000, "nan", "x", "x" * 5000, "é", "\udcff", "\x1b[31m", ".", "/",
    "/dev/null", "/dev/full", "none/x", "m.hlo", "m.slb", "p.s", "args.npz", "run.json", "chip.toml", "tiny",
    "--help", "a\nb",
]  # fmt: skip
OPTIONS = [
    (name, option)
    for name, command in COMMANDS.items()
    for parameter in cli.commands[command.words.split()[0]].params
    if isinstance(parameter, click.Option)
    for option in parameter.opts
]


@pytest.fixture(autouse=True)
def _one_figure_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "OF_A_RUN", {"utilisation": plot.utilisation})


def assert_a_result_or_one_line(capsys: pytest.CaptureFixture[str], *words: object) -> None:
    """An exception that is no SystolithError comes out here as it is."""
    ran = systolith(capsys, *words)
    assert ran.code in (0, 1, 2)
    if ran.code == 2:
        line, *excerpt = ran.err.splitlines()
        assert line.startswith("systolith: ")
        assert len(line) < 1100
        assert len(excerpt) in (0, 2)


def words_of(name: str, files: Path) -> list[str]:
    return COMMANDS[name].fill(files) + ["-o", "out"] * ("-o" in COMMANDS[name].outputs)


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_an_option_with_any_value(name: str, option: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = random.Random(f"{name} {option}").choice(VALUES)
    assert_a_result_or_one_line(capsys, *words_of(name, files), option, value)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_an_option_with_every_value(name: str, option: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for value in VALUES:
        assert_a_result_or_one_line(capsys, *words_of(name, files), option, value)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_any_input_for_any_other(name: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each file that a command reads replaced by each of another kind."""
    for given in COMMANDS[name].inputs(files):
        for other in sorted(files.iterdir()):
            assert_a_result_or_one_line(
                capsys, *(other if word == str(given) else word for word in words_of(name, files))
            )
