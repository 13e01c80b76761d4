"""Depthwise convolutions on the vector unit: chosen where they are cheaper, and equal to the evaluator's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.groups.unit_assignment import UnitAssignment
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.ops.group import Unit
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.machine import compare, compiled
from tests.examples import examples

TINY = load_chip("tiny")


@dataclass(frozen=True)
class Case:
    """A grouped convolution; `per_group` channels of the input and `multiplier` features a group."""

    channels: int
    size: int
    window: str
    out: int
    per_group: int = 1
    multiplier: int = 1
    t: str = "f32"
    epilogue: bool = False

    @property
    def text(self) -> str:
        groups = self.channels // self.per_group
        features = groups * self.multiplier
        result = f"{self.t}[2,{self.out},{features}]"
        (kernel,) = (int(f.split("=")[1]) for f in self.window.split() if f.startswith("size="))
        how = f"window={{{self.window}}}, dim_labels=b0f_0io->b0f, feature_group_count={groups}"
        conv = f"{result} convolution(x, w), {how}"
        body = f" c = {conv}\n ROOT r = {result} negate(c)" if self.epilogue else f" ROOT c = {conv}"
        return (
            f"HloModule m\nENTRY e {{\n x = {self.t}[2,{self.size},{self.channels}] parameter(0)\n"
            f" w = {self.t}[{kernel},{self.per_group},{features}] parameter(1)\n{body}\n}}\n"
        )

    def arguments(self) -> list[np.ndarray]:
        rng = np.random.default_rng(self.size)
        shapes = [p.shape for p in parse_hlo(self.text).entry.parameters]
        return [rng.integers(-4, 5, s.dims).astype(s.dtype.stored) for s in shapes]


def chosen(case: Case) -> bool:
    """Whether the vector unit computes the convolution."""
    unit = UnitAssignment(TINY)
    return any(i.opcode == "convolution" and unit(i) is Unit.VPU for i in parse_hlo(case.text).instructions())


def test_the_vector_unit_takes_depthwise_ones() -> None:
    assert chosen(Case(16, 20, "size=3 pad=1_1", 20))
    assert not chosen(Case(16, 20, "size=3 pad=1_1", 20, per_group=16))
    assert not chosen(Case(16, 20, "size=3 pad=1_1", 20, multiplier=2))


@pytest.mark.parametrize("chip", ["tiny", "small"])
@pytest.mark.parametrize(
    ("channels", "size", "kernel", "per_group"), [(40, 9, 5, 1), (40, 9, 5, 3), (24, 9, 2, 1), (40, 9, 2, 3)]
)
def test_the_unit_that_is_chosen_is_not_much_slower_than_the_other(
    channels: int, size: int, kernel: int, per_group: int, chip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Channels of a group lie together, so that lanes read them one by one: many of them are faster on the arrays."""
    case = Case(channels * per_group, size, f"size={kernel}", size - kernel + 1, per_group=per_group)
    cycles = {}
    for unit in (None, Unit.VPU, Unit.MXU):
        with monkeypatch.context() as forced:
            if unit is not None:
                forced.setattr(UnitAssignment, "__call__", lambda self, i, unit=unit: unit)
            cycles[unit] = simulate(compiled(case.text, chip).program, load_chip(chip), mode="time").cycles or 0
    assert cycles[None] <= 1.5 * min(cycles.values())


@pytest.mark.parametrize("t", ["f32", "bf16"])
@pytest.mark.parametrize("epilogue", [False, True])
def test_kernels_of_depthwise_convolutions(t: str, epilogue: bool) -> None:
    case = Case(24, 17, "size=3 stride=2 pad=1_1", 9, t=t, epilogue=epilogue)
    assert chosen(case)
    compare(case.text, case.arguments(), TINY)


@examples(12, 25)
@given(st.data())
def test_every_window(data: st.DataObject) -> None:
    draw = data.draw
    size, kernel = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    stride, low, high = draw(st.integers(1, 3)), draw(st.integers(-2, 3)), draw(st.integers(-2, 3))
    base, dilation, reversal = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 1))
    room = (size - 1) * base + 1 + low + high - ((kernel - 1) * dilation + 1)
    out = room // stride + 1
    if room < 0 or (size - 1) * base + 1 + min(low, 0) + min(high, 0) <= 0:
        return
    window = f"size={kernel} stride={stride} pad={low}_{high} lhs_dilate={base} rhs_dilate={dilation}"
    per_group = draw(st.sampled_from([1, 1, 2]))
    case = Case(10, size, f"{window} rhs_reversal={reversal}", out, per_group)
    compare(case.text, case.arguments(), TINY)


def in_two_dimensions(rows: int, columns: int, channels: int, kernel: int, stride: int = 1) -> str:
    """A depthwise convolution of images whose results have so many rows and columns."""
    x = f"f32[1,{(rows - 1) * stride + kernel - 2},{columns + kernel - 3},{channels}]"
    window = f"window={{size={kernel}x{kernel} pad=1_1x1_1 stride={stride}x1}}, dim_labels=b01f_01io->b01f"
    return (
        f"HloModule m\nENTRY e {{\n x = {x} parameter(0)\n w = f32[{kernel},{kernel},1,{channels}] parameter(1)\n"
        f" ROOT c = f32[1,{rows},{columns},{channels}] convolution(x, w), {window}, feature_group_count={channels}\n"
        "}\n"
    )


@examples(7, 15)
@given(st.integers(2, 23), st.integers(2, 9), st.sampled_from([3, 8, 16, 20]), st.integers(3, 5), st.integers(1, 2))
def test_bands_of_rows(rows: int, columns: int, channels: int, kernel: int, stride: int) -> None:
    """Rows of results that do not divide into bands, too."""
    text = in_two_dimensions(rows, columns, channels, kernel, stride)
    rng = np.random.default_rng(rows)
    args = [rng.integers(-4, 5, p.shape.dims).astype(np.float32) for p in parse_hlo(text).entry.parameters]
    compare(text, args, TINY)


def test_rows_share_the_loads_of_the_filter() -> None:
    """A kernel that loads nine elements of the image and nine of the filter for a vector takes 27 cycles for it."""
    program = compiled(in_two_dimensions(20, 16, 128, 3), "tpu_v3").program
    units = simulate(program, load_chip("tpu_v3"), mode="time").units
    assert units["vpu"]["busy"] < 16 * 20 * 16 * 128 // 1024


@examples(12, 25)
@given(st.integers(1, 20), st.integers(1, 40), st.integers(1, 5), st.integers(1, 2), st.sampled_from(["f32", "bf16"]))
def test_one_channel(rows: int, columns: int, kernel: int, stride: int, t: str) -> None:
    """Lanes hold positions, where these are next to each other."""
    dims = [-(-n // stride) for n in (rows, columns)]
    pads = [max(0, (d - 1) * stride + kernel - n) for d, n in zip(dims, (rows, columns), strict=True)]
    pad = "x".join(f"{p // 2}_{p - p // 2}" for p in pads)
    text = f"""HloModule m
ENTRY e {{
  x = {t}[2,{rows},{columns},1] parameter(0)
  w = {t}[{kernel},{kernel},1,1] parameter(1)
  c = {t}[2,{dims[0]},{dims[1]},1] convolution(x, w),
    window={{size={kernel}x{kernel} stride={stride}x{stride} pad={pad}}}, dim_labels=b01f_01io->b01f
  ROOT r = {t}[2,{dims[0]},{dims[1]},1] abs(c)
}}
"""
    rng = np.random.default_rng(rows)
    args = [rng.integers(-2, 3, p.dims).astype(p.shape.dtype.stored) for p in parse_hlo(text).entry.parameters]
    compare(text, args, TINY)


def one_channel(stride: int) -> str:
    out = 256 // stride
    return f"""HloModule m
ENTRY e {{
  x = f32[8,256,256,1] parameter(0)
  w = f32[3,3,1,1] parameter(1)
  ROOT c = f32[8,{out},{out},1] convolution(x, w),
    window={{size=3x3 stride={stride}x{stride} pad={2 - stride}_1x{2 - stride}_1}}, dim_labels=b01f_01io->b01f
}}
"""


def test_images_of_one_channel_take_as_long_as_hbm() -> None:
    """On the matrix units, where each position is a row of one column, they took 263,897 cycles."""
    chip = load_chip("tpu_v3")
    assert 0 < (simulate(compiled(one_channel(1), chip).program, chip, mode="time").cycles or 0) < 10_200
    unit = UnitAssignment(chip)
    root = {s: parse_hlo(one_channel(s)).entry.result for s in (1, 2)}
    assert (unit(root[1]), unit(root[2])) == (Unit.VPU, Unit.MXU)
