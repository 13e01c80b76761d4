"""Cycles as planned and as predicted, against the simulator's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith.compiler.mxu.gemm_pipeline import Flow
from systolith.compiler.schedule.predict import predict
from systolith.isa.chip import Chip, load_chip
from systolith.isa.dtypes import dtype
from systolith.isa.instruction import Instruction, Space, Stream
from systolith.isa.pattern import Pattern
from systolith.isa.program import BufferDecl, Origin, Program, Role
from systolith.sim.simulate import simulate
from tests.compiler.fusion.test_blocking import SMALL, attention
from tests.compiler.machine import compiled
from tests.examples import THOROUGH, examples

TINY = load_chip("tiny")


def gemm(m: int, k: int, n: int, dtype: str = "f32") -> str:
    return f"""HloModule t
ENTRY e {{
  a = {dtype}[{m},{k}] parameter(0)
  b = {dtype}[{k},{n}] parameter(1)
  ROOT d = {dtype}[{m},{n}] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""


LONG = (0, 9, 10)  # of thousands of tiles
NEAR = [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in range(40 if THOROUGH else 12)]


@pytest.mark.parametrize("case", NEAR)
def test_prediction_is_near(case: int) -> None:
    """Products drawn by number, the same ones on every run.

    The bound is not one for every product: below some 400 cycles a dozen more is beyond 5 %, as one time for a memory
    transfer's start is taken for all.  Of 150 sizes drawn evenly from 1 to 300 none is beyond 2.2 %.
    """
    rng = np.random.default_rng(case)
    m, k, n = (int(size) for size in rng.integers(1, 301, 3))
    chip, element = str(rng.choice(["tiny", "small", "tpu_v3"])), str(rng.choice(["f32", "bf16"]))
    program = compiled(gemm(m, k, n, element), chip).program
    cycles = simulate(program, load_chip(chip), mode="time").cycles
    assert cycles is not None
    assert 0.9 <= sum(g.predicted for g in program.groups) / cycles <= 1.05


def assert_prediction_of_blocks_is_near(heads: int, length: int, depth: int, chip: Chip) -> None:
    program = compiled(attention(heads, length, depth), chip).program
    cycles = simulate(program, chip, mode="time").cycles
    assert cycles is not None
    assert 0.9 <= sum(g.predicted for g in program.groups) / cycles <= 1.05


@pytest.mark.parametrize(
    ("heads", "length", "depth", "chip"),
    [(5, 40, 12, TINY), (4, 33, 7, TINY), pytest.param(6, 80, 24, SMALL, marks=pytest.mark.slow)],
)
def test_prediction_of_blocks_is_near(heads: int, length: int, depth: int, chip: Chip) -> None:
    """Blocks in a pipeline: vector unit, cross-lane unit and matrix units wait for one another."""
    assert_prediction_of_blocks_is_near(heads, length, depth, chip)


@pytest.mark.slow
@given(st.integers(4, 12), st.integers(1, 160), st.integers(1, 40), st.sampled_from([TINY, SMALL]))
@settings(max_examples=20)
def test_prediction_of_random_blocks_is_near(heads: int, length: int, depth: int, chip: Chip) -> None:
    assert_prediction_of_blocks_is_near(heads, length, depth, chip)


def test_one_tile_is_exact_but_for_fractions_of_chunks() -> None:
    """Two loads, the product, a store."""
    chip = load_chip("tpu_v3")
    program = compiled(gemm(64, 64, 64, "bf16"), chip).program
    result = simulate(program, chip, mode="time")
    (group,) = (g for g in result.groups() if "kind" in g)
    assert abs(group["predicted"] - group["cycles"]) <= 3


@pytest.mark.parametrize(("m", "k", "n"), [(1, 2048, 2048), (512, 1024, 1024), (2048, 1024, 512)])
def test_plan_is_near_where_there_is_work(m: int, k: int, n: int) -> None:
    """Few rows wait for weights (of the tile's columns, not of all): many stream."""
    program = compiled(gemm(m, k, n, "bf16"), "tpu_v3").program
    cycles = simulate(program, load_chip("tpu_v3"), mode="time").cycles
    assert cycles is not None
    assert 0.93 <= program.groups[0].planned / cycles <= 1.07


flows = st.builds(
    Flow,
    blocks=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    m_outer=st.booleans(),
    repeats=st.integers(1, 2),
    tiles=st.just(6),
    chunk=st.sampled_from([1, 2, 3, 6]),
    piece=st.just(1),
    apart=st.integers(0, 3),
    lhs=st.integers(0, 60),
    rhs=st.integers(0, 60).map(lambda n: n * 6),
    lhs_again=st.booleans(),
    rhs_again=st.booleans(),
    first=st.integers(1, 20),
    compute=st.integers(1, 50),
    vector=st.integers(0, 40),
    store=st.integers(0, 20).map(lambda n: n * 6),
    last=st.integers(0, 30),
    latency=st.just(7),
    fill=st.just(5),
)


@pytest.mark.parametrize("case", range(40 if THOROUGH else 8))
def test_plan_is_near_the_timeline(case: int) -> None:
    """The closed form over blocks against the timeline of the instructions, where tiles are full.

    Of 60 such sizes the least is 0.88 and the greatest 1.03.
    """
    rng = np.random.default_rng(case)
    m, k, n = (128 * int(arrays) for arrays in rng.integers(4, 11, 3))
    (group,) = compiled(gemm(m, k, n, str(rng.choice(["f32", "bf16"]))), "tpu_v3").program.groups
    assert 0.85 <= group.planned / group.predicted <= 1.08


@given(flows)
@examples(65, 200)
def test_no_flow_is_faster_than_its_slowest_unit(flow: Flow) -> None:
    assert flow.cycles() >= max(flow.totals.compute, flow.totals.transfer, flow.totals.vector)


def test_groups_of_loops_count_every_execution() -> None:
    text = """HloModule t
cond {
  s = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  s = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  x = f32[64,64] get-tuple-element(s), index=1
  y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[64,64]) tuple(j, y)
}
ENTRY e {
  zero = s32[] constant(0)
  x = f32[64,64] parameter(0)
  s = (s32[], f32[64,64]) tuple(zero, x)
  w = (s32[], f32[64,64]) while(s), condition=cond, body=body
  ROOT r = f32[64,64] get-tuple-element(w), index=1
}
"""
    program = compiled(text, "small").program
    (dot,) = (g for g in program.groups if g.kind == "kOutput")
    assert dot.executions == 5
    assert dot.predicted == 5 * predict(program, load_chip("small"))[dot.name].cycles
    assert dot.planned % 5 == 0


def test_the_unit_that_has_most_to_do() -> None:
    """Many rows stream through few weights; few rows wait for many, where memory is fast."""
    chip = load_chip("tpu_v3")
    chip = replace(chip, hbm=replace(chip.hbm, p=4 * chip.hbm.p))
    (many,) = predict(compiled(gemm(8192, 128, 128, "bf16"), chip, "default").program, chip).values()
    (few,) = predict(compiled(gemm(4, 1024, 1024, "bf16"), chip, "default").program, chip).values()
    assert many.bound in ("hbm", "s0", "s1")
    assert few.bound.startswith("w")
    assert few.work[few.bound] <= few.cycles


def dma(op: str, waits: tuple[int, ...] = ()) -> Instruction:
    spaces = (Space.HBM, Space.VMEM) if op == "dma.load" else (Space.VMEM, Space.HBM)
    return Instruction(op, {"src": Stream(spaces[0], 0), "dst": Stream(spaces[1], 0)}, waits=waits)


@pytest.mark.parametrize("code", [["dma.load"], ["dma.load", "dma.load"], ["dma.load", "dma.store"]])
def test_transfers_share_the_bandwidth(code: list[str]) -> None:
    """Of one queue one after another, of two at half the rate each: against the arbiter."""
    chip = load_chip("tpu_v3")
    pattern = Pattern(dtype("f32"), (1 << 20,), (4,))
    buffers = [BufferDecl(name, Role.TEMP, "u8", (4 << 20,), 4 << 20) for name in "ab"]
    program = Program("p", chip.name, chip.digest(), [*map(dma, code), Instruction("halt")], [pattern], buffers=buffers)
    program.debug, program.origins = [0] * len(code) + [0], [Origin("o", "g", "move")]
    cycles = simulate(program, chip, mode="time").cycles
    assert cycles is not None
    assert abs(predict(program, chip)["g"].cycles - cycles) <= 3


@given(flows)
@examples(65, 200)
def test_flow_step_by_step(flow: Flow) -> None:
    """The arrays of `Flow.cycles` against one loop over blocks and tiles."""
    m_blocks, n_blocks = flow.blocks
    inner = [(m, n) for m in range(m_blocks) for n in range(n_blocks)]
    order = (inner if flow.m_outer else sorted(inner, key=lambda b: (b[1], b[0]))) * flow.repeats
    moved, free, starts, need = 0, 0, [], []
    for m, n in order:
        arrivals = []
        for tile in range(flow.tiles):
            head = tile % flow.chunk == 0
            if head and (n == 0 or flow.lhs_again):
                moved += flow.lhs
            if m == 0 or flow.rhs_again:
                moved += flow.rhs // flow.chunk if n == 0 else flow.rhs * head
            arrivals.append(moved)
        need += arrivals[: flow.tiles - flow.apart] + [moved] * flow.apart
    for step, arrived in enumerate(need):
        stored = max(0, step - flow.tiles + 1) * flow.store // flow.tiles
        ready = flow.first if step == 0 else arrived + stored
        starts.append(max(free, ready + flow.latency))
        free = starts[-1] + flow.compute
    results = starts[flow.tiles - 1] + flow.compute + flow.fill + len(order) * flow.vector
    end = max(free + flow.fill + flow.last, results) + flow.latency * bool(flow.store)
    assert flow.cycles() == max(end, need[-1] + len(order) * flow.store + flow.latency)


def test_repeats_add_up() -> None:
    flow = Flow((2, 2), True, 1, 4, 2, 1, 0, 10, 12, False, False, 5, 30, 3, 8, 0, 4, 7, 5)
    one, two, five = (replace(flow, repeats=r).cycles() for r in (1, 2, 5))
    assert five == one + 4 * (two - one)
