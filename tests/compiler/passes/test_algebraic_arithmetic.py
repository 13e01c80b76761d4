from __future__ import annotations

import pytest

from systolith.compiler.passes.simplify.algebraic import Simplify
from systolith.compiler.passes.simplify.dead_code import DeadCode
from tests.compiler.passes.differential import assert_unchanged, opcodes
from tests.compiler.passes.texts import module_of

S = " x = s32[5] parameter(0)\n"
P = " p = pred[5] parameter(0)\n"


def splat(value: object, t: str = "s32") -> str:
    return f" c = {t}[] constant({value})\n b = {t}[5] broadcast(c), dimensions={{}}\n"


GONE = {
    "x + 0": S + splat(0) + " ROOT r = s32[5] add(x, b)",
    "0 + x": S + splat(0) + " ROOT r = s32[5] add(b, x)",
    "x - 0": S + splat(0) + " ROOT r = s32[5] subtract(x, b)",
    "x * 1": S + splat(1) + " ROOT r = s32[5] multiply(x, b)",
    "x / 1": S + splat(1) + " ROOT r = s32[5] divide(x, b)",
    "x & -1": S + splat(-1) + " ROOT r = s32[5] and(x, b)",
    "x | 0": S + splat(0) + " ROOT r = s32[5] or(x, b)",
    "x ^ 0": S + splat(0) + " ROOT r = s32[5] xor(x, b)",
    "x << 0": S + splat(0) + " ROOT r = s32[5] shift-left(x, b)",
    "x & x": S + " ROOT r = s32[5] and(x, x)",
    "max(x, x)": S + " ROOT r = s32[5] maximum(x, x)",
    "not not x": S + " n = s32[5] not(x)\n ROOT r = s32[5] not(n)",
    "--x": S + " n = s32[5] negate(x)\n ROOT r = s32[5] negate(n)",
    "p and true": P + splat("true", "pred") + " ROOT r = pred[5] and(p, b)",
    "select(p, true, false)": P
    + splat("true", "pred")
    + " d = pred[] constant(false)\n f = pred[5] broadcast(d), dimensions={}\n ROOT r = pred[5] select(p, b, f)",
    "select by a constant": S + splat("true", "pred") + " n = s32[5] negate(x)\n ROOT r = s32[5] select(b, x, n)",
    "wider and back": S + " w = s64[5] convert(x)\n ROOT r = s32[5] convert(w)",
    "real of complex": " a = f32[5] parameter(0)\n b = f32[5] parameter(1)\n c = c64[5] complex(a, b)\n"
    " ROOT r = f32[5] real(c)",
    "complex of parts": " a = c64[5] parameter(0)\n b = f32[5] real(a)\n c = f32[5] imag(a)\n"
    " ROOT r = c64[5] complex(b, c)",
    "there and back as bits": " a = f32[5] parameter(0)\n b = u32[5] bitcast-convert(a)\n"
    " ROOT r = f32[5] bitcast-convert(b)",
}
LESS = {
    "x - x": (S + " ROOT r = s32[5] subtract(x, x)", ["broadcast", "constant"]),
    "x * 0": (S + splat(0) + " ROOT r = s32[5] multiply(x, b)", ["broadcast", "constant"]),
    "x == x": (S + " ROOT r = pred[5] compare(x, x), direction=EQ", ["broadcast", "constant"]),
    "u < 0": (
        " x = u32[5] parameter(0)\n" + splat(0, "u32") + " ROOT r = pred[5] compare(x, b), direction=LT",
        ["broadcast", "constant"],
    ),
    "not x < y": (
        S + " y = s32[5] parameter(1)\n c = pred[5] compare(x, y), direction=LT\n ROOT r = pred[5] not(c)",
        ["compare"],
    ),
    "select by a negation": (
        P + " a = f32[5] parameter(1)\n n = pred[5] not(p)\n z = f32[5] negate(a)\n ROOT r = f32[5] select(n, a, z)",
        ["negate", "select"],
    ),
    "floor of an integer": (S + " f = f32[5] convert(x)\n ROOT r = f32[5] floor(f)", ["convert"]),
    "abs of abs": (" a = f32[5] parameter(0)\n b = f32[5] abs(a)\n ROOT r = f32[5] abs(b)", ["abs"]),
    "narrower and back": (
        S + " n = s8[5] convert(x)\n ROOT r = s32[5] convert(n)",
        ["convert", "convert"],
    ),
    "floats round": (
        " a = f32[5] parameter(0)\n b = s32[5] convert(a)\n ROOT r = f32[5] convert(b)",
        ["convert", "convert"],
    ),
}
KEPT = {
    "x + 0 changes -0": " x = f32[5] parameter(0)\n" + splat(0, "f32") + " ROOT r = f32[5] add(x, b)",
    "x - x of infinities": " x = f32[5] parameter(0)\n ROOT r = f32[5] subtract(x, x)",
    "x * 0 of NaN": " x = f32[5] parameter(0)\n" + splat(0, "f32") + " ROOT r = f32[5] multiply(x, b)",
    "x == x of NaN": " x = f32[5] parameter(0)\n ROOT r = pred[5] compare(x, x), direction=EQ",
    "not x < y of NaN": " x = f32[5] parameter(0)\n y = f32[5] parameter(1)\n"
    " c = pred[5] compare(x, y), direction=LT\n ROOT r = pred[5] not(c)",
    "x / 0": S + splat(0) + " ROOT r = s32[5] divide(x, b)",
    "0 - x": S + splat(0) + " ROOT r = s32[5] subtract(b, x)",
    "p + false": P + splat("false", "pred") + " ROOT r = pred[5] add(p, b)",
    "s >= 0": S + splat(0) + " ROOT r = pred[5] compare(x, b), direction=GE",
    "f8 / 4096": " x = f8e5m2[5] parameter(0)\n" + splat(4096, "f8e5m2") + " ROOT r = f8e5m2[5] divide(x, b)",
}


@pytest.mark.parametrize("name", GONE)
def test_gone(name: str) -> None:
    assert opcodes(assert_unchanged(module_of(GONE[name]), Simplify(), DeadCode())) == []


@pytest.mark.parametrize("name", LESS)
def test_less(name: str) -> None:
    body, left = LESS[name]
    assert opcodes(assert_unchanged(module_of(body), Simplify(), DeadCode())) == left


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    module = module_of(KEPT[name])
    assert opcodes(assert_unchanged(module, Simplify(), DeadCode())) == opcodes(module)
