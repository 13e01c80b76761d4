"""The table of opcodes: complete, as the page on operations says, and open to rows from outside."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.opcodes import KNOWN
from systolith.compiler.ops.element_builder import Builder
from systolith.compiler.ops.expression import Node
from systolith.compiler.ops.table import OPS, Family, OpInfo, of_family, register
from tests.compiler.machine import check

PAGE = Path(__file__).resolve().parents[3] / "docs" / "operations.md"


def stated() -> Iterator[tuple[str, str]]:
    """Each opcode of the page's first table, and its state."""
    for line in PAGE.read_text().partition("<!-- measured")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if len(cells) == 4 and cells[0] not in ("operation", "---"):
            yield from ((opcode, cells[3]) for opcode in re.split(r", ", cells[1]) if opcode)


def test_every_opcode_has_a_row_in_the_table_and_on_the_page() -> None:
    assert OPS.keys() == KNOWN
    assert {opcode for opcode, _ in stated()} == KNOWN


def test_the_page_says_of_those_that_have_a_lowering_or_an_expander_that_they_run() -> None:
    runs = {opcode: row.lowered or bool(row.expander) for opcode, row in OPS.items()}
    assert [opcode for opcode, state in stated() if state.startswith("runs") != runs[opcode]] == []


def test_rules_that_lack_an_opcode_of_their_family_or_have_another_are_refused() -> None:
    assert of_family(Family.CONTROL, {"while": 1, "conditional": 2})
    for rules in ({"while": 1}, {"while": 1, "conditional": 2, "dot": 3}):
        with pytest.raises(ValueError, match="CONTROL differ"):
            of_family(Family.CONTROL, rules)


def test_only_opcodes_of_hlo_have_rows() -> None:
    with pytest.raises(ValueError, match="did you mean 'cosine'"):
        register(OpInfo("cosin", Family.ELEMENTWISE))


MODULE = """HloModule m
ENTRY e {
 x = f32[5,19] parameter(0)
 c = f32[5,19] cosh(x)
 ROOT r = f32[5,19] add(c, c)
}
"""


def cosh(b: Builder, sources: Sequence[Node]) -> Node:
    (x,) = sources
    both = (b.graph.micro("exp.f32", x), b.graph.micro("exp.f32", b.graph.micro("neg.f32", x)))
    return b.graph.micro("mul.f32", b.graph.micro("add.f32", *both), b.graph.const(0x3F000000))


def test_a_row_from_outside_gives_an_operation_a_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.linspace(-3, 3, 95, dtype=np.float32).reshape(5, 19)
    monkeypatch.setitem(OPS, "cosh", replace(OPS["cosh"], compute=None))  # restored after the test
    with pytest.raises(CompileError, match="no lowering for cosh"):
        check(MODULE, [x])
    register(replace(OPS["cosh"], compute=cosh))
    check(MODULE, [x], most=1e-6)
