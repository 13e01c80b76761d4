"""Run the command line in this process."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from systolith.runtime import cli


@dataclass(frozen=True)
class Ran:
    """The outcome of a command."""

    code: int
    out: str
    err: str


def systolith(capsys: pytest.CaptureFixture[str], *words: object) -> Ran:
    """`systolith WORDS...`: exit code and output."""
    old, sys.argv = sys.argv, ["systolith", *map(str, words)]
    code = 0
    try:
        cli.main()
    except SystemExit as done:
        code = int(done.code or 0)
    finally:
        sys.argv = old
    printed = capsys.readouterr()
    return Ran(code, printed.out, printed.err)
