"""Lines of a shell that run `systolith` and nothing else, in this process: a new one imports modules for a second."""

from __future__ import annotations

import shlex
from itertools import groupby
from pathlib import Path

import pytest

from tests.runtime.command import systolith


def words_of(text: str) -> list[list[str]]:
    """Words of the commands of some lines, if all are systolith's, one after another, with output to files at most;
    else none.
    """
    lexer = shlex.shlex(text.replace("\\\n", " ").strip().replace("\n", ";"), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found = [list(words) for ends, words in groupby(lexer, lambda word: word == ";") if not ends]
    marks = {word for words in found for word in words if set(word) <= set("();<>|&")}
    return found if marks <= {">"} and all(words[0] == "systolith" for words in found) else []


def run_here(commands: list[list[str]], capsys: pytest.CaptureFixture[str]) -> str:
    """Run commands that have to end well; what they print."""
    printed = ""
    for _, *words in commands:
        words, into = (words[:-2], words[-1]) if words[-2:-1] == [">"] else (words, None)
        ran = systolith(capsys, *words)
        assert ran.code == 0, f"{words}\n{ran.err}"
        printed += ran.err
        if into:
            Path(into).write_text(ran.out)
        else:
            printed += ran.out
    return printed
