"""The measured tables of docs/operations.md: a line for every opcode, and that they are up to date."""

from __future__ import annotations

import random

import numpy as np
import pytest

from systolith.compiler.hlo.opcodes import KNOWN
from tests.operations.accuracy import REFERENCES, inputs, line, worst
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


@pytest.mark.parametrize("opcode", REFERENCES)
def test_functions_are_as_near_as_the_page_says(opcode: str) -> None:
    _, _, most, at, _ = lines(3)[opcode].split("|")
    error, _ = worst(opcode, np.concatenate([inputs(100, 1 << 14), inputs(101, 1 << 14), [np.float32(at)] * 16]))
    assert error <= float(most) + 0.05  # other inputs may do worse by a little
    assert error >= float(most) - 0.01


@pytest.mark.slow
@pytest.mark.parametrize("opcode", REFERENCES)
def test_errors_are_up_to_date(opcode: str) -> None:
    assert lines(3)[opcode] == line(opcode)


def test_cycles_are_those_of_the_page() -> None:
    assert lines(7)["add"] == timed("add")
