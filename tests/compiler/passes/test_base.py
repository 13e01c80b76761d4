from __future__ import annotations

from dataclasses import dataclass

import pytest

from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.ir import Module
from systolith.compiler.passes.base import run_passes
from systolith.compiler.passes.simplify.dead_code import DeadCode
from tests.compiler.passes.texts import module_of


@dataclass(frozen=True)
class Breaks:
    """A pass with a bug."""

    def run(self, module: Module) -> bool:
        module.entry.result.operands.clear()
        return True


BODY = " x = f32[4] parameter(0)\n n = f32[4] negate(x)\n ROOT r = f32[4] abs(x)"


def test_a_broken_module_names_the_pass() -> None:
    with pytest.raises(CompileError, match=r"^pass Breaks broke the module: .*abs 'r'"):
        run_passes(module_of(BODY), [Breaks()])


def test_observer_sees_passes_that_changed_something() -> None:
    seen: list[str] = []
    run_passes(module_of(BODY), [DeadCode(), DeadCode()], lambda name, _: seen.append(name))
    assert seen == ["DeadCode"]
