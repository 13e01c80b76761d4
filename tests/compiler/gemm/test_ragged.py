"""Columns that are no whole number of array widths cost no more than the next whole number of them."""

from __future__ import annotations

from functools import cache

import pytest

from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.gemm.test_predict import gemm
from tests.compiler.machine import compiled

V3 = load_chip("tpu_v3")


@cache
def cycles(m: int, n: int, dtype: str) -> int:
    found = simulate(compiled(gemm(m, 128, n, dtype), V3).program, V3, mode="time").cycles
    assert found is not None
    return found


@pytest.mark.parametrize("n", [129, 192, 200, 320, 333, 448, 500])
@pytest.mark.parametrize(("m", "dtype"), [(128, "f32"), (128, "bf16"), (1000, "f32")])
def test_stores_of_neighbouring_columns_do_not_wait_for_one_another(m: int, n: int, dtype: str) -> None:
    assert cycles(m, n, dtype) <= cycles(m, -(-n // 128) * 128, dtype)


def test_stores_of_rows_of_34_bytes_do_not_wait_for_one_another() -> None:
    program = compiled(gemm(300, 1, 17, "bf16"), V3).program
    assert not any(i.fence for i in program.code)
    assert (simulate(program, V3, mode="time").cycles or 0) < 2000
