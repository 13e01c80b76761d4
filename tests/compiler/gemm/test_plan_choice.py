"""Plans of products: of those that take about as long the shorter program; more room where HBM is the slowest unit."""

from __future__ import annotations

import pytest

from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.mxu import gemm, gemm_search
from systolith.compiler.mxu.gemm_search import Ranked
from systolith.isa.chip import Chip, load_chip
from systolith.isa.chip_reads import Known
from systolith.sim.simulate import simulate
from tests.compiler.machine import with_vmem

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


V3 = load_chip("tpu_v3")


def _measured(text: str, chip: Chip = V3) -> tuple[int, int]:
    """Matmuls of the program of a module, and simulated cycles."""
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
  x = f32[1024,384] parameter(0)
  w = f32[384,1536] parameter(1)
  y = f32[1024,1536] parameter(2)
  xw = f32[1024,1536] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT out = f32[1024,1536] multiply(xw, y)
}
"""


def test_a_product_that_waits_for_hbm_has_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    chip = with_vmem(V3, 2 << 20)
    _, cycles = _measured(WIDE, chip)
    monkeypatch.setattr(gemm, "MORE_ROOM", 1)
    _, before = _measured(WIDE, chip)
    assert cycles < 0.85 * before


def test_what_an_epilogue_reads_is_moved() -> None:
    """On a chip where everything fits, each array is moved once."""
    (tiles,) = (d for d in compile_module(parse_hlo(WIDE), V3).explain if d.kind == "tiles")
    assert tiles.numbers["moved bytes"] == 4 * (1024 * 384 + 384 * 1536 + 2 * 1024 * 1536)


GRADIENT = """
HloModule gradient
ENTRY e {
  x = f32[2048,3072] parameter(0)
  dy = f32[2048,768] parameter(1)
  ROOT dw = f32[3072,768] dot(x, dy), lhs_contracting_dims={0}, rhs_contracting_dims={0}
}
"""


def test_rows_of_a_block_are_as_many_as_leave_room_for_all_columns() -> None:
    """512 rows by all 768 columns: of 384 rows, more would wait for the right operand, which each block reads."""
    program = compile_module(parse_hlo(GRADIENT), V3).program
    result = simulate(program, V3, mode="time")
    multiplied = 3072 * 768 * 2048 // (2 * 128 * 128)
    assert (result.cycles or 0) < 1.05 * multiplied
    assert sum(g["hbm_bytes"]["read"] for g in result.groups()) == 4 * 2048 * (3072 + 6 * 768)
