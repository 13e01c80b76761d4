"""Flattened call graphs, and conditionals that always take one branch."""

from __future__ import annotations

import pytest

from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.passes.simplify import flatten
from systolith.compiler.passes.simplify.conditionals import SimplifyConditionals
from systolith.compiler.passes.simplify.dead_code import DeadCode
from systolith.compiler.passes.simplify.flatten import FlattenCallGraph
from systolith.compiler.passes.simplify.inline import Inline
from tests.compiler.passes.differential import assert_unchanged, opcodes
from tests.compiler.passes.texts import module_of

NEGATE = "f {\n p = f32[4] parameter(0)\n ROOT r = f32[4] negate(p)\n}\n"
TWICE = (
    NEGATE + "g {\n p = f32[4] parameter(0)\n a = f32[4] call(p), to_apply=f\n ROOT r = f32[4] call(a), to_apply=f\n}\n"
)
ABS = "h {\n p = f32[4] parameter(0)\n ROOT r = f32[4] abs(p)\n}\n"


def test_each_caller_has_its_own() -> None:
    body = " x = f32[4] parameter(0)\n a = f32[4] call(x), to_apply=g\n ROOT r = f32[4] call(a), to_apply=g"
    made = assert_unchanged(module_of(body, TWICE), FlattenCallGraph())
    called = [c for i in made.instructions() for c in i.called]
    assert len(called) == len(set(called)) == 6
    assert len({c.name for c in made.computations}) == 7
    assert not FlattenCallGraph().run(made)


def test_computations_of_elements_are_shared() -> None:
    add = "a {\n p = f32[] parameter(0)\n q = f32[] parameter(1)\n ROOT r = f32[] add(p, q)\n}"
    body = (
        " x = f32[4] parameter(0)\n z = f32[] constant(0)\n s = f32[] reduce(x, z), dimensions={0}, to_apply=a\n"
        " t = f32[] reduce(x, z), dimensions={0}, to_apply=a\n ROOT r = f32[] add(s, t)"
    )
    assert not FlattenCallGraph().run(module_of(body, add))


def doubling(levels: int) -> str:
    """A module in which each computation calls the one before it twice."""
    text = "HloModule m\n\nc0 {\n p = f32[4] parameter(0)\n ROOT r = f32[4] negate(p)\n}\n"
    for k in range(1, levels + 1):
        text += (
            f"\n{'ENTRY ' if k == levels else ''}c{k} {{\n p = f32[4] parameter(0)\n"
            f" a = f32[4] call(p), to_apply=c{k - 1}\n ROOT r = f32[4] call(a), to_apply=c{k - 1}\n}}\n"
        )
    return text


@pytest.mark.parametrize("step", [FlattenCallGraph(), Inline()])
def test_calls_that_double_are_refused(step: FlattenCallGraph | Inline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flatten, "MOST_COMPUTATIONS", 5_000)
    with pytest.raises(CompileError, match="call less often"):
        step.run(parse_hlo(doubling(40)))


@pytest.mark.parametrize(
    ("index", "branches", "taken"),
    [
        ("pred[] constant(true)", "true_computation=f, false_computation=h", "negate"),
        ("pred[] constant(false)", "true_computation=f, false_computation=h", "abs"),
        ("s32[] constant(0)", "branch_computations={f, h}", "negate"),
        ("s32[] constant(1)", "branch_computations={f, h}", "abs"),
        ("s32[] constant(7)", "branch_computations={f, h}", "abs"),
        ("s32[] constant(-1)", "branch_computations={f, h}", "abs"),
    ],
)
def test_constant_conditions(index: str, branches: str, taken: str) -> None:
    body = (
        f" x = f32[4] parameter(0)\n y = f32[4] copy(x)\n i = {index}\n"
        f" ROOT r = f32[4] conditional(i, x, y), {branches}"
    )
    module = module_of(body, NEGATE + ABS)
    made = assert_unchanged(module, SimplifyConditionals(), Inline(), DeadCode())
    assert taken in opcodes(made)
    assert len(made.computations) == 1


def test_only_branch() -> None:
    body = (
        " x = f32[4] parameter(0)\n i = s32[] parameter(1)\n ROOT r = f32[4] conditional(i, x), branch_computations={f}"
    )
    assert opcodes(assert_unchanged(module_of(body, NEGATE), SimplifyConditionals())) == ["call"]


def test_unknown_conditions_stay() -> None:
    body = (
        " x = f32[4] parameter(0)\n i = s32[] parameter(1)\n"
        " ROOT r = f32[4] conditional(i, x, x), branch_computations={f, h}"
    )
    module = module_of(body, NEGATE + ABS)
    assert not SimplifyConditionals().run(module)
    verify(module)
