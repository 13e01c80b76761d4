"""A compilation goes on from any stage that it dumps, to the same binary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from systolith.compiler.driver import compile_module
from systolith.compiler.errors import CompileError
from systolith.compiler.options import Options
from systolith.isa.binary import to_bytes
from systolith.isa.chip import load_chip
from systolith.isa.errors import SystolithError
from systolith.runtime.inputs.sources import parse_module
from systolith.runtime.inputs.stages import STAGES, compile_from
from tests.compiler.driver.test_plan import SOFTMAX
from tests.compiler.machine import with_vmem
from tests.compiler.memory.random_training import random_training
from tests.corpus.load import load
from tests.examples import seeds
from tests.runtime.command import systolith

FILES = {"canonical": "canonical.hlo", "grouped": "grouped.hlo", "tile": "tile.txt", "assembly": "program.s"}

CASES = [
    ("bf16_dot_f32", "tiny"),
    ("mlp_infer", "tpu_v3"),
    ("lstm_scan", "small"),
    ("cond_switch", "tiny"),
    ("int8_dot_i32", "small"),
    ("reduce_variants", "tiny"),
    ("cumsum_reduce_window", "tiny"),
    ("lenet_infer", "small"),
    *(
        pytest.param(name, chip, marks=pytest.mark.slow)
        for name, chip in [
            ("mlp_infer_bf16", "tiny"),
            ("mlp_train_sgd", "small"),
            ("elementwise_zoo", "tpu_v3"),
            ("gpt2_decode_kvcache", "tpu_v3"),
        ]
    ),
]
"""Products, loops, branches, constants, convolutions, many kernels."""


def _sum(count: int) -> str:
    """So many parameters, added and multiplied in turn: more streams than a kernel has."""
    given = [f"  x{n} = f32[5,7] parameter({n})\n" for n in range(count)]
    steps = [
        f"  s{n} = f32[5,7] {'add' if n % 2 else 'multiply'}(x{n}, {f's{n - 1}' if n > 1 else 'x0'})\n"
        for n in range(1, count)
    ]
    return "".join([*given, *steps])


OTHERS = {
    # Groups in blocks, on the vector unit, split, in loops over the batch, of several results.
    "softmax": SOFTMAX,
    "depthwise": """HloModule m
ENTRY e {
  x = f32[1,8,8,16] parameter(0)
  w = f32[3,3,1,16] parameter(1)
  ROOT y = f32[1,8,8,16] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f,
      feature_group_count=16
}
""",
    "many operands": f"HloModule m\nENTRY e {{\n{_sum(24)}  ROOT y = f32[5,7] tanh(s23)\n}}\n",
}


def test_every_stage_has_a_file() -> None:
    assert STAGES.keys() == {"hlo", *FILES}


@pytest.mark.parametrize(("name", "chip"), CASES)
def test_every_stage_leads_to_the_same_binary(name: str, chip: str, tmp_path: Path) -> None:
    target = load_chip(chip)
    whole = compile_module(parse_module(load(name).text, name), target)
    binary = to_bytes(whole.program)
    for stage, file in FILES.items():
        path = tmp_path / file
        path.write_text(whole.stages[file])
        resumed = compile_from(stage, path, target, Options()).assembled
        assert to_bytes(resumed.program) == binary, stage
        # Later stages are dumped the same, too.
        for later in resumed.stages:
            assert later in ("explain.txt", "memory.txt") or resumed.stages[later] == whole.stages[later], later


@pytest.mark.parametrize("name", OTHERS)
def test_every_sort_of_group_reads_back(name: str, tmp_path: Path) -> None:
    chip = load_chip("tiny")
    whole = compile_module(parse_module(OTHERS[name], name), chip)
    path = tmp_path / "grouped.hlo"
    path.write_text(whole.stages["grouped.hlo"])
    resumed = compile_from("grouped", path, chip, Options()).assembled
    assert to_bytes(resumed.program) == to_bytes(whole.program)


def test_modules_that_hardly_fit_in_hbm_read_back(tmp_path: Path) -> None:
    # Values are computed again, groups reordered, results lend their memory: decisions are kept.
    tiny = load_chip("tiny")
    roomy = with_vmem(tiny, 8 << 10)
    relieved = 0
    for seed in seeds(2, 6):
        text, _ = random_training(seed)
        memory = compile_module(parse_module(text, "m"), roomy).memory
        chip = replace(roomy, hbm=replace(roomy.hbm, bytes=memory.hbm - memory.temporaries * (seed + 1) // 8))
        try:
            whole = compile_module(parse_module(text, "m"), chip)
        except CompileError:
            continue
        relieved += any("bytes of HBM" in d.numbers for d in whole.explain)
        for stage in ("grouped", "tile"):
            path = tmp_path / FILES[stage]
            path.write_text(whole.stages[FILES[stage]])
            resumed = compile_from(stage, path, chip, Options()).assembled
            assert to_bytes(resumed.program) == to_bytes(whole.program), (seed, stage)
    assert relieved > 1


def test_text_is_for_its_own_chip(tmp_path: Path) -> None:
    whole = compile_module(parse_module(load("int8_dot_i32").text, "m"), load_chip("tiny"))
    for stage in ("tile", "assembly"):
        path = tmp_path / FILES[stage]
        path.write_text(whole.stages[FILES[stage]])
        with pytest.raises(SystolithError, match="tiny"):
            compile_from(stage, path, load_chip("small"), Options())


@pytest.mark.parametrize("stage", ["tile", "assembly"])
def test_options_that_come_too_late_are_refused(stage: str, tmp_path: Path) -> None:
    with pytest.raises(SystolithError, match="--precision: has nothing to choose"):
        compile_from(stage, tmp_path / "x", load_chip("tiny"), Options(precision="high"))


def test_canonical_text_that_is_not_canonical_is_brought_into_the_form_that_it_needs(tmp_path: Path) -> None:
    # Layouts and calls would be taken for those of canonical HLO: row-major arrays, nothing to inline.
    path = tmp_path / "canonical.hlo"
    path.write_text(
        """HloModule m
twice { x = f32[4,8]{0,1} parameter(0)  ROOT y = f32[4,8]{0,1} add(x, x) }
ENTRY e { a = f32[4,8]{0,1} parameter(0)  ROOT c = f32[4,8]{0,1} call(a), to_apply=twice }
"""
    )
    chip = load_chip("tiny")
    resumed = compile_from("canonical", path, chip, Options()).assembled
    assert [b.dims for b in resumed.program.buffers] == [(4, 8), (4, 8)]
    assert resumed.program.groups[0].opcodes == ("add",)


def test_tile_ir_that_breaks_a_rule_of_the_instruction_set_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tile.txt"
    path.write_text(
        """module "m"
%a = HBM 64 align 4 BufferDecl("a", "parameter", "f32", (16,), 64, 0)
%x = VMEM 64 align 4
p0 = Pattern("f32", (16,), (4,))
p1 = Pattern("f32", (8,), (4,))
o0 = Origin()
dma.load src=Ref(%a, p0) dst=Ref(%x, p1) ; o0
"""
    )
    with pytest.raises(SystolithError, match="src has 16 elements, dst has 8"):
        compile_from("tile", path, load_chip("tiny"), Options())
    path.write_text(
        """module "m"
%x = VMEM 99999999999 align 4
p0 = Pattern("f32", (8,), (4,))
o0 = Origin()
xlu.shuffle src=Ref(%x, p0) dst=Ref(%x, p0, 32) ; o0
"""
    )
    with pytest.raises(CompileError, match="'x' of 99999999999 bytes has no place in the VMEM"):
        compile_from("tile", path, load_chip("tiny"), Options())


def test_the_command_goes_on_from_its_dumps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.hlo").write_text("HloModule m\nENTRY e { x = f32[9,5] parameter(0)  ROOT y = f32[9,5] tanh(x) }\n")
    whole, dumps = tmp_path / "whole.slb", tmp_path / "dumps"
    ran = systolith(capsys, "compile", tmp_path / "m.hlo", "--chip", "tiny", "-o", whole, "--dump-dir", dumps)
    assert ran.code == 0, ran.err
    for stage, file in FILES.items():
        output = tmp_path / f"{stage}.slb"
        ran = systolith(capsys, "compile", dumps / file, "--from", stage, "--chip", "tiny", "-o", output)
        assert ran.code == 0, ran.err
        assert output.read_bytes() == whole.read_bytes()
        wrong = systolith(capsys, "compile", tmp_path / "m.hlo", "--from", stage, "--chip", "tiny", "-o", output)
        assert wrong.code == (0 if stage == "canonical" else 2)
    assert "m.hlo" in wrong.err
