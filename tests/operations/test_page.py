"""The measured tables of docs/operations.md: a line for every opcode, and that they are up to date."""

from __future__ import annotations

import random

import pytest

from systolith.compiler.hlo.opcodes import KNOWN
from tests.operations.page import row, stated, tables, timed
from tests.operations.probes import ELSEWHERE, bodies


def lines(columns: int) -> dict[str, str]:
    """The lines of the page's table with so many columns, by opcode."""
    found = [line for line in stated() if line.startswith("| ") and line.count("|") == columns + 1]
    return {line.split("|")[1].strip(): line for line in found[1:]}


def test_every_opcode_has_a_probe_and_a_line() -> None:
    assert bodies().keys() == KNOWN - ELSEWHERE
    assert lines(4).keys() == bodies().keys()


@pytest.mark.parametrize("opcode", random.Random(0).sample(sorted(bodies()), 4))
def test_some_lines_are_up_to_date(opcode: str) -> None:
    assert lines(4)[opcode] == row(opcode)


@pytest.mark.slow
def test_the_tables_are_up_to_date() -> None:
    assert [line for line in tables().splitlines() if line] == [line for line in stated() if line]


def test_cycles_are_those_of_the_page() -> None:
    assert lines(7)["add"] == timed("add")
