from __future__ import annotations

from dataclasses import dataclass

import pytest

from systolith.compiler.driver import Front
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.passes.base import VERIFY, run_passes
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.compiler.passes.simplify.dead_code import DeadCode
from systolith.compiler.tiling.pipeline import GROUPING
from systolith.isa.chip import load_chip
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


def test_a_broken_module_names_the_stage_of_a_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VERIFY)
    with pytest.raises(CompileError, match=rf"^front broke the module \({VERIFY}=1 says which pass\): .*abs 'r'"):
        run_passes(module_of(BODY), [Breaks(), DeadCode()], stage="front")
    monkeypatch.setenv(VERIFY, "1")
    with pytest.raises(CompileError, match=r"^pass Breaks broke the module: .*abs 'r'"):
        run_passes(module_of(BODY), [Breaks(), DeadCode()], stage="front")


@pytest.mark.parametrize(("each", "by"), [("", "grouping"), ("1", "pass Breaks")])
def test_a_broken_pass_of_a_compilation_is_an_error(each: str, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VERIFY, each)
    monkeypatch.setitem(GROUPING, list(GROUPING)[-1], lambda chip, options: Breaks())
    with pytest.raises(CompileError, match=rf"^{by} broke the module"):
        Front(module_of(BODY)).compile(load_chip("tiny"))


def test_a_sweep_for_some_opcodes_leaves_other_computations_alone() -> None:
    module = module_of(BODY)
    asked: list[str] = []

    def rule(r: Rewriter, i: Instruction) -> Instruction | None:
        asked.append(i.name)
        return i.operands[0] if i.opcode == "negate" else None

    assert not rewrite(module, rule, ("sort",))
    assert not asked
    assert rewrite(module, rule, ("negate", "sort"))
    assert asked == ["x", "n", "r"]


def test_observer_sees_passes_that_changed_something() -> None:
    seen: list[str] = []
    run_passes(module_of(BODY), [DeadCode(), DeadCode()], lambda name, _: seen.append(name))
    assert seen == ["DeadCode"]
