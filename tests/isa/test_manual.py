"""The assembly and TOML of `docs/isa.md`, as they stand there: assembled, run, read."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from systolith.isa.asm import assemble
from systolith.isa.asm_routine import assemble_routine
from systolith.isa.chip import load_chip
from systolith.isa.host_functions import Signature
from systolith.isa.verify import verify_program
from systolith.sim.simulate import simulate

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "isa.md").read_text()
TINY = load_chip("tiny")


def block(begin: str) -> str:
    """The indented block that begins so."""
    (found,) = (b for b in re.findall(r"(?:^(?:    .*)?\n)+", PAGE, re.M) if b.lstrip("\n ").startswith(begin))
    return re.sub("^    ", "", found, flags=re.M)


def test_the_program_of_the_manual_doubles_its_argument() -> None:
    program = assemble(block(".program axpy"), TINY)
    verify_program(program, TINY)
    x = np.arange(16, dtype=np.float32) - 7
    memories = {0: x.view(np.uint8), 1: np.zeros(64, np.uint8)}
    simulate(program, TINY, memories, hostile=True)
    np.testing.assert_array_equal(memories[1].view(np.float32), 2 * x)


def test_the_kernels_of_the_manual_are_kernels() -> None:
    axpy, copy = assemble(block(".kernel axpy auto") + block(".kernel copy ii=1") + "halt\n", TINY).kernels
    assert (axpy.name, copy.name) == ("axpy", "copy")
    assert (copy.ii, copy.body.length) == (1, 4)
    assert [op.op for op in axpy.body.ops] == ["ld", "mul.f32", "add.f32", "st"]


def test_the_declarations_of_a_routine_are_some() -> None:
    text = block(".buffer x parameter f32 [rows, n]")
    lines = [re.sub(r" {3,}\S.*$", "", line) for line in text.splitlines()]  # what a line means stands behind it
    array = ("f32", (4, 8))
    made = assemble_routine("\n".join(lines) + "\nhalt\n", TINY, Signature("t", (array,), (array,)))
    assert [place.name for place in made.places] == ["x", "y", "partial"]


def test_the_entry_of_a_chip_is_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('base = "tpu_v2"\nname = "mine"\n' + block("[mxu]\n"))
    chip = load_chip(path)
    assert chip.mxu.rows == 128
    assert chip.provenance["mxu.rows"].source == "jax _src/tpu_info.py"
