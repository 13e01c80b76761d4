"""Every example of the documents has a test: none is left out, and none names a test that is not there."""

import ast
from collections import Counter

from tests.seeds.inventory import COUNTS, FOLDER, TABLE, Example, examples

EXAMPLES = examples()


def _functions(module: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse((FOLDER / f"{module}.py").read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


TESTS = {path.stem: _functions(path.stem) for path in FOLDER.glob("test_*.py")}


def test_each_document_has_as_many_examples_as_were_counted() -> None:
    assert Counter(e.seed for e in EXAMPLES) == COUNTS


def test_no_example_is_listed_twice() -> None:
    assert [e for e, count in Counter((e.title, e.seed) for e in EXAMPLES).items() if count > 1] == []


def test_notes_are_of_documents_that_have_the_example() -> None:
    for theme in TABLE.values():
        for title, entry in theme.items():
            places = {place.split(":")[0] for place in entry["at"].split()}
            assert set(entry.get("notes", {})) <= places, title


def _problem(example: Example) -> str:
    """The error of an example's tests; empty if there is none."""
    for name in example.tests:
        module, function = name.split("::")
        found = TESTS.get(module, {}).get(function)
        if found is None:
            return f"there is no test {name}"
        if any(word in ast.unparse(decorator) for decorator in found.decorator_list for word in ("skip", "xfail")):
            return f"{name} does not run"
    return "" if example.tests else "it has no test"


def test_each_example_has_tests_that_run() -> None:
    assert {(e.seed, e.line, e.title): problem for e in EXAMPLES if (problem := _problem(e))} == {}
