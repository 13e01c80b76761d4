"""Segments of a module in loops over one of its dimensions: which are taken, and that they compute the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.clone import clone
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.trip_count import trip_count
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.ops.group import Group
from systolith.compiler.passes.pipeline import canonicalise
from systolith.compiler.passes.rewrite import Names
from systolith.compiler.tiling import batch_loops
from systolith.compiler.tiling.batch_cost import Estimate, Split, Step, Trial
from systolith.compiler.tiling.batch_loops import BatchLoops, _Path
from systolith.compiler.tiling.batch_rewrite import to_loop
from systolith.compiler.tiling.dim_classes import DimClass, classes
from systolith.isa.chip import Chip, load_chip
from systolith.isa.encode import encode_code
from systolith.isa.program import Role
from systolith.sim.simulate import simulate
from tests.compiler.driver.random_modules import random_module
from tests.compiler.fusion.test_blocking import attention
from tests.compiler.hlo.computations import scalar_computation
from tests.compiler.machine import CHIPS, check, compare, compiled
from tests.examples import seeds
from tests.runtime.command import systolith

TINY = load_chip("tiny")
SMALL = replace(TINY, vmem=replace(TINY.vmem, bytes=32 << 10), hbm=replace(TINY.hbm, q=4))
"""Little memory, and a quarter of the bandwidth: traffic of HBM takes the time."""


def mlp(batch: int, rows: int, width: int, hidden: int) -> str:
    """Two products with a maximum between them and a sum with their input, over [batch, rows, width]."""
    x, h = f"f32[{batch},{rows},{width}]", f"f32[{batch},{rows},{hidden}]"
    return f"""HloModule mlp
ENTRY e {{
 x = {x} parameter(0)
 w = f32[{width},{hidden}] parameter(1)
 v = f32[{hidden},{width}] parameter(2)
 b = f32[{hidden}] parameter(3)
 up = {h} dot(x, w), lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}
 bb = {h} broadcast(b), dimensions={{2}}
 biased = {h} add(up, bb)
 zero = f32[] constant(0)
 zeros = {h} broadcast(zero), dimensions={{}}
 act = {h} maximum(biased, zeros)
 down = {x} dot(act, v), lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}
 ROOT r = {x} add(x, down)
}}
"""


def arguments(text: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=p.dims).astype(np.float32) for p in parse_hlo(text).entry.parameters]


def of_size(module: Module, size: int) -> DimClass:
    """The dimension of a size that most instructions keep."""
    return max((c for c in classes(module.entry) if c.size == size), key=lambda c: len(c.kept))


# Dimensions.


def test_the_batch_runs_through_products_and_epilogues() -> None:
    module = canonicalise(parse_hlo(mlp(6, 5, 7, 9)))
    batch = of_size(module, 6)
    kept = {i.name for i in batch.kept}
    assert {"up", "biased", "act", "down", "r"} <= kept
    assert {i.name for i in module.entry.instructions if batch.lost(i)} == set()


def test_a_contracted_dimension_is_lost() -> None:
    module = canonicalise(parse_hlo(mlp(6, 5, 7, 9)))
    hidden = of_size(module, 9)
    lost = {i.name for i in module.entry.instructions if hidden.lost(i)}
    assert "up" in {i.name for i in hidden.kept}
    assert "down" in lost


def test_positions_that_meet_all_others_are_no_dimension_to_run_along() -> None:
    """Queries and keys of one sequence: scores have its dimension twice."""
    text = """HloModule self
ENTRY e {
 x = f32[12,4] parameter(0)
 y = f32[12,4] negate(x)
 ROOT s = f32[12,12] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
"""
    found = of_size(parse_hlo(text), 12)
    assert {i.name for i in found.kept} == {"y"}


@pytest.mark.parametrize(
    ("call", "shape", "kept"),
    [
        ("convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f", "f32[4,6,6,3]", {4}),
        ("reduce-window(x, z), window={size=1x2x2x1 stride=1x2x2x1}, to_apply=add", "f32[4,3,3,3]", {4, 3}),
        ("pad(x, z), padding=0_0x1_1x0_0x0_0", "f32[4,8,6,3]", {4, 6, 3}),
    ],
)
def test_dimensions_that_an_operation_keeps(call: str, shape: str, kept: set[int]) -> None:
    text = f"""HloModule m
{scalar_computation("add")}ENTRY e {{
 x = f32[4,6,6,3] parameter(0)
 w = f32[3,3,3,3] parameter(1)
 z = f32[] constant(0)
 ROOT r = {shape} {call}
}}
"""
    entry = parse_hlo(text).entry
    assert {c.size for c in classes(entry) if entry.result in c.kept} == kept


# Loops compute the values of the segment.


def segments(module: Module, chip: Chip) -> list[tuple[Split, int, int]]:
    """Every run of groups that could be a loop, for every dimension and number of iterations."""
    trial = Trial(module.entry, BatchLoops(chip)._grouped(module), chip)
    splits = [Split(c, n) for c in classes(module.entry) for n in (2, 3) if c.size % n == 0]
    path = _Path(trial, [Split(DimClass(1), 1), *splits])
    found = []
    for split, regions in zip(path.splits[1:], path.regions[1:], strict=True):
        able = [bool(r) for r in regions] + [False]
        starts = [n for n, a in enumerate(able) if a and not (n and able[n - 1])]
        found += [(split, n, able.index(False, n)) for n in starts]
    return found


def looped(module: Module, chip: Chip, number: int) -> Module:
    """The module with one of its possible segments in a loop."""
    module = clone(module)
    split, first, last = segments(module, chip)[number]
    path = _Path(Trial(module.entry, BatchLoops(chip)._grouped(module), chip), [Split(DimClass(1), 1), split])
    made = to_loop(module.entry, *path.region(split, first, last), split.blocks, Names(["x"]))
    module.computations[:0] = made
    verify(module)
    (loop,) = (i for i in module.entry.instructions if i.opcode == "while" and i.computation("body") in made)
    assert trip_count(loop) == split.blocks
    return module


WITH_SEGMENTS = (
    2, 5, 7, 8, 9, 10, 13, 14, 15, 21, 23, 32, 33, 35, 38, 39, 41, 42, 48, 49, 53, 55, 56, 58, 59, 68, 70, 73, 83, 95,
    103, 256,
)  # fmt: skip


@pytest.mark.parametrize("seed", WITH_SEGMENTS)
def test_any_segment_of_a_random_module_in_a_loop(seed: int) -> None:
    text, args = random_module(seed)
    module = canonicalise(parse_hlo(text))
    want = evaluate(module, *args)
    found = segments(module, TINY)
    assert found, "another seed has something to try"
    for number in range(len(found)):
        got = evaluate(looped(module, TINY, number), *args)
        for a, b in zip(got, want, strict=True):
            if a.dtype.kind in "biu":
                np.testing.assert_array_equal(a, b)
            else:  # BLAS may sum fewer rows in another order
                np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-5, atol=1e-5)


def test_what_is_needed_outside_and_not_stored_is_computed_again() -> None:
    module = canonicalise(parse_hlo(mlp(4, 3, 5, 8)))
    named = {i.name: i for i in module.entry.instructions}
    region = {named[n]: 0 for n in ("up", "biased", "act")} | {named["bb"]: 0}
    extra = clone(module)
    to_loop(module.entry, region, {named["act"]}, 2, Names([]))
    assert [i.opcode for i in module.entry.instructions].count("while") == 1
    args = arguments(mlp(4, 3, 5, 8))
    np.testing.assert_allclose(evaluate(module, *args)[0], evaluate(extra, *args)[0], rtol=1e-6)


# Through the whole path.


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops cost nothing, so that they are made wherever they can be."""
    cycles = Estimate.cycles

    def free(self: Estimate, step: Step) -> int:
        return 0 if self.split.blocks > 1 else cycles(self, step) + 1

    monkeypatch.setattr(Estimate, "cycles", free)
    monkeypatch.setattr(Estimate, "ends", lambda self: [0] * (len(self.trial.steps) + 1))
    monkeypatch.setattr(batch_loops, "ITERATION_LATENCIES", 0)
    monkeypatch.setattr(BatchLoops, "_overflows", lambda self, entry: True)
    monkeypatch.setattr(_Path, "_is_worth", lambda self, n, first, last: True)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("kib", CHIPS)
@pytest.mark.parametrize("seed", seeds(6, 15))
def test_random_module_in_loops(seed: int, kib: int) -> None:
    text, args = random_module(seed)
    compare(text, args, CHIPS[kib])


def test_random_modules_have_loops(always: None) -> None:
    made = 0
    for seed in range(15):
        result = compiled(random_module(seed)[0], CHIPS[32], "highest")
        made += sum(d.kind == "loop" for d in result.explain)
    assert made > 5


@pytest.mark.parametrize(
    "sizes", [(8, 40, 16, 64), *(pytest.param(s, marks=pytest.mark.slow) for s in ((12, 16, 24, 64), (6, 48, 16, 64)))]
)
def test_a_chain_that_does_not_fit_runs_in_a_loop(sizes: tuple[int, int, int, int]) -> None:
    text = mlp(*sizes)
    result = check(text, arguments(text), SMALL)
    (decision,) = (d for d in result.explain if d.kind == "loop")
    assert decision.rejected[0].what == "no loop"
    assert decision.numbers["cycles"] < decision.rejected[0].numbers["cycles"]
    assert not any("up" in d.chosen or "act" in d.chosen for d in result.explain if d.kind == "memory" and d.group)


def test_the_loop_is_faster_and_its_code_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    text = mlp(8, 40, 16, 64)
    programs = [compiled(text, SMALL).program]
    monkeypatch.setattr(BatchLoops, "run", lambda self, module: False)
    programs.append(compiled(text, SMALL).program)
    runs = [simulate(p, SMALL, mode="time") for p in programs]
    cycles = [r.cycles or 0 for r in runs]
    assert cycles[0] < 0.9 * cycles[1]
    assert len(programs[0].code) < len(programs[1].code)


def test_a_result_is_made_in_its_own_memory() -> None:
    text = mlp(8, 40, 16, 64)
    program = compiled(text, SMALL).program
    assert not any(b.role is Role.TEMP for b in program.buffers)


@pytest.mark.parametrize("d", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_an_iota_within_a_loop(d: int) -> None:
    text = mlp(8, 40, 16, 64).replace(" up = ", f" i = f32[8,40,64] iota(), iota_dimension={d}\n up = ")
    text = text.replace("add(up, bb)", "add(up, i)")
    assert any(decision.kind == "loop" for decision in compiled(text, SMALL, "highest").explain)
    compare(text, arguments(text), SMALL)


def test_the_state_of_another_loop_stays_in_vmem() -> None:
    text = """HloModule m
cond {
 s = (s32[], f32[64,8]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(12)
 ROOT r = pred[] compare(i, n), direction=LT
}
body {
 s = (s32[], f32[64,8]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = f32[64,8] get-tuple-element(s), index=1
 o = s32[] constant(1)
 j = s32[] add(i, o)
 y = f32[64,8] sine(x)
 ROOT r = (s32[], f32[64,8]) tuple(j, y)
}
ENTRY e {
 x = f32[64,8] parameter(0)
 z = s32[] constant(0)
 t = (s32[], f32[64,8]) tuple(z, x)
 l = (s32[], f32[64,8]) while(t), condition=cond, body=body
 ROOT g = f32[64,8] get-tuple-element(l), index=1
}
"""
    run = simulate(compiled(text).program, TINY, mode="time")
    assert run.to_json()["hbm_bytes"]["written"] == 64 * 8 * 4


def test_attention_over_the_batch_and_over_heads() -> None:
    text = attention(4, 40, 8)
    result = compare(text, arguments(text), SMALL)
    assert print_hlo(parse_hlo(result.stages["grouped.hlo"])) == result.stages["grouped.hlo"]


def test_the_same_module_gives_the_same_program() -> None:
    text = mlp(8, 40, 16, 64)
    first, second = (encode_code(compiled(text, SMALL).program.code) for _ in range(2))
    assert first == second


def test_one_product_and_what_is_computed_in_its_tiles_need_no_loop() -> None:
    text = """HloModule m
ENTRY e {
 x = f32[256,64] parameter(0)
 w = f32[64,16] parameter(1)
 a = f32[256,64] tanh(x)
 ROOT d = f32[256,16] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    assert not any(d.kind == "loop" for d in compiled(text, CHIPS[32]).explain)


def test_what_fits_has_no_loops() -> None:
    assert not any(d.kind == "loop" for d in compiled(mlp(8, 40, 16, 64), "tpu_v3").explain)


def test_memory_without_contents_is_for_the_compiler_only() -> None:
    text = 'HloModule m\nENTRY e {\n ROOT r = f32[4] custom-call(), custom_call_target="AllocateBuffer"\n}\n'
    with pytest.raises(CompileError, match="AllocateBuffer"):
        compiled(text)
    assert np.isnan(evaluate(parse_hlo(text))[0]).all()


TWO = """HloModule two
ENTRY e {
 x = f32[8,12,16] parameter(0)
 w = f32[16,24] parameter(1)
 v = f32[24,16] parameter(2)
 m = f32[8,8] parameter(3)
 up = f32[8,12,24] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
 d = f32[8,12,16] dot(up, v), lhs_contracting_dims={2}, rhs_contracting_dims={0}
 mix = f32[8,12,16] dot(m, d), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 n = f32[12,12] parameter(4)
 tok = f32[12,8,16] dot(n, mix), lhs_contracting_dims={1}, rhs_contracting_dims={1}
 u3 = f32[12,8,24] dot(tok, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
 d3 = f32[12,8,16] dot(u3, v), lhs_contracting_dims={2}, rhs_contracting_dims={0}
 ROOT s = f32[12,8,16] add(tok, d3)
}
"""


@pytest.mark.usefixtures("always")
def test_groups_of_two_loops_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "two.hlo"
    file.write_text(TWO)
    grouped = compiled(TWO, "tiny").module
    names = [i.name for i in grouped.instructions() if isinstance(i, Group)]
    assert sum(i.opcode == "while" for i in grouped.entry.instructions) > 1
    assert len(names) == len(set(names))
    ran = systolith(capsys, "run", file, "--chip", "tiny", "--random", 0, "--check", "--hostile")
    assert ran.code == 0, ran.err


KEEPING = """HloModule keeping
iteration {
 state = (s32[], f32[8,16,8], f32[8,16,8]) parameter(0)
 i = s32[] get-tuple-element(state), index=0
 sum = f32[8,16,8] get-tuple-element(state), index=1
 kept = f32[8,16,8] get-tuple-element(state), index=2
 one = s32[] constant(1)
 next = s32[] add(i, one)
 more = f32[8,16,8] add(sum, kept)
 ROOT r = (s32[], f32[8,16,8], f32[8,16,8]) tuple(next, more, kept)
}
less {
 state = (s32[], f32[8,16,8], f32[8,16,8]) parameter(0)
 i = s32[] get-tuple-element(state), index=0
 n = s32[] constant(200)
 ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY e {
 x = f32[8,16,8] parameter(0)
 w = f32[8,8] parameter(1)
 i = s32[] constant(0)
 made = f32[8,16,8] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
 t = (s32[], f32[8,16,8], f32[8,16,8]) tuple(i, x, made)
 loop = (s32[], f32[8,16,8], f32[8,16,8]) while(t), condition=less, body=iteration
 ROOT sum = f32[8,16,8] get-tuple-element(loop), index=1
}
"""


def test_what_a_loop_keeps_is_made_before_it() -> None:
    module = canonicalise(parse_hlo(KEEPING))
    steps = Trial(module.entry, BatchLoops(TINY)._grouped(module), TINY).steps
    assert [[v.of.name for v in s.makes] for s in steps] == [["made"], ["sum"]]


@pytest.mark.usefixtures("always")
def test_a_segment_reads_what_a_loop_keeps() -> None:
    text, args = random_module(511)
    compare(text, args, CHIPS[16])


def test_from_the_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, chip = tmp_path / "mlp.hlo", tmp_path / "small.toml"
    file.write_text(mlp(8, 40, 16, 64))
    preset = (Path(load_chip.__code__.co_filename).parent / "chips" / "tiny.toml").read_text()
    chip.write_text(preset.replace("262_144", str(SMALL.vmem.bytes)).replace("q = { value = 1,", "q = { value = 4,"))
    ran = systolith(capsys, "run", file, "--chip", chip, "--random", 0, "--check", "--hostile")
    assert ran.code == 0, ran.err
    explained = systolith(capsys, "explain", file, "--chip", chip)
    assert "loop r: act to r: " in explained.out
