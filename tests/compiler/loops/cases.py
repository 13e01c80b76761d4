"""Modules whose lowerings repeat: one for each sort of tile loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from systolith.compiler.lower import lowering
from systolith.compiler.schedule import group_loops, repetition, reroll

REDUCERS = """
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
"""

BODIES = {
    "elementwise": "x = f32[M,N] parameter(0)  y = f32[M,N] parameter(1)  ROOT r = f32[M,N] add(x, y)",
    "sum of rows": """x = f32[M,N] parameter(0)  z = f32[] constant(0)
        ROOT r = f32[M] reduce(x, z), dimensions={1}, to_apply=add""",
    "sum of columns": """x = f32[M,N] parameter(0)  z = f32[] constant(0)
        ROOT r = f32[N] reduce(x, z), dimensions={0}, to_apply=add""",
    "transpose": "x = f32[M,N] parameter(0)  ROOT r = f32[N,M] transpose(x), dimensions={1,0}",
    "indices": """x = f32[M,N] parameter(0)  i = s32[M,N] iota(), iota_dimension=0  f = f32[M,N] convert(i)
        ROOT r = f32[M,N] multiply(x, f)""",
    "product of what indices select": """x = f32[M,K] parameter(0)  y = f32[K,N] parameter(1)
        i = s32[M,K] iota(), iota_dimension=1  c = s32[] constant(5)  b = s32[M,K] broadcast(c), dimensions={}
        p = pred[M,K] compare(i, b), direction=GT  z = f32[] constant(0)  o = f32[M,K] broadcast(z), dimensions={}
        s = f32[M,K] select(p, x, o)
        ROOT r = f32[M,N] dot(s, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "product": """x = bf16[M,K] parameter(0)  y = bf16[K,N] parameter(1)
        ROOT r = bf16[M,N] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
    "products": """x = f32[3,M,K] parameter(0)  y = f32[3,K,N] parameter(1)
        ROOT r = f32[3,M,N] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
        rhs_contracting_dims={1}""",
    "convolution": """x = f32[2,M,16,8] parameter(0)  w = f32[3,3,8,16] parameter(1)
        ROOT r = f32[2,M,16,16] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f""",
    "softmax": """x = f32[M,N] parameter(0)  n = f32[] constant(-inf)
        m = f32[M] reduce(x, n), dimensions={1}, to_apply=max
        mb = f32[M,N] broadcast(m), dimensions={0}  d = f32[M,N] subtract(x, mb)  e = f32[M,N] exponential(d)
        z = f32[] constant(0)  s = f32[M] reduce(e, z), dimensions={1}, to_apply=add
        b = f32[M,N] broadcast(s), dimensions={0}  ROOT r = f32[M,N] divide(e, b)""",
}


def module(body: str, m: int, n: int, k: int) -> str:
    """HLO text of one of them, of these sizes."""
    for name, size in (("M", m), ("N", n), ("K", k)):
        for before, after in (("[", ","), ("[", "]"), (",", ","), (",", "]")):
            body = body.replace(f"{before}{name}{after}", f"{before}{size}{after}")
    return f"HloModule repeats\n{REDUCERS}ENTRY e {{\n  {body}\n}}\n"


@contextmanager
def rolled_everywhere() -> Iterator[None]:
    """Make a loop of everything that repeats, whatever it saves or costs."""
    with pytest.MonkeyPatch.context() as patch:
        for place, name, value in (
            (lowering, "SMALLEST", 1),
            (reroll, "SMALLEST", 1),
            (reroll, "LEAST", 1),
            (repetition, "LEAST", 1),
            (group_loops, "NEAR", 1e9),
            (group_loops, "WORTH", 1.0),
        ):
            patch.setattr(place, name, value)
        yield
