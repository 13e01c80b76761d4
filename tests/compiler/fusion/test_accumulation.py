"""Sums along the blocks of a normalisation: accumulated from block to block, in the one pass over its operands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.modules import lowered
from bench.operations import OPERATIONS
from systolith.compiler.driver import Compiled
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.lower import blocks
from systolith.compiler.ops.group import Group, Tiling, read_groups
from systolith.compiler.schedule.operation_times import Stage, Timed
from systolith.compiler.schedule.pipeline import Order, interleave, periodic
from systolith.compiler.tile.ir import Buf, TileOp
from systolith.isa.binary import to_bytes
from systolith.isa.chip import load_chip
from systolith.isa.instruction import Space
from systolith.isa.program import Origin
from systolith.isa.timing import Cost
from systolith.sim.simulate import simulate
from tests.compiler.fusion.test_blocking import FOLDS, SMALL
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import CHIPS, compare, compiled, run, with_vmem
from tests.examples import examples

ORIGIN = Origin("", "", "")
Array = np.ndarray[Any, np.dtype[Any]]


def centred(rows: int, width: int, reductions: str, results: str, dtype: str = "f32") -> str:
    """Rows less their mean `c`, of `x`, times `y`; and reductions of these."""
    whole, row, column = f"{dtype}[{rows},{width}]", f"{dtype}[{rows}]", f"{dtype}[{width}]"
    return f"""HloModule centred
{FOLDS if dtype == "f32" else FOLDS.replace("f32", dtype)}
ENTRY e {{
 x = {whole} parameter(0)
 y = {whole} parameter(1)
 zero = {dtype}[] constant(0)
 low = {dtype}[] constant({"-inf" if dtype == "f32" else -7})
 m = {row} reduce(x, zero), dimensions={{1}}, to_apply=add
 mb = {whole} broadcast(m), dimensions={{0}}
 c = {whole} subtract(x, mb)
 z = {whole} multiply(c, y)
{reductions.replace("COLUMN", column)}
 ROOT t = ({", ".join(dtype + name for name in results.split()[1::2])}) tuple({", ".join(results.split()[::2])})
}}
"""


SUMS = """ a = COLUMN reduce(z, zero), dimensions={0}, to_apply=add
 b = COLUMN reduce(y, zero), dimensions={0}, to_apply=add
 g = COLUMN reduce(c, low), dimensions={0}, to_apply=max"""


def arguments(rows: int, width: int) -> list[Array]:
    rng = np.random.default_rng(rows)
    return [rng.standard_normal((rows, width)).astype(np.float32) for _ in range(2)]


def group_of(made: Compiled) -> Group:
    """The one group in blocks."""
    (group,) = [i for i in read_groups(parse_hlo(made.stages["grouped.hlo"])).entry.instructions if _is_blocked(i)]
    assert isinstance(group, Group)
    return group


def _is_blocked(i: object) -> bool:
    return isinstance(i, Group) and i.tiling is not None


def wanted(x: Array, y: Array) -> tuple[Array, ...]:
    x, y = x.astype(np.float64), y.astype(np.float64)
    c = x - x.sum(1, keepdims=True)
    return c, (c * y).sum(0), y.sum(0), c.max(0)


@pytest.mark.parametrize(
    ("rows", "width", "kib"),
    [
        (96, 100, 32),
        (1000, 9, 32),
        *(pytest.param(*p, marks=pytest.mark.slow) for p in ((97, 128, 64), (250, 33, 32))),
    ],
)
def test_sums_of_what_a_block_has(rows: int, width: int, kib: int) -> None:
    text = centred(rows, width, SUMS, f"c [{rows},{width}] a [{width}] b [{width}] g [{width}]")
    chip = with_vmem(SMALL, kib << 10)
    made = compiled(text, chip, "highest")
    tiling = group_of(made).tiling
    assert tiling == Tiling((0, 0, 0, 0), (1, 2, 3))
    for got, want in zip(run(made.program, chip, arguments(rows, width)), wanted(*arguments(rows, width)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-4)
    moved = sum(simulate(made.program, chip, mode="time").to_json()["hbm_bytes"].values())
    assert moved < 3.5 * 4 * rows * width


LED_TO = """ ya = f32[96,100] multiply(x, y)
 yb = f32[96,100] subtract(ya, y)
 a = COLUMN reduce(yb, zero), dimensions={0}, to_apply=add"""


@pytest.mark.parametrize("others", ["", " ya [96,100]", " yb [96,100]"])
def test_sums_of_what_a_few_operations_make_of_a_blocks_operands(others: str) -> None:
    """What others use of these is computed for the sum once more, so that it is not a result of the blocks."""
    x, y = arguments(96, 100)
    made = compare(centred(96, 100, LED_TO, f"z [96,100] a [100]{others}"), [x, y], SMALL)
    assert group_of(made).tiling == Tiling((0, 0), (1,))
    got = run(made.program, SMALL, [x, y])[1]
    np.testing.assert_allclose(got, (x.astype(np.float64) * y - y).sum(0), rtol=1e-4, atol=2e-4)


@examples(3, 6)
@given(
    rows=st.integers(40, 90),
    width=st.integers(30, 80),
    kept=st.sets(st.sampled_from("cabg"), min_size=1),
    dtype=st.sampled_from(["f32", "s32"]),
)
def test_any_of_them(rows: int, width: int, kept: set[str], dtype: str) -> None:
    dims = {"c": f"[{rows},{width}]"} | dict.fromkeys("abg", f"[{width}]")
    text = centred(rows, width, SUMS, " ".join(f"{name} {dims[name]}" for name in sorted(kept)), dtype)
    rng = np.random.default_rng(width)
    given = [rng.integers(-99, 99, (rows, width)).astype(np.float32 if dtype == "f32" else np.int32) for _ in range(2)]
    compare(text, given, SMALL)


def test_a_sum_over_everything_and_one_over_images() -> None:
    text = f"""HloModule images
{FOLDS}
ENTRY e {{
 x = f32[12,9,33] parameter(0)
 zero = f32[] constant(0)
 m = f32[12,9] reduce(x, zero), dimensions={{2}}, to_apply=add
 mb = f32[12,9,33] broadcast(m), dimensions={{0,1}}
 c = f32[12,9,33] subtract(x, mb)
 a = f32[33] reduce(c, zero), dimensions={{0,1}}, to_apply=add
 s = f32[] reduce(c, zero), dimensions={{0,1,2}}, to_apply=add
 ROOT t = (f32[12,9,33], f32[33], f32[]) tuple(c, a, s)
}}
"""
    small = CHIPS[16]
    made = compare(text, [np.random.default_rng(0).integers(-9, 9, (12, 9, 33)).astype(np.float32)], small)
    tiling = group_of(made).tiling
    assert tiling is not None
    assert tiling.accumulated == (1, 2)


@pytest.mark.parametrize(
    "reductions",
    [
        # Of what the blocks need first.
        """ a = COLUMN reduce(y, zero), dimensions={0}, to_apply=add
 ab = f32[96,100] broadcast(a), dimensions={1}
 z2 = f32[96,100] multiply(z, ab)
 n = f32[96] reduce(z2, zero), dimensions={1}, to_apply=add
 nb = f32[96,100] broadcast(n), dimensions={0}
 b = f32[96,100] subtract(z2, nb)""",
        # From a value that more than once would count more than once.
        """ two = f32[] constant(2)
 a = COLUMN reduce(y, two), dimensions={0}, to_apply=add
 b = f32[96,100] add(c, z)""",
    ],
)
def test_others_stay_outside(reductions: str) -> None:
    made = compare(centred(96, 100, reductions, "b [96,100] a [100]"), arguments(96, 100), SMALL)
    tilings = [
        i.tiling
        for i in read_groups(parse_hlo(made.stages["grouped.hlo"])).entry.instructions
        if isinstance(i, Group) and i.tiling
    ]
    assert tilings
    assert not any(tiling.accumulated for tiling in tilings)


def test_copies_of_blocks_are_what_lowering_each_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    text, chip = centred(70, 60, SUMS, "c [70,60] a [60] b [60] g [60]"), CHIPS[16]
    copied = compiled(text, chip)
    monkeypatch.setattr(blocks, "LEAST_COPIED", 1 << 30)
    assert to_bytes(compiled(text, chip).program) == to_bytes(copied.program)


def test_grouped_text_reads_back() -> None:
    text = compiled(centred(96, 100, SUMS, "a [100] c [96,100]"), SMALL).stages["grouped.hlo"]
    assert 'backend_config={"tiling":{"dims":[0,0],"accumulated":[1]}}' in text
    assert print_hlo(read_groups(parse_hlo(text))) == text
    for wrong in ("[0]", "[1,2]", "[1,-1]", "[true]"):
        with pytest.raises(CompileError, match="a dimension of each result"):
            read_groups(parse_hlo(text.replace('"accumulated":[1]', f'"accumulated":{wrong}')))
    with pytest.raises(CompileError, match="a dimension of each result"):
        read_groups(parse_hlo(text.replace('"dims":[0,0]', '"dims":[0,1]')))


def test_an_order_that_repeats_keeps_the_blocks_apart_where_they_accumulate() -> None:
    """A block reads what is accumulated long before it writes it: the next may not read in between."""
    total = Buf("total", Space.VMEM, 4)

    def block(n: int) -> list[Stage]:
        own = Buf(f"own{n}", Space.VMEM, 4)
        load = Timed(TileOp("dma.load", {}, ORIGIN), "l", Cost(10, 10), (), (own,))
        read = Timed(TileOp("vpu", {}, ORIGIN), "v", Cost(5, 400), (own, total), (own,))
        write = Timed(TileOp("xlu", {}, ORIGIN), "x", Cost(5, 5), (own,), (total,))
        return [Stage((load,)), Stage((read, write))]

    def turns(order: Order) -> list[int]:
        return [n for n, op in order.ops if total in (*op.reads, *op.writes)]

    made = [block(n) for n in range(40)]
    order = interleave(made, 4)
    again = periodic(made, 4, replace(order, cycles=4 * order.cycles))
    assert again is not order
    assert turns(order) == turns(again) == sorted(turns(order))


def test_the_gradient_of_layer_norm_is_one_pass() -> None:
    """As JAX writes it: cycles against the bytes that it has to move, and values against those of XLA's CPU backend."""
    function, (whole, row, _, _) = OPERATIONS["layer_norm_gradient"]

    def lowered_for(rows: int, width: int) -> str:
        x, scale = whole.update(shape=(rows, width)), row.update(shape=(width,))
        return lowered(function, (x, scale, scale, x))

    chip = load_chip("tpu_v3")
    cycles = simulate(compiled(lowered_for(2048, 1024), chip).program, chip, mode="time").cycles
    assert cycles is not None
    assert cycles < 1.1 * 3 * 2048 * 1024 * 4 * chip.hbm.q / chip.hbm.p
    made = compiled(lowered_for(96, 100), SMALL, "highest")
    assert (
        len([i for i in read_groups(parse_hlo(made.stages["grouped.hlo"])).entry.instructions if _is_blocked(i)]) == 1
    )
    rng = np.random.default_rng(5)
    x, scale, d = (rng.standard_normal(dims).astype(np.float32) for dims in ((96, 100), (100,), (96, 100)))
    wanted = run_xla(lowered_for(96, 100), x, scale, d)
    for got, want in zip(run(made.program, SMALL, [x, scale, d]), wanted, strict=True):
        np.testing.assert_allclose(got, np.asarray(want), rtol=1e-4, atol=1e-4)
