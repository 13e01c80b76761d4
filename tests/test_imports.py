"""No module imports itself through others: not at its top, not inside a function, not for type checkers only.

The import of a module counts as one of that module, not of the packages around it: a package whose `__init__` gives out
definitions of its modules is no cycle.
"""

import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
AREAS = ("isa", "sim", "compiler", "hw", "runtime", "reports")
PACKAGE = "__init__"
FUNCTIONS = ("import_module", "__import__")

Graph = dict[str, set[str]]


def project() -> dict[str, str]:
    """Name and text of every module."""
    return {
        ".".join(path.relative_to(ROOT / area).with_suffix("").parts): path.read_text()
        for area in AREAS
        for path in sorted((ROOT / area / "systolith").rglob("*.py"))
    }


def import_graph(texts: Mapping[str, str]) -> Graph:
    """For each module, those of `texts` that it imports anywhere in its text."""
    graph: Graph = {}
    for module, text in texts.items():
        graph[module] = set()
        for names in _imported(module, text):
            spelled = [s for name in names for s in (name, f"{name}.{PACKAGE}") if s in texts]
            graph[module].update(spelled[:1])
    return graph


def _nodes(text: str) -> Iterator[ast.AST]:
    """Those of a text that may import: statements, and expressions of a text that names a function which does."""
    tree = ast.parse(text)
    return ast.walk(tree) if any(name in text for name in FUNCTIONS) else _statements(tree)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements in a node, and their parts that hold some."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for inner in getattr(node, field, ()):
            yield inner
            yield from _statements(inner)


def _imported(module: str, text: str) -> Iterator[list[str]]:
    """Possible names of each import: a module; or a module, else a name in one."""
    for node in _nodes(text):
        if isinstance(node, ast.Import):
            yield from ([alias.name] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            around = module.split(".")[: -node.level] if node.level else []
            base = ".".join([*around, *filter(None, [node.module])])
            yield from ([f"{base}.{alias.name}", base] for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in FUNCTIONS:
                yield [str(node.args[0].value)]


def cycles(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """The strongly connected components in which there is a cycle: modules that import each other, perhaps through
    others.
    """
    reached = {module: _reached(graph, module) for module in graph}
    components = {frozenset(n for n in reached[m] if m in reached[n]) for m in graph if m in reached[m]}
    return sorted(sorted(component) for component in components)


def _reached(graph: Mapping[str, Collection[str]], start: str) -> set[str]:
    """The modules that a module imports, and those that they import, and so on."""
    found: set[str] = set()
    pending = [start]
    while pending:
        fresh = set(graph[pending.pop()]) - found
        found |= fresh
        pending += fresh
    return found


def report(graph: Mapping[str, Collection[str]]) -> str:
    """A line for each component, and below it one for each import in it; empty without a cycle."""
    lines: list[str] = []
    for component in cycles(graph):
        lines.append(f"import cycles among {len(component)} modules:")
        lines += [f"  {m} -> {imported}" for m in component for imported in sorted({*graph[m]} & {*component})]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return import_graph(project())


def test_no_module_imports_itself_through_others(graph: Graph) -> None:
    assert not report(graph), report(graph)


def test_every_area_has_modules_that_import(graph: Graph) -> None:
    for area in AREAS:
        assert any(imported for module, imported in graph.items() if module.startswith(f"systolith.{area}."))


ONE_WAY = {
    "p.__init__": "from p.a import x",
    "p.a": "import os\nfrom p.b import x, y",
    "p.b": "from p import c",
    "p.c": "",
}


@pytest.mark.parametrize(
    "back",
    [
        "import p.a",
        "from p.a import x",
        "from p import a",
        "from . import a",
        "from .a import x",
        "def f():\n    from p.a import x",
        "for x in y:\n    pass\nelse:\n    import p.a",
        "try:\n    pass\nexcept ValueError:\n    import p.a",
        "try:\n    pass\nfinally:\n    import p.a",
        "match x:\n    case 1:\n        import p.a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import x",
        "import importlib\nimportlib.import_module('p.a')",
        "from p import x",
    ],
)
def test_an_import_back_is_a_cycle_wherever_it_stands(back: str) -> None:
    assert not report(import_graph(ONE_WAY))
    found = cycles(import_graph({**ONE_WAY, "p.c": back}))
    through = ["p.__init__"] if back == "from p import x" else []
    assert found == [[*through, "p.a", "p.b", "p.c"]]


def test_components_are_told_apart_with_the_imports_that_make_them() -> None:
    graph = {"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c", "e"}, "e": set(), "f": {"f"}}
    assert cycles(graph) == [["a", "b"], ["c", "d"], ["f"]]
    assert report(graph).splitlines() == [
        "import cycles among 2 modules:", "  a -> b", "  b -> a",
        "import cycles among 2 modules:", "  c -> d", "  d -> c",
        "import cycles among 1 modules:", "  f -> f",
    ]  # fmt: skip
