"""Padding between elements of the last dimension: the evaluator's values before and after, numpy's on the chip."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.attributes import PadDim
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.passes.expand.interior_padding import InterleavePadding
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.machine import compiled, run
from tests.compiler.passes.differential import arguments_of, assert_unchanged, opcodes

TYPES = ("f32", "bf16", "s8", "pred", "s64", "c64")


def text_of(dtype: str, dims: list[int], padding: list[PadDim]) -> str:
    made = [max(0, n + p.low + p.high + max(0, n - 1) * p.interior) for n, p in zip(dims, padding, strict=True)]
    shown = "x".join(f"{p.low}_{p.high}_{p.interior}" for p in padding)
    return (
        f"HloModule m\nENTRY e {{\n x = {dtype}{dims} parameter(0)\n z = {dtype}[] parameter(1)\n"
        f" ROOT r = {dtype}{made} pad(x, z), padding={shown}\n}}\n"
    )


edges = st.builds(PadDim, st.integers(-3, 3), st.integers(-3, 3), st.integers(0, 3))


@given(
    st.sampled_from(TYPES), st.lists(st.tuples(st.integers(0, 5), edges), min_size=1, max_size=4), st.integers(0, 99)
)
def test_any_padding(dtype: str, axes: list[tuple[int, PadDim]], seed: int) -> None:
    dims, padding = [n for n, _ in axes], [p for _, p in axes]
    assume(all(n + max(0, n - 1) * p.interior + p.low + p.high >= 0 for n, p in axes))
    module = parse_hlo(text_of(dtype, dims, padding))
    made = assert_unchanged(module, InterleavePadding(), arguments=arguments_of(module, seed))
    interleaved = padding[-1].interior and dims[-1] > 1 and np.prod(dims) and module.entry.result.shape.size
    assert opcodes(made) == (["pad", "pad", "reshape", "reshape"] if interleaved else ["pad"])


def test_rows_of_the_chip() -> None:
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    program = compiled(text_of("f32", [3, 8], [PadDim(1, 0, 1), PadDim(2, -1, 2)])).program
    (got,) = run(program, load_chip("tiny"), [x, np.array(7, np.float32)])
    want = np.full((6, 24), 7, np.float32)
    want[1::2, 2::3] = x
    np.testing.assert_array_equal(got, want[:, :23])


@pytest.mark.parametrize(("dtype", "between", "most"), [("f32", 1, 2.5), ("bf16", 1, 1.6), ("f32", 3, 2.8)])
def test_it_takes_a_few_times_what_its_bytes_take(dtype: str, between: int, most: float) -> None:
    chip = load_chip("tpu_v3")
    module = parse_hlo(text_of(dtype, [4096, 512], [PadDim(0, 0), PadDim(0, 0, between)]))
    size = module.entry.parameters[0].shape.bytes + module.entry.result.shape.bytes
    cycles = simulate(compile_module(module, chip).program, chip, mode="time").cycles
    assert cycles is not None
    assert cycles * chip.hbm.p / chip.hbm.q < most * size
