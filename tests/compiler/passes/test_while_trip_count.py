from __future__ import annotations

import pytest

from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.trip_count import trip_count
from systolith.compiler.passes.simplify.while_trip_count import AnnotateTripCounts


def loop(
    start: str, step: str, bound: str, direction: str, update: str = "add(g, s)", test: str = "compare(g, b)"
) -> Module:
    return parse_hlo(f"""HloModule m
body {{
 t = (s32[], f32[4]) parameter(0)
 g = s32[] get-tuple-element(t), index=0
 x = f32[4] get-tuple-element(t), index=1
 s = s32[] {step}
 n = s32[] {update}
 y = f32[4] add(x, x)
 ROOT r = (s32[], f32[4]) tuple(n, y)
}}
cond {{
 t = (s32[], f32[4]) parameter(0)
 g = s32[] get-tuple-element(t), index=0
 b = s32[] {bound}
 ROOT p = pred[] {test}, direction={direction}
}}
ENTRY e {{
 x = f32[4] parameter(0)
 k = s32[] parameter(1)
 i = s32[] {start}
 t = (s32[], f32[4]) tuple(i, x)
 ROOT w = (s32[], f32[4]) while(t), condition=cond, body=body
}}
""")


def simulated(start: int, step: int, bound: int, direction: str) -> int:
    test = {"LT": int.__lt__, "LE": int.__le__, "GT": int.__gt__, "GE": int.__ge__, "NE": int.__ne__}[direction]
    count = 0
    while test(start, bound):
        start, count = start + step, count + 1
    return count


@pytest.mark.parametrize(
    ("start", "step", "bound", "direction"),
    [
        (0, 1, 5, "LT"),
        (0, 3, 7, "LT"),
        (2, 2, 8, "LE"),
        (9, -2, 0, "GT"),
        (9, -3, 0, "GE"),
        (5, -1, 0, "GT"),
        (5, -1, 1, "GE"),
        (5, 1, 5, "LT"),
        (0, 2, 8, "NE"),
    ],
)
def test_counted(start: int, step: int, bound: int, direction: str) -> None:
    module = loop(f"constant({start})", f"constant({step})", f"constant({bound})", direction)
    assert AnnotateTripCounts().run(module)
    assert trip_count(module.entry.result) == simulated(start, step, bound, direction)
    assert not AnnotateTripCounts().run(module)


def test_bound_on_the_left() -> None:
    module = loop("constant(0)", "constant(1)", "constant(4)", "GT", test="compare(b, g)")
    AnnotateTripCounts().run(module)
    assert trip_count(module.entry.result) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"start": "copy(k)"},
        {"update": "multiply(g, s)"},
        {"step": "constant(-1)"},
        {"direction": "NE", "step": "constant(3)"},
    ],
)
def test_what_is_not_known(change: dict[str, str]) -> None:
    given = {"start": "constant(0)", "step": "constant(1)", "bound": "constant(5)", "direction": "LT"}
    module = loop(**(given | change))
    assert not AnnotateTripCounts().run(module)
    assert trip_count(module.entry.result) is None
