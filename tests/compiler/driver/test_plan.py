"""Plans: what `explain --json` prints is taken again, as it is or changed; an impossible plan is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systolith.compiler.driver import Compiled, compile_module
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.options import Options
from systolith.compiler.plan import PlanError, read_plan
from systolith.isa.binary import to_bytes
from systolith.isa.chip import Chip, load_chip, variant
from systolith.isa.errors import SystolithError
from systolith.runtime.commands.explain import explanation
from systolith.runtime.inputs.sources import parse_module
from tests.compiler.driver.random_modules import random_module
from tests.compiler.fusion.test_batch_loops import SMALL, mlp
from tests.compiler.fusion.test_product_blocking import convolved
from tests.compiler.machine import error, run, with_vmem
from tests.corpus.load import load
from tests.runtime.command import systolith

TINY = load_chip("tiny")
DOT = """HloModule m
ENTRY e {
  a = f32[100,80] parameter(0)
  b = f32[80,60] parameter(1)
  ROOT d = f32[100,60] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
SOFTMAX = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[96,1024] parameter(0)
  e = f32[96,1024] exponential(x)
  z = f32[] constant(0)
  s = f32[96] reduce(e, z), dimensions={1}, to_apply=add
  b = f32[96,1024] broadcast(s), dimensions={0}
  ROOT y = f32[96,1024] divide(e, b)
}
"""
MLP = mlp(8, 40, 16, 64)
GRADIENTS, MORE = convolved(4, 16, 32, 16, 1), convolved(8, 32, 64, 32, 1)
LITTLE = variant(load_chip("small"), {"vmem.bytes": load_chip("small").vmem.bytes // 8})


def compile_it(text: str, chip: Chip, folder: Path, plan: Any = None) -> Compiled:
    """A module, with the decisions of a plan; None: without."""
    options = Options()
    if plan is not None:
        path = folder / "plan.json"
        path.write_text(json.dumps(plan))
        options = Options(plan=read_plan(path))
    return compile_module(parse_module(text, "m"), chip, options)


def record(compiled: Compiled, chip: Chip) -> dict[str, Any]:
    """As `explain --json` prints it."""
    return dict(json.loads(json.dumps(explanation(compiled, chip, simulate=False))))


def decisions(found: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    rows = [*found["decisions"], *(d for g in found["groups"] for d in g["decisions"])]
    return [d for d in rows if d["kind"] == kind]


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("dot", TINY),
        ("softmax", TINY),
        ("mlp", SMALL),
        ("gradients", LITTLE),
        ("lstm_scan", load_chip("small")),
        ("mlp_infer", load_chip("tpu_v3")),
        pytest.param("more", load_chip("small"), marks=pytest.mark.slow),
        pytest.param("gpt2_decode_kvcache", load_chip("tpu_v3"), marks=pytest.mark.slow),
        pytest.param("mlp_train_sgd", load_chip("small"), marks=pytest.mark.slow),
    ],
    ids=lambda of: of if isinstance(of, str) else of.name,
)
def test_a_plan_that_was_printed_gives_the_same_binary(name: str, chip: Chip, tmp_path: Path) -> None:
    texts = {"dot": DOT, "softmax": SOFTMAX, "mlp": MLP, "gradients": GRADIENTS, "more": MORE}
    text = texts.get(name) or load(name).text
    before = compile_it(text, chip, tmp_path)
    after = compile_it(text, chip, tmp_path, record(before, chip))
    assert to_bytes(after.program) == to_bytes(before.program)
    assert not [d for d in after.explain if d.kind == "plan"]


def test_plans_of_random_modules_give_the_same_binary(tmp_path: Path) -> None:
    # With little memory tiles shrink and values are spilled: the choices found by trying are taken at once.
    chip = with_vmem(TINY, 6 << 10)
    compared = 0
    for seed in range(8):
        text, _ = random_module(seed)
        try:
            before = compile_it(text, chip, tmp_path)
        except CompileError:
            continue
        after = compile_it(text, chip, tmp_path, record(before, chip))
        assert to_bytes(after.program) == to_bytes(before.program), seed
        compared += 1
    assert compared > 3


@pytest.mark.parametrize(("kind", "text", "chip"), [("tiles", DOT, TINY), ("blocks", SOFTMAX, TINY)])
def test_another_alternative_is_taken(kind: str, text: str, chip: Chip, tmp_path: Path) -> None:
    before = compile_it(text, chip, tmp_path)
    plan = record(before, chip)
    (row,) = decisions(plan, kind)
    possible = [r["what"] for r in row["rejected"] if not r["why"].startswith(("two do", "no tiles", "values of"))]
    row["chosen"] = possible[-1]
    after = compile_it(text, chip, tmp_path, plan)
    (made,) = (d for d in after.explain if d.kind == kind)
    assert made.chosen == possible[-1]
    assert made.why.startswith("as the plan has it")
    assert to_bytes(after.program) != to_bytes(before.program)


def test_loops_are_taken_and_left_out(tmp_path: Path) -> None:
    before = compile_it(MLP, SMALL, tmp_path)
    plan = record(before, SMALL)
    rows = decisions(plan, "loop")
    assert rows, "the module has no loop to leave out"
    other = next(r["what"] for r in rows[0]["rejected"] if r["what"] != "no loop")
    for chosen in ("no loop", other):
        rows[0]["chosen"] = chosen
        # Choices that follow from loops are not forced, too: groups have other names.
        after = compile_it(MLP, SMALL, tmp_path, [rows[0]])
        assert [d.chosen for d in after.explain if d.kind == "loop"] == [chosen]
        assert to_bytes(after.program) != to_bytes(before.program)


def test_values_stay_right_with_other_tiles(tmp_path: Path) -> None:
    plan = record(compile_it(DOT, TINY, tmp_path), TINY)
    (row,) = decisions(plan, "tiles")
    args = [np.random.default_rng(0).normal(size=s).astype(np.float32) for s in ((100, 80), (80, 60))]
    (wanted,) = evaluate(parse_module(DOT, "m"), *args)
    for other in row["rejected"][:2]:
        row["chosen"] = other["what"]
        (got,) = run(compile_it(DOT, TINY, tmp_path, plan).program, TINY, args)
        assert error(got, wanted) < 1e-5


def test_commands_take_what_explain_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module, plan = tmp_path / "m.hlo", tmp_path / "plan.json"
    module.write_text(DOT)
    plan.write_text(systolith(capsys, "explain", module, "--chip", "tiny", "--json").out)
    outputs = [tmp_path / "a.slb", tmp_path / "b.slb"]
    for output, words in zip(outputs, ((), ("--plan", plan)), strict=True):
        assert systolith(capsys, "compile", module, "--chip", "tiny", "-o", output, *words).code == 0
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    ran = systolith(capsys, "run", module, "--chip", "tiny", "--random", 0, "--plan", plan)
    assert (ran.code, ran.err) == (0, "")
    again = json.loads(systolith(capsys, "explain", module, "--chip", "tiny", "--json", "--plan", plan).out)
    assert again["cycles"] == json.loads(plan.read_text())["cycles"]
    plan.write_text('[{"kind": "tiles", "group": "d", "chosen": "x"}]')
    commands: list[list[object]] = [["run", "--random", 0], ["compile", "-o", tmp_path / "c.slb"], ["explain"]]
    for command, *options in commands:
        ran = systolith(capsys, command, module, *options, "--chip", "tiny", "--plan", plan)
        assert ran.code == 2
        assert "'x' is not possible" in ran.err


def test_what_a_plan_does_not_force_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module, plan = tmp_path / "m.hlo", tmp_path / "plan.json"
    module.write_text(DOT)
    plan.write_text(json.dumps([{"kind": "schedule", "group": "", "chosen": "loads wait"}]))
    words = ("compile", module, "--chip", "tiny", "-o", tmp_path / "m.slb", "--plan", plan)
    ran = systolith(capsys, *words)
    assert ran.code == 0, ran.err
    assert "schedule is not taken from a plan: 'loads wait' (it came out as 'loads ahead of their use" in ran.err


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("tiles", "nothing", "x"), "tiles of 'nothing': 'x': no such choice is to be made there"),
        (("tiles", "d", "1 x 1"), r"tiles of 'd': '1 x 1' is not possible; what is: \| "),
        (("blocks", "d", "blocks of 4"), "blocks of 'd': 'blocks of 4': no such choice"),
        (("loop", "d", "a to b: 2"), "loop of 'd': 'a to b: 2'"),
    ],
)
def test_a_choice_that_is_not_there_is_refused(row: tuple[str, str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=message):
        compile_it(DOT, TINY, tmp_path, [dict(zip(("kind", "group", "chosen"), row, strict=True))])


def test_loops_that_are_not_there_are_refused(tmp_path: Path) -> None:
    for chosen in ("h to y: 3 iterations of 5 of 15 indices", "y to h: no", "no loops"):
        with pytest.raises(PlanError, match="is not possible"):
            compile_it(MLP, SMALL, tmp_path, [{"kind": "loop", "group": "r", "chosen": chosen}])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("5", "not a plan"),
        ('{"groups": 5}', "not a plan"),
        ('{"decisions": {}}', "not a plan"),
        ("[5]", "a decision has texts"),
        ('[{"kind": "tiles", "group": 5, "chosen": "x"}]', "a decision has texts"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(PlanError, match=message):
        read_plan(tmp_path / "p.json")


def test_a_plan_and_autotuning_do_not_go_together(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text("[]")
    with pytest.raises(SystolithError, match="plan and autotune"):
        Options(plan=read_plan(tmp_path / "p.json"), autotune=2)
