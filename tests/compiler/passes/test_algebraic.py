from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.simplify.algebraic import Simplify
from systolith.compiler.passes.simplify.dead_code import DeadCode
from tests.compiler.passes.texts import module_of

X = " x = f32[2,3] parameter(0)\n"
CASES = {
    "reshape of reshape": (X + " a = f32[6] reshape(x)\n ROOT r = f32[2,3] reshape(a)", []),
    "transpose of transpose": (
        X + " a = f32[3,2] transpose(x), dimensions={1,0}\n ROOT r = f32[2,3] transpose(a), dimensions={1,0}",
        [],
    ),
    "transpose of ones": (" x = f32[2,1] parameter(0)\n ROOT r = f32[1,2] transpose(x), dimensions={1,0}", ["reshape"]),
    "identity broadcast": (X + " ROOT r = f32[2,3] broadcast(x), dimensions={0,1}", []),
    "rows as JAX prints them": (
        " x = f32[3] parameter(0)\n a = f32[1,3] reshape(x)\n b = f32[1,3] broadcast(a), dimensions={0,1}\n"
        " c = f32[3] reshape(b)\n ROOT r = f32[5,3] broadcast(c), dimensions={1}",
        ["broadcast"],
    ),
    "broadcast of a column": (
        " x = f32[2,1] parameter(0)\n a = f32[2] reshape(x)\n ROOT r = f32[2,3] broadcast(a), dimensions={0}",
        ["reshape", "broadcast"],
    ),
    "whole slice": (X + " ROOT r = f32[2,3] slice(x), slice={[0:2], [0:3]}", []),
    "empty pad": (X + " z = f32[] constant(0)\n ROOT r = f32[2,3] pad(x, z), padding=0_0x0_0", []),
    "copy": (X + " ROOT r = f32[2,3] copy(x)", []),
    "operation on repeated scalars": (
        " a = f32[] parameter(0)\n b = f32[5] broadcast(a), dimensions={}\n ROOT r = f32[5] exponential(b)",
        ["exponential", "broadcast"],
    ),
    "operation on reshapes": (
        " x = f32[2,3] parameter(0)\n a = f32[2,3,1] reshape(x)\n c = f32[] constant(3)\n"
        " b = f32[2,3,1] broadcast(c), dimensions={}\n d = f32[2,3,1] divide(a, b)\n ROOT r = f32[2,3] reshape(d)",
        ["constant", "broadcast", "divide"],
    ),
    "division by a power of two": (
        X + " c = f32[] constant(-8)\n b = f32[2,3] broadcast(c), dimensions={}\n ROOT r = f32[2,3] divide(x, b)",
        ["constant", "broadcast", "multiply"],
    ),
    "division by another number": (
        X + " c = f32[] constant(6)\n b = f32[2,3] broadcast(c), dimensions={}\n ROOT r = f32[2,3] divide(x, b)",
        ["constant", "broadcast", "divide"],
    ),
    "adding zero changes -0": (
        X + " c = f32[] constant(0)\n b = f32[2,3] broadcast(c), dimensions={}\n ROOT r = f32[2,3] add(x, b)",
        ["constant", "broadcast", "add"],
    ),
    "select of one thing": (X + " p = pred[2,3] parameter(1)\n ROOT r = f32[2,3] select(p, x, x)", []),
    "and true": (
        " x = pred[4] parameter(0)\n t = pred[] constant(true)\n b = pred[4] broadcast(t), dimensions={}\n"
        " ROOT r = pred[4] and(x, b)",
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    body, left = CASES[name]
    module, plain = module_of(body), module_of(body)
    for _ in range(3):
        Simplify().run(module)
    DeadCode().run(module)
    assert sorted(i.opcode for i in module.entry.instructions if i.opcode != "parameter") == sorted(left)
    rng = np.random.default_rng(0)
    arguments = []
    for p in plain.entry.parameters:
        x = np.asarray(rng.standard_normal(p.dims))
        x = np.where(np.arange(x.size).reshape(x.shape) == 1, -0.0, x)
        arguments.append(np.asarray(x > 0 if p.shape.dtype.name == "pred" else x, p.shape.dtype.stored))
    np.testing.assert_array_equal(
        evaluate(module, *arguments)[0].view(np.uint8), evaluate(plain, *arguments)[0].view(np.uint8)
    )
