"""Cycles of reductions over leading dimensions, over those that HBM takes for their bytes."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import pytest

from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from systolith.sim.stats import RunResult
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.vpu.movement import show
from tests.compiler.vpu.test_short_rows import ARGMAX

CHIP = load_chip("tpu_v3")

PRODUCERS = {
    "none": " y = {X} copy(x)\n",
    "square": " y = {X} multiply(x, x)\n",
    "gradient": """ g = {X} parameter(1)
 m = {K} parameter(2)
 b = {X} broadcast(m), dimensions={{{D}}}
 d = {X} subtract(x, b)
 y = {X} multiply(d, g)
""",
}
"""Reduced values, of x: itself, its squares, and the terms of batch norm's gradient."""


def sums(dims: tuple[int, ...], reduced: tuple[int, ...], producer: str, dtype: str = "f32", two: bool = False) -> str:
    """A module that sums over some dimensions; `two`: x itself, too."""
    kept = tuple(d for d in range(len(dims)) if d not in reduced)
    whole, result = f"{dtype}[{show(dims)}]", f"{dtype}[{show(tuple(dims[d] for d in kept))}]"
    body = PRODUCERS[producer].format(X=whole, K=result, D=show(kept))
    over = f"dimensions={{{show(reduced)}}}, to_apply=f"
    second = f" q = {result} reduce(x, z), {over}\n ROOT t = ({result}, {result}) tuple(r, q)\n" if two else ""
    return (
        f"HloModule m\nf {{\n a = {dtype}[] parameter(0)\n b = {dtype}[] parameter(1)\n"
        f" ROOT c = {dtype}[] add(a, b)\n}}\nENTRY e {{\n x = {whole} parameter(0)\n z = {dtype}[] constant(0)\n{body}"
        f" {'' if two else 'ROOT '}r = {result} reduce(y, z), {over}\n{second}}}\n"
    )


@lru_cache
def timed(text: str) -> RunResult:
    """A module's run in mode `time`."""
    return simulate(compile_module(parse_hlo(text), CHIP).program, CHIP, mode="time")


def over_hbm(text: str) -> float:
    """Cycles over those in which HBM moves the bytes that the program moves."""
    result = timed(text)
    assert result.cycles is not None
    moved: int = sum(result.to_json()["hbm_bytes"].values())
    return result.cycles * CHIP.hbm.p / (moved * CHIP.hbm.q)


def channels(rows: int, size: int, count: int) -> tuple[int, ...]:
    return (rows, size, size, count)


IMAGES = [channels(8, 56, 64), channels(8, 28, 256), channels(16, 7, 2048), channels(8, 224, 3), channels(8, 56, 100)]


@pytest.mark.parametrize("dims", IMAGES, ids=str)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_channel_sums_keep_up_with_hbm(dims: tuple[int, ...], producer: str) -> None:
    assert over_hbm(sums(dims, (0, 1, 2), producer)) < 1.25


@pytest.mark.parametrize("producer", ["square", "gradient"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_two_channel_sums_read_once(producer: str, dtype: str) -> None:
    text = sums((16, 56, 56, 64), (0, 1, 2), producer, dtype, two=True)
    assert over_hbm(text) < 1.25
    chunk = 16 * 56 * 56 * 64 * (4 if dtype == "f32" else 2)
    reads = timed(text).to_json()["hbm_bytes"]["read"]
    assert reads < 1.01 * chunk * (1 if producer == "square" else 2)


@pytest.mark.parametrize(
    ("dims", "reduced"),
    [
        ((4096, 1024), (0,)),
        ((8198, 384), (0,)),
        ((64, 128, 512), (1,)),
        ((8, 1 << 20), (0,)),
        ((100000, 96), (0,)),
        ((200003, 12), (0,)),
        ((32, 56, 56, 32, 2), (1, 2, 4)),
    ],
    ids=str,
)
def test_leading_sums_keep_up_with_hbm(dims: tuple[int, ...], reduced: tuple[int, ...]) -> None:
    assert over_hbm(sums(dims, reduced, "none")) < 1.15


def normalisation(dims: tuple[int, ...], reduced: tuple[int, ...]) -> str:
    """X minus its mean, over its standard deviation."""
    kept = tuple(d for d in range(len(dims)) if d not in reduced)
    whole, result = f"f32[{show(dims)}]", f"f32[{show(tuple(dims[d] for d in kept))}]"
    over = f"dimensions={{{show(reduced)}}}, to_apply=f"
    back = f"dimensions={{{show(kept)}}}"
    return f"""HloModule m
{scalar_computation("add", name="f")}ENTRY e {{
 x = {whole} parameter(0)
 z = f32[] constant(0)
 n = f32[] constant({prod(dims[d] for d in reduced)})
 nb = {result} broadcast(n), dimensions={{}}
 s = {result} reduce(x, z), {over}
 m = {result} divide(s, nb)
 mb = {whole} broadcast(m), {back}
 d = {whole} subtract(x, mb)
 q = {whole} multiply(d, d)
 t = {result} reduce(q, z), {over}
 v = {result} divide(t, nb)
 r = {result} rsqrt(v)
 rb = {whole} broadcast(r), {back}
 ROOT y = {whole} multiply(d, rb)
}}
"""


@pytest.mark.parametrize(
    ("dims", "reduced"),
    [
        pytest.param((32, 56, 56, 32, 2), (1, 2, 4), id="group"),
        pytest.param((8, 56, 56, 64), (0, 1, 2), id="batch", marks=pytest.mark.slow),
    ],
)
def test_normalisation_moves_elements_once(dims: tuple[int, ...], reduced: tuple[int, ...]) -> None:
    text = normalisation(dims, reduced)
    assert over_hbm(text) < 1.25
    assert 4 * prod(dims) * 2 * 1.02 > sum(timed(text).to_json()["hbm_bytes"].values())


def test_a_view_of_an_operand_is_loaded_once_for_a_block() -> None:
    """Channels in groups, as JAX reshapes them: three groups of the block read the view."""
    text = normalisation((8, 32, 32, 8, 16), (1, 2, 4)).replace(
        "x = f32[8,32,32,8,16] parameter(0)", "g = f32[8,32,32,128] parameter(0)\n x = f32[8,32,32,8,16] reshape(g)"
    )
    assert timed(text).to_json()["hbm_bytes"]["read"] == 4 * 8 * 32 * 32 * 128


@pytest.mark.parametrize("dims", [(4096, 1024), (1024, 4096), (64, 256, 256)], ids=str)
def test_the_place_of_the_largest_keeps_up_with_hbm(dims: tuple[int, ...]) -> None:
    """Over the first but one dimension, or the first: vectors are full, and rows come in chunks."""
    reduced = len(dims) - 2
    kept, whole = show(tuple(n for d, n in enumerate(dims) if d != reduced)), show(dims)
    text = (
        f"HloModule m\n{ARGMAX.format(t='f32')}ENTRY e {{\n x = f32[{whole}] parameter(0)\n"
        f" i = s32[{whole}] iota(), iota_dimension={reduced}\n low = f32[] constant(-inf)\n none = s32[] constant(0)\n"
        f" ROOT r = (f32[{kept}], s32[{kept}]) reduce(x, i, low, none), dimensions={{{reduced}}}, to_apply=best\n}}\n"
    )
    assert over_hbm(text) < 1.25
