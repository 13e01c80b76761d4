"""Random modules through the whole path, hostile: every result within its error bound of the evaluator's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from systolith.compiler.driver import Compiled
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.error_bounds import bounded
from systolith.isa.chip import Chip, load_chip
from systolith.runtime.jobs.checks import distance
from tests.compiler.driver.random_modules import random_module
from tests.compiler.machine import Array, compiled, run
from tests.examples import seeds

TINY = load_chip("tiny")
CHIPS = {kib: replace(TINY, vmem=replace(TINY.vmem, bytes=kib << 10)) for kib in (16, 32, 256)}
LOOSE = {"f": 2.0**-18, "V": 2.0**-5}
"""Of the largest magnitude, where no bound is known (behind a loop): for f32, and for bf16."""


def compare(text: str, args: list[Array], chip: Chip) -> Compiled:
    """Compile, run, compare every result with the evaluator's; the compiled program.

    Raises:
        AssertionError: a result beyond its bound, or a race.
    """
    result = compiled(text, chip, "highest")
    got = run(result.program, chip, args)
    for number, (a, (want, bound)) in enumerate(zip(got, bounded(parse_hlo(text).entry, args, "highest"), strict=True)):
        assert a.shape == want.shape
        if a.dtype.kind in "biu":
            loose = 0.0
        else:
            loose = LOOSE[a.dtype.kind] * float(np.abs(want.astype(np.float64)).max(initial=0))
        over = distance(a, want) - np.where(np.isfinite(bound), bound, loose)
        assert not (over > 0).any(), f"result {number}: {int((over > 0).sum())} of {over.size} elements are wrong"
    return result


@pytest.mark.parametrize("kib", CHIPS)
@pytest.mark.parametrize("seed", seeds(10, 20))
def test_random_module(seed: int, kib: int) -> None:
    text, args = random_module(seed)
    compare(text, args, CHIPS[kib])


RESHAPED = """HloModule m
sum {
 a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b)
}
ENTRY e {
 x = f32[1,3] parameter(0)
 y = f32[1,3] parameter(1)
 c = f32[1,6] concatenate(x, y), dimensions={1}
 z = f32[] constant(0)
 s = f32[6] reduce(c, z), dimensions={0}, to_apply=sum
 f = f32[6] reshape(c)
 ROOT d = f32[6] subtract(f, s)
}
"""


def test_a_reshape_in_the_epilogue_of_a_reduction_knows_its_sizes() -> None:
    compare(RESHAPED, [np.array([[1, 2, 3]], np.float32), np.array([[4, 5, 6]], np.float32)], TINY)
