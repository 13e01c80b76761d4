"""Plans of products: of those that take about as long the shorter program; more room where HBM is the slowest unit."""

from __future__ import annotations

import pytest

from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.mxu import gemm, gemm_search
from systolith.compiler.mxu.gemm_search import Ranked
from systolith.isa.chip import load_chip
from systolith.isa.chip_reads import Known
from systolith.sim.simulate import simulate

CHAIN = """
HloModule chain
ENTRY e {
  x = f32[512,768] parameter(0)
  first = f32[768,768] parameter(1)
  second = f32[768,768] parameter(2)
  middle = f32[512,768] dot(x, first), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT out = f32[512,768] dot(middle, second), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def _measured(text: str) -> tuple[int, int]:
    """Matmuls of the program of a module, and simulated cycles."""
    chip = load_chip("tpu_v3")
    program = compile_module(parse_hlo(text), chip).program
    cycles = simulate(program, chip, mode="time").cycles
    assert cycles is not None
    return sum(i.op == "mxu.matmul" for i in program.code), cycles


def test_a_product_within_a_module_has_larger_tiles_in_as_many_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    matmuls, cycles = _measured(CHAIN)
    monkeypatch.setattr(gemm_search, "ALIKE_ON_CHIP", gemm_search.ALIKE)
    monkeypatch.setattr(gemm_search, "_known", Known[Ranked](1))
    more, before = _measured(CHAIN)
    assert matmuls <= 0.75 * more
    assert cycles <= 1.01 * before


WIDE = """
HloModule wide
ENTRY e {
  x = f32[4096,768] parameter(0)
  w = f32[768,3072] parameter(1)
  y = f32[4096,3072] parameter(2)
  xw = f32[4096,3072] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT out = f32[4096,3072] multiply(xw, y)
}
"""


def test_a_product_that_waits_for_hbm_has_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the epilogue reads counts, too: without it the matrix units would seem to have more to do."""
    _, cycles = _measured(WIDE)
    monkeypatch.setattr(gemm, "MORE_ROOM", 1)
    _, before = _measured(WIDE)
    assert cycles < 0.85 * before
