"""Nothing that a user writes in attributes, or as the kind of a fusion, is taken for a fact of the compiler's own."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.machine import TINY, compare, compiled

KINDS = ("kLoop", "kInput", "kOutput", "kCustom")

ATTRIBUTES = (
    'frontend_attributes={unit="vpu"}',
    'frontend_attributes={systolith.unit="vpu"}',
    'frontend_attributes={systolith.blocked="0",tiling="0"}',
    'backend_config={"tiling":{"dims":[0]}}',
    'backend_config={"unit":"vpu","kind":"kCustom","tiling":{"dims":[1,1]}}',
)

OPERATIONS = {
    "convolution": "s32[2,4,6] convolution(x, w), window={size=3 pad=1_1}, dim_labels=bf0_io0->bf0, "
    "feature_group_count=2",
    "dot": "s32[2,6,5] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "slice": "s8[1,4,6] slice(x), slice={[1:2], [0:4], [0:6]}",
    "reduce": "s8[2,4] reduce(x, z), dimensions={2}, to_apply=sum",
    **{f"fusion of a sum, {kind}": f"s8[2,4] fusion(x), kind={kind}, calls=summed" for kind in KINDS},
    **{f"fusion of a product, {kind}": f"s32[2,6,5] fusion(x, v), kind={kind}, calls=product" for kind in KINDS},
    **{f"fusion of an addition, {kind}": f"s8[2,4,6] fusion(x), kind={kind}, calls=twice" for kind in KINDS},
}


def module(operation: str, attribute: str) -> str:
    """A module of one operation; the operations that it calls have the attribute too."""
    return f"""HloModule m
sum {{
 a = s8[] parameter(0)
 b = s8[] parameter(1)
 ROOT c = s8[] add(a, b){attribute}
}}
twice {{
 p = s8[2,4,6] parameter(0)
 ROOT d = s8[2,4,6] add(p, p){attribute}
}}
summed {{
 p = s8[2,4,6] parameter(0)
 z = s8[] constant(0)
 ROOT s = s8[2,4] reduce(p, z), dimensions={{2}}, to_apply=sum{attribute}
}}
product {{
 p = s8[2,4,6] parameter(0)
 q = s8[4,5] parameter(1)
 ROOT d = s32[2,6,5] dot(p, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{attribute}
}}
ENTRY e {{
 x = s8[2,4,6] parameter(0)
 w = s8[2,4,3] parameter(1)
 v = s8[4,5] parameter(2)
 z = s8[] constant(0)
 ROOT r = {OPERATIONS[operation]}{attribute}
}}
"""


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_users_attributes_change_neither_values_nor_the_program(operation: str) -> None:
    rng = np.random.default_rng(0)
    args = [rng.integers(-4, 5, s).astype(np.int8) for s in ((2, 4, 6), (2, 4, 3), (4, 5))]
    plain = compiled(module(operation, "")).program
    for attribute in ATTRIBUTES:
        text = module(operation, f", {attribute}")
        assert compiled(text).program.code == plain.code
    compare(text, args, TINY)


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_a_users_attributes_take_no_convolution_off_the_vector_unit(attribute: str) -> None:
    text = """HloModule m
ENTRY e {
 x = f32[2,20,16] parameter(0)
 w = f32[3,1,16] parameter(1)
 ROOT r = f32[2,20,16] convolution(x, w), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f, feature_group_count=16
}
"""
    (kind,) = (g.kind for g in compiled(text).program.groups)
    assert kind == "kInput"
    marked = text.replace("feature_group_count=16", f"feature_group_count=16, {attribute}")
    assert compiled(marked).program.code == compiled(text).program.code
