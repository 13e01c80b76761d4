"""A program runs on the chip that it is for, which a binary carries whole, and on no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from systolith.isa.asm import disassemble
from systolith.isa.binary import load, save
from systolith.isa.chip import PRESETS, SCHEMA, Chip, chip_of, describe, load_chip
from systolith.isa.errors import ConfigError, ProgramError
from systolith.isa.program import Program
from systolith.isa.verify import verify_program
from systolith.runtime.client import Client
from systolith.sim.simulate import simulate
from tests.runtime.command import systolith

EXAMPLE = Path(__file__).parents[2] / "examples" / "axpy.s"
VALUES = {row.field: row.value for row in describe(load_chip("tiny"))}


def cycles(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """Cycles of a run, and the digest of its chip."""
    ran = systolith(capsys, "run", *words, "--random", 0, "--json")
    assert ran.code == 0, ran
    record = json.loads(ran.out)
    return record["cycles"], record["chip_digest"]


def other(field: str) -> Chip | None:
    """A chip that differs in one field; None: there is none that is possible."""
    value = VALUES[field]
    changes: list[int | float | bool] = [not value] if isinstance(value, bool) else []
    if not isinstance(value, bool | str):
        changes += [value * 2, value + 1, value // 2, value - 1]
    for change in changes:
        try:
            return chip_of(VALUES | {field: change}, "changed")
        except ConfigError:
            continue
    return None


@pytest.fixture(scope="module")
def program() -> Program:
    text = "HloModule m\nENTRY e {\n  a = f32[64] parameter(0)\n  ROOT b = f32[64] add(a, a)\n}\n"
    return Client("tiny").compile(text).program


@pytest.mark.parametrize("field", [name for name in SCHEMA if name != "name"])
def test_a_program_is_refused_where_any_field_differs(field: str, program: Program) -> None:
    chip = other(field)
    assert chip is not None
    for run in (simulate, verify_program):
        with pytest.raises(ProgramError, match=f"program m is for chip tiny .*{field} .* and not .*compile it again"):
            run(program, chip)


def test_a_binary_runs_on_its_own_chip_without_its_file(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    want = cycles(capsys, "m.hlo", "--chip", "chip.toml")
    (files / "chip.toml").unlink()
    assert cycles(capsys, "m.slb") == want
    assert load("m.slb").target is not None


@pytest.mark.parametrize("chip", [path.stem for path in PRESETS.glob("*.toml")])
def test_a_binary_of_a_preset_knows_where_its_values_are_from(
    chip: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert systolith(capsys, "compile", "m.hlo", "--chip", chip, "-o", "new.slb").code == 0
    assert load("new.slb").target is load_chip(chip)
    assert cycles(capsys, "new.slb") == cycles(capsys, "m.hlo", "--chip", chip)


def test_a_binary_on_another_chip_is_refused(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = systolith(capsys, "run", "m.slb", "--random", 0, "--chip", "tpu_v3")
    assert ran.code == 2
    assert "is for chip mine" in ran.err
    assert "mxu.count" in ran.err


def test_assembly_is_assembled_and_runs(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert systolith(capsys, "asm", EXAMPLE, "-o", "axpy.slb").code == 0
    assert cycles(capsys, EXAMPLE) == cycles(capsys, "axpy.slb") == cycles(capsys, EXAMPLE, "--chip", "tiny")


def test_assembly_that_names_a_preset_runs_on_it(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert systolith(capsys, "compile", "m.hlo", "--chip", "small", "-o", "new.slb").code == 0
    (files / "new.s").write_text(disassemble(load("new.slb")))
    assert cycles(capsys, "new.s") == cycles(capsys, "new.slb")


def test_a_binary_that_only_names_an_unknown_chip_asks_for_it(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = load("m.slb")
    program.target = None
    save(program, "old.slb")
    ran = systolith(capsys, "run", "old.slb", "--random", 0)
    assert ran.code == 2
    assert "chip mine" in ran.err
    assert "--chip" in ran.err
    assert cycles(capsys, "old.slb", "--chip", "chip.toml") == cycles(capsys, "m.slb")
