"""Long straight code in pieces: a chain of any length compiles in time that grows with it, to the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.groups.fusion import Fuse
from systolith.compiler.groups.straight import LONG, MOST
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.ops.group import Group, read_groups
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.kernel import MAX_STREAMS
from tests.compiler.machine import check
from tests.examples import examples

# The middle leaves the code (a reverse) and comes back to it; an odd shape; a value that the result needs, too.
TEXT = """HloModule m
ENTRY e {
 x = f64[3,1,7] parameter(0)
 y = f64[3,1,7] parameter(1)
 s = f64[7] parameter(2)
 t = f64[3,1,7] broadcast(s), dimensions={2}
 a = f64[3,1,7] multiply(x, y)
 b = f64[3,1,7] add(a, t)
 c = f64[3,1,7] reverse(b), dimensions={0}
 d = f64[3,1,7] subtract(c, a)
 e = f64[3,1,7] multiply(d, d)
 f = f64[3,1,7] add(e, b)
 ROOT r = (f64[3,1,7], f64[3,1,7]) tuple(f, b)
}
"""


def arguments() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(dims) for dims in ((3, 1, 7), (3, 1, 7), (7,))]


def test_pieces_are_groups_that_kernels_have_room_for() -> None:
    module = canonicalise(parse_hlo(TEXT))
    before = evaluate(module, *arguments())
    Fuse().run(module)
    verify(module)
    pieces = [i for i in module.entry.instructions if isinstance(i, Group) and i.name.endswith(".piece")]
    assert len(pieces) > 3
    assert sum(len(p.body.instructions) for p in pieces) > 2 * LONG
    for p in pieces:
        assert len(p.operands) + len(list(p.shape.leaves())) <= MAX_STREAMS
        assert sum(i.opcode not in ("reshape", "broadcast", "constant") for i in p.body.instructions) <= 2 * MOST
    for a, b in zip(before, evaluate(module, *arguments()), strict=True):
        np.testing.assert_array_equal(a, b)
    again = read_groups(parse_hlo(print_hlo(module)))
    assert print_hlo(again) == print_hlo(module)


def test_on_the_chip() -> None:
    check(TEXT, arguments(), "tiny", most=0.0)


@pytest.mark.parametrize("dims", ["", "1", "1,1"])
def test_code_on_one_element_is_cut_too(dims: str) -> None:
    text = (
        f"HloModule m\nENTRY e {{\n x = f64[{dims}] parameter(0)\n c = f64[] constant(0.3)\n"
        f" d = f64[{dims}] broadcast(c), dimensions={{}}\n s = f64[{dims}] add(x, d)\n"
        f" ROOT t = f64[{dims}] multiply(s, s)\n}}\n"
    )
    module = canonicalise(parse_hlo(text))
    Fuse().run(module)
    assert any(isinstance(i, Group) and i.name.endswith(".piece") for i in module.entry.instructions)
    given = np.full([int(n) for n in dims.split(",") if n], 1.7)
    check(text, [given], "tiny", most=0.0)


def test_results_stand_behind_their_group() -> None:
    module = canonicalise(parse_hlo(TEXT))
    Fuse().run(module)
    order = {i: n for n, i in enumerate(module.entry.instructions)}
    for i in module.entry.instructions:
        if isinstance(i, Group) and i.shape.is_tuple:
            count = len(i.shape.elements)
            assert sorted(order[u] - order[i] for u in module.entry.users()[i]) == list(range(1, count + 1))


NARROW = st.sampled_from([(2,), (1,), ()])


@st.composite
def programs(draw: st.DrawFn, narrow_dims: tuple[int, ...]) -> str:
    """Operations on f64 arrays of two shapes, which reverses, slices, broadcasts and reductions connect."""
    thin = f"f64[{','.join(map(str, narrow_dims))}]"
    thick = f"f64[{','.join(map(str, (3, *narrow_dims)))}]"
    one = f"f64[{','.join(map(str, (1, *narrow_dims)))}]"
    cut = ", ".join(["[1:2]", *(f"[0:{n}]" for n in narrow_dims)])
    kept = ",".join(str(d + 1) for d in range(len(narrow_dims)))
    lines = [f"x0 = {thick} parameter(0)", f"y0 = {thin} parameter(1)"]
    wide, narrow = ["x0"], ["y0"]
    for n in range(draw(st.integers(4, 10))):
        a, b = (draw(st.sampled_from(wide)) for _ in range(2))
        c, d = (draw(st.sampled_from(narrow)) for _ in range(2))
        match draw(st.sampled_from(("wide", "narrow", "reverse", "slice", "broadcast", "reduce"))):
            case "wide":
                lines.append(f"x{n + 1} = {thick} {draw(st.sampled_from(('add', 'multiply')))}({a}, {b})")
                wide.append(f"x{n + 1}")
            case "narrow":
                lines.append(f"y{n + 1} = {thin} subtract({c}, {d})")
                narrow.append(f"y{n + 1}")
            case "reverse":
                lines.append(f"x{n + 1} = {thick} reverse({a}), dimensions={{0}}")
                wide.append(f"x{n + 1}")
            case "slice":
                lines.append(f"s{n} = {one} slice({a}), slice={{{cut}}}")
                lines.append(f"y{n + 1} = {thin} reshape(s{n})")
                narrow.append(f"y{n + 1}")
            case "broadcast":
                lines.append(f"x{n + 1} = {thick} broadcast({c}), dimensions={{{kept}}}")
                wide.append(f"x{n + 1}")
            case "reduce":
                lines.append(f"y{n + 1} = {thin} reduce({a}, zero), dimensions={{0}}, to_apply=sum")
                narrow.append(f"y{n + 1}")
    body = "\n ".join(
        ["zero = f64[] constant(0)", *lines, f"ROOT r = ({thick}, {thin}) tuple({wide[-1]}, {narrow[-1]})"]
    )
    total = "sum {\n a = f64[] parameter(0)\n b = f64[] parameter(1)\n ROOT c = f64[] add(a, b)\n}\n"
    return f"HloModule m\n{total}ENTRY e {{\n {body}\n}}\n"


@examples(6, 400)
@given(st.data(), NARROW)
def test_no_group_needs_itself(draw: st.DataObject, narrow: tuple[int, ...]) -> None:
    module = canonicalise(parse_hlo(draw.draw(programs(narrow))))
    rng = np.random.default_rng(0)
    some = [rng.standard_normal((3, *narrow)), rng.standard_normal(narrow)]
    before = evaluate(module, *some)
    Fuse().run(module)
    verify(module)
    for a, b in zip(before, evaluate(module, *some), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_view_that_others_read_stays_outside() -> None:
    """The sum reads the words of x, and the code that reads these words, too, needs the sum."""
    check(
        "HloModule m\nsum {\n a = f64[] parameter(0)\n b = f64[] parameter(1)\n ROOT c = f64[] add(a, b)\n}\n"
        "ENTRY e {\n x = f64[3] parameter(0)\n zero = f64[] constant(0)\n"
        " s = f64[] reduce(x, zero), dimensions={0}, to_apply=sum\n t = f64[3] broadcast(s), dimensions={}\n"
        " d = f64[3] subtract(x, t)\n ROOT e = f64[3] multiply(d, d)\n}\n",
        [np.array([0.5, -3.0, 7.25])],
        "tiny",
        most=0.0,
    )
