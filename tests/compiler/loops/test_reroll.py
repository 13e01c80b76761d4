"""Loops that are made of repetitions: the same bits as without, no races, as many cycles where they are chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from systolith.compiler import vmem_pressure
from systolith.compiler.driver import Compiled
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.lower import lowering
from systolith.compiler.lower.lowering import Lowering
from systolith.compiler.lower.module import lower_module
from systolith.compiler.memory.liveness import Live
from systolith.compiler.ops.group import Group
from systolith.compiler.schedule import group_loops, pipeline, repetition, reroll
from systolith.compiler.schedule.fitting import Fitted, Predicted, schedule
from systolith.compiler.schedule.group_loops import LOOP_SHARES, USUAL_LOOPS, Choice, GroupLoops
from systolith.compiler.schedule.repetition import Repetition
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Block, Loop
from systolith.isa.chip import Chip, load_chip
from systolith.isa.dtypes import DTYPES
from systolith.isa.program import Program, Role
from systolith.sim.simulate import simulate
from tests.compiler.fusion.test_blocking import attention
from tests.compiler.loops.cases import BODIES, module, rolled_everywhere
from tests.compiler.machine import CHIPS, compiled, error, run, with_vmem
from tests.examples import THOROUGH, examples, with_slow

TINY = load_chip("tiny")


@pytest.fixture
def everywhere() -> Iterator[None]:
    """Make a loop of everything that repeats, whatever it saves or costs."""
    with rolled_everywhere():
        yield


def written_out(text: str, chip: str | Chip = TINY) -> Compiled:
    """A module compiled without loops."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lowering, "roll", lambda *_: None)
        return compiled(text, chip)


def loops(program: Program) -> int:
    return sum(i.op == "loop" for i in program.code)


def taken(program: Program, chip: Chip) -> int:
    cycles = simulate(program, chip, mode="time").cycles
    assert cycles is not None
    return cycles


def arguments(program: Program) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    given = [b for b in program.buffers if b.role is Role.PARAMETER]
    return [rng.standard_normal(b.dims).astype(DTYPES[b.dtype].stored) for b in sorted(given, key=lambda b: b.number)]


def same_as_written_out(text: str, chip: Chip = TINY) -> int:
    """Compile with loops and without, compare the results; how many loops there were."""
    rolled, plain = compiled(text, chip).program, written_out(text, chip).program
    args = arguments(plain)
    for got, wanted in zip(run(rolled, chip, args), run(plain, chip, args), strict=True):
        assert got.tobytes() == wanted.tobytes()
    return loops(rolled)


SIZES = {
    "elementwise": (75, 64, 0), "sum of rows": (64, 128, 0), "sum of columns": (128, 128, 0),
    "transpose": (75, 128, 0), "product": (32, 50, 100), "products": (32, 32, 64), "indices": (75, 64, 0),
    "product of what indices select": (16, 24, 200),
}  # fmt: skip
LARGER = {"convolution": (64, 0, 0), "softmax": (512, 256, 0)}
"""Of which nothing repeats in little VMEM."""


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("name", with_slow(BODIES, {"softmax"}))
def test_loops_give_the_same_bits(name: str) -> None:
    made = same_as_written_out(module(BODIES[name], *(SIZES | LARGER)[name]), CHIPS[16] if name in SIZES else TINY)
    assert made


@pytest.mark.usefixtures("everywhere")
@examples(3, 12)
@given(st.sampled_from([n for n in BODIES if n != "softmax"]), *[st.integers(8, 120)] * 3)
def test_loops_give_the_same_bits_in_all_sizes(name: str, m: int, n: int, k: int) -> None:
    same_as_written_out(module(BODIES[name], m, n, k))


@pytest.mark.usefixtures("everywhere")
@examples(1, 30)
@example(8, 24, 4, 8, 1)  # a loop of the blocks of two heads
@given(
    st.integers(2, 5),
    st.integers(24, 80 if THOROUGH else 40),
    st.integers(3, 20),
    st.integers(12, 40),
    st.integers(1, 2),
)
def test_loops_over_blocks_in_blocks_give_the_same_bits(
    heads: int, length: int, depth: int, kib: int, units: int
) -> None:
    """Heads of attention in blocks of their rows, in an order that repeats, whose buffers share places."""
    chip = replace(
        TINY, vmem=replace(TINY.vmem, bytes=kib << 10), mxu=replace(TINY.mxu, count=units), name=f"tiny{kib}"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "FEW", 3)
        text = attention(heads, length, depth)
        rolled, plain = compiled(text, chip).program, written_out(text, chip).program
        args = arguments(plain)
        (got,), (plainly,) = run(rolled, chip, args), run(plain, chip, args)
    assert got.tobytes() == plainly.tobytes()
    (wanted,) = evaluate(parse_hlo(text), *args)
    assert error(got, wanted) < 3e-2


@pytest.mark.parametrize(
    ("heads", "length", "part"),
    [
        pytest.param(14, 512, 4, marks=pytest.mark.slow),
        pytest.param(16, 1024, 1, marks=pytest.mark.slow),
        pytest.param(12, 2048, 1, marks=pytest.mark.slow),
    ],
)
def test_heads_and_rows_of_attention_are_a_nest_of_loops(heads: int, length: int, part: int) -> None:
    """In a part of the VMEM of the chip."""
    chip = load_chip("tpu_v3")
    chip = with_vmem(chip, chip.vmem.bytes // part)
    text = attention(heads, length, 64)
    rolled, plain = compiled(text, chip).program, written_out(text, chip).program
    assert len(rolled.code) < len(plain.code) / 2
    assert taken(rolled, chip) <= taken(plain, chip) * 1.02


def test_a_large_product_is_a_nest_of_loops_in_as_many_cycles() -> None:
    text = module(BODIES["product"], 2048, 2048, 2048)
    chip = load_chip("tpu_v3")
    rolled, plain = compiled(text, chip), written_out(text, chip)
    assert len(plain.program.code) > 3_400
    assert len(rolled.program.code) < 900
    cycles = [taken(c.program, chip) for c in (rolled, plain)]
    assert cycles[0] <= cycles[1] * 1.001
    assert any(d.kind == "repeat" and "iterations of" in d.chosen for d in rolled.explain)


def test_repetitions_that_are_alike_are_priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take as many places for their buffers as each by itself."""
    text, chip = module(BODIES["product"], 64, 64, 128), CHIPS[16]
    priced = []
    wanted, alike = Repetition._wanted, Repetition._alike

    def counted(self: Repetition, of: Chip) -> int:
        priced.append(self)
        return wanted(self, of)

    monkeypatch.setattr(Repetition, "_wanted", counted)
    once = compiled(text, chip).program
    assert loops(once)
    count = len(priced)
    monkeypatch.setattr(Repetition, "_alike", lambda self: (alike(self), len(priced)))
    each = compiled(text, chip).program
    assert 0 < count < len(priced) - count
    assert once.code == each.code


@pytest.mark.parametrize(
    ("sizes", "kib", "looked_at", "fewer"),
    [
        ((128, 64, 384), 64, 512, 1.5),
        pytest.param((128, 256, 768), 256, group_loops.LOOKED_AT, 8, marks=pytest.mark.slow),
    ],
)
def test_outer_loops_that_repeat_late_keep_the_matrix_unit_as_busy(
    sizes: tuple[int, int, int], kib: int, looked_at: int, fewer: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first operations of this product, which are looked at, are too few for its outer loop."""
    monkeypatch.setattr(group_loops, "LOOKED_AT", looked_at)
    text, chip = module(BODIES["product"], *sizes), with_vmem(TINY, kib << 10)
    rolled, plain = compiled(text, chip).program, written_out(text, chip).program
    assert len(rolled.code) < len(plain.code) / fewer
    assert taken(rolled, chip) <= taken(plain, chip) * 1.005


@pytest.mark.slow  # 10 s
def test_heads_of_thousands_of_operations_are_a_loop() -> None:
    text = attention(12, 128, 64).replace("f32[", "bf16[")
    rolled, plain = compiled(text).program, written_out(text).program
    assert len(rolled.code) < len(plain.code) / 2
    assert taken(rolled, TINY) <= taken(plain, TINY) * 1.005


@pytest.mark.slow
def test_loops_one_after_another_share_registers_in_a_loop_around_them() -> None:
    """The rows of this product's blocks are an outermost loop, in which each block's first and last columns have loops
    of their own beside that of the columns between.
    """
    chip = load_chip("tpu_v3")
    rolled = compiled(module(BODIES["product"].replace("bf16", "f32"), 8192, 2048, 4096), chip).program
    assert len(rolled.code) < 4_500
    assert taken(rolled, chip) <= 2_110_000


def test_loops_that_take_longer_are_not_chosen() -> None:
    """Loads of a transpose as a loop wait for the stores of the iteration before."""
    with pytest.MonkeyPatch.context() as patch:
        for place, name in ((lowering, "SMALLEST"), (reroll, "SMALLEST"), (reroll, "LEAST"), (repetition, "LEAST")):
            patch.setattr(place, name, 1)
        patch.setattr(group_loops, "WORTH", 1.0)
        text = module(BODIES["transpose"], 512, 1024, 0)
        chosen = compiled(text).program
        patch.setattr(group_loops, "NEAR", 1e9)
        forced = compiled(text).program
    cycles = [taken(p, TINY) for p in (chosen, forced)]
    assert loops(forced)
    assert cycles[0] < cycles[1]


TWO = """HloModule two
ENTRY e {
  x = f32[256,512] parameter(0)
  y = bf16[256,128] parameter(1)
  z = bf16[128,128] parameter(2)
  t = f32[512,256] transpose(x), dimensions={1,0}
  d = bf16[256,128] dot(y, z), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT both = (f32[512,256], bf16[256,128]) tuple(t, d)
}
"""


def test_each_group_decides_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    priced = GroupLoops._cycles

    def slow_in_t(self: GroupLoops, block: Block) -> Predicted | None:
        found = priced(self, block)
        looped = any(isinstance(item, Loop) for item in block.items)
        slow = found and looped and next(block.ops()).origin.group == "t"
        return found._replace(total=2 * found.total) if found and slow else found

    for place, name in ((lowering, "SMALLEST"), (reroll, "SMALLEST"), (reroll, "LEAST"), (repetition, "LEAST")):
        monkeypatch.setattr(place, name, 1)
    monkeypatch.setattr(group_loops, "WORTH", 1.0)
    monkeypatch.setattr(GroupLoops, "_cycles", slow_in_t)
    decided = {d.group: d for d in compiled(TWO).explain if d.kind == "repeat"}
    assert decided["t"].chosen == "written out"
    assert [r.why for r in decided["t"].rejected] == ["slower"] * len(decided["t"].rejected)
    assert "iterations of" in decided["d"].chosen


def test_very_long_groups_may_lose_a_little_in_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    text, priced, chip = module(BODIES["product"], 64, 64, 192), GroupLoops._cycles, CHIPS[16]

    def slower(self: GroupLoops, block: Block) -> Predicted | None:
        found = priced(self, block)
        looped = any(isinstance(item, Loop) for item in block.items)
        return found._replace(total=1.015 * self._written.total) if found and looped and self._written else found

    monkeypatch.setattr(GroupLoops, "_cycles", slower)
    monkeypatch.setattr(group_loops, "LOOKED_AT", 1024)
    assert not loops(compiled(text, chip).program)
    monkeypatch.setattr(group_loops, "VERY_LONG", group_loops.LOOKED_AT)
    assert loops(compiled(text, chip).program)
    monkeypatch.setattr(group_loops, "NEAR_IN_VERY_LONG_ONES", 1.01)
    assert not loops(compiled(text, chip).program)


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("copied", [True, False])
def test_without_registers_for_loops_there_are_none(copied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    text = module(BODIES["elementwise"], 300, 128, 0)
    if not copied:  # then groups are lowered by another way
        monkeypatch.setattr(lowering, "source_of", lambda *_: None)
    assert loops(compiled(text).program)
    monkeypatch.setattr(vmem_pressure, "_has_registers", lambda *_: False)
    found = compiled(text)
    assert loops(found.program) == 0
    assert found.program.code == written_out(text).program.code


def test_loops_that_do_not_fit_take_the_next_share_that_is_less() -> None:
    first, second = parse_hlo(
        "HloModule m\nENTRY e {\n a = f32[] parameter(0)\n ROOT b = f32[] negate(a)\n}\n"
    ).entry.instructions
    shares = USUAL_LOOPS.lowered({first: 0.85, second: 0.4})
    assert shares is not None
    assert (shares.of(first), shares.of(second)) == (0.6, 0.3)
    shares = shares.lowered({second: 0.3})
    assert shares is not None
    assert (shares.of(first), shares.of(second)) == (0.6, 0.0)
    assert shares.lowered({second: 0.2}) is None
    assert shares.lowered({}) is None


@pytest.mark.usefixtures("everywhere")
def test_loops_have_less_of_vmem_where_they_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of groups around the place where a buffer finds none; those of the last one keep theirs, though they read
    what lies there, too: a parameter that all groups read.
    """
    shapes = [f"f32[512,{width}]" for width in (256, 248, 240, 232, 224, 216)]
    lines = ["c = f32[512] parameter(6)\n"] + [
        f"x{n} = {s} parameter({n})\n c{n} = {s} broadcast(c), dimensions={{0}}\n y{n} = {s} multiply(x{n}, c{n})\n"
        for n, s in enumerate(shapes)
    ]
    root = f"ROOT r = ({', '.join(shapes)}) tuple({', '.join(f'y{n}' for n in range(len(shapes)))})"
    text = f"HloModule m\nENTRY e {{\n {' '.join(lines)} {root}\n}}\n"
    tried: list[list[float]] = []
    looked_at: list[tuple[str, float]] = []
    choice = GroupLoops.choice

    def chosen(loops_of: GroupLoops, share: float) -> Choice:
        looked_at.append((next(Block([*loops_of._items]).ops()).origin.group, share))
        return choice(loops_of, share)

    def lowered(module: Module, *args: Any, **kwargs: Any) -> object:
        shares = kwargs.get("loops", USUAL_LOOPS)
        tried.append([shares.of(i) for i in module.entry.instructions if isinstance(i, Group)])
        return lower_module(module, *args, **kwargs)

    def scheduled(ctx: TileBuilder, free: int) -> Fitted:
        fitted = schedule(ctx, free)
        if tried[-1][0]:
            buf, first, last = next(iter(fitted.plan.lives))
            fitted.plan.failures.append(Live(buf, first, last))
        return fitted

    monkeypatch.setattr(vmem_pressure, "lower_module", lowered)
    monkeypatch.setattr(vmem_pressure, "schedule", scheduled)
    monkeypatch.setattr(GroupLoops, "choice", chosen)
    program = compiled(text).program
    assert [first for first, *_ in tried] == [LOOP_SHARES[0], 0.0]
    assert {last for *_, last in tried} == {LOOP_SHARES[0]}
    assert len({*looked_at}) == len(looked_at) == len(shapes)  # each once, though the module was lowered twice
    assert loops(program) > 0


def test_blocks_of_a_normalisation_are_a_loop_in_as_many_cycles() -> None:
    few, many = (module(BODIES["softmax"], rows, 256, 0) for rows in (1024, 4096))
    rolled, plain = compiled(many).program, written_out(many).program
    assert len(rolled.code) < 1.5 * len(compiled(few).program.code)
    assert taken(rolled, TINY) <= taken(plain, TINY) * 1.005


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(
    ("heads", "length", "depth", "kib"),
    [
        (20, 16, 4, 8),
        pytest.param(3, 96, 16, 256, marks=pytest.mark.slow),
        pytest.param(5, 256, 16, 256, marks=pytest.mark.slow),
    ],
)
def test_loops_of_blocks_of_attention_give_the_same_bits(heads: int, length: int, depth: int, kib: int) -> None:
    chip = with_vmem(TINY, kib << 10)
    assert same_as_written_out(attention(heads, length, depth), chip)


WEIGHTS = """HloModule weights
ENTRY e {
  x = f32[4,35,35,12] parameter(0)
  g = f32[4,32,32,64] parameter(1)
  c = f32[64] parameter(2)
  z = f32[4,32,32,64] parameter(3)
  s = f32[64] parameter(4)
  cb = f32[4,32,32,64] broadcast(c), dimensions={3}
  a = f32[4,32,32,64] multiply(g, cb)
  sb = f32[4,32,32,64] broadcast(s), dimensions={3}
  b = f32[4,32,32,64] multiply(z, sb)
  d = f32[4,32,32,64] add(a, b)
  ROOT r = f32[4,4,12,64] convolution(x, d), window={size=32x32}, dim_labels=f01b_i01o->01bf
}
"""
"""Images one after another: of two that are loops, tiles of the second are made beside the last ones of the first."""


def test_what_one_loop_leaves_to_the_next_stays_where_it_is() -> None:
    chip = load_chip("small")
    chip = with_vmem(chip, 1 << 20)
    args = [
        np.random.default_rng(0).standard_normal(p.dims).astype(np.float32) for p in parse_hlo(WEIGHTS).entry.parameters
    ]
    (got,), (wanted,) = run(compiled(WEIGHTS, chip).program, chip, args), evaluate(parse_hlo(WEIGHTS), *args)
    assert error(got, wanted) <= 1e-5
