"""Cumulative sums and the like: the values, the order of the sum, and the time of their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.chip import load_chip
from systolith.isa.dtypes import BF16, F32, S8, S32, DType
from systolith.sim.simulate import simulate
from tests.compiler.machine import check, compiled, run, with_vmem
from tests.examples import examples

TINY, V3 = load_chip("tiny"), load_chip("tpu_v3")

OPERATIONS = {"add": "0", "multiply": "1", "maximum": "-5", "minimum": "7"}
"""An initial value each that may be taken any number of times."""


def text(
    dims: Sequence[int], dim: int, dtype: str = "f32", op: str = "add", backwards: bool = False, after: str = "copy(s)"
) -> str:
    """A scan, and something that is made of it."""
    n, whole = dims[dim], f"{dtype}[{','.join(map(str, dims))}]"
    window = "x".join(str(n if d == dim else 1) for d in range(len(dims)))
    ends = f"0_{n - 1}" if backwards else f"{n - 1}_0"
    pad = "x".join(ends if d == dim else "0_0" for d in range(len(dims)))
    return f"""HloModule t
f {{
  a = {dtype}[] parameter(0)
  b = {dtype}[] parameter(1)
  ROOT r = {dtype}[] {op}(a, b)
}}
ENTRY e {{
  x = {whole} parameter(0)
  i = {dtype}[] constant({OPERATIONS[op]})
  s = {whole} reduce-window(x, i), window={{size={window} pad={pad}}}, to_apply=f
  ROOT r = {whole} {after}
}}
"""


@given(
    st.lists(st.sampled_from([1, 2, 3, 9, 20, 40]), min_size=1, max_size=3),
    st.integers(0, 2),
    st.sampled_from([F32, BF16, S32, S8]),
    st.sampled_from(list(OPERATIONS)),
    st.booleans(),
    st.sampled_from(["copy(s)", "subtract(x, s)", "negate(s)"]),
    st.integers(0, 2**32 - 1),
)
@examples(20, 40)
def test_any_scan(dims: list[int], dim: int, dtype: DType, op: str, backwards: bool, after: str, seed: int) -> None:
    values = np.random.default_rng(seed).uniform(-1.5, 1.5, dims) * (1 if dtype.is_float else 40)
    code = text(dims, dim % len(dims), dtype.name, op, backwards, after)
    check(code, [values.astype(dtype.stored)], most={F32: 1e-5, BF16: 1.6e-2}.get(dtype, 0))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("backwards", [False, True])
def test_elements_are_added_one_after_another_in_f32(dim: int, backwards: bool) -> None:
    """In chunks that fit in VMEM, narrow floats rounded where they are stored."""
    chip = with_vmem(TINY, 64 << 10)
    values = np.random.default_rng(dim).standard_normal((150, 140)).astype(np.float32)
    for dtype in (F32, BF16):
        x = values.astype(dtype.stored)
        code = compiled(text(x.shape, dim, dtype.name, backwards=backwards), chip).program
        turned = np.flip(x, dim) if backwards else x
        wanted = np.cumsum(turned.astype(np.float32), axis=dim, dtype=np.float32)
        np.testing.assert_array_equal(
            run(code, chip, [x])[0], (np.flip(wanted, dim) if backwards else wanted).astype(dtype.stored)
        )


def test_an_initial_value_that_counts_every_time_is_no_scan() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    check(text((3, 4), 1).replace("constant(0)", "constant(2)"), [x], most=0)


@pytest.mark.parametrize(
    ("dims", "dim", "most"),
    [((1024, 1024), 0, 2), ((8192, 512), 0, 2), ((8, 512, 256), 1, 2), ((1024, 1024), 1, 4), ((300, 5000), 1, 4)],
)
@pytest.mark.parametrize("backwards", [False, True])
def test_a_scan_takes_the_time_of_its_bytes(dims: tuple[int, ...], dim: int, most: int, backwards: bool) -> None:
    program = compiled(text(dims, dim, backwards=backwards), V3).program
    cycles = simulate(program, V3, mode="time").cycles
    assert cycles is not None
    assert cycles <= most * 8 * prod(dims) * V3.hbm.q / V3.hbm.p


def test_what_is_made_of_it_may_read_a_small_array_over_and_over() -> None:
    """A scale of three channels, which is repeated in VMEM first so that channels share lanes with what is before."""
    code = text((16, 64, 3), 0, after="multiply(s, w)")
    code = code.replace("  s = ", "  v = f32[3] parameter(1)\n  w = f32[16,64,3] broadcast(v), dimensions={2}\n  s = ")
    draw = np.random.default_rng(0).standard_normal
    check(code, [draw(n).astype(np.float32) for n in ((16, 64, 3), 3)], V3, most=1e-5)
