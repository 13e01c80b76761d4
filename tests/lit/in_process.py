"""A format of lit that runs `systolith` and `filecheck` in its own process: a new Python for each would take seconds.

RUN lines have these commands only, with pipes between them, `not` before one that must fail, and `2>&1`.
"""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby

from filecheck.matcher import Matcher
from filecheck.options import parse_argv_options
from lit import Test, TestRunner
from lit.formats import FileBasedTest
from lit.LitConfig import LitConfig

from systolith.runtime.cli import cli
from systolith.runtime.commands.exits import exit_code

PLACE = re.compile(r"^%dbg\([^)]*\)\s*(?:'')?\s*")
"""Lit's mark of a RUN line before its command."""


class InProcess(FileBasedTest):  # type: ignore[misc]  # lit has no types
    """The format."""

    def execute(self, test: Test.Test, lit_config: LitConfig) -> Test.Result:
        script = TestRunner.parseIntegratedTestScript(test)
        if isinstance(script, Test.Result):
            return script
        substitutions = TestRunner.getDefaultSubstitutions(test, *TestRunner.getTempPaths(test))
        for line in TestRunner.applySubstitutions(script, substitutions):
            command = PLACE.sub("", line)
            code, said = pipeline(command)
            if code:
                return Test.Result(Test.FAIL, f"{command}\nexit code {code}\n{said}")
        return Test.Result(Test.PASS, "")


def pipeline(line: str) -> tuple[int, str]:
    """Run the commands of a line: the first exit code that is not 0, and all that was printed on standard error."""
    words = shlex.split(line)
    text, said = "", ""
    for is_pipe, part in groupby(words, lambda word: word == "|"):
        if is_pipe:
            continue
        code, text, errors = _command(list(part), text)
        said += errors
        if code:
            return code, said + text
    return 0, said


def _command(words: list[str], given: str) -> tuple[int, str, str]:
    """One command: its exit code, and its output."""
    both = "2>&1" in words
    words = [word for word in words if word != "2>&1"]
    fails = words[0] == "not"
    tool, *arguments = words[fails:]
    with _streams(given) as (out, err):
        code = TOOLS[tool](arguments)
        printed, errors = _contents(out), _contents(err)
    if fails:
        code = int(code == 0)
    return code, printed + errors * both, errors * (not both)


def _contents(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


@contextmanager
def _streams(given: str) -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    """Standard streams that are texts in memory."""
    before = sys.stdin, sys.stdout, sys.stderr
    made = [io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8") for text in (given, "", "")]
    sys.stdin, sys.stdout, sys.stderr = made
    try:
        yield made[1], made[2]
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


def _systolith(arguments: Sequence[str]) -> int:
    return exit_code(partial(cli.main, list(arguments), "systolith", standalone_mode=False))


def _filecheck(arguments: Sequence[str]) -> int:
    return int(Matcher.from_opts(parse_argv_options(["filecheck", *arguments])).run())


TOOLS: dict[str, Callable[[Sequence[str]], int]] = {"systolith": _systolith, "filecheck": _filecheck}
