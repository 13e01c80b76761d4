"""Hand-written programs of algorithms that are hard to express: against numpy, to the bit where numpy is exact."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.isa.asm import assemble, disassemble
from systolith.isa.binary import from_bytes, to_bytes
from systolith.isa.chip import load_chip
from systolith.isa.verify import verify_program
from systolith.sim.simulate import simulate
from tests.goldens import PROGRAMS, check
from tests.programs.cases import CASES, CHIPS, HERE
from tests.programs.run import arguments, assembled, ran

each = pytest.mark.parametrize(("name", "chip"), [(name, chip) for name in CASES for chip in CHIPS])


def test_every_program_has_a_case() -> None:
    assert {p.stem for p in HERE.glob("*.s")} == set(CASES)


@each
def test_values(name: str, chip: str) -> None:
    verify_program(assembled(name, chip), load_chip(chip))
    result = ran(name, chip)
    assert not result.hazards
    case = CASES[name]
    for got, want in zip(result.outputs, case.expected(arguments(name)), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if case.tolerance:
            np.testing.assert_allclose(got, want, rtol=0, atol=case.tolerance * float(np.abs(want).max()))
        else:
            assert got.tobytes() == want.tobytes()


@each
def test_time_alone_is_the_same(name: str, chip: str) -> None:
    full = ran(name, chip)
    again = simulate(assembled(name, chip), load_chip(chip), mode="time", decisions=full.decisions)
    assert (again.cycles, again.units) == (full.cycles, full.units)
    assert all(sum(causes.values()) == full.cycles for causes in full.units.values())


@each
def test_cycles(name: str, chip: str) -> None:
    check(PROGRAMS, f"{name} {chip}", ran(name, chip).cycles)


@each
def test_text_and_binary_keep_everything(name: str, chip: str) -> None:
    program = assembled(name, chip)
    assert assemble(disassemble(program), load_chip(chip)) == program
    assert from_bytes(to_bytes(program)) == program
