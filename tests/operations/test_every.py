"""Functions of f32 over every number of a range: the table that docs/operations.md has of it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.operations.accuracy import PIECE, REFERENCES, inputs, worst
from tests.operations.every import EVERY, pieces

PAGE = Path(__file__).parents[2] / "docs/operations.md"
ROW = re.compile(r"^\| (\S+) \| ([^|]* to [^|]*) \| ([\d,]+) \| (.*?) \| (.*?) \|$", re.MULTILINE)
ROWS = {name: cells for name, *cells in ROW.findall(PAGE.read_text())}


@pytest.mark.parametrize("opcode", EVERY)
def test_the_worst_number_is_as_far_off_as_the_page_says(opcode: str) -> None:
    ranges, _, most, at = ROWS[opcode]
    assert ranges == ", ".join(f"{np.float32(a)!s} to {np.float32(b)!s}" for a, b in EVERY[opcode])
    assert any(min(ends) <= float(at) <= max(ends) for ends in EVERY[opcode])
    error, _ = worst(opcode, np.full(64, np.float32(at)))
    assert f"{error:.2f}" == most
    assert error <= 2


def test_every_function_of_the_table_has_a_row() -> None:
    assert ROWS.keys() == EVERY.keys() <= REFERENCES.keys()


@pytest.mark.parametrize("opcode", EVERY)
def test_no_number_does_worse_in_the_other_table(opcode: str) -> None:
    """Numbers from all of f32, so beyond the ranges too."""
    error, at = worst(opcode, np.concatenate([inputs(200, 1 << 14), inputs(201, 1 << 14)]))
    assert error <= float(ROWS[opcode][2]) + 0.005, at


@pytest.mark.parametrize("opcode", [name for name, ranges in EVERY.items() if len(ranges) == 1 and name != "log"])
def test_the_other_sign_is_the_same_but_for_it(opcode: str) -> None:
    x = inputs(202, 1 << 14)
    x = np.abs(x[~np.isnan(x)])
    (first, _), (second, _) = worst(opcode, x), worst(opcode, -x)
    assert first == second


@examples(20, 200)
@given(st.floats(0, 2.0**126, width=32), st.integers(0, 100), st.sampled_from([1, -1]))
def test_pieces_are_every_number_once(first: float, more: int, sign: int) -> None:
    low = int(np.float32(first).view(np.uint32))
    last = float(np.uint32(low + more).view(np.float32))
    found = np.concatenate([*pieces(sign * first, sign * last, 16)])
    assert len(found) % 16 == 0
    wanted = np.arange(low, low + more + 1, dtype=np.uint32).view(np.float32) * np.float32(sign)
    np.testing.assert_array_equal(np.unique(found), np.unique(wanted))


def test_pieces_are_of_one_size() -> None:
    assert {len(x) for x in pieces(0.25, 0.3)} == {PIECE}
