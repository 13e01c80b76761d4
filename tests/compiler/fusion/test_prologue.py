"""Operands of products that are computed in tiles: the same bits as stored ones, and only where it takes less time."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler import driver
from systolith.compiler.driver import Compiled
from systolith.compiler.errors import DoesNotFitError
from systolith.compiler.explain import Decision
from systolith.compiler.groups.fusion import Fuse
from systolith.compiler.groups.producer_fusion import FusePrologues
from systolith.compiler.groups.stats import group_infos
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.ops.group import Group, Unit
from systolith.compiler.options import Options
from systolith.compiler.passes.base import run_pass, run_passes
from systolith.compiler.passes.pipeline import canonicalise
from systolith.hw.lockstep import Lockstep
from systolith.isa.chip import Chip, load_chip
from systolith.sim.simulate import simulate
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.machine import Array, error, run, with_vmem
from tests.examples import examples
from tests.hw.bound import bound
from tests.runtime.command import systolith


class When(Enum):
    """Which values that could be computed in tiles are."""

    FASTER = "where it is estimated to take less time"
    ALWAYS = "all"
    NEVER = "none: without the pass"


def grouped(text: str, chip: Chip, when: When) -> tuple[Module, list[Decision]]:
    """A module in groups, and the decisions."""
    module = run_passes(canonicalise(parse_hlo(text)), [Fuse()])
    if when is When.NEVER:
        return module, []
    return module, list(run_pass(module, FusePrologues(chip, Options(), when is When.ALWAYS)).decisions)


def compiled(text: str, chip: Chip, when: When) -> Compiled:
    module, decisions = grouped(text, chip, when)
    return driver.compile_grouped(module, chip, Options(), decisions)


def kinds(module: Module) -> list[str]:
    return [i.kind for i in module.entry.instructions if isinstance(i, Group)]


def same_bits(text: str, args: list[Array], chip: Chip) -> Compiled:
    """Computed in tiles, stored, and by the evaluator; gives the program that computes in tiles."""
    inside, stored = (compiled(text, chip, when) for when in (When.ALWAYS, When.NEVER))
    got, other = (run(c.program, chip, args) for c in (inside, stored))
    wanted = evaluate(parse_hlo(text), *args)
    for a, b, c in zip(got, other, wanted, strict=True):
        np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))
        assert error(a, c) <= 3e-2
    return inside


# Modules.

STEPS = ("relu", "tanh", "scale", "row", "add", "narrow", "widen", "reverse", "slice", "concatenate")
"""Operations of a producer on an operand."""


class Text:
    """HLO text in the making."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.parameters: list[tuple[str, tuple[int, ...]]] = []

    def op(self, dtype: str, dims: Sequence[int], rest: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"  {name} = {dtype}[{','.join(map(str, dims))}] {rest}")
        return name

    def parameter(self, dtype: str, dims: Sequence[int]) -> str:
        self.parameters.append((dtype, tuple(dims)))
        return self.op(dtype, dims, f"parameter({len(self.parameters) - 1})")

    def step(self, what: str, x: str, dtype: str, dims: Sequence[int], along: int) -> tuple[str, str]:
        """An operation on x; gives its name and element type."""
        if what in ("relu", "scale"):
            scalar = self.op(dtype, (), f"constant({0 if what == 'relu' else 0.375})")
            whole = self.op(dtype, dims, f"broadcast({scalar}), dimensions={{}}")
            return self.op(dtype, dims, f"{'maximum' if what == 'relu' else 'multiply'}({x}, {whole})"), dtype
        if what in ("narrow", "widen"):
            other = {"narrow": "bf16", "widen": "f32"}[what]
            return self.op(other, dims, f"convert({x})"), other
        d = along % len(dims)
        if what == "row":
            row = self.parameter(dtype, (dims[d],))
            whole = self.op(dtype, dims, f"broadcast({row}), dimensions={{{d}}}")
            return self.op(dtype, dims, f"multiply({x}, {whole})"), dtype
        if what == "add":
            return self.op(dtype, dims, f"add({x}, {self.parameter(dtype, dims)})"), dtype
        if what == "slice":
            longer = [n + 3 * (k == d) for k, n in enumerate(dims)]
            y = self.op(dtype, longer, f"abs({self.parameter(dtype, longer)})")
            cut = ", ".join(f"[{2 * (k == d)}:{2 * (k == d) + n}]" for k, n in enumerate(dims))
            y = self.op(dtype, dims, f"slice({y}), slice={{{cut}}}")
            return self.op(dtype, dims, f"subtract({x}, {y})"), dtype
        if what == "concatenate" and dims[d] > 1:
            parts = [self.parameter(dtype, [n if k != d else p for k, n in enumerate(dims)]) for p in (1, dims[d] - 1)]
            y = self.op(dtype, dims, f"concatenate({', '.join(parts)}), dimensions={{{d}}}")
            return self.op(dtype, dims, f"add({x}, {y})"), dtype
        if what == "reverse":
            return self.op(dtype, dims, f"reverse({x}), dimensions={{{d}}}"), dtype
        return self.op(dtype, dims, f"tanh({x})"), dtype

    def module(self) -> str:
        *body, root = self.lines
        return "\n".join(["HloModule m", "ENTRY e {", *body, "  ROOT" + root[1:], "}", ""])

    def arguments(self, seed: int, whole: bool = False) -> list[Array]:
        """Normal floats; `whole`: small integers, whose products sum exactly in any order."""
        rng = np.random.default_rng(seed)
        types = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16), "s8": np.dtype(np.int8)}
        return [
            (rng.integers(-4, 5, dims) if whole or t == "s8" else rng.standard_normal(dims)).astype(types[t])
            for t, dims in self.parameters
        ]


@st.composite
def dots(draw: st.DrawFn) -> Text:
    """A dot, one or both of whose operands are computed, transposed and reshaped on the way."""
    text = Text()
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    m, k, n = (draw(st.integers(1, 24)) for _ in range(3))
    dtype = draw(st.sampled_from(["f32", "bf16"]))
    made = draw(st.sampled_from([(True, False), (False, True), (True, True)]))
    sides, orders = [], []
    for computed, dims in zip(made, ([*batch, m, k], [*batch, k, n]), strict=True):
        order = draw(st.permutations(range(len(dims))))
        dims = [dims[d] for d in order]
        before = draw(st.permutations(range(len(dims)))) if computed else list(range(len(dims)))
        first = [0] * len(dims)
        for d, b in enumerate(before):
            first[b] = dims[d]
        x, t = text.parameter(dtype, first), dtype
        for what in draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=3)) if computed else []:
            x, t = text.step(what, x, t, first, draw(st.integers(0, 3)))
        if computed and draw(st.booleans()):
            x = text.op(t, [math.prod(first)], f"reshape({x})")
            x, t = text.step("scale", x, t, [math.prod(first)], 0)
            x = text.op(t, first, f"reshape({x})")
        if before != sorted(before):
            x = text.op(t, dims, f"transpose({x}), dimensions={{{','.join(map(str, before))}}}")
        sides.append((x, t))
        orders.append([order.index(d) for d in range(len(dims))])
    r = len(batch)
    names = [",".join(str(o[d]) for d in range(r)) for o in orders]
    contract = orders[0][r + 1], orders[1][r]
    attributes = (
        f"lhs_batch_dims={{{names[0]}}}, rhs_batch_dims={{{names[1]}}},"
        f" lhs_contracting_dims={{{contract[0]}}}, rhs_contracting_dims={{{contract[1]}}}"
    )
    text.op(draw(st.sampled_from(["f32", "bf16"])), [*batch, m, n], f"dot({sides[0][0]}, {sides[1][0]}), {attributes}")
    return text


@given(dots(), st.sampled_from(["tiny", "small"]), st.integers(0, 2**32))
@examples(3, 25)
def test_dots_have_the_same_bits(text: Text, chip: str, seed: int) -> None:
    same_bits(text.module(), text.arguments(seed), load_chip(chip))


WHOLE = ("relu", "row", "add", "narrow", "widen", "reverse", "slice", "concatenate")
"""Steps that keep integers integers."""


@st.composite
def convolutions(draw: st.DrawFn) -> Text:
    """A convolution whose input, and perhaps kernel, is computed: padded, strided, dilated, grouped, of two layouts."""
    text = Text()
    groups = draw(st.sampled_from([1, 1, 2]))
    batch, per_in, per_out = draw(st.integers(1, 2)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    features, outputs = groups * per_in, groups * per_out
    window, out = [], []
    spatial = [draw(st.integers(3, 9)) for _ in range(2)]
    taps = [draw(st.integers(1, 3)) for _ in range(2)]
    for size, tap in zip(spatial, taps, strict=True):
        low, high, stride = draw(st.integers(-1, 2)), draw(st.integers(0, 2)), draw(st.integers(1, 2))
        spread, apart = draw(st.sampled_from([1, 1, 2])), draw(st.sampled_from([1, 1, 2]))
        wide, reach = (size - 1) * spread + 1 + low + high, (tap - 1) * apart + 1
        window.append((tap, stride, f"{low}_{high}", spread, apart))
        out.append((wide - reach) // stride + 1 if wide >= reach else 0)
    if 0 in out:
        window = [(tap, 1, "2_2", 1, 1) for tap in taps]
        out = [size + 5 - tap for size, tap in zip(spatial, taps, strict=True)]
    labels = draw(st.sampled_from(["b01f_01io->b01f", "bf01_oi01->bf01"]))
    last = labels.startswith("b01f")
    dims = [[batch, *spatial, features], [*taps, per_in, outputs], [batch, *out, outputs]]
    if not last:
        dims = [[batch, features, *spatial], [outputs, per_in, *taps], [batch, outputs, *out]]
    kernel = draw(st.booleans())
    sides = []
    for side, computed in ((dims[0], True), (dims[1], kernel)):
        x, t = text.parameter("f32", side), "f32"
        for what in draw(st.lists(st.sampled_from(WHOLE), min_size=1, max_size=2)) if computed else []:
            x, t = text.step(what, x, t, side, draw(st.integers(0, 3)))
        sides.append(x if t == "f32" else text.op("f32", side, f"convert({x})"))
    keys = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate")
    shown = " ".join(f"{key}={'x'.join(str(w[n]) for w in window)}" for n, key in enumerate(keys))
    attributes = f"window={{{shown}}}, dim_labels={labels}, feature_group_count={groups}"
    text.op("f32", dims[2], f"convolution({sides[0]}, {sides[1]}), {attributes}")
    return text


@given(convolutions(), st.sampled_from(["tiny", "small"]), st.integers(0, 2**32))
@examples(3, 25)
def test_convolutions_have_the_same_bits(text: Text, chip: str, seed: int) -> None:
    """Padding is 0, not the producer's value of 0."""
    same_bits(text.module(), text.arguments(seed, whole=True), load_chip(chip))


DOT = """HloModule m
ENTRY e {{
  x = f32[{m},{k}] parameter(0)
  s = f32[{k}] parameter(1)
  w = f32[{k},{n}] parameter(2)
  b = f32[{m},{k}] broadcast(s), dimensions={{1}}
  t = f32[{m},{k}] multiply(x, b)
  a = f32[{m},{k}] tanh(t)
  ROOT d = f32[{m},{n}] dot(a, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""


IMAGE = """HloModule m
ENTRY e {
  x = f32[1,6,6,4] parameter(0)
  s = f32[4] parameter(1)
  w = f32[3,3,4,8] parameter(2)
  b = f32[1,6,6,4] broadcast(s), dimensions={3}
  a = f32[1,6,6,4] add(x, b)
  ROOT c = f32[1,6,6,8] convolution(a, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
}
"""


def arguments(*dims: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal(d, np.float32) for d in dims]


def cycles(result: Compiled, chip: Chip) -> int:
    found = simulate(result.program, chip, mode="time").cycles
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("m", "k", "n", "vmem"),
    [(12, 16, 16, 8192), (64, 48, 64, 16384), pytest.param(200, 96, 40, 65536, marks=pytest.mark.slow)],
)
def test_many_blocks_and_chunks_where_memory_is_tight(m: int, k: int, n: int, vmem: int) -> None:
    chip = load_chip("tiny")
    chip = with_vmem(chip, vmem)
    result = same_bits(DOT.format(m=m, k=k, n=n), arguments((m, k), (k,), (k, n)), chip)
    assert kinds(result.module) == ["kOutput"]


V3 = load_chip("tpu_v3")
QUARTER = with_vmem(V3, V3.vmem.bytes // 4)
LARGE = DOT.format(m=4096, k=512, n=512)
"""Its value takes twice the VMEM of `QUARTER`."""


@pytest.fixture(scope="module")
def inside() -> Compiled:
    """A value larger than VMEM, computed in the tiles of its user."""
    return compiled(LARGE, QUARTER, When.FASTER)


def test_a_value_larger_than_vmem_is_computed_in_tiles(inside: Compiled) -> None:
    stored = compiled(LARGE, QUARTER, When.NEVER)
    assert kinds(inside.module) == ["kOutput"]
    assert kinds(stored.module) == ["kLoop", "kOutput"]
    taken = cycles(inside, QUARTER)
    assert taken < 0.7 * cycles(stored, QUARTER)
    (tiles,) = (d for d in inside.explain if d.kind == "tiles")
    assert 0.97 <= tiles.numbers["cycles"] / taken <= 1.03


def test_what_was_decided_is_said_with_its_numbers(inside: Compiled) -> None:
    (said,) = (d for d in inside.explain if d.kind == "prologue")
    assert said.group == "d"
    assert said.chosen == "a is computed in tiles of d"
    (other,) = said.rejected
    assert other.what == "a is stored in HBM"
    assert said.numbers["cycles"] < other.numbers["cycles"]
    (made,) = (d for d in inside.explain if d.kind == "fusion")
    assert "a (tanh)" in made.chosen
    assert "d (dot)" in made.chosen


def test_what_little_would_be_won_by_is_stored() -> None:
    """Two rows: the product waits for weights in any case."""
    module, decisions = grouped(DOT.format(m=2, k=512, n=512), V3, When.FASTER)
    assert kinds(module) == ["kLoop", "kOutput"]
    (said,) = (d for d in decisions if d.kind == "prologue")
    assert said.rejected[0].what == "a is computed in tiles of d"


def both(text: str) -> tuple[list[str], list[str]]:
    """Kinds of groups with producers computed in tiles where possible, and with producers stored."""
    chip = load_chip("tiny")
    inside, stored = (grouped(text, chip, when)[0] for when in (When.ALWAYS, When.NEVER))
    return kinds(inside), kinds(stored)


def test_a_value_that_is_a_result_too_is_stored() -> None:
    text = (
        DOT.format(m=8, k=8, n=8)
        .replace("ROOT d", "d")
        .replace("\n}", "\n  ROOT r = (f32[8,8], f32[8,8]) tuple(a, d)\n}")
    )
    assert both(text) == (["kLoop", "kOutput"],) * 2


def test_a_value_that_the_epilogue_reads_too_is_stored() -> None:
    text = DOT.format(m=8, k=8, n=8).replace("ROOT d", "d").replace("\n}", "\n  ROOT r = f32[8,8] add(d, a)\n}")
    assert both(text) == (["kLoop", "kOutput"],) * 2


def test_a_sum_is_stored_what_follows_it_is_not() -> None:
    text = (
        "HloModule m\n"
        + scalar_computation("add", name="f")
        + """ENTRY e {
  x = f32[16,24] parameter(0)
  w = f32[24,8] parameter(1)
  z = f32[] constant(0)
  s = f32[16] reduce(x, z), dimensions={1}, to_apply=f
  b = f32[16,24] broadcast(s), dimensions={0}
  a = f32[16,24] divide(x, b)
  ROOT d = f32[16,8] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    )
    assert both(text) == (["kInput", "kOutput"], ["kInput", "kLoop", "kOutput"])
    same_bits(text, [np.abs(a) for a in arguments((16, 24), (24, 8))], load_chip("tiny"))


def test_all_products_of_a_value_compute_it_or_none() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[40,24] parameter(0)
  v = f32[24,8] parameter(1)
  w = f32[24,16] parameter(2)
  t = f32[40,24] tanh(x)
  a = f32[960] reshape(t)
  c = f32[40,24] reshape(a)
  d = f32[40,8] dot(t, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[40,16] dot(c, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[40,8], f32[40,16]) tuple(d, e)
}
"""
    assert both(text) == (["kOutput"] * 2, ["kLoop", "kOutput", "kOutput"])
    same_bits(text, arguments((40, 24), (24, 8), (24, 16)), load_chip("tiny"))
    kept = text.replace("(f32[40,8], f32[40,16]) tuple(d, e)", "(f32[40,8], f32[40,16], f32[40,24]) tuple(d, e, t)")
    assert both(kept) == (["kLoop", "kOutput", "kOutput"],) * 2


def test_integer_operands_are_computed() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[24,40] parameter(0)
  w = s8[40,16] parameter(1)
  s = f32[] constant(20)
  b = f32[24,40] broadcast(s), dimensions={}
  y = f32[24,40] multiply(x, b)
  q = s8[24,40] convert(y)
  ROOT d = s32[24,16] dot(q, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    weights = np.random.default_rng(0).integers(-128, 128, (40, 16)).astype(np.int8)
    result = same_bits(text, [*arguments((24, 40)), weights], load_chip("tiny"))
    assert kinds(result.module) == ["kOutput"]


def test_in_the_body_of_a_loop() -> None:
    text = """HloModule m
cond {
  p = (s32[], f32[24,24], f32[24,24]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  p = (s32[], f32[24,24], f32[24,24]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[24,24] get-tuple-element(p), index=1
  w = f32[24,24] get-tuple-element(p), index=2
  a = f32[24,24] tanh(x)
  d = f32[24,24] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (s32[], f32[24,24], f32[24,24]) tuple(next, d, w)
}
ENTRY e {
  x = f32[24,24] parameter(0)
  w = f32[24,24] parameter(1)
  z = s32[] constant(0)
  t = (s32[], f32[24,24], f32[24,24]) tuple(z, x, w)
  l = (s32[], f32[24,24], f32[24,24]) while(t), condition=cond, body=body
  ROOT y = f32[24,24] get-tuple-element(l), index=1
}
"""
    result = same_bits(text, arguments((24, 24), (24, 24)), load_chip("tiny"))
    body = next(i for i in result.module.entry.instructions if i.opcode == "while").computation("body")
    assert [i.unit for i in body.instructions if isinstance(i, Group)].count(Unit.MXU) == 1
    assert any(d.kind == "prologue" and "is computed" in d.chosen for d in result.explain)


def test_a_grouped_module_prints_and_parses() -> None:
    module, _ = grouped(DOT.format(m=16, k=24, n=8), load_chip("tiny"), When.ALWAYS)
    again = parse_hlo(print_hlo(module))
    args = arguments((16, 24), (24,), (24, 8))
    for a, b in zip(evaluate(module, *args), evaluate(again, *args), strict=True):
        np.testing.assert_array_equal(a, b)
    (info,) = group_infos(module, {})
    assert info.transcendentals == 16 * 24


def test_what_cannot_be_lowered_so_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computed tiles take more room: where they find none, the module is compiled with values stored."""
    lower = driver.compile_grouped

    def crowded(module: Module, *rest: Any) -> Compiled:
        if kinds(module) == ["kOutput"]:
            raise DoesNotFitError("no place")
        return lower(module, *rest)

    monkeypatch.setattr(driver, "compile_grouped", crowded)
    result = driver.compile_module(parse_hlo(LARGE), QUARTER)
    assert kinds(result.module) == ["kLoop", "kOutput"]
    (said,) = (d for d in result.explain if d.kind == "prologue")
    assert said.rejected[0].why == "no place"


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Decided, explained, checked against the evaluator without a race."""
    path = tmp_path / "dot.hlo"
    path.write_text(DOT.format(m=1024, k=128, n=8))
    told = systolith(capsys, "explain", path, "--chip", "tiny")
    assert "a is computed in tiles of d" in told.out
    ran = systolith(capsys, "run", path, "--chip", "tiny", "--random", 0, "--check", "--hostile", "--json")
    record = json.loads(ran.out)
    assert (ran.code, record["ok"]) == (0, True)
    names = {g["name"] for g in record["groups"]}
    assert "d" in names
    assert "a" not in names


@pytest.mark.parametrize("text", [DOT.format(m=24, k=20, n=12), IMAGE], ids=["dot", "convolution"])
def test_simulator_and_rtl_agree(text: str) -> None:
    chip = load_chip("tiny")
    program = compiled(text, chip, When.ALWAYS).program
    assert [g.kind for g in program.groups] == ["kOutput"]
    shapes = [tuple(p.dims) for p in parse_hlo(text).entry.parameters]
    given = [a.reshape(-1).view(np.uint8) for a in arguments(*shapes)]
    with Lockstep(chip) as both:
        result = both.run(bound(program, given))
    assert result.ok, result.difference
