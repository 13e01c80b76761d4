from __future__ import annotations

from systolith.compiler.passes.simplify.dead_code import DeadCode, has_effects
from tests.compiler.passes.texts import after, module_of


def test_unused_instructions_go_and_parameters_stay() -> None:
    lines = after(
        DeadCode(), " x = f32[4] parameter(0)\n y = f32[4] parameter(1)\n n = f32[4] negate(y)\n ROOT r = f32[4] abs(x)"
    )
    assert lines == ["x = f32[4] parameter(0)", "y = f32[4] parameter(1)", "ROOT r = f32[4] abs(x)"]


def test_outfeed_stays() -> None:
    module = module_of(
        " x = f32[4] parameter(0)\n t = token[] after-all()\n o = token[] outfeed(x, t), outfeed_shape=f32[4]\n"
        " ROOT r = f32[4] abs(x)"
    )
    assert not DeadCode().run(module)
    assert has_effects(module.entry.instructions[2])


def test_uncalled_computations_go() -> None:
    module = module_of(" x = f32[4] parameter(0)\n ROOT r = f32[4] abs(x)", "f {\n ROOT a = f32[] parameter(0)\n}")
    assert DeadCode().run(module)
    assert [c.name for c in module.computations] == ["e"]
