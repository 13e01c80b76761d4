"""Scans in blocks: the same values, and scans of blocks where lines are long and few."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand.scans import SplitScans, scanned
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import BF16, F32, S8, S32, DType
from systolith.sim.simulate import simulate
from tests.compiler.machine import check, compiled, error
from tests.compiler.vpu.test_scan import OPERATIONS, text


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.integers(0, 2),
    st.sampled_from([F32, BF16, S32, S8]),
    st.sampled_from(list(OPERATIONS)),
    st.booleans(),
    st.integers(2, 5),
)
@settings(max_examples=40, deadline=None)
def test_blocks_have_the_values_of_lines(
    dims: list[int], dim: int, dtype: DType, op: str, backwards: bool, block: int
) -> None:
    """Blocks of blocks, too; one rounding of narrow floats."""
    dim %= len(dims)
    module = parse_hlo(text(dims, dim, dtype.name, op, backwards))
    scale = 1 if dtype.is_float else 40
    x = (np.random.default_rng(0).uniform(-1.5, 1.5, dims) * scale).astype(dtype.stored)
    wanted = evaluate(module, x)[0]
    assert SplitScans(block, 6, 1 << 30, 0).run(module) == (dims[dim] >= 6)
    verify(module)
    assert error(evaluate(module, x)[0], wanted) <= {F32: 1e-5, BF16: 8e-3}.get(dtype, 0)
    longest = max((i.dims[s[0]] for c in module.computations for i in c.instructions if (s := scanned(i))), default=0)
    assert longest < 6


@pytest.mark.parametrize(
    ("long", "few", "each", "split"), [(9, 4, 13, True), (41, 4, 13, False), (9, 3, 13, False), (9, 4, 14, False)]
)
def test_short_lines_and_many_lines_stay(long: int, few: int, each: int, split: bool) -> None:
    assert SplitScans(8, long, few, each).run(parse_hlo(text((3, 40), 1))) == split


@pytest.mark.parametrize("n", [256, 1000, 1024, 4000, 10_000, 1 << 20])
def test_blocks_need_no_padding_where_a_line_has_a_divisor(n: int) -> None:
    module = parse_hlo(text((n,), 0))
    assert SplitScans().run(module)
    (first, *_) = [i.shape for c in module.computations for i in c.instructions if i.opcode == "reshape"]
    assert np.prod(first.dims) == n
    assert max(first.dims) <= 2 * max(128, np.sqrt(n))


@pytest.mark.parametrize(
    ("dims", "most"), [((1_000_000,), 2), ((1 << 20,), 1.9), ((8, 100_000), 2.5), ((4000,), 25), ((2, 999), 45)]
)
def test_one_long_line_takes_a_few_times_the_time_of_its_bytes(dims: tuple[int, ...], most: float) -> None:
    chip = load_chip("tpu_v3")
    cycles = simulate(compiled(text(dims, len(dims) - 1), chip).program, chip, mode="time").cycles
    assert cycles is not None
    assert cycles <= most * 8 * np.prod(dims) * chip.hbm.q / chip.hbm.p


@pytest.mark.parametrize("backwards", [False, True])
def test_a_long_line_on_the_chip(backwards: bool) -> None:
    x = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    check(text((5000,), 0, backwards=backwards), [x], most=1e-5)
