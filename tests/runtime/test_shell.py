"""The log, completion in shells, the manual page, the version."""

import logging
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from systolith import api as sl
from systolith.runtime.cli import cli
from systolith.runtime.commands.man_page import page
from tests.corpus.load import load

RUN = ["run", str(load("mlp_infer").path), "--chip", "small", "--mode", "time", "-q"]


def stderr(*arguments: str) -> str:
    result = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert result.exception is None, result.exception
    return result.stderr


def test_the_log_says_as_much_as_is_asked_for() -> None:
    assert stderr(*RUN) == ""
    assert stderr("-q", *RUN) == ""
    once = stderr("-v", *RUN)
    assert [line.split(": ")[1] for line in once.splitlines()] == ["reading", "compiling", "simulating", "comparing"]
    twice = stderr("-vv", *RUN)
    assert " systolith.passes: DeadCode changed the module in " in twice
    assert stderr(*RUN) == ""


def test_the_version() -> None:
    assert sl.__version__ == version("systolith")
    code = "import sys; sys.argv = ['systolith', '--version']; from systolith.runtime.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"systolith {sl.__version__}\n"


def complete(words: str, number: int) -> list[str]:
    """The completions that bash would offer."""
    about = {"_SYSTOLITH_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    code = "import sys; sys.argv[0] = 'systolith'; from systolith.runtime.cli import main; main()"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=os.environ | about, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_shells_complete_commands_options_and_choices() -> None:
    assert complete("systolith re", 1) == ["plain,report"]
    assert complete("systolith report --fo", 2) == ["plain,--format"]


def test_shells_complete_chips_by_the_names_of_presets_and_files() -> None:
    assert complete("systolith run --chip tpu_v6", 3) == ["file,tpu_v6", "plain,tpu_v6e"]
    assert complete("systolith chips ti", 2) == ["file,ti", "plain,tiny"]


def in_shell(shell: str, text: str, home: Path) -> list[str]:
    """The words that a shell prints."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    about = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(home)}
    done = subprocess.run([program, "-c", text], env=os.environ | about, capture_output=True, text=True)
    return done.stdout.split()


SHELLS = {
    "bash": 'eval "$(_SYSTOLITH_COMPLETE=bash_source systolith)"; COMP_WORDS=(systolith run --mode "");'
    ' COMP_CWORD=3; _systolith_completion systolith; printf "%s\\n" "${COMPREPLY[@]}"',
    "zsh": "autoload -Uz compinit && compinit -u -D; compdef() { print -r -- $2 $1; };"
    ' compadd() { print -rl -- ${(P)@[-1]}; }; eval "$(_SYSTOLITH_COMPLETE=zsh_source systolith)";'
    ' words=(systolith run --mode ""); CURRENT=4; _systolith_completion',
    "fish": '_SYSTOLITH_COMPLETE=fish_source systolith | source; complete -C "systolith run --mode "',
}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_completes_in_that_shell(shell: str, tmp_path: Path) -> None:
    assert in_shell(shell, SHELLS[shell], tmp_path)[-3:] == ["full", "time", "values"]


def test_bash_offers_presets_beside_files(tmp_path: Path) -> None:
    """Its script forgets what came before a file."""
    text = "compopt() { :; }; " + SHELLS["bash"].replace('--mode ""', "--chip tpu_v5")
    assert in_shell("bash", text, tmp_path) == ["tpu_v5e", "tpu_v5p"]


def test_the_manual_page_has_every_command_and_option() -> None:
    text = CliRunner().invoke(cli, ["man"], standalone_mode=False, prog_name="systolith").stdout.replace("\\-", "-")
    with click.Context(cli, info_name="systolith") as root:
        for name in cli.list_commands(root):
            command = cli.get_command(root, name)
            assert command is not None
            assert f".SS systolith {name} " in text
            for parameter in command.params:
                if isinstance(parameter, click.Option):
                    assert parameter.opts[0] in text


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_reads_the_manual_page_without_a_warning(tmp_path: Path) -> None:
    with click.Context(cli, info_name="systolith") as root:
        (tmp_path / "systolith.1").write_text("\n".join(page(root)) + "\n")
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "systolith.1"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "simulate it" in done.stdout


@pytest.mark.parametrize("option", [(), ("-q",), ("-vv",)])
def test_a_command_leaves_the_log_as_it_was(option: tuple[str, ...]) -> None:
    """A program that runs commands in its own process keeps its handlers and levels."""
    log = logging.getLogger("systolith")
    before = log.level, log.handlers[:]
    stderr(*option, "chips", "tiny")
    assert (log.level, log.handlers) == before
