"""Asynchronous calls and copies: as if they were none."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.passes.expand.asynchronous import RunInOrder
from systolith.compiler.passes.pipeline import canonicalise
from tests.compiler.machine import check
from tests.compiler.passes.differential import assert_unchanged, opcodes

HALVES = "halves {\n x = f32[8] parameter(0)\n y = f32[4] slice(x), slice={[0:4]}\n ROOT n = f32[4] negate(y)\n}\n"
TWO = (
    "both {\n x = f32[8] parameter(0)\n y = f32[8] parameter(1)\n a = f32[8] add(x, y)\n b = f32[8] multiply(x, y)\n"
    " ROOT t = (f32[8], f32[8]) tuple(a, b)\n}\n"
)
MODULES = {
    "call": HALVES
    + "ENTRY e {\n p = f32[8] parameter(0)\n s = ((f32[8]), f32[4], u32[]) async-start(p), calls=halves\n"
    " u = ((f32[8]), f32[4], u32[]) async-update(s)\n ROOT d = f32[4] async-done(u)\n}\n",
    "call of two results": TWO + "ENTRY e {\n p = f32[8] parameter(0)\n"
    " s = ((f32[8], f32[8]), (f32[8], f32[8]), u32[], u32[]) async-start(p, p), calls=both\n"
    " d = (f32[8], f32[8]) async-done(s)\n ROOT r = f32[8] get-tuple-element(d), index=1\n}\n",
    "copy": "ENTRY e {\n p = f32[8] parameter(0)\n s = (f32[8], f32[8], u32[]) copy-start(p)\n"
    " ROOT d = f32[8] copy-done(s)\n}\n",
    "order": "ENTRY e {\n p = f32[8] parameter(0)\n t = token[] after-all()\n"
    " ROOT d = f32[8] add-dependency(p, t)\n}\n",
}


@pytest.mark.parametrize("name", MODULES)
def test_they_run_in_order(name: str) -> None:
    text = "HloModule m\n" + MODULES[name]
    made = assert_unchanged(parse_hlo(text), RunInOrder())
    assert not any(word in opcode for opcode in opcodes(made) for word in ("async", "start", "done", "dependency"))
    assert "after-all" not in opcodes(canonicalise(made))
    check(text, [np.arange(8, dtype=np.float32)], most=0.0)
