from __future__ import annotations

import re
from types import ModuleType

import pytest

from systolith.isa import manual, svpkg
from systolith.isa.microops import MICROOPS
from systolith.isa.opcodes import OPCODES


@pytest.mark.parametrize("generator", [manual, svpkg], ids=["docs/isa.md", "hw/gen/systolith_pkg.sv"])
def test_what_is_committed_is_what_the_command_makes(generator: ModuleType) -> None:
    text = generator.TARGET.read_text()
    assert text == generator.render(), f"run: {generator.COMMAND}"
    assert generator.COMMAND in text


def test_the_manual_describes_every_instruction_and_micro_operation() -> None:
    text = manual.render()
    for name in OPCODES:
        assert f"#### `{name}`" in text
    for name in MICROOPS:
        assert f"| `{name}` |" in text


def test_the_package_names_nothing_twice() -> None:
    text = svpkg.render()
    names = re.findall(r"parameter int unsigned (\w+) =", text) + re.findall(r"^    (\w+) = \d+'d", text, re.M)
    assert len(names) == len(set(names)) > 300
    assert f"OpMxuMatmul = 8'd{OPCODES['mxu.matmul'].code}" in text
