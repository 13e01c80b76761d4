"""Dots over random dimension numbers, types and precisions against the reference evaluator."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from systolith.isa.chip import load_chip
from tests.compiler.machine import check, with_vmem
from tests.examples import examples


def _dot(
    lhs: list[int], rhs: list[int], batch: tuple[list[int], list[int]], contract: tuple[list[int], list[int]]
) -> str:
    out = [lhs[d] for d in batch[0]]
    out += [n for d, n in enumerate(lhs) if d not in batch[0] + contract[0]]
    out += [n for d, n in enumerate(rhs) if d not in batch[1] + contract[1]]

    def shape(dims: list[int]) -> str:
        return f"f32[{','.join(map(str, dims))}]"

    def text(dims: list[int]) -> str:
        return "{" + ",".join(map(str, dims)) + "}"

    attributes = (
        f"lhs_batch_dims={text(batch[0])}, rhs_batch_dims={text(batch[1])}, "
        f"lhs_contracting_dims={text(contract[0])}, rhs_contracting_dims={text(contract[1])}"
    )
    return f"""HloModule t
ENTRY e {{
  a = {shape(lhs)} parameter(0)
  b = {shape(rhs)} parameter(1)
  ROOT d = {shape(out)} dot(a, b), {attributes}
}}
"""


@st.composite
def dots(draw: st.DrawFn) -> tuple[str, list[int], list[int]]:
    """(text, lhs sizes, rhs sizes): any order of batch, free and contracting dimensions."""
    size = st.sampled_from([1, 2, 3, 5, 9])
    nb, nk, nm, nn = (draw(st.integers(0, 2)) for _ in range(4))
    shared = [draw(size) for _ in range(nb + nk)]
    left = draw(st.permutations([("s", i) for i in range(nb + nk)] + [("m", i) for i in range(nm)]))
    right = draw(st.permutations([("s", i) for i in range(nb + nk)] + [("n", i) for i in range(nn)]))
    lhs = [shared[i] if kind == "s" else draw(size) for kind, i in left]
    rhs = [shared[i] if kind == "s" else draw(size) for kind, i in right]
    assume(prod(lhs) * prod(rhs) <= 30000)
    at = [[side.index(("s", i)) for i in range(nb + nk)] for side in (left, right)]
    return _dot(lhs, rhs, (at[0][:nb], at[1][:nb]), (at[0][nb:], at[1][nb:])), lhs, rhs


@given(dots(), st.integers(0, 2**32 - 1))
@examples(4, 40)
def test_any_dimension_numbers(case: tuple[str, list[int], list[int]], seed: int) -> None:
    text, lhs, rhs = case
    rng = np.random.default_rng(seed)
    check(text, [rng.standard_normal(lhs).astype(np.float32), rng.standard_normal(rhs).astype(np.float32)])


@pytest.mark.parametrize(("precision", "most"), [("default", 3e-2), ("high", 1e-4), ("highest", 2e-6)])
def test_passes(precision: str, most: float) -> None:
    rng = np.random.default_rng(0)
    args = [rng.standard_normal((33, 40)).astype(np.float32), rng.standard_normal((40, 50)).astype(np.float32)]
    check(_dot([33, 40], [40, 50], ([], []), ([1], [0])), args, "small", precision, most)


def test_large_operands_in_hbm_are_tiled() -> None:
    rng = np.random.default_rng(0)
    args = [rng.standard_normal((80, 160)).astype(np.float32), rng.standard_normal((160, 26)).astype(np.float32)]
    chip = load_chip("tiny")
    chip = with_vmem(chip, 64 << 10)
    result = check(_dot([80, 160], [160, 26], ([], []), ([1], [0])), args, chip, "default", 3e-2)
    assert result.program.vmem_high_water <= chip.vmem.bytes
    assert sum(a.size * 4 for a in args) > chip.vmem.bytes
