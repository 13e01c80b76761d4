"""Dynamic slices that groups read in the whole array: which are, that values stay the same, what that saves."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.driver import Compiled, compile_groups, compile_tile
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.ops.group import Group, Unit, read_groups
from systolith.compiler.options import Options
from systolith.compiler.passes.base import run_pass
from systolith.compiler.passes.pipeline import canonicalise
from systolith.compiler.tile.parser import parse_tile_ir
from systolith.compiler.tiling.pipeline import GROUPING
from systolith.hw.lockstep import lockstep
from systolith.isa.chip import load_chip
from systolith.isa.instruction import Stream
from systolith.isa.program import Probe, Role
from systolith.runtime.jobs.checks import Checker
from systolith.runtime.memories import overwritten
from systolith.sim.simulate import simulate
from tests.compiler.machine import Array, check, compiled, memory, run, with_vmem
from tests.examples import examples

TINY = load_chip("tiny")
LAYERS, WIDTH = 3, 80
ONE = f"f32[{WIDTH},{WIDTH}]"


def layers(
    dtype: str = "f32", more: str = "", carried: str = "w", read: str = "a", extra: str = "", width: int = WIDTH
) -> str:
    """A loop over layers: x = tanh(x @ w[i]).

    Args:
        dtype: of everything.
        more: instructions of the body, after the slice `a` of the weights `w`.
        carried: what the next iteration has as weights.
        read: what the product reads.
        extra: what is added to x besides.
    """
    x, w, one = f"{dtype}[8,{width}]", f"{dtype}[{LAYERS},{width},{width}]", f"{dtype}[{width},{width}]"
    state = f"(s32[], {x}, {w})"
    return f"""HloModule layers
body {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = {x} get-tuple-element(p), index=1
  w = {w} get-tuple-element(p), index=2
  zero = s32[] constant(0)
  s = {dtype}[1,{width},{width}] dynamic-slice(w, i, zero, zero), dynamic_slice_sizes={{1,{width},{width}}}
  a = {one} reshape(s)
  {more}
  y = {x} dot(x, {read}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  z = {x} tanh(y)
  {extra}
  j = s32[] constant(1)
  n = s32[] add(i, j)
  ROOT r = {state} tuple(n, {"e" if extra else "z"}, {carried})
}}
cond {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  k = s32[] constant({LAYERS})
  ROOT r = pred[] compare(i, k), direction=LT
}}
ENTRY e {{
  x = {x} parameter(0)
  w = {w} parameter(1)
  zero = s32[] constant(0)
  t = {state} tuple(zero, x, w)
  l = {state} while(t), condition=cond, body=body
  ROOT r = {x} get-tuple-element(l), index=1
}}
"""


def arguments(width: int = WIDTH) -> list[Array]:
    draw = np.random.default_rng(0)
    shapes = (8, width), (LAYERS, width, width)
    return [(draw.standard_normal(shape) / 4).astype(np.float32) for shape in shapes]


def text_of(dims: tuple[int, ...]) -> str:
    return ",".join(map(str, dims))


def views(module: Module) -> list[str]:
    return [i.name for i in module.instructions() if isinstance(i, Group) and i.unit is Unit.VIEW]


def grouped(text: str) -> Module:
    """In groups, without views, and then with them."""
    module = canonicalise(parse_hlo(text))
    for name, make in GROUPING.items():
        run_pass(module, make(TINY, Options()))
        if name == "slice-views":
            break
    return module


@cache
def usual(precision: str | None = None) -> Compiled:
    """The loop, compiled once for all tests."""
    return compiled(layers(), precision=precision)


def test_a_layer_s_weights_are_read_in_those_of_all() -> None:
    made = usual()
    (decision,) = [d for d in made.explain if "where it lies" in d.chosen]
    assert decision.numbers == {"bytes": 4 * WIDTH * WIDTH}
    assert views(made.module) == [decision.group]
    (info,) = [g for g in made.program.groups if g.name == decision.group]
    assert info.bytes == 0


UPDATE = f"u = f32[{LAYERS},{WIDTH},{WIDTH}] dynamic-update-slice(w, s, i, zero, zero)"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(layers(width=16), id="small"),
        pytest.param(
            layers(extra=f"b = f32[8,{WIDTH}] dot(z, a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}\n"
            f"  e = f32[8,{WIDTH}] add(b, z)"),
            id="read twice, and it fits",
        ),
        pytest.param(layers(more=UPDATE, carried="u"), id="updated while it is read"),
    ],
)  # fmt: skip
def test_copied_as_before(text: str) -> None:
    assert not views(grouped(text))


def test_what_was_updated_before_is_read_in_place() -> None:
    """The rows of a cache: the new one is written, then all are read."""
    row = f"f32[1,1,{WIDTH}]"
    more = f"""c = f32[1,{WIDTH}] slice(x), slice={{[0:1], [0:{WIDTH}]}}
  d = {row} reshape(c)
  u = f32[{LAYERS},{WIDTH},{WIDTH}] dynamic-update-slice(w, d, i, i, zero)
  v = f32[1,{WIDTH},{WIDTH}] dynamic-slice(u, i, zero, zero), dynamic_slice_sizes={{1,{WIDTH},{WIDTH}}}
  b = f32[{WIDTH},{WIDTH}] reshape(v)"""
    text = layers(more=more, carried="u", read="b")
    assert views(grouped(text)) == ["v"]
    check(text, arguments())


def test_it_stays_a_view_as_text() -> None:
    module = usual().module
    text = print_hlo(module)
    assert views(read_groups(parse_hlo(text))) == views(module)
    made = compile_groups(read_groups(parse_hlo(text)), TINY)
    wanted = usual()
    assert made.program.code == wanted.program.code
    args = arguments()
    for got, want in zip(run(made.program, TINY, args), run(wanted.program, TINY, args), strict=True):
        np.testing.assert_array_equal(got, want)


class Planted(Checker):
    """Sees results with an error."""

    error = 0.0

    def _compare(self, probe: Probe, inputs: list[Array], outputs: list[Array]) -> None:
        super()._compare(probe, inputs, [a + a.dtype.type(self.error) for a in outputs])


@pytest.mark.parametrize("planted", [0.0, 1e-3])
def test_readers_are_checked(planted: float) -> None:
    """A group's error is found though only the run knows where its operand lies."""
    made = usual("highest")
    checker = Planted(made.program, made, "highest")
    checker.error = planted
    simulate(made.program, TINY, memory(made.program, arguments()), "full", hostile=True, observer=checker)
    report = checker.report()
    assert report.executions == 2 * LAYERS
    assert bool(report.failures) == bool(planted)


@examples(3, 15)
@given(st.data())
def test_slices_at_any_place(data: st.DataObject) -> None:
    """Of any dimensions, also beyond the ends, where starts are clamped."""
    number = st.integers(1, 3)
    outer, inner = data.draw(number), data.draw(number)
    rows, columns = data.draw(st.sampled_from([40, 64, 100])), data.draw(st.sampled_from([8, 48, 80]))
    dims, sizes = (outer + 1, rows, inner, columns), (1, rows, 1, columns)
    if data.draw(st.booleans()):
        sizes = (1, rows // 2, 1, columns)
    width, depth = sizes[3], sizes[1]
    text = f"""HloModule m
ENTRY e {{
  w = f32[{text_of(dims)}] parameter(0)
  x = f32[8,{depth}] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  s = f32[{text_of(sizes)}] dynamic-slice(w, i, j, i, j), dynamic_slice_sizes={{{text_of(sizes)}}}
  a = f32[{depth},{width}] reshape(s)
  ROOT y = f32[8,{width}] dot(x, a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
    draw = np.random.default_rng(0)
    at = st.integers(-2, max(dims) + 2)
    args = [draw.standard_normal(d).astype(np.float32) for d in (dims, (8, depth))]
    args += [np.array(data.draw(at), np.int32) for _ in range(2)]
    check(text, args)


def test_loops_over_layers_take_no_longer_than_layers_written_out() -> None:
    width = 384
    chip = load_chip("small")
    one = f"f32[{width},{width}]"
    lines = "\n".join(
        f"  w{n} = {one} parameter({n + 1})\n"
        f"  y{n} = f32[8,{width}] dot({f'z{n - 1}' if n else 'x'}, w{n}), lhs_contracting_dims={{1}},"
        f" rhs_contracting_dims={{0}}\n  {'ROOT ' * (n == LAYERS - 1)}z{n} = f32[8,{width}] tanh(y{n})"
        for n in range(LAYERS)
    )
    written_out = f"HloModule m\nENTRY e {{\n  x = f32[8,{width}] parameter(0)\n{lines}\n}}\n"
    texts = layers(width=width), written_out
    cycles = [simulate(compiled(text, chip).program, chip, mode="time").cycles or 0 for text in texts]
    assert cycles[0] < 1.08 * cycles[1]


@pytest.fixture
def short_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets that reach less than the weights of all layers."""
    monkeypatch.setattr("systolith.compiler.tile.ir.LARGEST", 2 * 4 * WIDTH * WIDTH)


@pytest.mark.usefixtures("short_reach")
def test_arrays_beyond_the_reach_of_offsets_are_stacks() -> None:
    made = check(layers(), arguments())
    (first, *others) = [b for b in made.program.buffers if b.role is Role.PART]
    assert first.stack == 1 + len(others) == LAYERS
    assert not overwritten(made.program)
    assert any(s.entry for i in made.program.code for s in i.args.values() if isinstance(s, Stream))
    text = made.stages["tile.txt"]
    assert "Entry($" in text
    again = compile_tile(parse_tile_ir(text), TINY).program
    assert (again.code, again.buffers) == (made.program.code, made.program.buffers)


@pytest.mark.usefixtures("short_reach")
def test_layers_are_written_beyond_the_reach_of_offsets() -> None:
    """Each layer's weights are replaced by their square where they are."""
    more = f"""sq = {ONE} multiply(a, a)
  d = f32[1,{WIDTH},{WIDTH}] reshape(sq)
  u = f32[{LAYERS},{WIDTH},{WIDTH}] dynamic-update-slice(w, d, i, zero, zero)"""
    text = layers(more=more, carried="u", read="sq")
    text = text.replace(
        "ROOT r = f32[8,80] get-tuple-element(l), index=1", "ROOT g = f32[3,80,80] get-tuple-element(l), index=2"
    )
    text = text.replace("HloModule layers", "HloModule layers, input_output_alias={ {}: (1, {}, must-alias) }")
    check(text, arguments(), with_vmem(TINY, 64 << 10))


@pytest.mark.usefixtures("short_reach")
def test_what_reaches_further_is_refused() -> None:
    text = f"""HloModule m
ENTRY e {{
  w = f32[{LAYERS},{WIDTH},{WIDTH}] parameter(0)
  ROOT r = f32[{LAYERS},{WIDTH},{WIDTH}] tanh(w)
}}
"""
    why = r"f32\[3, 80, 80\] in HBM takes 76800 bytes; an operation reaches 51200 bytes of an array"
    with pytest.raises(CompileError, match=why):
        compiled(text)


@pytest.mark.parametrize(
    ("count", "reach"),
    [pytest.param((1 << 16) + 1, 1 << 15, id="entries"), pytest.param(4, 1 << 13, id="bytes of one")],
)
def test_stacks_have_as_many_entries_as_streams_name_and_reach(
    count: int, reach: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("systolith.compiler.tile.ir.LARGEST", reach)
    width = 4 if count > 4 else 1 << 12
    text = f"""HloModule m
ENTRY e {{
  w = f32[{count},{width}] parameter(0)
  i = s32[] parameter(1)
  zero = s32[] constant(0)
  s = f32[1,{width}] dynamic-slice(w, i, zero), dynamic_slice_sizes={{1,{width}}}
  ROOT r = f32[1,{width}] tanh(s)
}}
"""
    with pytest.raises(CompileError, match=rf"f32\[{count}, {width}\] in HBM takes {count * width * 4} bytes"):
        compiled(text)


@pytest.mark.usefixtures("short_reach")
def test_the_core_reads_stacks() -> None:
    made = usual()
    result = lockstep(made.program, TINY, memory(made.program, arguments()))
    assert result.difference is None, result.difference
