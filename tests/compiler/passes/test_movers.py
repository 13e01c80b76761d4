"""Reshapes and transposes, moved below elementwise operations."""

from __future__ import annotations

from systolith.compiler.passes.simplify.algebraic import Simplify
from systolith.compiler.passes.simplify.dead_code import DeadCode
from tests.compiler.passes.differential import assert_unchanged, opcodes
from tests.compiler.passes.texts import module_of

XY = " x = f32[2,6] parameter(0)\n y = f32[2,6] parameter(1)\n"


def test_two_transposes_are_one() -> None:
    body = XY + (
        " a = f32[6,2] transpose(x), dimensions={1,0}\n b = f32[6,2] transpose(y), dimensions={1,0}\n"
        " ROOT r = f32[6,2] subtract(a, b)"
    )
    assert opcodes(assert_unchanged(module_of(body), Simplify(), DeadCode())) == ["subtract", "transpose"]


def test_scalars_come_along() -> None:
    body = XY + (
        " a = f32[3,4] reshape(x)\n c = f32[] constant(2)\n s = f32[3,4] broadcast(c), dimensions={}\n"
        " m = f32[3,4] multiply(a, s)\n ROOT r = f32[3,4] clamp(c, m, c)"
    )
    made = assert_unchanged(module_of(body), Simplify(), DeadCode())
    assert opcodes(made) == ["broadcast", "clamp", "constant", "multiply", "reshape"]
    assert made.entry.result.opcode == "reshape"


def test_different_moves_stay() -> None:
    body = XY + (
        " a = f32[2,2,3] reshape(x)\n b = f32[2,2,3] reshape(y)\n t = f32[2,2,3] transpose(b), dimensions={1,0,2}\n"
        " ROOT r = f32[2,2,3] add(a, t)"
    )
    assert not Simplify().run(module_of(body))
    sources = (
        " x = f32[2,6] parameter(0)\n y = f32[3,4] parameter(1)\n a = f32[12] reshape(x)\n b = f32[12] reshape(y)\n"
        " ROOT r = f32[12] add(a, b)"
    )
    assert not Simplify().run(module_of(sources))
