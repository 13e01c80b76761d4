from __future__ import annotations

from systolith.compiler.passes.simplify.common import MergeCommon
from tests.compiler.passes.texts import after, module_of


def test_equal_instructions_are_one() -> None:
    body = " x = f32[4] parameter(0)\n a = f32[4] abs(x)\n b = f32[4] abs(x)\n ROOT r = f32[4] add(a, b)"
    assert after(MergeCommon(), body) == ["x = f32[4] parameter(0)", "a = f32[4] abs(x)", "ROOT r = f32[4] add(a, a)"]


def test_metadata_does_not_count() -> None:
    body = '  x = f32[4] parameter(0)\n  a = f32[4] abs(x), metadata={op_name="a"}\n  b = f32[4] abs(x)\n'
    module = module_of(body + "  ROOT r = f32[4] add(a, b)")
    assert MergeCommon().run(module)
    assert [o.name for o in module.entry.result.operands] == ["a", "a"]


def test_attributes_and_bits_of_constants_count() -> None:
    body = " a = f32[] constant(0)\n b = f32[] constant(-0)\n ROOT r = f32[] add(a, b)"
    assert not MergeCommon().run(module_of(body))
    body = (
        " a = s32[2,2] iota(), iota_dimension=0\n b = s32[2,2] iota(), iota_dimension=1\n ROOT r = s32[2,2] add(a, b)"
    )
    assert not MergeCommon().run(module_of(body))


def test_equal_callees_by_content() -> None:
    f = "{n} {{\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] {op}(a, b)\n}}\n"
    body = (
        " x = f32[4] parameter(0)\n z = f32[] constant(0)\n a = f32[] reduce(x, z), dimensions={0}, to_apply=f\n"
        " b = f32[] reduce(x, z), dimensions={0}, to_apply=g\n ROOT r = f32[] add(a, b)"
    )
    same = f.format(n="f", op="add") + f.format(n="g", op="add")
    other = f.format(n="f", op="add") + f.format(n="g", op="multiply")
    assert after(MergeCommon(), body, same)[-1] == "ROOT r = f32[] add(a, a)"
    assert not MergeCommon().run(module_of(body, other))
