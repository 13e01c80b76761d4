"""The order of blocks' operations: what makes every order right, and what makes one fast."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.interleave import Timed, interleave
from systolith.compiler.tile.ir import Buf, TileOp
from systolith.isa.chip import load_chip
from systolith.isa.instruction import Space
from systolith.isa.program import Origin
from systolith.sim.simulate import simulate
from tests.compiler.fusion.test_blocking import SMALL, attention, softmax
from tests.compiler.machine import compiled

OPS = {"vpu": "vpu.run", "xlu": "xlu.reduce", "s0": "mxu.matmul", "ld": "dma.load", "st": "dma.store"}

Block = Sequence[Sequence[Timed]]


def op(queue: str, cycles: int, reads: tuple[object, ...] = (), writes: tuple[object, ...] = ()) -> Timed:
    item = TileOp(OPS[queue], {}, Origin())
    return Timed(item, queue, cycles, cycles, queue in ("ld", "st"), reads, writes)


ops = st.builds(op, st.sampled_from(sorted(OPS)), st.integers(1, 50), st.just(("x",)), st.just(("x",)))
stages = st.lists(st.lists(ops, min_size=1, max_size=4), max_size=4)


@given(st.lists(stages, min_size=1, max_size=5), st.integers(1, 4))
def test_every_order_keeps_the_rules(blocks: list[Block], most: int) -> None:
    order = interleave(blocks, most)
    blocks = [b for b in blocks if b]
    found = [[o for n, o in order.ops if n == b] for b in range(len(blocks))]
    assert found == [[o for stage in block for o in stage] for block in blocks]
    stage_of = {id(o): k for block in blocks for k, stage in enumerate(block) for o in stage}
    ends: list[dict[int, int]] = [{} for _ in blocks]
    begins: list[dict[int, int]] = [{} for _ in blocks]
    for position, (b, o) in enumerate(order.ops):
        begins[b].setdefault(stage_of[id(o)], position)
        ends[b][stage_of[id(o)]] = position
    products = []
    for b, block in enumerate(blocks):
        first = min(begins[b].values())
        assert sum(min(begins[o].values()) <= first <= max(ends[o].values()) for o in range(b + 1)) <= most
        for k, stage in enumerate(block):
            if b and len(blocks[b - 1]) == len(block):
                assert ends[b - 1][k] < begins[b][k]
            elif b:
                assert max(ends[b - 1].values()) < begins[b][k]
            products += [(begins[b][k], ends[b][k])] if any(o.queue == "s0" for o in stage) else []
    products.sort()
    assert all(end < begin for (_, end), (begin, _) in pairwise(products))


@given(st.lists(stages, min_size=1, max_size=5), st.integers(1, 4))
def test_cycles_are_between_the_busiest_unit_and_one_after_another(blocks: list[Block], most: int) -> None:
    order = interleave(blocks, most)
    every = [o for _, o in order.ops]
    units = {o.queue if not o.transfers else "hbm" for o in every}
    work = [sum(o.occupancy for o in every if unit == ("hbm" if o.transfers else o.queue)) for unit in units]
    assert max(work, default=0) <= order.cycles <= sum(o.latency for o in every)


def test_units_work_on_different_blocks() -> None:
    """The vector unit has a second stage, which waits for the cross-lane unit: meanwhile it takes up another block."""
    one = [[op("vpu", 10, writes=("a",))], [op("xlu", 10, ("a",), ("b",)), op("vpu", 10, ("b",))]]
    assert interleave([one] * 10, 1).cycles == 300
    assert interleave([one] * 10, 2).cycles == 200


def test_peak_counts_each_block_from_its_first_use_to_its_last() -> None:
    own, whole = Buf("own", Space.VMEM, 100), Buf("whole", Space.VMEM, 1000)
    block = [[op("vpu", 10, (whole,), (own,))], [op("xlu", 20, (own,))]]
    assert interleave([block] * 4, 1).peak({whole}) == 100
    assert interleave([block] * 4, 2).peak({whole}) == 200


def test_the_estimate_is_near() -> None:
    for text, chip in ((attention(8, 160, 32), SMALL), (softmax(512, 700), load_chip("small"))):
        program = compiled(text, chip).program
        cycles = simulate(program, chip, mode="time").cycles
        (group,) = (g for g in program.groups if g.kind == "kCustom")
        assert cycles is not None
        assert 0.8 <= group.planned / cycles <= 1.1
