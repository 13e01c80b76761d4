"""Parts that are compiled once: canonical form for many chips, a tile's code and plan for many tiles and layers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from systolith.compiler import driver
from systolith.compiler.driver import Front, compile_module
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.mxu import gemm_search
from systolith.compiler.mxu.gemm import Gemm
from systolith.compiler.ops.expression_builder import GroupPlan
from systolith.compiler.options import Options
from systolith.compiler.passes.base import Outcome, Pass, run_pass
from systolith.isa.asm import disassemble
from systolith.isa.chip import load_chip, variant

CORPUS = Path(__file__).parents[2] / "corpus"
TEXT = """HloModule t
ENTRY e {
  x = f32[8,8,8,24] parameter(0)
  w = f32[3,3,24,16] parameter(1)
  v = f32[3,3,16,24] parameter(2)
  c = f32[8,8,8,16] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  bias = f32[16] parameter(3)
  all = f32[8,8,8,16] broadcast(bias), dimensions={3}
  sum = f32[8,8,8,16] add(c, all)
  d = f32[8,8,8,24] convolution(sum, v), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  f = f32[8,8,8,16] convolution(d, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  ROOT r = f32[8,8,8,16] add(f, all)
}
"""


def test_a_front_compiles_for_many_chips_as_if_for_each() -> None:
    tiny, text = load_chip("tiny"), TEXT.replace("f32[8,", "f32[2,")
    slow = replace(tiny, hbm=replace(tiny.hbm, p=tiny.hbm.p // 2))
    front = Front(parse_hlo(text))
    before = print_hlo(front.canonical)
    for chip in (tiny, slow, tiny):
        alone = compile_module(parse_hlo(text), chip)
        compiled = front.compile(chip)
        assert disassemble(compiled.program) == disassemble(alone.program)
        assert compiled.program.chip_digest == chip.digest()
        assert compiled.stages["canonical.hlo"] == before
    assert print_hlo(front.canonical) == before


@pytest.mark.parametrize("chip", ["tiny", "tpu_v3"])
def test_what_is_shared_by_tiles_alike_is_what_each_would_get(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    front = Front(parse_hlo(TEXT))
    shared = front.compile(load_chip(chip)).program
    monkeypatch.setattr(GroupPlan, "is_uniform", lambda *_: False)
    monkeypatch.setattr(Gemm, "_seen", lambda self, make, axes, array, box: make(array, box))
    monkeypatch.setattr(gemm_search, "ranked", gemm_search._ranked)
    assert disassemble(front.compile(load_chip(chip)).program) == disassemble(shared)


def test_passes_that_read_times_alone_and_change_the_same_leave_later_ones_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (CORPUS / "gpt2_block.hlo").read_text()
    ran: list[str] = []

    def counted(module: Module, step: Pass, checked: bool = True) -> Outcome:
        ran.append(type(step).__name__)
        return run_pass(module, step, checked)

    monkeypatch.setattr(driver, "run_pass", counted)
    front, chip = Front(parse_hlo(text)), load_chip("tpu_v3")
    options = Options(elided="zeros", complete=False)
    front.compile(chip, options)
    assert "HoistSlices" in ran
    assert "Fuse" in ran
    ran.clear()
    faster = variant(chip, {"hbm.gbps": "880"})
    again = front.compile(faster, options)
    assert "HoistSlices" in ran, "it reads the bandwidth"
    assert "Fuse" not in ran, "it does not, and gets the same module as before"
    alone = Front(parse_hlo(text)).compile(faster, options)
    assert disassemble(again.program) == disassemble(alone.program)
    assert again.stages["grouped.hlo"] == alone.stages["grouped.hlo"]
    assert again.stages["explain.txt"] == alone.stages["explain.txt"]
