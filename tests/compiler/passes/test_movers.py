"""Reshapes: moved below elementwise operations, and split into what moves no bytes and copies."""

from __future__ import annotations

from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.passes.dead_code import DeadCode
from systolith.compiler.passes.reshape_decomposer import DecomposeReshapes
from systolith.compiler.passes.reshape_mover import MoveReshapes
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.passes.differential import arguments_of, assert_same_bits, assert_unchanged, opcodes
from tests.compiler.passes.texts import module_of

XY = " x = f32[2,6] parameter(0)\n y = f32[2,6] parameter(1)\n"


def test_two_transposes_are_one() -> None:
    body = XY + (
        " a = f32[6,2] transpose(x), dimensions={1,0}\n b = f32[6,2] transpose(y), dimensions={1,0}\n"
        " ROOT r = f32[6,2] subtract(a, b)"
    )
    assert opcodes(assert_unchanged(module_of(body), MoveReshapes(), DeadCode())) == ["subtract", "transpose"]


def test_scalars_come_along() -> None:
    body = XY + (
        " a = f32[3,4] reshape(x)\n c = f32[] constant(2)\n s = f32[3,4] broadcast(c), dimensions={}\n"
        " m = f32[3,4] multiply(a, s)\n ROOT r = f32[3,4] clamp(c, m, c)"
    )
    made = assert_unchanged(module_of(body), MoveReshapes(), DeadCode())
    assert opcodes(made) == ["broadcast", "clamp", "constant", "multiply", "reshape"]
    assert made.entry.result.opcode == "reshape"


def test_different_moves_stay() -> None:
    body = XY + (
        " a = f32[2,2,3] reshape(x)\n b = f32[2,2,3] reshape(y)\n t = f32[2,2,3] transpose(b), dimensions={1,0,2}\n"
        " ROOT r = f32[2,2,3] add(a, t)"
    )
    assert not MoveReshapes().run(module_of(body))
    sources = (
        " x = f32[2,6] parameter(0)\n y = f32[3,4] parameter(1)\n a = f32[12] reshape(x)\n b = f32[12] reshape(y)\n"
        " ROOT r = f32[12] add(a, b)"
    )
    assert not MoveReshapes().run(module_of(sources))


def test_reshape_of_a_column_major_array() -> None:
    body = " x = f32[2,6]{0,1} parameter(0)\n ROOT r = f32[3,4]{0,1} reshape(x)"
    module = module_of(body)
    made = assert_unchanged(module, DecomposeReshapes())
    assert opcodes(made) == ["copy", "copy", "reshape"]
    (reshape,) = [i for i in made.entry.instructions if i.opcode == "reshape"]
    assert reshape.shape.minor_to_major == reshape.operands[0].shape.minor_to_major == (1, 0)
    arguments = arguments_of(module)
    assert_same_bits(run_xla(print_hlo(made), *arguments), run_xla(print_hlo(module), *arguments))


def test_reshape_that_moves_nothing_stays() -> None:
    assert not DecomposeReshapes().run(module_of(" x = f32[2,6] parameter(0)\n ROOT r = f32[3,4] reshape(x)"))
    ones = " x = f32[1,6]{0,1} parameter(0)\n ROOT r = f32[2,3]{1,0} reshape(x)"
    assert not DecomposeReshapes().run(module_of(ones))
