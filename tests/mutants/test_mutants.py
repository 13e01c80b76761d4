"""The mutants of a module made up for it, and what becomes of them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.campaign import Case, drawn, load, save, tried
from tests.mutants.mutate import mutants
from tests.mutants.table import AREAS, TESTS, select

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


def project(root: Path, test: str) -> list[Case]:
    """A project of one module and one test; the module's mutants."""
    (root / "isa" / "systolith" / "isa").mkdir(parents=True)
    (root / "tests" / "isa").mkdir(parents=True)
    (root / "isa" / "systolith" / "isa" / "__init__.py").touch()
    (root / "isa" / "systolith" / "isa" / "made.py").write_text("def least(a, b):\n    return a if a < b else b\n")
    (root / "tests" / "isa" / "test_made.py").write_text(
        f"from systolith.isa.made import least\n\n\ndef test_least():\n    {test}\n"
    )
    (root / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    return drawn(9, 0, root, ["isa"])


@pytest.fixture
def only_isa(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TESTS, "isa/systolith/isa", "isa")


@pytest.mark.usefixtures("only_isa")
def test_mutants_are_killed_or_survive(tmp_path: Path) -> None:
    cases = project(tmp_path, "assert least(1, 2) == least(2, 1) == 1")
    outcomes = {c.diff.splitlines()[-1]: tried(c, tmp_path, 60, set()) for c in cases}
    assert {line: o.what for line, o in outcomes.items()} == {
        "+    return a if (a <= b) else b": "survived",  # the same function
        "+    return None": "killed",
    }
    assert outcomes["+    return None"].by == "tests/isa/test_made.py::test_least"
    assert (tmp_path / cases[0].path).read_text() == cases[0].old
    save(tmp_path / "results.json", outcomes)
    assert load(tmp_path / "results.json") == outcomes


def test_draws_are_the_same_for_a_seed(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(MODULE)
    first, second = (drawn(5, 1, tmp_path, [""]) for _ in range(2))
    assert [c.key for c in first] == [c.key for c in second]
    assert [c.key for c in first] != [c.key for c in drawn(5, 2, tmp_path, [""])]
    assert len({c.key for c in drawn(10**6, 1, tmp_path, [""])}) == len([*mutants(MODULE)])


def test_tests_of_every_module_exist() -> None:
    root = Path(__file__).resolve().parents[2]
    for area in AREAS:
        for path in (root / area).rglob("*.py"):
            found = select(str(path.relative_to(root)), root)
            assert found
            assert all((root / p).is_file() for p in found), path
