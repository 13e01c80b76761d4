"""Optional passes are left out where the module does not fit with them, and for no other reason."""

from __future__ import annotations

from typing import Any

import pytest

from systolith.compiler import driver
from systolith.compiler.errors import CompileError, DoesNotFitError, LimitError
from systolith.isa.chip import load_chip
from tests.compiler.fusion.test_blocking import softmax
from tests.compiler.machine import compiled, with_vmem

TINY = load_chip("tiny")
SMALL = with_vmem(TINY, 32 << 10)
TEXT = softmax(96, 100)


def refusing(monkeypatch: pytest.MonkeyPatch, error: CompileError) -> list[str]:
    """Let blocks be refused by an error; gives the names of passes left out whenever a module is lowered."""
    lowered: list[str] = []
    compile_grouped = driver.compile_grouped

    def refuse(module: Any, chip: Any, options: Any, decided: Any, copies: Any) -> Any:
        lowered.append(", ".join(d.chosen for d in decided if d.chosen == "no blocks"))
        if not lowered[-1]:
            raise error
        return compile_grouped(module, chip, options, decided, copies)

    monkeypatch.setattr(driver, "compile_grouped", refuse)
    return lowered


def test_a_pass_is_left_out_where_the_module_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = refusing(monkeypatch, DoesNotFitError("no place"))
    explain = compiled(TEXT, SMALL, "highest").explain
    assert lowered == ["", "no blocks"]
    (left_out,) = [d for d in explain if d.chosen == "no blocks"]
    assert left_out.rejected[0].why == "no place"


@pytest.mark.parametrize("kind", [CompileError, LimitError])
def test_another_error_is_shown_at_once(kind: type[CompileError], monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = refusing(monkeypatch, kind("not an operation of the vector unit"))
    with pytest.raises(kind, match="not an operation"):
        compiled(TEXT, SMALL, "highest")
    assert lowered == [""]


PRODUCT = """HloModule m
ENTRY e {
  x = f32[8,300] parameter(0)
  y = f32[300,40] parameter(1)
  ROOT r = f32[8,40] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_too_little_vmem_is_told_as_that() -> None:
    chip = with_vmem(TINY, 256)
    with pytest.raises(DoesNotFitError, match="VMEM"):
        compiled(PRODUCT, chip, "highest")
