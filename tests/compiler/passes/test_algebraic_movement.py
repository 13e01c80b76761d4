from __future__ import annotations

import pytest

from systolith.compiler.passes.simplify.algebraic import Simplify
from systolith.compiler.passes.simplify.dead_code import DeadCode
from tests.compiler.passes.differential import assert_unchanged, opcodes
from tests.compiler.passes.texts import module_of
from tests.compiler.vpu.movement import show

X = " x = f32[6,4] parameter(0)\n"
CASES = {
    "slice of slice": (
        X + " a = f32[3,4] slice(x), slice={[1:6:2], [0:4]}\n ROOT r = f32[2,2] slice(a), slice={[0:3:2], [1:3]}",
        ["slice"],
    ),
    "empty slice of slice": (
        X + " a = f32[3,4] slice(x), slice={[1:6:2], [0:4]}\n ROOT r = f32[0,4] slice(a), slice={[2:2], [0:4]}",
        ["slice"],
    ),
    "slice of a part": (
        X + " y = f32[2,4] parameter(1)\n c = f32[8,4] concatenate(x, y), dimensions={0}\n"
        " ROOT r = f32[1,4] slice(c), slice={[7:8], [0:4]}",
        ["slice"],
    ),
    "slice across parts": (
        X + " y = f32[2,4] parameter(1)\n c = f32[8,4] concatenate(x, y), dimensions={0}\n"
        " ROOT r = f32[3,4] slice(c), slice={[5:8], [0:4]}",
        ["concatenate", "slice"],
    ),
    "slices of alternate elements": (
        " x = f32[3,8] parameter(0)\n a = f32[3,4] slice(x), slice={[0:3], [0:8:2]}\n"
        " b = f32[3,4] slice(x), slice={[0:3], [1:8:2]}\n ROOT r = f32[3,4] subtract(a, b)",
        ["reshape", "reshape", "reshape", "slice", "slice", "subtract"],
    ),
    "one slice of alternate elements": (
        " x = f32[3,8] parameter(0)\n ROOT a = f32[3,4] slice(x), slice={[0:3], [1:8:2]}",
        ["slice"],
    ),
    "slices of alternate elements with a rest": (
        " x = f32[3,9] parameter(0)\n a = f32[3,4] slice(x), slice={[0:3], [0:8:2]}\n"
        " b = f32[3,4] slice(x), slice={[0:3], [1:9:2]}\n ROOT r = f32[3,4] subtract(a, b)",
        ["slice", "slice", "subtract"],
    ),
    "neighbouring slices": (
        X + " a = f32[2,4] slice(x), slice={[0:2], [0:4]}\n b = f32[4,4] slice(x), slice={[2:6], [0:4]}\n"
        " ROOT r = f32[6,4] concatenate(a, b), dimensions={0}",
        [],
    ),
    "slices in another order": (
        X + " a = f32[2,4] slice(x), slice={[0:2], [0:4]}\n b = f32[4,4] slice(x), slice={[2:6], [0:4]}\n"
        " ROOT r = f32[6,4] concatenate(b, a), dimensions={0}",
        ["concatenate", "slice", "slice"],
    ),
    "concatenation of one": (X + " ROOT r = f32[6,4] concatenate(x), dimensions={0}", []),
    "concatenation with nothing": (
        X + " e = f32[0,4] parameter(1)\n ROOT r = f32[6,4] concatenate(e, x), dimensions={0}",
        [],
    ),
    "concatenation of a concatenation": (
        X + " y = f32[2,4] parameter(1)\n c = f32[8,4] concatenate(x, y), dimensions={0}\n"
        " ROOT r = f32[14,4] concatenate(c, x), dimensions={0}",
        ["concatenate"],
    ),
    "reverse twice": (
        X + " a = f32[6,4] reverse(x), dimensions={0,1}\n ROOT r = f32[6,4] reverse(a), dimensions={1,0}",
        [],
    ),
    "reverse of two ways": (
        X + " a = f32[6,4] reverse(x), dimensions={0}\n ROOT r = f32[6,4] reverse(a), dimensions={1}",
        ["reverse", "reverse"],
    ),
    "dynamic slice of everything": (
        X + " i = s32[] parameter(1)\n ROOT r = f32[6,4] dynamic-slice(x, i, i), dynamic_slice_sizes={6,4}",
        [],
    ),
    "dynamic slice from a constant, which clamps": (
        X + " i = s32[] constant(9)\n j = s32[] constant(-1)\n"
        " ROOT r = f32[2,3] dynamic-slice(x, i, j), dynamic_slice_sizes={2,3}",
        ["slice"],
    ),
    "update of everything": (
        X + " u = f32[6,4] parameter(1)\n i = s32[] parameter(2)\n ROOT r = f32[6,4] dynamic-update-slice(x, u, i, i)",
        [],
    ),
    "update of nothing": (
        X + " u = f32[0,4] parameter(1)\n i = s32[] parameter(2)\n ROOT r = f32[6,4] dynamic-update-slice(x, u, i, i)",
        [],
    ),
    "size of a static dimension": (X + " ROOT r = s32[] get-dimension-size(x), dimensions={1}", ["constant"]),
    "iota of one": (" ROOT r = s32[1,3] iota(), iota_dimension=0", ["broadcast", "constant"]),
    "dot over nothing": (
        " a = f32[2,0] parameter(0)\n b = f32[0,3] parameter(1)\n"
        " ROOT r = f32[2,3] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        ["broadcast", "constant"],
    ),
    "interior padding of one element": (
        " a = f32[1] parameter(0)\n z = f32[] constant(0)\n ROOT r = f32[1] pad(a, z), padding=0_0_3",
        [],
    ),
    "interior padding of two": (
        " a = f32[2] parameter(0)\n z = f32[] constant(0)\n ROOT r = f32[5] pad(a, z), padding=0_0_3",
        ["constant", "pad"],
    ),
    "cropping and padding": (
        " a = f32[2] parameter(0)\n z = f32[] constant(0)\n ROOT r = f32[2] pad(a, z), padding=-1_1",
        ["constant", "pad"],
    ),
    "transposed scalar": (
        " a = f32[] parameter(0)\n b = f32[2,3] broadcast(a), dimensions={}\n"
        " ROOT r = f32[3,2] transpose(b), dimensions={1,0}",
        ["broadcast"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    body, left = CASES[name]
    assert opcodes(assert_unchanged(module_of(body), Simplify(), DeadCode())) == left


def test_reduction_of_nothing() -> None:
    body = (
        " x = f32[0,3] parameter(0)\n z = f32[] constant(2)\n ROOT r = f32[3] reduce(x, z), dimensions={0}, to_apply=f"
    )
    add = "f {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b)\n}"
    assert opcodes(assert_unchanged(module_of(body, add), Simplify(), DeadCode())) == ["broadcast", "constant"]


@pytest.mark.parametrize("kept", ["f32[4,5]", "f32[]", "s8[3]"])
@pytest.mark.parametrize("function", ["add(a, b)", "maximum(a, b)", "subtract(b, a)", "multiply(b, b)"])
def test_reduction_of_one_element_each(kept: str, function: str) -> None:
    """Combined with the initial value, so that -0 becomes 0 in a sum, and integers wrap."""
    dtype, dims = kept.removesuffix("]").split("[")
    body = (
        f" x = {dtype}[{dims}{',' * bool(dims)}1] parameter(0)\n z = {dtype}[] constant({2 if dtype == 's8' else 0})\n"
        f" ROOT r = {kept} reduce(x, z), dimensions={{{dims.count(',') + bool(dims)}}}, to_apply=f"
    )
    callee = f"f {{\n a = {dtype}[] parameter(0)\n b = {dtype}[] parameter(1)\n ROOT c = {dtype}[] {function}\n}}"
    assert "reduce" not in opcodes(assert_unchanged(module_of(body, callee), Simplify(), DeadCode()))


def test_reduction_along_first_dimensions_of_one_element_is_left() -> None:
    """What follows it is not to be computed with the sum of columns whose result it is."""
    body = (
        " x = f32[1,1,5] parameter(0)\n z = f32[] constant(0)\n"
        " ROOT r = f32[5] reduce(x, z), dimensions={0,1}, to_apply=f"
    )
    add = "f {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b)\n}"
    assert not Simplify().run(module_of(body, add))


@pytest.mark.parametrize("reduced", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("order", [(2, 0, 1), (1, 2, 0), (0, 2, 1)])
def test_reduction_of_a_transpose(reduced: tuple[int, ...], order: tuple[int, ...]) -> None:
    """Over the dimensions of what is transposed; the result alone may have to be."""
    dims = (3, 4, 5)
    turned = [dims[d] for d in order]
    kept = [n for d, n in enumerate(turned) if d not in reduced]
    body = (
        f" x = s32[{show(dims)}] parameter(0)\n z = s32[] constant(7)\n"
        f" t = s32[{show(tuple(turned))}] transpose(x), dimensions={{{show(order)}}}\n"
        f" ROOT r = s32[{show(tuple(kept))}] reduce(t, z), dimensions={{{show(reduced)}}}, to_apply=f"
    )
    callee = "f {\n a = s32[] parameter(0)\n b = s32[] parameter(1)\n ROOT c = s32[] FUNCTION(a, b)\n}"
    left = opcodes(assert_unchanged(module_of(body, callee.replace("FUNCTION", "add")), Simplify(), DeadCode()))
    places = [e for d, e in enumerate(order) if d not in reduced]
    assert left == ["constant", "reduce", *(["transpose"] if places != sorted(places) else [])]
    assert not Simplify().run(module_of(body, callee.replace("FUNCTION", "subtract")))


def test_dynamic_sizes_are_left_alone() -> None:
    body = (
        " x = f32[4] parameter(0)\n n = s32[] parameter(1)\n d = f32[<=4] set-dimension-size(x, n), dimensions={0}\n"
        " a = f32[<=4] negate(d)\n ROOT r = s32[] get-dimension-size(a), dimensions={0}"
    )
    module = module_of(body)
    assert not Simplify().run(module)


def test_layouts_that_differ_are_a_copy() -> None:
    body = " x = f32[2,3]{1,0} parameter(0)\n ROOT r = f32[2,3]{0,1} copy(x)"
    assert not Simplify().run(module_of(body))
