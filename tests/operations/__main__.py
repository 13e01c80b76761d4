"""`python -m tests.operations`: measure the tables of docs/operations.md and write them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.progress import track

from tests.operations.page import tables, write


def _tracked(opcodes: Sequence[str]) -> Iterator[str]:
    yield from track(opcodes, description="operations")


if __name__ == "__main__":
    write(tables(_tracked))
