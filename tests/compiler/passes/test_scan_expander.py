"""`scan` as a loop: the same values, and on the chip those of the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.passes.expand.scan_expander import ExpandScans
from tests.compiler.machine import check
from tests.compiler.passes.differential import arguments_of, assert_unchanged

STEP = """step {
 x = f32[2] parameter(0)
 c = f32[2] parameter(1)
 s = f32[2] add(c, x)
 d = f32[2] multiply(s, x)
 ROOT t = (f32[2], f32[2]) tuple(d, s)
}
"""
SCANS = {
    "rows": STEP + "ENTRY e {\n x = f32[5,2] parameter(0)\n c = f32[2] parameter(1)\n"
    " ROOT r = (f32[5,2], f32[2]) scan(x, c), dimensions={0}, num_carries=1, to_apply=step\n}",
    "columns, backwards": STEP + "ENTRY e {\n x = f32[2,5] parameter(0)\n c = f32[2] parameter(1)\n"
    " ROOT r = (f32[2,5], f32[2]) scan(x, c), dimensions={1}, is_reverse=true, num_carries=1, to_apply=step\n}",
    "nothing": STEP + "ENTRY e {\n x = f32[0,2] parameter(0)\n c = f32[2] parameter(1)\n"
    " ROOT r = (f32[0,2], f32[2]) scan(x, c), dimensions={0}, num_carries=1, to_apply=step\n}",
    "of scalars, several": "step {\n x = s32[] parameter(0)\n y = f32[] parameter(1)\n c = s32[] parameter(2)\n"
    " d = f32[] parameter(3)\n m = s32[] maximum(x, c)\n f = f32[] convert(x)\n p = f32[] add(d, f)\n"
    " q = f32[] add(p, y)\n ROOT t = (f32[], s32[], s32[], f32[]) tuple(q, m, m, p)\n}\n"
    "ENTRY e {\n x = s32[7] parameter(0)\n y = f32[7] parameter(1)\n c = s32[] parameter(2)\n d = f32[] parameter(3)\n"
    " ROOT r = (f32[7], s32[7], s32[], f32[]) scan(x, y, c, d), dimensions={0}, num_carries=2, to_apply=step\n}",
    "without arrays": "step {\n c = s32[] parameter(0)\n k = s32[] constant(3)\n m = s32[] multiply(c, k)\n"
    " ROOT t = (s32[], s32[]) tuple(c, m)\n}\nENTRY e {\n c = s32[] parameter(0)\n"
    " ROOT r = (s32[6], s32[]) scan(c), dimensions={0}, num_carries=1, to_apply=step\n}",
    "of one result": "step {\n x = f32[] parameter(0)\n ROOT n = f32[] negate(x)\n}\nENTRY e {\n"
    " x = f32[6] parameter(0)\n ROOT r = f32[6] scan(x), dimensions={0}, num_carries=0, to_apply=step\n}",
    "of what is carried only": "step {\n x = f32[] parameter(0)\n c = f32[] parameter(1)\n"
    " ROOT n = f32[] add(x, c)\n}\nENTRY e {\n x = f32[6] parameter(0)\n c = f32[] parameter(1)\n"
    " ROOT r = f32[] scan(x, c), dimensions={0}, num_carries=1, to_apply=step\n}",
}  # fmt: skip


@pytest.mark.parametrize("name", SCANS)
def test_scans_are_loops(name: str) -> None:
    module = parse_hlo("HloModule m\n" + SCANS[name])
    arguments = [np.nan_to_num(a, posinf=1.5) if a.dtype.kind == "f" else a for a in arguments_of(module)]
    assert_unchanged(module, ExpandScans(), arguments=arguments)
    check("HloModule m\n" + SCANS[name], arguments)
