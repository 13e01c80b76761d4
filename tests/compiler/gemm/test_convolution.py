"""Convolutions over random windows, dimension numbers and groups against the reference evaluator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from systolith.compiler.hlo.attributes import WindowDim
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.isa.chip import load_chip
from tests.compiler.machine import check, compiled, run
from tests.examples import examples


@dataclass(frozen=True)
class Case:
    text: str
    lhs: tuple[int, ...]
    rhs: tuple[int, ...]


def _permuted(values: dict[str, int], order: list[str]) -> tuple[int, ...]:
    return tuple(values[c] for c in order)


def _window(dims: list[WindowDim]) -> str:
    def each(values: list[object]) -> str:
        return "x".join(map(str, values))

    text = f"size={each([d.size for d in dims])} stride={each([d.stride for d in dims])}"
    text += f" pad={each([f'{d.low}_{d.high}' for d in dims])} lhs_dilate={each([d.base_dilation for d in dims])}"
    text += f" rhs_dilate={each([d.window_dilation for d in dims])}"
    return text + f" rhs_reversal={each([int(d.reversal) for d in dims])}" if dims else ""


@st.composite
def convolutions(draw: st.DrawFn) -> Case:
    rank = draw(st.integers(1, 2))
    dims, base = [], []
    for _ in range(rank):
        w = WindowDim(
            draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(-1, 3)), draw(st.integers(-1, 3)),
            draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.booleans()),
        )  # fmt: skip
        n = draw(st.integers(1, 7))
        assume(w.positions(n) > 0)
        dims.append(w)
        base.append(n)
    groups, batch_groups = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2), (3, 1)]))
    batch, ci, co = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 9))
    space = [str(i) for i in range(rank)]
    lhs_sizes = {"b": batch * batch_groups, "f": ci * groups, **dict(zip(space, base, strict=True))}
    rhs_sizes = {"i": ci, "o": co * groups * batch_groups, **{s: d.size for s, d in zip(space, dims, strict=True)}}
    positions = [d.positions(n) for d, n in zip(dims, base, strict=True)]
    out_sizes = {"b": batch, "f": rhs_sizes["o"], **dict(zip(space, positions, strict=True))}
    orders = [draw(st.permutations(list(sizes))) for sizes in (lhs_sizes, rhs_sizes, out_sizes)]
    lhs, rhs, out = (_permuted(v, o) for v, o in zip((lhs_sizes, rhs_sizes, out_sizes), orders, strict=True))
    labels = "{}_{}->{}".format(*("".join(o) for o in orders))
    shapes = [f"f32[{','.join(map(str, d))}]" for d in (lhs, rhs, out)]
    text = f"""HloModule t
ENTRY e {{
  a = {shapes[0]} parameter(0)
  b = {shapes[1]} parameter(1)
  ROOT c = {shapes[2]} convolution(a, b), window={{{_window(dims)}}}, dim_labels={labels}, \
feature_group_count={groups}, batch_group_count={batch_groups}
}}
"""
    return Case(text, lhs, rhs)


@given(convolutions(), st.integers(0, 2**32 - 1), st.sampled_from(["tiny", "small"]))
@examples(4, 40)
def test_any_window(case: Case, seed: int, chip: str) -> None:
    rng = np.random.default_rng(seed)
    args = [rng.standard_normal(case.lhs).astype(np.float32), rng.standard_normal(case.rhs).astype(np.float32)]
    check(case.text, args, chip)


PADDED = """HloModule t
ENTRY e {
  a = f32[1,4,4,2] parameter(0)
  b = f32[3,3,2,3] parameter(1)
  ROOT c = f32[1,4,4,3] convolution(a, b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
}
"""


def test_padding_is_zeros_and_zero_times_infinity_is_nan() -> None:
    rng = np.random.default_rng(0)
    args = [rng.standard_normal((1, 4, 4, 2)).astype(np.float32), rng.standard_normal((3, 3, 2, 3)).astype(np.float32)]
    args[1][0, 0, 1, 1] = np.inf
    (got,) = run(compiled(PADDED, "tiny", "default").program, load_chip("tiny"), args)
    (wanted,) = evaluate(parse_hlo(PADDED), *args, precision="default")
    assert np.isnan(got).sum() == 7
    assert np.array_equal(np.isnan(got), np.isnan(wanted))
    assert np.array_equal(np.isposinf(got), np.isposinf(wanted))


STEM = """HloModule t
ENTRY e {
  a = f32[1,32,32,3] parameter(0)
  b = f32[7,7,3,40] parameter(1)
  ROOT c = f32[1,16,16,40] convolution(a, b), window={size=7x7 stride=2x2 pad=2_3x2_3}, dim_labels=b01f_01io->b01f
}
"""


def test_windows_that_step_over_the_only_row() -> None:
    """Taps two apart, of one row with one of padding on each side: both meet padding."""
    text = """HloModule t
ENTRY e {
  a = f32[5,1,2,17] parameter(0)
  b = f32[2,1,17,3] parameter(1)
  ROOT c = f32[5,1,2,3] convolution(a, b), window={size=2x1 pad=1_1x0_0 rhs_dilate=2x1}, dim_labels=b01f_01io->b01f
}"""
    rng = np.random.default_rng(0)
    check(text, [rng.standard_normal(dims, np.float32) for dims in ((5, 1, 2, 17), (2, 1, 17, 3))])


@pytest.mark.parametrize("chip", ["small", "tpu_v3"])
def test_few_channels_pack_several_taps_into_a_tile(chip: str) -> None:
    rng = np.random.default_rng(0)
    args = [
        rng.standard_normal((1, 32, 32, 3)).astype(np.float32),
        rng.standard_normal((7, 7, 3, 40)).astype(np.float32),
    ]
    program = check(STEM, args, chip).program
    loads = [o for o in program.origins if o.what == "load weights"]
    assert loads
    tiles = sum(i.op == "mxu.latch" for i in program.code)
    rows = {"small": 32, "tpu_v3": 128}[chip]
    columns = {"small": 2, "tpu_v3": 1}[chip]
    taps = -(-7 * 7 * 3 // rows)
    jobs = sum(i.op == "vpu.run" for i in program.code) // columns
    assert tiles <= 6 * columns * jobs * (taps + 1)
