from __future__ import annotations

import numpy as np

from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.simplify.inline import Inline
from tests.compiler.passes.texts import after, module_of

TWICE = "twice {\n a = f32[4] parameter(0)\n ROOT r = f32[4] add(a, a)\n}"
FOUR = (
    TWICE + "\nfour {\n a = f32[4] parameter(0)\n b = f32[4] call(a), to_apply=twice\n"
    " ROOT r = f32[4] call(b), to_apply=twice\n}"
)


def test_call_is_replaced_by_its_body() -> None:
    lines = after(Inline(), " x = f32[4] parameter(0)\n ROOT r = f32[4] call(x), to_apply=twice", TWICE)
    assert lines == ["x = f32[4] parameter(0)", "ROOT r.1 = f32[4] add(x, x)"]


def test_nested_calls_and_unique_names() -> None:
    module = module_of(" x = f32[4] parameter(0)\n ROOT r = f32[4] call(x), to_apply=four", FOUR)
    assert Inline().run(module)
    verify(module)
    assert [i.opcode for i in module.entry.instructions] == ["parameter", "add", "add"]
    np.testing.assert_array_equal(evaluate(module, np.ones(4, np.float32))[0], np.full(4, 4, np.float32))


def test_callee_that_returns_a_parameter() -> None:
    before = "second {\n a = f32[4] parameter(0)\n ROOT b = f32[4] parameter(1)\n}"
    body = " x = f32[4] parameter(0)\n n = f32[4] negate(x)\n ROOT r = f32[4] call(x, n), to_apply=second"
    assert after(Inline(), body, before)[-1] == "ROOT n = f32[4] negate(x)"


def test_only_the_wanted_opcodes() -> None:
    module = module_of(" x = f32[4] parameter(0)\n ROOT r = f32[4] call(x), to_apply=twice", TWICE)
    assert not Inline(("fusion",)).run(module)
