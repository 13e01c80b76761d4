"""The bound of `compiler/bounds/bound.py`: by hand, and never above a program's cycles."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.bounds.bound import argument_bytes, bound, result_bytes
from systolith.compiler.bounds.live import spilled_bytes
from systolith.compiler.bounds.products import Tiles, product_of
from systolith.compiler.driver import compile_module
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.clone import clone
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.driver.random_modules import random_module
from tests.examples import examples

TPU = load_chip("tpu_v3")


def canonical(body: str, name: str = "main") -> Module:
    return canonicalise(parse_hlo(f"HloModule m\n\nENTRY {name} {{\n{body}\n}}\n"))


def dot(m: int, k: int, n: int, precision: str = "default", dtype: str = "bf16") -> Module:
    return canonical(
        f"x = {dtype}[{m},{k}] parameter(0)\ny = {dtype}[{k},{n}] parameter(1)\nROOT d = {dtype}[{m},{n}] dot(x, y),"
        f" lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, operand_precision={{{precision},{precision}}}"
    )


def convolution(size: int, window: str, out: int, channels: int = 128) -> Module:
    return canonical(
        f"x = f32[1,{size},{channels}] parameter(0)\ny = f32[3,{channels},128] parameter(1)\n"
        f"ROOT c = f32[1,{out},128] convolution(x, y), window={{{window}}}, dim_labels=b0f_0io->b0f"
    )


@pytest.mark.parametrize(
    ("m", "k", "n", "tiles", "cycles"),
    [
        (128, 128, 128, 1, 128),
        (1024, 128, 128, 1, 1024),  # either side: one tile of 1,024 rows, not eight of 128
        (8, 4096, 4096, 1024, 1024 * 128),  # each waits for the next one's 128 rows
        (130, 128, 4096, 32, 32 * 130),  # the right operand stationary: 2 tiles of 4,096 rows take longer
        (256, 129, 256, 4, 1024),  # K in whole tiles
        (4096, 64, 64, 32, 32 * 64),  # the left operand stationary fills the columns
        (1, 128, 128, 1, 128),  # a tile takes its 128 rows to load
    ],
)
def test_products_take_whole_tiles(m: int, k: int, n: int, tiles: int, cycles: int) -> None:
    found = product_of(dot(m, k, n).entry.result).tiles(TPU)
    assert (sum(count for _, count in found.streams), found.cycles) == (tiles, cycles)


@pytest.mark.parametrize(("precision", "passes"), [("default", 1), ("high", 3), ("highest", 6)])
def test_precision_multiplies_passes(precision: str, passes: int) -> None:
    once = bound(dot(512, 512, 512, dtype="f32"), TPU)
    assert bound(dot(512, 512, 512, precision, "f32"), TPU).units["mxu"] == passes * once.units["mxu"]


def test_loads_hide_behind_longer_streams_only() -> None:
    long, short = ((1000.0, 2.0),), ((1.0, 2.0),)
    assert Tiles(long + short, ((128.0, 4.0),)).cycles == 2 * 1000 + 2 * 128
    assert Tiles(long + short, ((128.0, 2.0), (1.0, 2.0))).cycles == 2 * 1000 + 2


@pytest.mark.parametrize(
    ("window", "out", "terms"),
    [
        ("size=3", 6, 3 * 6),
        ("size=3 pad=1_1", 8, 3 * 8 - 2),  # two taps lie on padding
        ("size=3 stride=2 pad=0_1", 4, 3 * 4 - 1),
        ("size=3 pad=2_2 lhs_dilate=2", 17, 24),  # each of eight elements is met by three taps
    ],
)
def test_padding_and_holes_are_no_work(window: str, out: int, terms: int) -> None:
    assert product_of(convolution(8, window, out).entry.result).macs == terms * 128 * 128


def test_a_strided_convolution_reads_what_it_touches() -> None:
    module = canonical(
        "x = f32[1,8,128] parameter(0)\ny = f32[1,128,128] parameter(1)\n"
        "ROOT c = f32[1,4,128] convolution(x, y), window={size=1 stride=2}, dim_labels=b0f_0io->b0f"
    )
    assert argument_bytes(module) == 4 * (4 * 128 + 128 * 128)


def test_arguments_count_by_the_parts_that_are_read() -> None:
    module = canonical(
        "x = f32[64,8] parameter(0)\na = f32[4,8] slice(x), slice={[0:4], [0:8]}\nb = f32[4,8] slice(x),"
        " slice={[8:12], [0:8]}\nROOT s = f32[4,8] add(a, b)"
    )
    assert (argument_bytes(module), result_bytes(module)) == (2 * 4 * 8 * 4, 4 * 8 * 4)


@pytest.mark.parametrize("view", ["bf16[64,8] convert(x)", "f32[8,64] transpose(x), dimensions={1,0}"])
@pytest.mark.parametrize("root", ["ROOT r = {view}", "r = {view}\nROOT t = ({shape}) tuple(r)"])
def test_a_result_is_read_whole(view: str, root: str) -> None:
    shape = view.split()[0]
    module = canonical("x = f32[64,8] parameter(0)\n" + root.format(view=view, shape=shape))
    assert argument_bytes(module) == 64 * 8 * 4


def test_a_donated_update_moves_the_update() -> None:
    module = parse_hlo(
        "HloModule m, input_output_alias={ {}: (0, {}, may-alias) }\n\nENTRY main {\nx = f32[64,8] parameter(0)\n"
        "u = f32[1,8] parameter(1)\ni = s32[] parameter(2)\nz = s32[] constant(0)\n"
        "ROOT r = f32[64,8] dynamic-update-slice(x, u, i, z)\n}\n"
    )
    assert (argument_bytes(canonicalise(module)), result_bytes(module)) == (8 * 4 + 4, 8 * 4)


def test_vector_work_counts_distinct_elements() -> None:
    row = "x = f32[1024] parameter(0)\ne = f32[1024] exponential(x)\nb = f32[512,1024] broadcast(e), dimensions={1}\n"
    once = bound(canonical(row + "ROOT n = f32[512,1024] add(b, b)"), TPU)
    assert once.units["trans"] == 1
    before = "x = f32[1024] parameter(0)\nb = f32[512,1024] broadcast(x), dimensions={1}\n"
    assert bound(canonical(before + "ROOT e = f32[512,1024] exponential(b)"), TPU).units["trans"] == 1


@pytest.mark.parametrize(("where", "cycles"), [("s", 512), ("one", 0)])
def test_values_of_constants_alone_are_no_work_but_differ(where: str, cycles: int) -> None:
    """Of numbers and one value that is known only at run time there are as many results as numbers."""
    numbers = "\n".join(f"i{d} = f32[512,1024] iota(), iota_dimension={d}" for d in range(2))
    text = f"s = f32[] parameter(0)\none = f32[] constant(0.5)\n{numbers}\nn = f32[512,1024] add(i0, i1)\n"
    text += f"b = f32[512,1024] broadcast({where}), dimensions={{}}\nROOT e = f32[512,1024] atan2(n, b)"
    assert bound(canonical(text), TPU).units["trans"] == cycles


STATISTICS = """
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}

ENTRY main {{
  x = f32[{rows},1024] parameter(0)
  w = f32[1024,1024] parameter(1)
  v = f32[1024,1024] parameter(2)
  y = f32[{rows},1024] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  z = f32[] constant(0)
  {sum}
  t = f32[{rows},1024] subtract(y, m)
  ROOT r = f32[{rows},1024] dot(t, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
OVER_ROWS = (
    "s = f32[1024] reduce(y, z), dimensions={0}, to_apply=add\n  m = f32[{rows},1024] broadcast(s), dimensions={1}"
)
OVER_COLUMNS = (
    OVER_ROWS.replace("f32[1024] reduce", "f32[{rows}] reduce")
    .replace("={1}", "={0}")
    .replace("reduce(y, z), dimensions={0}", "reduce(y, z), dimensions={1}")
)


def statistics(total: str, rows: int) -> int:
    text = STATISTICS.format(rows=rows, sum=total.replace("{rows}", str(rows)))
    return spilled_bytes(canonicalise(parse_hlo("HloModule m\n" + text)).entry, TPU.vmem.bytes)


def test_a_value_whose_sum_over_rows_meets_it_again_leaves_vmem() -> None:
    """All of `y` is needed for the sum of a column, and all columns for one element of the last product."""
    assert statistics(OVER_ROWS, 16384) == 2 * (16384 * 1024 * 4 - TPU.vmem.bytes)
    assert statistics(OVER_ROWS, 2048) == 0


def test_rows_that_need_only_themselves_stay() -> None:
    assert statistics(OVER_COLUMNS, 16384) == 0


def test_products_of_reductions_with_several_results() -> None:
    """What they need of the values before is not known in part."""
    text = """
two { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] parameter(2) d = f32[] parameter(3)
  s = f32[] add(a, c) t = f32[] multiply(b, d) ROOT r = (f32[], f32[]) tuple(s, t) }
ENTRY e {
  x = f32[8192,64] parameter(0)
  w = f32[64,64] parameter(1)
  y = f32[8192,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[] constant(0)
  s = (f32[64], f32[64]) reduce(y, x, z, z), dimensions={0}, to_apply=two
  p = f32[64] get-tuple-element(s), index=0
  q = f32[64] get-tuple-element(s), index=1
  ROOT r = f32[64,64] dot(p, q), lhs_contracting_dims={}, rhs_contracting_dims={}
}
"""
    assert spilled_bytes(parse_hlo("HloModule m\n" + text).entry, 0) == 0  # each part of y may be read once


@pytest.mark.parametrize("chip", ["tiny", "tpu_v3"])
@examples(7, 30)
@given(seed=st.integers(0, 1 << 30))
def test_no_random_module_takes_less(chip: str, seed: int) -> None:
    texts = (random_module(k)[0] for k in count(seed))
    text = next(t for t in texts if "while(" not in t and "conditional(" not in t)  # their cycles depend on data
    module, target = parse_hlo(text), load_chip(chip)
    try:
        program = compile_module(clone(module), target).program
    except CompileError:
        return
    cycles = simulate(program, target, mode="time").cycles
    assert cycles is not None
    assert bound(canonicalise(module), target).cycles <= cycles


@pytest.mark.parametrize(("m", "k", "n"), [(64, 64, 64), (8, 200, 40), (1, 64, 64), (100, 9, 7)])
def test_no_product_takes_less(m: int, k: int, n: int) -> None:
    module, tiny = dot(m, k, n, dtype="f32"), load_chip("tiny")
    result = simulate(compile_module(clone(module), tiny).program, tiny, mode="time")
    assert result.cycles is not None
    assert bound(module, tiny).cycles <= result.cycles
