from __future__ import annotations

from systolith.compiler.passes.simplify.tuples import SimplifyTuples, SplitTupleConstants
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


def test_constant_of_tuple_shape() -> None:
    body = " ROOT c = (f32[2,1], (s32[], (pred[2], ()))) constant(({{1},{2}}, (3, ({1,0}, ()))))"
    lines = after(SplitTupleConstants(), body)
    values = [line.split(" constant(")[1] for line in lines if " constant(" in line]
    assert values == ["{ {1}, {2} })", "3)", "{1, 0})"]
    assert sum(" tuple(" in line for line in lines) == 4
