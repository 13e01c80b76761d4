"""Compiled models in lockstep: real modules, lowered by JAX, on simulator and RTL."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from systolith.hw.lockstep import Case, Lockstep, Result
from systolith.isa.chip import Chip, load_chip
from systolith.runtime.jobs.job import Request, arguments_of, to_program
from tests.compiler.fusion.test_batch_loops import mlp
from tests.compiler.fusion.test_multi_output import adam, moments, softmax
from tests.compiler.fusion.test_product_results import momentum
from tests.corpus.load import load
from tests.examples import with_slow
from tests.goldens import CORPUS, check, known
from tests.hw.bound import bound

CHIPS = Path(__file__).parent / "chips"
ON_TINY = (
    "mlp_infer",
    "mlp_infer_bf16",
    "lenet_infer",
    "int8_dot_i32",
    "bf16_dot_f32",
    "lstm_scan",
    "cond_switch",
    "gpt2_decode_kvcache",
)
ON_TWIN = ("mlp_infer", "int8_dot_i32", "lstm_scan", "gpt2_decode_kvcache")


@cache
def compiled(name: str, chip: Chip, precision: str) -> Case:
    """A module of the corpus, compiled, with its arguments."""
    case = load(name)
    request = Request(case.path, chip, args=case.args_path, precision=precision)
    _, program = to_program(request, *request.read())
    return bound(program, arguments_of(request, program))


def agree(both: Lockstep, name: str, precision: str = "default") -> Result:
    result = both.run(compiled(name, both.chip, precision))
    assert result.ok, result.difference
    assert result.timed > 20
    if (key := f"{name} {both.chip.name} {precision}") in known(CORPUS):
        check(CORPUS, key, result.cycles)
    return result


@pytest.fixture(scope="module")
def tiny() -> Iterator[Lockstep]:
    with Lockstep(load_chip("tiny")) as both:
        yield both


# The layers below have their matmuls and windows, test_core.py loops.
LONG = ("mlp_infer", "mlp_infer_bf16", "lenet_infer", "lstm_scan")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in ON_TINY])
def test_on_8_x_8(tiny: Lockstep, name: str) -> None:
    agree(tiny, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_TINY)
def test_in_six_passes_on_8_x_8(tiny: Lockstep, name: str) -> None:
    agree(tiny, name, "highest")


@pytest.fixture(scope="module")
def twin() -> Iterator[Lockstep]:
    with Lockstep(load_chip(str(CHIPS / "twin16.toml"))) as both:
        yield both


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_TWIN)
def test_on_two_of_16_x_16(twin: Lockstep, name: str) -> None:
    agree(twin, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp_infer_bf16", "lenet_infer"])
def test_on_32_x_32(name: str) -> None:
    with Lockstep(load_chip("small")) as both:
        agree(both, name)


def layer(x: str, w: str, out: str, window: str) -> str:
    """A convolution with its bias and relu, as ResNet has them."""
    channels = out.split(",")[-1]
    return f"""HloModule layer

ENTRY main {{
  x = f32[{x}] parameter(0)
  w = f32[{w}] parameter(1)
  b = f32[{channels}] parameter(2)
  c = f32[{out}] convolution(x, w), window={{{window}}}, dim_labels=b01f_01io->b01f
  bias = f32[{out}] broadcast(b), dimensions={{3}}
  sum = f32[{out}] add(c, bias)
  zero = f32[] constant(0)
  zeros = f32[{out}] broadcast(zero), dimensions={{}}
  ROOT r = f32[{out}] maximum(sum, zeros)
}}
"""


# The stem on a part of the image, a 3 x 3 layer on a part of its channels, a projection as it is; and two products that
# do not fit in VMEM, so that they run in a loop over the batch.
LAYERS = {
    "stem": layer("1,16,16,3", "7,7,3,64", "1,8,8,64", "size=7x7 stride=2x2 pad=3_3x3_3"),
    "3x3": layer("1,14,14,32", "3,3,32,32", "1,14,14,32", "size=3x3 pad=1_1x1_1"),
    "projection": layer("1,14,14,128", "1,1,128,256", "1,7,7,256", "size=1x1 stride=2x2"),
    "loop": mlp(8, 320, 8, 64),
}


@pytest.mark.parametrize("name", with_slow(LAYERS, {"projection"}))
def test_layers(tiny: Lockstep, name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.hlo"
    path.write_text(LAYERS[name])
    request = Request(path, tiny.chip, random=0)
    _, program = to_program(request, *request.read())
    result = tiny.run(bound(program, arguments_of(request, program)))
    assert result.ok, result.difference
    assert result.cycles > 20_000


def between_products(rows: int, width: int) -> str:
    """A softmax whose values stay in VMEM, so that it does not run in blocks."""
    x, w = f"f32[{rows},{width}]", f"f32[{width},{width}]"
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    text = softmax(rows, width).replace(
        f" x = {x} parameter(0)", f" p = {x} parameter(0)\n w = {w} parameter(1)\n x = {x} dot(p, w), {dims}"
    )
    return text.replace(f" ROOT r = {x} divide(e, sb)", f" y = {x} divide(e, sb)\n ROOT r = {x} dot(y, w), {dims}")


@pytest.mark.parametrize(
    "text",
    [between_products(40, 24), between_products(12, 100), adam(300), moments(33, 20), momentum(40, 24, 24)],
    ids=["row", "wide", "adam", "moments", "product"],
)
def test_groups_of_several_results(tiny: Lockstep, text: str, tmp_path: Path) -> None:
    """Kernels that store values on the way, with and without loops inside."""
    path = tmp_path / "module.hlo"
    path.write_text(text)
    request = Request(path, tiny.chip, random=0)
    _, program = to_program(request, *request.read())
    assert any(".outputs" in g.name for g in program.groups)
    result = tiny.run(bound(program, arguments_of(request, program)))
    assert result.ok, result.difference
