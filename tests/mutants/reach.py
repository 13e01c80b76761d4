"""Which tests reach the places of mutants: the suite runs once, in a copy of the project with a mark at each place.

The copy's tests load this file as a plugin, for the seconds that each takes.
"""

from __future__ import annotations

import ast
import json
import os
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

RECORD = "SYSTOLITH_MUTANTS_RECORD"
"""The environment variable that names the folder of records: a file for each process."""

_MARK = f"""
def __reached__(mark, known=set()):
    import os
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if test and (mark, test) not in known and (folder := os.environ.get("{RECORD}")):
        known.add((mark, test))
        with open(f"{{folder}}/{{os.getpid()}}.reached", "a") as file:
            file.write(f"{{mark}}\\t{{test}}\\n")
"""


def marked(text: str, lines: Iterable[int], module: str) -> str:
    """A module that says which test runs one of the lines.

    Lines outside functions run when the module is imported, and those of cached functions for the first test only: all
    functions are marked for them.

    Args:
        text: the module.
        lines: from 1.
        module: its name in the records.
    """
    tree = ast.parse(text)
    places = {line: _statement(tree, line) for line in lines}
    for line, place in places.items():
        _mark(tree, place, f"{module}:{line}")
    start = sum(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    start += bool(ast.get_docstring(tree))
    tree.body[start:start] = ast.parse(_MARK).body
    return ast.unparse(ast.fix_missing_locations(tree))


def _statement(tree: ast.Module, line: int) -> tuple[list[ast.stmt], ast.stmt] | None:
    """The innermost statement that a line is in, and the block that has it; None outside functions."""
    found: list[tuple[list[ast.stmt], ast.stmt]] = []
    for node in ast.walk(tree):  # outer nodes come first
        for _, block in ast.iter_fields(node):
            for child in block if isinstance(block, list) else ():
                if isinstance(child, ast.stmt) and child.lineno <= line <= (child.end_lineno or line):
                    found.append((block, child))
    functions = [child for _, child in found[:-1] if isinstance(child, ast.FunctionDef)]
    decorators = {ast.unparse(d).partition("(")[0] for f in functions for d in f.decorator_list}
    return found[-1] if functions and not decorators & {"cache", "lru_cache"} else None


def _mark(tree: ast.Module, place: tuple[list[ast.stmt], ast.stmt] | None, mark: str) -> None:
    call = ast.Call(ast.Name("__reached__", ast.Load()), [ast.Constant(mark)], [])
    if place:
        block, statement = place
        block.insert(block.index(statement), ast.Expr(call))
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body.insert(bool(ast.get_docstring(node)), ast.Expr(call))
        elif isinstance(node, ast.Lambda):
            node.body = ast.BoolOp(ast.Or(), [call, node.body])


@dataclass
class Reach:
    """What was recorded.

    Attributes:
        tests: those that reach a mark.
        seconds: that each test takes.
        cases: keys of the mutants that it was recorded for.
    """

    tests: dict[str, list[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    cases: list[str] = field(default_factory=list)

    def quickest(self, mark: str, budget: float, files: Collection[str] = ()) -> tuple[list[str], bool]:
        """The tests that reach a mark, one of each function first, and of these the quickest.

        Args:
            mark: as given to `marked`.
            budget: seconds that the tests may take together, as recorded.
            files: tests in these come before all others.

        Returns:
            Tests, and whether that is all of them.
        """
        by_time = sorted(self.tests.get(mark, ()), key=lambda test: self.seconds.get(test, 0.0))
        of_function: dict[str, int] = defaultdict(int)
        rounds: dict[str, int] = {}
        for test in by_time:
            function = test.partition("[")[0]
            rounds[test] = of_function[function]
            of_function[function] += 1
        chosen, total = [], 0.0
        for test in sorted(by_time, key=lambda test: (test.partition("::")[0] not in files, rounds[test])):
            total += self.seconds.get(test, 0.0)
            if total > budget:
                break
            chosen.append(test)
        return chosen, len(chosen) == len(by_time)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))


def load_reach(path: Path) -> Reach:
    """What was saved; nothing if there is no file."""
    return Reach(**json.loads(path.read_text())) if path.exists() else Reach()


def read_records(folder: Path) -> Reach:
    """The records of a run, of tests that passed: others say nothing about a mutant."""
    tests: dict[str, set[str]] = defaultdict(set)
    seconds: dict[str, float] = defaultdict(float)
    failed = {line for path in folder.glob("*.failed") for line in path.read_text().splitlines()}
    for path in folder.glob("*.reached"):
        for line in path.read_text().splitlines():
            mark, _, test = line.partition("\t")
            if test not in failed:
                tests[mark].add(test)
    for path in folder.glob("*.seconds"):
        for line in path.read_text().splitlines():
            taken, _, test = line.partition("\t")
            seconds[test] += float(taken)
    return Reach({mark: sorted(found) for mark, found in tests.items()}, dict(seconds))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note the seconds of a test, or of its fixtures, and whether it failed."""
    report = yield
    if folder := os.environ.get(RECORD):
        with Path(folder, f"{os.getpid()}.seconds").open("a") as file:
            file.write(f"{report.duration:.3f}\t{item.nodeid}\n")
        if report.failed:
            with Path(folder, f"{os.getpid()}.failed").open("a") as file:
                file.write(f"{item.nodeid}\n")
    return report
