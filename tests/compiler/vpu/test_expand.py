"""Operands that are expanded so that vectors run across several dimensions: values, and cycles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.dtypes import DTYPES
from tests.compiler.vpu.harness import run_groups, sample
from tests.compiler.vpu.movement import show
from tests.compiler.vpu.test_reduce_cycles import over_hbm
from tests.examples import examples


def scaled(dims: tuple[int, ...], along: list[list[int]], dtype: str) -> str:
    """X minus operands that are broadcast from some of its dimensions."""
    whole = f"{dtype}[{show(dims)}]"
    text = f"HloModule m\nENTRY e {{\n x = {whole} parameter(0)\n"
    last = "x"
    for n, kept in enumerate(along):
        text += f" p{n} = {dtype}[{show(tuple(dims[d] for d in kept))}] parameter({n + 1})\n"
        text += f" b{n} = {whole} broadcast(p{n}), dimensions={{{show(tuple(kept))}}}\n"
        root = "ROOT " if n == len(along) - 1 else ""
        text += f" {root}s{n} = {whole} subtract({last}, b{n})\n"
        last = f"s{n}"
    return text + "}\n"


@examples(10, 40)
@given(
    st.tuples(st.integers(1, 5), st.integers(1, 40), st.integers(1, 6), st.integers(1, 4)),
    st.lists(st.lists(st.integers(0, 3), unique=True).map(sorted), min_size=1, max_size=3),
    st.sampled_from(["f32", "bf16", "s32", "u8"]),
    st.sampled_from(["tiny", "small"]),
)
def test_values(dims: tuple[int, ...], along: list[list[int]], dtype: str, chip: str) -> None:
    arguments = [sample(DTYPES[dtype], dims, 1)]
    arguments += [sample(DTYPES[dtype], tuple(dims[d] for d in kept), 2 + n) for n, kept in enumerate(along)]
    for in_hbm in (False, True):
        for outcome in run_groups(scaled(dims, along, dtype), *arguments, chip=chip, in_hbm=in_hbm, budget=1 << 13):
            outcome.assert_same_bits()


@pytest.mark.parametrize(
    ("dims", "along"),
    [
        ((8, 224, 224, 3), [[3], [3]]),
        ((200003, 5), [[1]]),
        ((32, 3136, 32, 2), [[0, 2], [2, 3]]),
    ],
    ids=str,
)
def test_narrow_rows_keep_up_with_hbm(dims: tuple[int, ...], along: list[list[int]]) -> None:
    assert over_hbm(scaled(dims, along, "f32")) < 1.25
