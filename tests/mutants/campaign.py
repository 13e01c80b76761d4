"""Draws mutants by seed and runs the tests that reach each, in a copy of the project."""

from __future__ import annotations

import heapq
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import unified_diff
from functools import cache
from hashlib import sha256
from pathlib import Path

from tests.mutants.mutate import mutants
from tests.mutants.reach import RECORD, Reach, marked, read_records

ROOT = Path(__file__).resolve().parents[2]
AREAS = ("compiler/systolith/compiler", "sim/systolith/sim", "isa/systolith/isa")
FOLDERS = ("isa", "sim", "compiler", "hw", "runtime", "reports")
TEST_SECONDS = 90
"""One test that takes longer hangs, unless it does so without the mutant too; well below the limit of a mutant."""
MEMORY_KIB = 8 << 20
FIRST = 12
"""Tests of a mutant that run before the others are collected: most mutants do not survive them."""
SLOWER = 2
"""Tests of a mutant may take so many times their recorded seconds: beside others, and with imports of their own."""
_CHILDREN: set[subprocess.Popen[str]] = set()


class BrokenTestError(Exception):
    """A test that fails without a mutant says nothing about one."""


@dataclass(frozen=True)
class Case:
    """A mutant of one of the project's modules.

    Attributes:
        path: the module, below the project's root.
        line: what is changed, from 1.
        old, text: the module's text as it is, and changed.
    """

    path: str
    line: int
    old: str
    text: str

    @property
    def key(self) -> str:
        """The same for the same change of the same text."""
        return sha256(f"{self.path}\0{self.old}\0{self.text}".encode()).hexdigest()[:16]

    @property
    def mark(self) -> str:
        """Its place, as records name it."""
        return f"{self.path}:{self.line}"

    @property
    def diff(self) -> str:
        lines = unified_diff(self.old.splitlines(), self.text.splitlines(), self.path, self.path, lineterm="", n=0)
        return "\n".join([*lines][2:])


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    Attributes:
        what: `killed`; `timeout`: a test hung; `survived` all tests that reach it; `unfinished`: the tests within the
            limit; or `unreached`: there is no test.
        by: the test that failed, if any.
        seconds: it took.
    """

    path: str
    line: int
    diff: str
    what: str
    by: str
    seconds: int


def drawn(count: int, seed: int, root: Path = ROOT, areas: Sequence[str] = AREAS) -> list[Case]:
    """Mutants of all modules of some folders, each as likely as any other.

    A digest of the lines before and after orders them: a mutant stays drawn while other code changes.
    """
    texts = {str(p.relative_to(root)): p.read_text() for area in areas for p in sorted((root / area).rglob("*.py"))}
    ranked = ((rank, path, n) for path, text in texts.items() for n, rank in enumerate(_ranks(seed, path, text)))
    chosen = [(path, n) for _, path, n in heapq.nsmallest(count, ranked)]
    made = {path: list(mutants(texts[path])) for path in {path for path, _ in chosen}}
    return [Case(path, made[path][n].line, texts[path], made[path][n].text) for path, n in chosen]


def _ranks(seed: int, path: str, text: str) -> Iterator[bytes]:
    """A digest of each mutant of a module."""
    before, seen = text.split("\n"), Counter[str]()
    for mutant in mutants(text):
        after = mutant.text.split("\n", mutant.line)[mutant.line - 1]
        change = f"{seed}\0{path}\0{before[mutant.line - 1]}\0{after}"
        yield sha256(f"{change}\0{seen[change]}".encode()).digest()
        seen[change] += 1


def copy_project(tree: Path) -> None:
    """What git knows of, or would, in a folder of its own."""
    shutil.rmtree(tree, ignore_errors=True)
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)


def recorded(cases: Sequence[Case], tree: Path, jobs: int) -> Reach:
    """Run the whole suite in a copy of the project, to see which tests reach which mutants."""
    for path, text in {c.path: c.old for c in cases}.items():
        _write(tree / path, marked(text, {c.line for c in cases if c.path == path}, path))
    records = tree.parent / "records"
    shutil.rmtree(records, ignore_errors=True)
    records.mkdir()
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "tests.mutants.reach", "-n", str(jobs)]
    subprocess.run(command, cwd=tree, env=_environment(tree) | {RECORD: str(records)}, check=False)
    return replace(read_records(records), cases=[c.key for c in cases])


def tried(case: Case, tree: Path, reach: Reach, limit: int, sound: set[str]) -> Outcome:
    """Run a mutant's tests in a copy of the project, which is left as it was.

    Args:
        limit: seconds for all tests.
        reach: which tests reach it.
        sound: tests known to pass without mutants; grows.

    Raises:
        BrokenTestError: the test that fails does so without the mutant too.
    """
    began = time.monotonic()
    tests, whole = reach.quickest(case.mark, limit / SLOWER, _naming(Path(case.path).stem, tree))
    what, by = ("unfinished" if reach.tests.get(case.mark) else "unreached"), ""
    if tests:
        _write(tree / case.path, case.text)
        try:
            for part in filter(None, (tests[:FIRST], tests[FIRST:])):
                what, by = _verdict(part, tree, limit - (time.monotonic() - began))
                if what != "survived":
                    break
        finally:
            _write(tree / case.path, case.old)
    if what == "timeout" and _verdict(part, tree, limit)[0] == "timeout":
        what = "unfinished"
    if by and by not in sound:
        if _verdict([by], tree, limit)[0] != "survived":
            raise BrokenTestError(f"{by} fails without a mutant")
        sound.add(by)
    if what == "survived" and not whole:
        what = "unfinished"
    return Outcome(case.path, case.line, case.diff, what, by, round(time.monotonic() - began))


@cache
def _naming(module: str, tree: Path) -> frozenset[str]:
    """The test files that are called like a module, or import from it."""
    imports = re.compile(rf"^from \S*\.{module} import", re.MULTILINE)
    files = [*(tree / "tests").rglob("test_*.py")]
    named = [f for f in files if module in f.stem or imports.search(f.read_text())]
    return frozenset(str(f.relative_to(tree)) for f in named)


def _write(path: Path, text: str) -> None:
    """Byte code is known by the time and size of its source: two mutants may agree in both."""
    path.write_text(text)
    for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        stale.unlink()


def _verdict(tests: Sequence[str], tree: Path, limit: float) -> tuple[str, str]:
    """What becomes of the copy as it is, and by what."""
    options = ["-m", "not slow", "-p", "no:cacheprovider", "-o", f"faulthandler_timeout={TEST_SECONDS}"]
    command = [sys.executable, "-m", "pytest", "-xq", *options, "-o", "faulthandler_exit_on_timeout=true", *tests]
    child = subprocess.Popen(
        ["sh", "-c", f'ulimit -v {MEMORY_KIB}; exec "$@"', "sh", *command],
        cwd=tree,
        env=_environment(tree),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    _CHILDREN.add(child)
    try:
        output, _ = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        return "unfinished", ""
    finally:
        _end(child)
        _CHILDREN.discard(child)
    if child.returncode == 0:
        return "survived", ""
    failed = re.search(r"^(?:FAILED|ERROR) (.+)", output, re.MULTILINE)
    hung = child.returncode == 1 and not failed  # ended from within; a crash ends by a signal
    return "timeout" if hung else "killed", _named(tests, failed[1]) if failed else ""


def _named(tests: Sequence[str], line: str) -> str:
    """The test that a line of pytest's summary begins with, or its file."""
    names = {*tests, *(test.partition("::")[0] for test in tests)}
    return max((name for name in names if line.startswith(name)), key=len, default=line.partition(" ")[0])


def _environment(tree: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(tree / name) for name in (*FOLDERS, "")),
        "XDG_CACHE_HOME": str(tree.parent / "cache"),
        "HYPOTHESIS_PROFILE": "ci",
    }


def end_all() -> None:
    """End what other threads wait for."""
    for child in list(_CHILDREN):
        _end(child)


def _end(child: subprocess.Popen[str]) -> None:
    """End the tests with all that they started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        child.wait()


def load(path: Path) -> dict[str, Outcome]:
    """Outcomes by key of their cases; none if there is no file."""
    return {k: Outcome(**v) for k, v in json.loads(path.read_text()).items()} if path.exists() else {}


def save(path: Path, outcomes: dict[str, Outcome]) -> None:
    """Write the file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps({k: asdict(v) for k, v in outcomes.items()}, indent=1) + "\n")
    new.replace(path)
