"""`select-and-scatter` on the chip: the evaluator's bits, without a race, and at the speed of HBM."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith.compiler.hlo.attributes import WindowDim
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand.select_and_scatter import ExpandSelectAndScatter
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.index_cases import Draw, numbers
from tests.compiler.machine import compiled, run
from tests.compiler.window_cases import select_and_scatter_module, select_and_scatter_text, window_arguments
from tests.examples import examples

TYPES = ("f32", "bf16", "s32", "u8", "s8", "pred", "u16")


def on_chip(module: Module, seed: int, chip: str = "tiny") -> None:
    """Run a module on a chip in hostile mode: the evaluator's bits, but for those of NaNs."""
    arguments = window_arguments(module, seed)
    (got,) = run(compiled(print_hlo(module), chip).program, load_chip(chip), arguments)
    with np.errstate(all="ignore"):
        (wanted,) = evaluate(module, *arguments)
        numbers = wanted == wanted
        np.testing.assert_array_equal(got == got, numbers)
    np.testing.assert_array_equal(got[numbers].view(np.uint8), wanted[numbers].view(np.uint8))


@examples(6, 12)
@given(numbers(), st.integers(0, 1000), st.sampled_from(["tiny", "small"]))
def test_any_window(draw: Draw, seed: int, chip: str) -> None:
    on_chip(select_and_scatter_module(draw, TYPES), seed, chip)


@examples(4, 8)
@given(numbers(), st.integers(0, 1000))
def test_any_window_by_indices(draw: Draw, seed: int) -> None:
    module = select_and_scatter_module(draw, TYPES)
    ExpandSelectAndScatter(0).run(module)
    on_chip(module, seed)


@pytest.mark.slow
@settings(max_examples=200)
@given(numbers(), st.integers(0, 1000), st.sampled_from([0, 5, 64]), st.sampled_from(["tiny", "small", "tpu_v3"]))
def test_any_larger_window(draw: Draw, seed: int, most: int, chip: str) -> None:
    module = select_and_scatter_module(draw, TYPES, 9)
    ExpandSelectAndScatter(most).run(module)
    on_chip(module, seed, chip)


POOL = [WindowDim(1), WindowDim(3, 2, 0, 1), WindowDim(3, 2, 0, 1), WindowDim(1)]
HALVES = [WindowDim(1), WindowDim(2, 2), WindowDim(2, 2), WindowDim(1)]


@pytest.mark.parametrize("window", [POOL, HALVES], ids=["overlapping", "apart"])
def test_takes_as_long_as_hbm(window: list[WindowDim]) -> None:
    """Operand, source and result move once each: 1.03 of the time of their bytes."""
    chip = load_chip("tpu_v3")
    made = compiled(select_and_scatter_text((8, 112, 112, 64), window), chip)
    moved = 4 * (2 * 8 * 112 * 112 * 64 + 8 * 56 * 56 * 64)
    cycles = simulate(made.program, chip, {}, "time").cycles
    assert cycles is not None
    assert cycles <= 1.03 * moved * chip.hbm.q / chip.hbm.p
