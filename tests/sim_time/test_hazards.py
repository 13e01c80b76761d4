"""The race detector against a search over all pairs in an explicit happens-before graph."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from systolith.isa.access import Access
from systolith.isa.errors import ProgramError
from systolith.isa.instruction import Space
from systolith.sim import hazards
from systolith.sim.hazards import RaceDetector

QUEUES = ("seq", "ld", "st", "s0", "vpu")
TOKENS = [(p, c) for p in QUEUES for c in QUEUES if p != c]
LATCHED = [("s0", c) for c in QUEUES if c != "s0"]
"""Tokens that only those of `s0` that retire alone signal."""
TOKENS += LATCHED
FIRST_LATCHED = len(TOKENS) - len(LATCHED)


@dataclass(frozen=True)
class Step:
    queue: str
    accesses: tuple[Access, ...] = ()
    waits: tuple[int, ...] = ()
    signals: tuple[int, ...] = ()
    fence: bool = False
    alone: bool = False


def touch(space: Space, write: bool, lo: int, hi: int) -> Access:
    return Access(space, 0, lo, hi, write)


def detect(steps: list[Step], limit: int = 10_000) -> RaceDetector:
    detector = RaceDetector(QUEUES, len(TOKENS), lambda i, _: f"#{i}", limit)
    for i, s in enumerate(steps):
        detector.execute(i, s.queue, s.waits, s.signals, s.fence, s.accesses, s.alone)
    return detector


def ordered_pairs(steps: list[Step]) -> NDArray[np.bool_]:
    """(n, n) bool: the first has retired before the second starts.  Nodes: start of i is 2i, retirement 2i + 1."""
    n = len(steps)
    reach = np.eye(2 * n, dtype=bool)
    signals: dict[int, list[int]] = {}
    for i, s in enumerate(steps):
        edges = [(2 * i, 2 * i + 1)]
        same = [j for j in range(i) if steps[j].queue == s.queue]
        if same:
            edges.append((2 * same[-1], 2 * i))
            edges += [(2 * j + 1, 2 * i + 1) for j in same if steps[j].alone or not s.alone]
            if s.fence:
                edges += [(2 * j + 1, 2 * i) for j in same]
        edges += [(2 * j + 1, 2 * i) for j in range(i) if steps[j].queue == "seq"]
        edges += [(2 * signals[t].pop(0) + 1, 2 * i) for t in s.waits]
        for t in s.signals:
            signals.setdefault(t, []).append(i)
        # Edges lead to start or retirement of i only: close transitively, start first.
        for a, b in sorted(edges, key=lambda e: e[1]):
            reach[:, b] |= reach[:, a]
    before = reach[1::2, ::2]
    for i, s in enumerate(steps):
        # Memory effects of a unit that works in order: known to the next ones there, not to those that wait for it.
        before[[j for j in range(i) if steps[j].queue == s.queue and s.queue not in ("ld", "st")], i] = True
    return before


def all_races(steps: list[Step]) -> set[tuple[int, int]]:
    before = ordered_pairs(steps)
    races = set()
    for j, b in enumerate(steps):
        for i, a in enumerate(steps[:j]):
            for x in a.accesses:
                for y in b.accesses:
                    if not before[i, j] and x.meets(y) and (x.write or y.write):
                        races.add((i, j))
    return races


@st.composite
def programs(draw: st.DrawFn) -> list[Step]:
    names = draw(st.sampled_from([QUEUES, ("s0", "vpu")]))
    counts = [0] * len(TOKENS)
    steps = []
    for _ in range(draw(st.integers(1, 25))):
        queue = draw(st.sampled_from(names))
        alone = queue == "s0" and draw(st.booleans())
        waits = [t for t, (_, c) in enumerate(TOKENS) if c == queue and counts[t] and draw(st.booleans())]
        signals = [
            t
            for t, (p, _) in enumerate(TOKENS)
            if p == queue and (t >= FIRST_LATCHED) == alone and draw(st.integers(0, 2)) == 0
        ]
        for t in waits:
            counts[t] -= 1
        for t in signals:
            counts[t] += 1
        accesses = []
        for _ in range(draw(st.integers(0, 2))):
            lo = draw(st.integers(0, 12))
            space = draw(st.sampled_from([Space.VMEM, Space.HBM]))
            accesses.append(touch(space, draw(st.booleans()), lo, lo + draw(st.integers(1, 4))))
        fence = queue != "seq" and draw(st.integers(0, 3)) == 0
        steps.append(Step(queue, tuple(accesses), tuple(waits), tuple(signals), fence, alone))
    return steps


@given(programs())
def test_races_found_are_races_and_the_first_of_each_is_found(steps: list[Step]) -> None:
    found = {(h.first, h.second) for h in detect(steps).hazards}
    races = all_races(steps)
    assert found <= races
    # An access may stand in for an earlier one of its queue to the same bytes; races with it are found the same.
    assert {second for _, second in found} == {second for _, second in races}


@given(programs())
def test_dropping_what_is_known_changes_nothing(steps: list[Step]) -> None:
    usual = {(h.first, h.second) for h in detect(steps).hazards}
    capacity = hazards.FIRST_CAPACITY
    hazards.FIRST_CAPACITY = 1
    try:
        assert {(h.first, h.second) for h in detect(steps).hazards} == usual
    finally:
        hazards.FIRST_CAPACITY = capacity


LD_VPU, VPU_LD = TOKENS.index(("ld", "vpu")), TOKENS.index(("vpu", "ld"))
LOAD, USE = touch(Space.VMEM, True, 0, 64), touch(Space.VMEM, False, 32, 40)


def test_a_removed_token_is_a_race_and_the_token_mends_it() -> None:
    good = [Step("ld", (LOAD,), signals=(LD_VPU,)), Step("vpu", (USE,), waits=(LD_VPU,))]
    bad = [Step("ld", (LOAD,)), Step("vpu", (USE,))]
    assert detect(good).hazards == []
    (race,) = detect(bad).hazards
    assert (race.kind, race.place, race.start, race.end) == ("read after write", "vmem 0", 32, 40)
    assert str(race) == "race, read after write: vmem 0 bytes 32 to 39: #0 and #1 are not ordered"


def test_a_buffer_reused_before_it_is_read_is_a_race() -> None:
    steps = [Step("ld", (LOAD,), signals=(LD_VPU,)), Step("vpu", (USE,), (LD_VPU,), (VPU_LD,)), Step("ld", (LOAD,))]
    assert [h.kind for h in detect(steps).hazards] == ["write after write", "write after read"]
    mended = [*steps[:2], Step("ld", (LOAD,), waits=(VPU_LD,))]
    assert detect(mended).hazards == []


def test_dma_needs_a_fence_between_its_own_and_vpu_does_not() -> None:
    assert len(detect([Step("ld", (LOAD,)), Step("ld", (LOAD,))]).hazards) == 1
    assert detect([Step("ld", (LOAD,)), Step("ld", (LOAD,), fence=True)]).hazards == []
    assert detect([Step("ld", (LOAD,)), Step("ld", fence=True), Step("ld", (LOAD,))]).hazards == []
    assert detect([Step("vpu", (LOAD,)), Step("vpu", (LOAD,))]).hazards == []


S0_VPU, LATCH_VPU = TOKENS.index(("s0", "vpu")), FIRST_LATCHED + LATCHED.index(("s0", "vpu"))
STREAM = touch(Space.VMEM, True, 0, 64)


def test_a_latch_says_nothing_of_the_matmuls_before_it() -> None:
    latch = Step("s0", (), signals=(LATCH_VPU,), alone=True)
    after = Step("vpu", (USE,), (LATCH_VPU,))
    assert len(detect([Step("s0", (STREAM,)), latch, after]).hazards) == 1
    fenced = Step("s0", (), signals=(LATCH_VPU,), fence=True, alone=True)
    assert detect([Step("s0", (STREAM,)), fenced, after]).hazards == []
    known = [Step("s0", (STREAM,), signals=(S0_VPU,)), Step("vpu", waits=(S0_VPU,)), latch, after]
    assert detect(known).hazards == []


def test_a_matmul_says_that_the_latches_before_it_have_retired() -> None:
    latch = Step("s0", (STREAM,), alone=True)
    assert detect([latch, Step("s0", (), signals=(S0_VPU,)), Step("vpu", (USE,), (S0_VPU,))]).hazards == []
    again = Step("s0", (), signals=(LATCH_VPU,), alone=True)
    assert detect([latch, again, Step("vpu", (USE,), (LATCH_VPU,))]).hazards == []
    assert len(detect([latch, again, Step("vpu", (USE,))]).hazards) == 1


def test_within_the_queue_all_are_in_order() -> None:
    latch = Step("s0", (STREAM,), alone=True)
    assert detect([Step("s0", (STREAM,)), latch, Step("s0", (STREAM,)), latch]).hazards == []


def test_another_memory_is_another_matter() -> None:
    other = touch(Space.HBM, True, 0, 64)
    assert detect([Step("ld", (LOAD,)), Step("vpu", (other,))]).hazards == []
    assert detect([Step("ld", (LOAD,)), Step("vpu", (touch(Space.VMEM, True, 64, 65),))]).hazards == []


def test_the_limit_stops_the_collection() -> None:
    assert len(detect([Step("ld", (LOAD,))] * 9, limit=3).hazards) == 3


def test_a_wait_without_a_signal_before_it_is_refused() -> None:
    with pytest.raises(ProgramError, match="#0 waits for token"):
        detect([Step("vpu", waits=(LD_VPU,))])
