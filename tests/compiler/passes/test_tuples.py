from __future__ import annotations

from systolith.compiler.passes.tuples import SimplifyTuples
from tests.compiler.passes.texts import after

X = " x = f32[4] parameter(0)\n y = s32[] parameter(1)\n"


def test_element_of_a_tuple() -> None:
    body = X + " t = (f32[4], s32[]) tuple(x, y)\n g = f32[4] get-tuple-element(t), index=0\n ROOT r = f32[4] abs(g)"
    assert after(SimplifyTuples(), body)[-1] == "ROOT r = f32[4] abs(x)"


def test_tuple_of_all_elements() -> None:
    body = (
        " t = (f32[4], s32[]) parameter(0)\n g = f32[4] get-tuple-element(t), index=0\n"
        " h = s32[] get-tuple-element(t), index=1\n ROOT r = (f32[4], s32[]) tuple(g, h)"
    )
    lines = after(SimplifyTuples(), body)
    assert lines[0].startswith("ROOT t = (")


def test_tuple_of_some_elements_stays() -> None:
    body = " t = (f32[4], s32[]) parameter(0)\n g = f32[4] get-tuple-element(t), index=0\n ROOT r = (f32[4]) tuple(g)"
    assert len(after(SimplifyTuples(), body)) == 3
