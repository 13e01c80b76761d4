"""The order of blocks' operations: constraints that keep every order right, and choices that make one fast."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.schedule.operation_times import Stage, Timed, copies, timed
from systolith.compiler.schedule.pipeline import interleave
from systolith.compiler.tile.ir import Buf, Ref, TileOp
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import dtype
from systolith.isa.instruction import Space
from systolith.isa.pattern import Pattern
from systolith.isa.program import Origin
from systolith.isa.timing import Cost
from systolith.sim.simulate import simulate
from tests.compiler.fusion.test_blocking import TINY, attention
from tests.compiler.machine import compare, compiled, with_vmem

OPS = {"vpu": "vpu.run", "xlu": "xlu.reduce", "s0": "mxu.matmul", "ld": "dma.load", "st": "dma.store"}

KINDS = (("s0", "vpu"), ("ld", "s0", "s0", "vpu", "st"), ("vpu",), ("vpu", "xlu", "vpu"), ("ld", "xlu"), ("vpu", "st"))


def op(
    queue: str, cycles: int, reads: tuple[object, ...] = (), writes: tuple[object, ...] = (), more: int = 0
) -> Timed:
    item = TileOp(OPS[queue], {}, Origin())
    return Timed(item, queue, Cost(cycles, cycles + more, int(queue in ("ld", "st"))), reads, writes)


@st.composite
def stages(draw: st.DrawFn) -> Stage:
    queues = draw(st.sampled_from(KINDS))
    ops = tuple(op(q, draw(st.integers(1, 50)), ("x",), ("x",), draw(st.integers(0, 50))) for q in queues)
    products = max((n + 1 for n, q in enumerate(queues) if q == "s0"), default=0)
    first = draw(st.integers(0, 30))
    return Stage(ops, products, ((0, first, first + draw(st.integers(1, 20))),) if products else ())


blocks_of_stages = st.lists(st.lists(stages(), max_size=4), min_size=1, max_size=5) | st.integers(2, 4).flatmap(
    lambda n: st.lists(st.lists(stages(), min_size=n, max_size=n), min_size=2, max_size=4)
)


@given(blocks_of_stages, st.integers(1, 4))
def test_every_order_keeps_the_rules(blocks: list[list[Stage]], most: int) -> None:
    order = interleave(blocks, most)
    blocks = [b for b in blocks if b]
    found = [[o for n, o in order.ops if n == b] for b in range(len(blocks))]
    assert found == [[o for stage in block for o in stage.ops] for block in blocks]
    position = {id(o): n for n, (_, o) in enumerate(order.ops)}
    spans = [[(position[id(s.ops[0])], position[id(s.ops[-1])]) for s in block] for block in blocks]
    for b, block in enumerate(blocks):
        begin = spans[b][0][0]
        assert sum(spans[o][0][0] <= begin <= spans[o][-1][1] for o in range(b + 1)) <= most
        for k in range(len(block)):
            before = spans[b - 1][k if len(blocks[b - 1]) == len(block) else -1] if b else (-1, -1)
            assert before[1] < spans[b][k][0]
    products = [
        (span, stage)
        for block, its in zip(blocks, spans, strict=True)
        for stage, span in zip(block, its, strict=True)
        if stage.products
    ]
    using = sorted((span[0], position[id(stage.ops[stage.products - 1])]) for span, stage in products)
    assert all(one[1] < other[0] for one, other in pairwise(using))
    for (span, stage), (after, later) in combinations(products, 2):
        (_, first, end), (_, low, high) = stage.sums[0], later.sums[0]
        assert span[1] < after[0] or after[1] < span[0] or end <= low or high <= first


@given(blocks_of_stages, st.integers(1, 4))
def test_cycles_are_between_the_busiest_unit_and_one_after_another(blocks: list[list[Stage]], most: int) -> None:
    order = interleave(blocks, most)
    every = [o for _, o in order.ops]
    units = {"hbm" if o.cost.chunks else o.queue for o in every}
    work = [sum(o.cost.occupancy for o in every if unit == ("hbm" if o.cost.chunks else o.queue)) for unit in units]
    assert max(work, default=0) <= order.cycles <= sum(o.cost.latency for o in every)


def test_units_work_on_different_blocks() -> None:
    """The vector unit has a second stage, which waits for the cross-lane unit: meanwhile it takes up another block."""
    one = [Stage((op("vpu", 10, writes=("a",)),)), Stage((op("xlu", 10, ("a",), ("b",)), op("vpu", 10, ("b",))))]
    assert interleave([one] * 10, 1).cycles == 300
    assert interleave([one] * 10, 2).cycles == 200


def test_peak_counts_each_block_from_its_first_use_to_its_last() -> None:
    own, whole = Buf("own", Space.VMEM, 100), Buf("whole", Space.VMEM, 1000)
    block = [Stage((op("vpu", 10, (whole,), (own,)),)), Stage((op("xlu", 20, (own,)),))]
    blocks = copies([block], 4, TINY, 0, [0], {whole})
    assert interleave(blocks, 1).peak({whole}) == 100
    assert interleave(blocks, 2).peak({whole}) == 200


def test_accumulators_of_a_stage_and_of_its_copies() -> None:
    """Blocks take turns with matrix units and with the rows that they begin with."""
    rows = TINY.mxu.acc_rows

    def matmul(acc: int, count: int) -> TileOp:
        ref = Ref(Buf("a", Space.VMEM, 1 << 20), Pattern(dtype("f32"), (count, 8), (32, 4)))
        return TileOp(
            "mxu.matmul", {"src": ref, "row_loops": 1, "acc": acc, "accumulate": 0, "part": 0, "integer": 0}, Origin()
        )

    part = rows // 4
    (stage,) = timed([[matmul(0, part), matmul(part, 2 * part)]], TINY)
    assert stage.sums == ((0, 0, 3 * part),)
    assert stage.products == 2
    assert [block[0].sums for block in copies([[stage]], 3, TINY, 0, [0, part])] == [
        ((0, 0, 3 * part),),
        ((0, part, 4 * part),),
        ((0, 0, 3 * part),),
    ]
    chip = replace(TINY, mxu=replace(TINY.mxu, count=2))
    first, second, third = (block[0] for block in copies([[stage]], 3, chip, 1, [0]))
    assert [first.sums, second.sums] == [((0, 0, 3 * part),), ((1, 0, 3 * part),)]
    assert third.sums == first.sums
    assert [op.queue for op in second.ops] == ["s1", "s1"]
    assert [op.writes for op in second.ops] == [(("summed", 1),)] * 2


@pytest.mark.slow
def test_sums_of_blocks_do_not_meet_in_few_accumulators() -> None:
    """Results of one product are still to come where the next begins, for which the ring has no room left."""
    chip = replace(TINY, vmem=replace(TINY.vmem, bytes=64 << 10), mxu=replace(TINY.mxu, acc_rows=96))
    rng = np.random.default_rng(5)
    wide = [rng.normal(size=(8, 48, 24)).astype(np.float32) for _ in range(3)]
    compare(attention(8, 48, 24), [*wide, rng.normal(size=(48, 48)).astype(np.float32)], chip)


def test_the_estimate_is_near() -> None:
    chip = load_chip("small")
    chip = with_vmem(chip, 48 << 10)
    program = compiled(attention(8, 64, 32), chip).program
    cycles = simulate(program, chip, mode="time").cycles
    (group,) = program.groups
    assert cycles is not None
    assert 0.85 <= group.planned / cycles <= 1.15
