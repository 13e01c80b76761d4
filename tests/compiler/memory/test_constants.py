"""Constants in HBM: each content lies there once, whatever reads it."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.isa.program import Role
from tests.compiler.machine import check

TABLE = np.arange(60, dtype=np.float32).reshape(6, 10) % 7


def module(second: np.ndarray) -> str:
    """A table that a dot in the entry and one in a branch read."""

    def constant(values: np.ndarray) -> str:
        rows = ", ".join("{" + ", ".join(str(v) for v in row) + "}" for row in values)
        return f"  t = f32[6,10] constant({{{rows}}})\n"

    dot = "dot(x, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    head = "HloModule t\n"
    one = "one {\n  x = f32[4,6] parameter(0)\n" + constant(second) + f"  ROOT d = f32[4,10] {dot}}}\n"
    two = "two {\n  x = f32[4,6] parameter(0)\n" + constant(second) + "  n = f32[4,6] negate(x)\n"
    two += f"  ROOT d = f32[4,10] {dot.replace('(x', '(n')}}}\n"
    entry = "ENTRY e {\n  x = f32[4,6] parameter(0)\n  p = pred[] parameter(1)\n" + constant(TABLE)
    entry += f"  d = f32[4,10] {dot}"
    entry += "  c = f32[4,10] conditional(p, x, x), true_computation=one, false_computation=two\n"
    return head + one + two + entry + "  ROOT s = f32[4,10] subtract(d, c)\n}\n"


@pytest.mark.parametrize(("second", "tables"), [(TABLE, 1), (TABLE + 1, 2)])
def test_equal_constants_lie_in_hbm_once(second: np.ndarray, tables: int) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6) % 5
    result = check(module(second), [x, np.array(False)])
    assert sum(b.role is Role.CONSTANT and b.dims == (6, 10) for b in result.program.buffers) == tables
    assert tables * 240 <= result.memory.constants < (tables + 1) * 240
