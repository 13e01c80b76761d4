from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.simplify.sharding_remover import RemoveShardings
from systolith.isa.chip import load_chip
from tests.compiler.machine import compiled, run
from tests.compiler.passes.texts import after

X = " x = f32[4] parameter(0), sharding={maximal device=0}\n"
MARKERS = {
    "Sharding": ' y = f32[4] custom-call(x), custom_call_target="Sharding", sharding={replicated}\n',
    "SPMD": ' m = f32[4] custom-call(x), custom_call_target="SPMDFullToShardShape", sharding={manual}\n'
    ' y = f32[4] custom-call(m), custom_call_target="SPMDShardToFullShape", sharding={replicated}\n',
    "memory": ' h = f32[4] custom-call(x), custom_call_target="annotate_device_placement",'
    ' custom_call_has_side_effect=true, frontend_attributes={_xla_buffer_placement="pinned_host"}\n'
    ' m = f32[4] custom-call(h), custom_call_target="MoveToHost"\n'
    ' y = f32[4] custom-call(m), custom_call_target="MoveToDevice"\n',
    "Shardy": ' t = (f32[4], f32[4]) custom-call(x, x), custom_call_target="xla.sdy.GlobalToLocalShape"\n'
    " a = f32[4] get-tuple-element(t), index=1\n"
    ' g = () custom-call(a), custom_call_target="xla.sdy.ShardingGroup", custom_call_has_side_effect=true\n'
    ' y = f32[4] custom-call(a), custom_call_target="xla.sdy.FuncResultSharding", custom_call_has_side_effect=true\n',
}


@pytest.mark.parametrize("marker", MARKERS)
def test_shardings_on_one_device_are_the_identity(marker: str) -> None:
    body = X + MARKERS[marker] + " ROOT r = f32[4] negate(y)"
    text = f"HloModule m\nENTRY e {{\n{body}\n}}"
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(evaluate(parse_hlo(text), x)[0], -x)
    np.testing.assert_array_equal(run(compiled(text).program, load_chip("tiny"), [x])[0], -x)
    lines = after(RemoveShardings(), body)
    assert not any("custom-call" in line or "sharding=" in line for line in lines)


def test_a_piece_of_an_array_is_refused() -> None:
    body = ' ROOT r = f32[2] custom-call(x), custom_call_target="SPMDFullToShardShape", sharding={manual}'
    with pytest.raises(CompileError, match=r"custom-call 'r' \(f32\[2\]\): no lowering .* 'SPMDFullToShardShape'"):
        compiled(f"HloModule m\nENTRY e {{\n{X}{body}\n}}")
