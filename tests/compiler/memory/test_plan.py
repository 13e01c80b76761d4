"""Memory plan: buffers that are alive at the same time never overlap; loops keep carried values."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.memory.vmem import (
    LASTING,
    LoopSpan,
    MemoryPlan,
    _Sweep,
    first_free,
    lives,
    plan_memory,
    positions,
)
from systolith.compiler.schedule.prefetch import Lookahead, prefetch
from systolith.compiler.tile.ir import Block, Buf, Item, Loop, Ref, TileOp, VReg, While
from systolith.isa.dtypes import S32
from systolith.isa.instruction import Space
from systolith.isa.pattern import Pattern
from systolith.isa.program import BufferDecl, Origin, Role
from tests.compiler.memory.random_blocks import random_block
from tests.examples import examples

WORD = Pattern(S32, (1,), (0,))
HBM = Buf("hbm", Space.HBM, 4, 4, BufferDecl("hbm", Role.PARAMETER, "s32", (), 4, 0))


def _use(*bufs: Buf) -> TileOp:
    return TileOp("vpu.run", {"streams": tuple(Ref(b, WORD) for b in bufs)}, Origin())


def _load(buf: Buf) -> TileOp:
    return TileOp("dma.load", {"src": Ref(HBM, WORD), "dst": Ref(buf, WORD)}, Origin())


@st.composite
def blocks(draw: st.DrawFn) -> tuple[Block, list[Buf]]:
    bufs = [Buf(f"b{i}", Space.VMEM, draw(st.integers(1, 600))) for i in range(draw(st.integers(1, 12)))]
    return random_block(draw, lambda: _use(*draw(st.lists(st.sampled_from(bufs), min_size=1, max_size=3)))), bufs


def check_places(plan: MemoryPlan, size: int) -> None:
    """Buffers that have a place are at lines of the memory, in it, and apart while both live."""
    placed = [v for v in plan.lives if v.value in plan.address]
    for k, a in enumerate(placed):
        assert plan.address[a.value] % 32 == 0
        assert plan.address[a.value] + a.value.bytes <= size
        for b in placed[:k]:
            together = a.first <= b.last and b.first <= a.last
            x, y = plan.address[a.value], plan.address[b.value]
            assert not together or x + a.value.bytes <= y or y + b.value.bytes <= x


@given(blocks(), st.integers(0, 6), st.integers(0, 40))
def test_live_buffers_do_not_overlap(case: tuple[Block, list[Buf]], whole: int, less: int) -> None:
    block, bufs = case
    plan = plan_memory(block, set(bufs[:whole]), (1 << 14) - less, 1 << 10, 32)
    assert plan.failed is None
    check_places(plan, (1 << 14) - less)


LENGTHS = (0, 1, 100, 300, 700, 1500)


@examples(10, 300)
@given(
    st.lists(st.tuples(st.integers(0, 29), st.sampled_from(LENGTHS), st.integers(1, 600)), min_size=10, max_size=40),
    st.integers(0, 30),
)
def test_buffers_of_long_and_short_lives_do_not_overlap(drawn: list[tuple[int, int, int]], whole: int) -> None:
    """Some lack a place in so little memory, and are placed before others then."""
    uses: list[list[Buf]] = [[] for _ in range(3000)]
    bufs = [Buf(f"b{n}", Space.VMEM, size) for n, (_, _, size) in enumerate(drawn)]
    for buf, (start, length, _) in zip(bufs, drawn, strict=True):
        uses[100 * start].append(buf)
        uses[min(100 * start + length, 2999)].append(buf)
    plan = plan_memory(Block([_use(*each) for each in uses]), set(bufs[:whole]), 2048, 1024, 32)
    check_places(plan, 2048)
    assert {v.value for v in plan.failures} == set(bufs) - set(plan.address)


ENTRIES = st.tuples(st.integers(0, 30), st.integers(0, 8), st.integers(0, 12), st.integers(1, 6))
"""The first position and others, the first address and others: of a place that is taken, or wanted."""


@given(st.lists(ENTRIES, max_size=12), st.lists(ENTRIES, max_size=12), st.sampled_from([1, 2, 4]), st.integers(0, 3))
def test_the_next_free_place_is_found(
    taken: list[tuple[int, int, int, int]], wanted: list[tuple[int, int, int, int]], step: int, margin: int
) -> None:
    """As in a list of all that is taken, from which tiles are picked whose times meet."""
    limit = 24
    values = sorted((first, first + more, start, start + size) for first, more, start, size in taken)
    sweep, tiles = _Sweep(values, margin), list[tuple[int, int, int, int]]()
    for first, more, pointer, size in sorted(wanted):
        last = first + more
        sweep.advance(first, last)
        near = [(a, e) for f, t, a, e in values if f <= last and t >= first - margin]
        near += [(a, e) for f, t, a, e in tiles if t >= first]
        at = sweep.free(size, first - margin, last, pointer, limit, step)
        assert at == first_free(sorted(near), size, pointer, limit, step)
        if at is not None:
            sweep.take((at, at + size, first, last))
            tiles.append((first, last, at, at + size))


@given(blocks())
def test_a_life_is_the_shortest_that_leaves_no_loop_half(case: tuple[Block, list[Buf]]) -> None:
    block, bufs = case
    loops: list[LoopSpan] = []
    uses = [(at, buf) for at, op in positions(block, loops) for buf in op.buffers]
    found = {v.value: set(range(v.first, v.last + 1)) for v in lives(block)}
    for buf in bufs:
        used = [at for at, other in uses if other is buf]
        life = set(range(min(used), max(used) + 1)) if used else set()
        for _ in loops:
            for each in (set(range(span.start, span.end)) for span in loops):
                if life & each and life - each:
                    life |= each
        assert found.get(buf, set()) == life


def test_what_a_loop_reads_from_outside_lives_through_it() -> None:
    carried, inside, later = (Buf(n, Space.VMEM, 4) for n in "abc")
    loop = While(Block([_use(inside)]), VReg(1), Block([_use(carried), _use(inside)]))
    found = {v.value: (v.first, v.last) for v in lives(Block([_use(carried), loop, _use(later)]))}
    assert found[carried][1] >= found[inside][1]
    assert found[later][0] > found[carried][1]


def test_what_a_loop_holds_lives_through_it() -> None:
    """Two sets of buffers whose uses follow one another lie beside each other."""
    first, second = (Buf(n, Space.VMEM, 64) for n in "ab")
    for held, places in (((), 1), ((first, second), 2)):
        loop = Loop(VReg(1), 4, Block([_use(first), _use(second)]), source=True, held=held)
        plan = plan_memory(Block([loop, _use()]), set(), 1024, 1024, 32)
        assert len({plan.address[b] for b in (first, second)}) >= places
    assert {v.first for v in lives(Block([loop]))} == {0}


def test_what_does_not_fit_is_named() -> None:
    big = [Buf(f"b{i}", Space.VMEM, 600) for i in range(2)]
    plan = plan_memory(Block([_use(*big)]), set(), 1024, 1024, 32)
    assert plan.failed is not None
    assert plan.failed.value in big


def test_consecutive_tiles_have_different_places() -> None:
    tiles = [Buf(f"t{i}", Space.VMEM, 64) for i in range(4)]
    plan = plan_memory(Block([_use(t) for t in tiles]), set(), 1024, 1024, 32)
    assert len({plan.address[t] for t in tiles}) == 4


def test_a_small_value_does_not_divide_the_room_of_tiles() -> None:
    """It lives longer than the large value beside it, whose place is free for a large tile then."""
    small, large, tile = (Buf(name, Space.VMEM, size) for name, size in (("small", 16), ("large", 768), ("tile", 992)))
    plan = plan_memory(Block([_use(small, large), _use(small, tile)]), {small, large}, 1024, 1024, 32)
    assert plan.failed is None
    assert plan.address[small] == 0


def test_loads_move_ahead_in_order_and_no_further_than_allowed() -> None:
    tiles = [Buf(f"t{i}", Space.VMEM, 4) for i in range(6)]
    items: list[Item] = []
    for t in tiles:
        items += [_load(t), _use(t)]
    moved: set[TileOp] = set()
    out = prefetch(Block(items), Lookahead(1000, 2), moved)
    loads = [i for i in out.items if isinstance(i, TileOp) and i.op == "dma.load"]
    assert loads == [i for i in items if isinstance(i, TileOp) and i.op == "dma.load"]
    assert set(out.items) == set(items)
    assert len(moved) == 5
    ahead = 0
    for item in out.items:
        ahead += 1 if item in loads else -1
        assert 0 <= ahead <= 3


def test_a_load_stays_behind_what_uses_its_buffer() -> None:
    tile = Buf("t", Space.VMEM, 4)
    items: list[Item] = [_use(tile), _load(tile), _use(tile)]
    assert prefetch(Block(items), Lookahead(1000, 8), set()).items == items


def test_a_large_tile_without_a_place_among_small_ones_comes_before_them() -> None:
    """Small tiles in turn would leave holes of half of the memory only."""
    small = [Buf(f"s{i}", Space.VMEM, 96) for i in range(7)]
    kept, large = Buf("kept", Space.VMEM, 96), Buf("large", Space.VMEM, 768)
    lasting = [_use(large, kept)] * (1 + LASTING)
    block = Block([*map(_use, small[:5]), _use(kept), *lasting, *map(_use, small[5:])])
    plan = plan_memory(block, set(), 1024, 1024, 32)
    assert plan.failed is None
    start, end = plan.address[kept], plan.address[kept] + kept.bytes
    assert plan.address[large] >= end or plan.address[large] + large.bytes <= start


def test_large_tiles_in_turn_come_before_small_ones() -> None:
    """Two of them at a time, and what small tiles take: placed first one by one, they take the room of each other."""
    large = [Buf(f"l{i}", Space.VMEM, 350) for i in range(10)]
    small = [Buf(f"s{i}", Space.VMEM, (32, 64, 96, 120)[i % 4]) for i in range(340)]
    ops = []
    for at in range(1020):
        begun = [tile for i, tile in enumerate(large) if at - 100 * i in (0, 119)]
        ops.append(_use(*small[max(0, at // 3 - 1) : at // 3 + 1], *begun))
    plan = plan_memory(Block([*ops]), set(), 1024, 1024, 32)
    assert plan.failed is None
    check_places(plan, 1024)


def test_all_buffers_without_a_place_are_named() -> None:
    bufs = [Buf(f"b{i}", Space.VMEM, 600) for i in range(4)]
    plan = plan_memory(Block([_use(*bufs[:2]), _use(*bufs[2:])]), set(), 1024, 1024, 32)
    assert len(plan.failures) == 2


def test_loads_of_a_group_with_less_room_stay() -> None:
    tiles = [Buf(f"t{i}", Space.VMEM, 4) for i in range(6)]
    items: list[Item] = []
    for n, t in enumerate(tiles):
        for op in (_load(t), _use(t)):
            items.append(replace(op, origin=Origin(group="late" if n > 2 else "early")))
    moved: set[TileOp] = set()
    prefetch(Block(items), Lookahead(1000, 1, {"late": 0}), moved)
    assert {op.origin.group for op in moved} == {"early"}
