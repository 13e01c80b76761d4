"""Blocks that are copied from a lowered one, and groups whose blocks would be narrower than vectors."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from jax import lax

from systolith.compiler.driver import Compiled
from systolith.compiler.lower import block_choice, blocks, one_block
from systolith.compiler.lower.block_copies import Template
from systolith.compiler.schedule.operation_times import Stage
from systolith.isa.binary import to_bytes
from systolith.isa.chip import Chip, load_chip
from systolith.sim.simulate import simulate
from tests.compiler.fusion.test_blocking import FOLDS, attention, softmax
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.loops.scans import hlo
from tests.compiler.machine import Array, compare, compiled, error, run, with_vmem

TINY = load_chip("tiny")
LITTLE = {kib: with_vmem(TINY, kib << 10) for kib in (12, 16, 32)}
"""By KiB of VMEM."""
SMALL = LITTLE[32]


def columns(rows: int, width: int) -> str:
    """A softmax along dimension 0: blocks run along dimension 1, the minor one."""
    whole, row = f"f32[{rows},{width}]", f"f32[{width}]"
    return f"""HloModule columns
{FOLDS}
ENTRY e {{
 x = {whole} parameter(0)
 low = f32[] constant(-inf)
 m = {row} reduce(x, low), dimensions={{0}}, to_apply=max
 mb = {whole} broadcast(m), dimensions={{1}}
 d = {whole} subtract(x, mb)
 e = {whole} exponential(d)
 zero = f32[] constant(0)
 s = {row} reduce(e, zero), dimensions={{0}}, to_apply=add
 sb = {whole} broadcast(s), dimensions={{1}}
 ROOT r = {whole} divide(e, sb)
}}
"""


UNITS = {kib: replace(chip, mxu=replace(chip.mxu, count=2)) for kib, chip in LITTLE.items()}
"""On which blocks take turns with matrix units."""


@pytest.mark.parametrize(
    ("text", "chip"),
    [
        (softmax(128, 33), LITTLE[16]), (softmax(125, 50), LITTLE[12]),
        (columns(150, 64), LITTLE[16]), pytest.param(columns(97, 250), SMALL, marks=pytest.mark.slow),
        pytest.param(attention(9, 40, 8), SMALL, marks=pytest.mark.slow),
        pytest.param(attention(7, 40, 9), UNITS[32], marks=pytest.mark.slow),
        (attention(2, 40, 8), UNITS[12]),
        pytest.param(attention(24, 32, 16), load_chip("small"), marks=pytest.mark.slow),
    ],
    ids=["rows", "ragged", "columns", "ragged-columns", "attention", "units", "rows-of-attention", "small"],
)  # fmt: skip
def test_copies_are_what_lowering_every_block_gives(text: str, chip: Chip, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_copied(text, chip, monkeypatch)


def test_blocks_of_an_array_of_a_stack_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it lies is known in the run only."""

    def step(before: jax.Array, own: jax.Array) -> tuple[jax.Array, jax.Array]:
        made = jax.nn.softmax(own * before)
        return made, made

    def layers(xs: jax.Array, first: jax.Array) -> jax.Array:
        made: jax.Array = lax.scan(step, first, xs)[1]
        return made

    rng = np.random.default_rng(0)
    args: list[Array] = [rng.standard_normal(s).astype(np.float32) for s in ((3, 128, 33), (128, 33))]
    text = hlo(layers, args)
    copied = assert_copied(text, LITTLE[16], monkeypatch)
    (got,), (wanted,) = run(copied.program, LITTLE[16], args), run_xla(text, *args)
    assert error(got, wanted) < 1e-6


def assert_copied(text: str, chip: Chip, monkeypatch: pytest.MonkeyPatch) -> Compiled:
    """Copies are made, and are what lowering every block gives."""
    numbers, copy = list[int](), Template.copy

    def counted(template: Template, number: int) -> list[list[Stage]]:
        numbers.append(number)
        return copy(template, number)

    monkeypatch.setattr(Template, "copy", counted)
    copied = compiled(text, chip)
    assert len(numbers) > 2
    assert any(d.kind == "blocks" for d in copied.explain)
    monkeypatch.setattr(blocks, "LEAST_COPIED", 1 << 30)
    numbers.clear()
    assert to_bytes(compiled(text, chip).program) == to_bytes(copied.program)
    assert not numbers
    return copied


@pytest.mark.parametrize(("rows", "width"), [pytest.param(300, 64, marks=pytest.mark.slow), (97, 250), (1000, 9)])
def test_columns_in_blocks(rows: int, width: int) -> None:
    values = np.random.default_rng(rows).normal(size=(rows, width)).astype(np.float32)
    compare(columns(rows, width), [values], SMALL)


def test_blocks_of_a_few_lanes_give_way_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of 2 channels take the vector unit longer than it takes to read everything again."""
    chip = load_chip("tpu_v3")
    chip = with_vmem(chip, 256 << 10)

    def cycles() -> int:
        found = simulate(compiled(columns(3_136, 16), chip, "highest").program, chip, mode="time").cycles
        assert found is not None
        return found

    whole = cycles()
    for module in (one_block, block_choice):
        monkeypatch.setattr(module, "is_narrow", lambda lowering, group: False)
    assert whole < cycles()


@pytest.mark.parametrize(
    ("chip", "rows", "width"), [("tpu_v3", 512, 512), pytest.param("small", 512, 1000, marks=pytest.mark.slow)]
)
def test_many_blocks_have_no_tiles_and_take_no_longer(
    chip: str, rows: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> tuple[int, int]:
        program = compiled(softmax(rows, width), load_chip(chip)).program
        cycles = simulate(program, load_chip(chip), mode="time").cycles
        assert cycles is not None
        return len(program.code), cycles

    code, cycles = made()
    monkeypatch.setattr(one_block, "MANY", 1 << 30)
    in_tiles, longer = made()
    assert code < 0.7 * in_tiles
    assert cycles <= longer
