"""The mutants of a module made up for it, and what becomes of them."""

from __future__ import annotations

import ast
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest

from tests.mutants import campaign
from tests.mutants.campaign import AREAS, Case, drawn, load, recorded, save, tried
from tests.mutants.mutate import mutants
from tests.mutants.reach import RECORD, Reach, load_reach, marked, read_records

MODULE = '''"""Not a number: 1."""

def inside(x: "int" = 3, *, loud=True):
    """Whether."""
    if not x < 4 and x != 0 or (
        x + 1) in (9,):
        raise ValueError(f"{x + 1} is out")
    é = "ü" * 2; total = é
    total += "!"
    print(total, *zip(total, total, strict=True))
    return total
'''


def changes(text: str) -> list[str]:
    """Lines that differ, as they become."""
    old = text.splitlines()
    return [" ".join(line.strip() for line in m.text.splitlines() if line not in old) for m in mutants(text)]


def test_every_kind_of_mutant() -> None:
    assert {c for c in changes(MODULE) if c.startswith("def")} == {
        'def inside(x: "int" = (4), *, loud=True):',
        'def inside(x: "int" = (2), *, loud=True):',
        'def inside(x: "int" = 3, *, loud=(False)):',
    }
    wanted = ["if (x < 4) and x != 0 or (", "if not (x <= 4) and x != 0 or (", "if not x < 4 and (x == 0) or ("]
    assert not {*wanted, "if (not x < 4 or x != 0) or (", "(x - 1)) in (9,):"} - set(changes(MODULE))
    assert not {'é = "ü" * (3); total = é', "total -= '!'", "return None", "pass"} - set(changes(MODULE))
    assert changes(MODULE).count("pass") == 3  # raise, total +=, print
    assert "Not a number" not in " ".join(changes(MODULE))
    assert "strict=(False)" not in " ".join(changes(MODULE))


def test_each_mutant_differs_and_is_python() -> None:
    texts = [m.text for m in mutants(MODULE)]
    assert len(set(texts)) == len(texts)
    trees = {ast.dump(ast.parse(text)) for text in texts}
    assert len(trees) == len(texts)
    assert ast.dump(ast.parse(MODULE)) not in trees


def test_the_line_is_the_one_that_changes() -> None:
    for mutant in mutants(MODULE):
        assert mutant.text.splitlines()[: mutant.line - 1] == MODULE.splitlines()[: mutant.line - 1]
        assert mutant.text.splitlines()[mutant.line - 1] != MODULE.splitlines()[mutant.line - 1]


FUNCTIONS = '''"""Docstring."""
from __future__ import annotations
from functools import cache
LIMIT = 3
TABLE = {"twice": lambda x: 2 * x}

def sign(x):
    """Of x."""
    if x > 0:
        return 1
    elif x < 0:
        return -1
    try:
        return int("")
    except ValueError:
        return 0

@cache
def once():
    return 5
'''


def test_marks_say_which_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RECORD, str(tmp_path))
    names: dict[str, Any] = {}
    exec(marked(FUNCTIONS, (4, 10, 12, 14, 16, 20), "m"), names)
    for number, test in ((1, "tests/t.py::test[a b]"), (0, "tests/t.py::zero"), (-1, "tests/t.py::minus")):
        monkeypatch.setenv("PYTEST_CURRENT_TEST", f"{test} (call)")
        names["sign"](number)
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/t.py::twice (call)")
    assert names["TABLE"]["twice"](4) == 8
    one, zero, minus, twice = "tests/t.py::test[a b]", "tests/t.py::zero", "tests/t.py::minus", "tests/t.py::twice"
    assert {mark: set(tests) for mark, tests in read_records(tmp_path).tests.items()} == {
        "m:4": {one, zero, minus, twice},  # outside functions: whatever runs the module's code
        "m:10": {one},
        "m:12": {minus},
        "m:14": {zero},
        "m:16": {zero},
        "m:20": {one, zero, minus, twice},  # cached: runs for the first test only
    }


def test_quick_tests_come_first_and_one_of_each_function_before_others() -> None:
    seconds = {"a[1]": 1.0, "a[2]": 0.1, "a[3]": 0.2, "b": 0.5, "c": 9.0}
    reach = Reach({"m": sorted(seconds)}, seconds)
    assert reach.quickest("m", 99) == (["a[2]", "b", "c", "a[3]", "a[1]"], True)
    assert reach.quickest("m", 5) == (["a[2]", "b"], False)
    assert reach.quickest("m", 5, ["b"]) == (["b", "a[2]"], False)
    assert reach.quickest("nowhere", 5) == ([], True)


def project(root: Path, test: str) -> list[Case]:
    """A project of one module and one test; the module's mutants."""
    (root / "isa" / "systolith" / "isa").mkdir(parents=True)
    (root / "tests" / "mutants").mkdir(parents=True)
    copyfile(Path(__file__).with_name("reach.py"), root / "tests" / "mutants" / "reach.py")
    (root / "isa" / "systolith" / "isa" / "__init__.py").touch()
    (root / "isa" / "systolith" / "isa" / "made.py").write_text(
        "def least(a, b):\n    return a if a < b else b\n\n\ndef unused():\n    return 1\n"
    )
    (root / "tests" / "test_made.py").write_text(
        f"from systolith.isa.made import least\n\n\ndef test_least():\n    {test}\n\n\n"
        "def test_that_fails_in_any_case():\n    assert least(3, 4) == 4\n"
    )
    (root / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    return drawn(9, 0, root, ["isa"])


def test_mutants_are_killed_or_survive(tmp_path: Path) -> None:
    cases = project(tmp_path / "tree", "assert least(1, 2) == least(2, 1) == 1")
    reach = recorded(cases, tmp_path / "tree", jobs=1)
    reach.save(tmp_path / "reach.json")
    assert load_reach(tmp_path / "reach.json") == reach
    assert reach.tests == {"isa/systolith/isa/made.py:2": ["tests/test_made.py::test_least"]}
    for case in cases:
        (tmp_path / "tree" / case.path).write_text(case.old)
    outcomes = {f"{c.line}{c.diff.splitlines()[-1]}": tried(c, tmp_path / "tree", reach, 60, set()) for c in cases}
    assert {line: o.what for line, o in outcomes.items()} == {
        "2+    return a if (a <= b) else b": "survived",  # the same function
        "2+    return None": "killed",
        "6+    return None": "unreached",
        "6+    return (2)": "unreached",
        "6+    return (0)": "unreached",
    }
    assert outcomes["2+    return None"].by == "tests/test_made.py::test_least"
    assert (tmp_path / "tree" / cases[0].path).read_text() == cases[0].old
    save(tmp_path / "results.json", outcomes)
    assert load(tmp_path / "results.json") == outcomes


@pytest.mark.parametrize(
    ("asleep", "what"),
    [("least(1, 1) is None", "timeout"), pytest.param("True", "unfinished", marks=pytest.mark.slow)],
)
def test_a_hang_counts_where_the_mutant_makes_it(
    asleep: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "TEST_SECONDS", 1)
    cases = project(tmp_path / "tree", f"__import__('time').sleep(({asleep}) * 20)")
    case = next(c for c in cases if c.line == 2 and c.text.count("return None"))
    reach = Reach({case.mark: ["tests/test_made.py::test_least"]}, {})
    assert tried(case, tmp_path / "tree", reach, 60, set()).what == what


def test_draws_are_the_same_for_a_seed(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(MODULE)
    first, second = (drawn(5, 1, tmp_path, [""]) for _ in range(2))
    assert [c.key for c in first] == [c.key for c in second]
    assert [c.key for c in first] != [c.key for c in drawn(5, 2, tmp_path, [""])]
    assert len({c.key for c in drawn(10**6, 1, tmp_path, [""])}) == len([*mutants(MODULE)])


def test_draws_stay_while_other_code_changes(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(MODULE)
    before = {c.diff.partition("\n")[2] for c in drawn(9, 1, tmp_path, [""])}
    (tmp_path / "made.py").write_text(MODULE.replace("1.", "2.") + "\n\ndef later(y):\n    return y * 77\n")
    after = {c.diff.partition("\n")[2] for c in drawn(9, 1, tmp_path, [""])}
    assert len(before & after) > 4
    assert all("77" in diff or "y * 7" in diff for diff in after - before)


ROOT = Path(__file__).resolve().parents[2]


def test_every_area_has_mutants() -> None:
    for area in AREAS:
        texts = (path.read_text() for path in sorted((ROOT / area).rglob("*.py")))
        assert any(next(iter(mutants(text)), None) for text in texts), area


@pytest.mark.slow
def test_mutants_are_drawn_of_all_modules() -> None:
    assert len(drawn(3, 0, ROOT)) == 3
