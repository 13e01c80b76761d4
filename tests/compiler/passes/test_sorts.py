from __future__ import annotations

from systolith.compiler.passes.simplify.dead_code import DeadCode
from systolith.compiler.passes.simplify.sorts import SimplifySorts
from systolith.compiler.passes.simplify.zero_sized import EliminateZeroSized
from tests.compiler.passes.differential import assert_unchanged, opcodes
from tests.compiler.passes.texts import module_of

BY_FIRST = (
    "lt {{\n a = s32[] parameter(0)\n b = s32[] parameter(1)\n c = s32[] parameter(2)\n d = s32[] parameter(3)\n"
    " ROOT r = pred[] compare({x}, {y}), direction=LT\n}}"
)
SORT = (
    " x = s32[9] parameter(0)\n y = s32[9] parameter(1)\n"
    " s = (s32[9], s32[9]) sort(x, y), dimensions={0}, is_stable=true, to_apply=lt\n"
)


def test_operand_that_nothing_uses() -> None:
    body = SORT + " ROOT r = s32[9] get-tuple-element(s), index=0"
    made = assert_unchanged(module_of(body, BY_FIRST.format(x="a", y="b")), SimplifySorts(), DeadCode())
    assert opcodes(made) == ["sort"]
    assert len(made.entry.result.operands) == 1
    assert not made.entry.result.shape.is_tuple


def test_operand_that_the_comparison_uses() -> None:
    body = SORT + " ROOT r = s32[9] get-tuple-element(s), index=1"
    module = module_of(body, BY_FIRST.format(x="a", y="b"))
    assert not SimplifySorts().run(module)
    made = assert_unchanged(module_of(body, BY_FIRST.format(x="c", y="d")), SimplifySorts())
    assert len(next(i for i in made.entry.instructions if i.opcode == "sort").operands) == 1


def test_three_operands() -> None:
    less = (
        "lt {\n a = s32[] parameter(0)\n b = s32[] parameter(1)\n c = s32[] parameter(2)\n d = s32[] parameter(3)\n"
        " e = s32[] parameter(4)\n f = s32[] parameter(5)\n ROOT r = pred[] compare(e, f), direction=GT\n}"
    )
    body = (
        " x = s32[9] parameter(0)\n y = s32[9] parameter(1)\n z = s32[9] parameter(2)\n"
        " s = (s32[9], s32[9], s32[9]) sort(x, y, z), dimensions={0}, is_stable=true, to_apply=lt\n"
        " g = s32[9] get-tuple-element(s), index=0\n ROOT r = s32[9] negate(g)"
    )
    made = assert_unchanged(module_of(body, less), SimplifySorts(), DeadCode())
    assert opcodes(made) == ["get-tuple-element", "negate", "sort"]
    assert len(next(i for i in made.entry.instructions if i.opcode == "sort").operands) == 2


def test_whole_results_stay() -> None:
    body = SORT + " ROOT r = (s32[9], s32[9]) opt-barrier(s)"
    assert not SimplifySorts().run(module_of(body, BY_FIRST.format(x="a", y="b")))


def test_arrays_without_elements_are_constants() -> None:
    body = " x = f32[4,0] parameter(0)\n n = f32[4,0] negate(x)\n ROOT r = f32[0,4] transpose(n), dimensions={1,0}"
    made = assert_unchanged(module_of(body), EliminateZeroSized(), DeadCode())
    assert opcodes(made) == ["constant"]
    assert not EliminateZeroSized().run(made)
