"""The table `inventory.toml` of the documents' examples, a row for each example in each document."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
TABLE: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "inventory.toml").read_text())
COUNTS: dict[str, int] = TABLE.pop("documents")
"""Examples in each document."""


@dataclass(frozen=True)
class Example:
    """One example in one document.

    Attributes:
        title: its subject.
        tests: the tests that cover it, `module::function`.
        seed: the document's number.
        line: where it is in the document.
        note: its error, or how it differs from the other documents'.
    """

    title: str
    tests: tuple[str, ...]
    seed: str
    line: int
    note: str


def examples() -> list[Example]:
    """All of them."""
    rows: list[Example] = []
    for title, entry in ((title, entry) for theme in TABLE.values() for title, entry in theme.items()):
        tests = tuple("test_" + name.replace("::", "::test_") for name in entry["by"].split())
        notes = entry.get("notes", {})
        for place in entry["at"].split():
            seed, line = place.split(":")
            rows.append(Example(title, tests, seed, int(line), notes.get(seed, entry.get("note", ""))))
    return rows
