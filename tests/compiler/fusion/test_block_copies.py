"""Blocks that are copied from a lowered one, and groups whose blocks would be narrower than vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from systolith.compiler.lower import block_choice, blocks, one_block
from systolith.compiler.lower.block_copies import Template
from systolith.compiler.schedule.operation_times import Stage
from systolith.isa.binary import to_bytes
from systolith.isa.chip import Chip, load_chip
from systolith.sim.simulate import simulate
from tests.compiler.fusion.test_blocking import FOLDS, attention, softmax
from tests.compiler.machine import compare, compiled

TINY = load_chip("tiny")
SMALL = replace(TINY, vmem=replace(TINY.vmem, bytes=32 << 10))


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


def layers(count: int, rows: int, width: int) -> str:
    """A softmax of each array of a stack times that of the one before: where each lies is known in the run only."""
    stack, layer = f"f32[{count},{rows},{width}]", f"f32[1,{rows},{width}]"
    whole, row = f"f32[{rows},{width}]", f"f32[{rows}]"
    state = f"(s32[], {stack}, {stack}, {whole})"
    return f"""HloModule layers
{FOLDS}
body {{
 p = {state} parameter(0)
 i = s32[] get-tuple-element(p), index=0
 from = {stack} get-tuple-element(p), index=1
 to = {stack} get-tuple-element(p), index=2
 before = {whole} get-tuple-element(p), index=3
 nought = s32[] constant(0)
 part = {layer} dynamic-slice(from, i, nought, nought), dynamic_slice_sizes={{1,{rows},{width}}}
 own = {whole} reshape(part)
 x = {whole} multiply(own, before)
 low = f32[] constant(-inf)
 m = {row} reduce(x, low), dimensions={{1}}, to_apply=max
 mb = {whole} broadcast(m), dimensions={{0}}
 d = {whole} subtract(x, mb)
 e = {whole} exponential(d)
 zero = f32[] constant(0)
 s = {row} reduce(e, zero), dimensions={{1}}, to_apply=add
 sb = {whole} broadcast(s), dimensions={{0}}
 r = {whole} divide(e, sb)
 made = {layer} reshape(r)
 put = {stack} dynamic-update-slice(to, made, i, nought, nought)
 one = s32[] constant(1)
 next = s32[] add(i, one)
 ROOT t = {state} tuple(next, from, put, r)
}}
more {{
 p = {state} parameter(0)
 i = s32[] get-tuple-element(p), index=0
 n = s32[] constant({count})
 ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
 x = {stack} parameter(0)
 y = {whole} parameter(1)
 start = s32[] constant(0)
 zero = f32[] constant(0)
 empty = {stack} broadcast(zero), dimensions={{}}
 t = {state} tuple(start, x, empty, y)
 w = {state} while(t), condition=more, body=body
 ROOT r = {stack} get-tuple-element(w), index=2
}}
"""


UNITS = replace(SMALL, mxu=replace(SMALL.mxu, count=2))
"""On which blocks take turns with matrix units."""


@pytest.mark.parametrize(
    ("text", "chip"),
    [
        (softmax(256, 33), SMALL), (softmax(250, 100), SMALL), (columns(300, 64), SMALL), (columns(97, 250), SMALL),
        (attention(9, 40, 8), SMALL), pytest.param(attention(7, 40, 9), UNITS, marks=pytest.mark.slow),
        (attention(2, 72, 8), UNITS),
        (attention(24, 32, 16), load_chip("small")), (layers(3, 256, 33), SMALL),
    ],
    ids=["rows", "ragged", "columns", "ragged-columns", "attention", "units", "rows-of-attention", "small", "layers"],
)  # fmt: skip
def test_copies_are_what_lowering_every_block_gives(text: str, chip: Chip, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(("rows", "width"), [(300, 64), (97, 250), (1000, 9)])
def test_columns_in_blocks(rows: int, width: int) -> None:
    values = np.random.default_rng(rows).normal(size=(rows, width)).astype(np.float32)
    compare(columns(rows, width), [values], SMALL)


def test_blocks_of_a_few_lanes_give_way_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of 3 channels take the vector unit longer than it takes to read everything again."""
    chip = load_chip("tpu_v3")
    chip = replace(chip, vmem=replace(chip.vmem, bytes=1 << 19))

    def cycles() -> int:
        found = simulate(compiled(columns(6_272, 24), chip, "highest").program, chip, mode="time").cycles
        assert found is not None
        return found

    whole = cycles()
    for module in (one_block, block_choice):
        monkeypatch.setattr(module, "is_narrow", lambda lowering, group: False)
    assert whole < cycles()


@pytest.mark.parametrize(("chip", "rows", "width"), [("tpu_v3", 512, 512), ("small", 512, 1000)])
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
