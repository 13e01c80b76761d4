from __future__ import annotations

import numpy as np

from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.simplify.layouts import NormaliseLayouts
from tests.compiler.passes.texts import module_of

BODY = """ x = f32[2,3]{0,1} parameter(0)
 b = f32[3,2]{1,0} bitcast(x)
 c = f32[6]{0} bitcast(b)
 d = f32[2,3]{0,1} bitcast(c)
 ROOT r = f32[2,3]{1,0} copy(d)"""


def test_bitcast_means_the_same_afterwards() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (want,) = evaluate(module_of(BODY), x)
    module = module_of(BODY)
    assert NormaliseLayouts().run(module)
    verify(module)
    assert "bitcast" not in {i.opcode for i in module.instructions()}
    assert {i.shape.minor_to_major for i in module.instructions() if i.shape.rank == 2} == {(1, 0)}
    np.testing.assert_array_equal(evaluate(module, x)[0], want)
    assert not NormaliseLayouts().run(module)


def test_bitcast_to_a_transposed_layout_is_a_transpose() -> None:
    module = module_of(" x = f32[2,3]{1,0} parameter(0)\n ROOT b = f32[3,2]{0,1} bitcast(x)")
    NormaliseLayouts().run(module)
    assert [i.opcode for i in module.entry.instructions] == ["parameter", "transpose"]
