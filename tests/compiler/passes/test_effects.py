from __future__ import annotations

import pytest

from systolith.compiler.passes.simplify.common import MergeCommon
from systolith.compiler.passes.simplify.dead_code import DeadCode
from tests.compiler.passes.texts import module_of

KEPT = {
    "outfeed": " x = f32[4] parameter(0)\n t = token[] after-all()\n o = token[] outfeed(x, t), outfeed_shape=f32[4]\n",
    "infeed": " x = f32[4] parameter(0)\n t = token[] after-all()\n o = (f32[4], token[]) infeed(t)\n",
    "rng": " x = f32[4] parameter(0)\n z = f32[] constant(0)\n o = f32[4] rng(z, z), distribution=rng_uniform\n",
    "rng state": " x = f32[4] parameter(0)\n o = u64[1] rng-get-and-update-state(), delta=1\n",
    "custom call": " x = f32[4] parameter(0)\n"
    ' o = f32[4] custom-call(x), custom_call_target="f", custom_call_has_side_effect=true\n',
    "collective": " x = f32[4] parameter(0)\n o = f32[4] collective-permute(x), source_target_pairs={{0,0}}\n",
    "call of one": " x = f32[4] parameter(0)\n o = f32[4] call(x), to_apply=f\n",
}
CALLEE = (
    "f {\n p = f32[4] parameter(0)\n"
    ' ROOT o = f32[4] custom-call(p), custom_call_target="f", custom_call_has_side_effect=true\n}'
)


@pytest.mark.parametrize("name", KEPT)
def test_effects_stay_and_are_not_merged(name: str) -> None:
    twice = KEPT[name] + KEPT[name].splitlines()[-1].replace(" o = ", " q = ") + "\n ROOT r = f32[4] negate(x)"
    module = module_of(twice, CALLEE)
    MergeCommon().run(module)
    DeadCode().run(module)
    assert {"o", "q"} <= {i.name for i in module.entry.instructions}


def test_pure_custom_calls_go() -> None:
    body = ' x = f32[4] parameter(0)\n o = f32[4] custom-call(x), custom_call_target="f"\n ROOT r = f32[4] negate(x)'
    module = module_of(body)
    assert DeadCode().run(module)
    assert len(module.entry.instructions) == 2


def test_custom_calls_differ_by_their_configuration() -> None:
    body = (
        ' x = f32[4] parameter(0)\n a = f32[4] custom-call(x), custom_call_target="f", backend_config="1"\n'
        ' b = f32[4] custom-call(x), custom_call_target="f", backend_config="2"\n ROOT r = f32[4] add(a, b)'
    )
    assert not MergeCommon().run(module_of(body))
