"""What sweeps compile."""

from __future__ import annotations

import pytest

from systolith.compiler.driver import Compiled, Front
from systolith.compiler.options import Options
from systolith.isa.chip import Chip


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The chip of each compilation in this process."""
    chips: list[str] = []
    compile_front = Front.compile

    def counting(front: Front, chip: Chip, options: Options | None = None) -> Compiled:
        chips.append(chip.name)
        return compile_front(front, chip, options)

    monkeypatch.setattr(Front, "compile", counting)
    return chips
