"""Frontend attributes of a module say nothing to the compiler, whatever names they have."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.passes.own_attributes import DropOwnAttributes, stated
from tests.compiler.driver.test_random_modules import TINY, compare
from tests.compiler.machine import compiled

KEYS = (
    'unit="vpu"',
    'systolith.unit="vpu"',
    'blocked="0"',
    'systolith.blocked="0"',
    'note="mine",systolith.unit="vpu"',
)

OPERATIONS = {
    "convolution": "convolution(x, w), window={size=3 pad=1_1}, dim_labels=bf0_io0->bf0, feature_group_count=2",
    "dot": "dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "fusion": "fusion(x), kind=kCustom, calls=twice",
}


def module(operation: str, keys: str) -> str:
    kind = {"convolution": "s32[2,4,6]", "dot": "s32[2,6,5]", "fusion": "s8[2,4,6]"}[operation]
    return (
        "HloModule m\ntwice {\n p = s8[2,4,6] parameter(0)\n ROOT d = s8[2,4,6] add(p, p)\n}\nENTRY e {\n"
        " x = s8[2,4,6] parameter(0)\n w = s8[2,4,3] parameter(1)\n v = s8[4,5] parameter(2)\n"
        f" ROOT r = {kind} {OPERATIONS[operation]}, frontend_attributes={{{keys}}}\n}}\n"
    )


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("keys", KEYS)
def test_a_users_attributes_are_not_taken_for_the_compilers(operation: str, keys: str) -> None:
    rng = np.random.default_rng(0)
    args = [rng.integers(-4, 5, s).astype(np.int8) for s in ((2, 4, 6), (2, 4, 3), (4, 5))]
    text = module(operation, keys)
    compare(text, args, TINY)
    plain = compiled(text.replace(f", frontend_attributes={{{keys}}}", "")).program
    assert compiled(text).program.code == plain.code


def test_other_attributes_of_a_user_stay() -> None:
    text = module("dot", KEYS[-1])
    parsed = parse_hlo(text)
    assert DropOwnAttributes().run(parsed)
    dot = parsed.entry.result
    assert dot.attributes["frontend_attributes"] == {"note": "mine"}
    assert not stated(dot, "unit")
    assert not DropOwnAttributes().run(parsed)
