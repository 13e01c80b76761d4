"""Random modules through the whole path, hostile: every result within its error bound of the evaluator's."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.driver.random_modules import random_module
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.machine import CHIPS, TINY, compare
from tests.examples import seeds


@pytest.mark.parametrize("kib", CHIPS)
@pytest.mark.parametrize("seed", seeds(10, 20))
def test_random_module(seed: int, kib: int) -> None:
    text, args = random_module(seed)
    compare(text, args, CHIPS[kib])


RESHAPED = (
    "HloModule m\n"
    + scalar_computation("add", name="sum")
    + """ENTRY e {
 x = f32[1,3] parameter(0)
 y = f32[1,3] parameter(1)
 c = f32[1,6] concatenate(x, y), dimensions={1}
 z = f32[] constant(0)
 s = f32[6] reduce(c, z), dimensions={0}, to_apply=sum
 f = f32[6] reshape(c)
 ROOT d = f32[6] subtract(f, s)
}
"""
)


def test_a_reshape_in_the_epilogue_of_a_reduction_knows_its_sizes() -> None:
    compare(RESHAPED, [np.array([[1, 2, 3]], np.float32), np.array([[4, 5, 6]], np.float32)], TINY)
