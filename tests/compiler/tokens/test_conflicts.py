"""The last conflict of each lane, against a look at every pair of instructions."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from systolith.compiler.emit import dependence as module
from systolith.compiler.emit.dependence import Key, LineMap, conflicts
from systolith.isa.access import Access
from systolith.isa.instruction import Space
from tests.examples import examples

LANES = 4
FINE = {int(Space.VMEM): 3, int(Space.HBM): 2}
SIZES: dict[Key, int] = {(Space.VMEM, 0): 1024, (Space.HBM, 0): 300, (Space.HBM, 1): 512}


@st.composite
def ranges(draw: st.DrawFn) -> Access:
    space, buffer = draw(st.sampled_from([(Space.VMEM, 0), (Space.HBM, 0), (Space.HBM, 1)]))
    line = 1 << FINE[space]
    lo, write = draw(st.integers(-line, 280)), draw(st.booleans())
    if draw(st.booleans()):
        return Access(space, buffer, lo, lo + draw(st.integers(0, 200)), write)
    run = draw(st.integers(1, 24))
    pitch = draw(st.integers(run, 64)) if draw(st.booleans()) else line * draw(st.integers(-(-run // line), 12))
    return Access(space, buffer, lo, lo + pitch * draw(st.integers(0, 6)) + run, write, run=run, pitch=pitch)


work = st.lists(st.tuples(st.integers(0, LANES - 1), st.lists(ranges(), max_size=3)), max_size=40)


def lines_of(a: Access) -> set[int]:
    """Lines of an access: every line that a byte of it is in, unless its pitch is not a whole number of lines."""
    line, size = 1 << FINE[a.space], SIZES[a.space, a.buffer]
    if a.hi <= a.lo:
        return set()
    places = list(range(a.lo, a.hi))
    if a.pitch and a.pitch % line == 0 and a.lo >= 0:
        places = [b for b in places if (b - a.lo) % a.pitch < a.run]
    return {min(max(b, 0), size) // line for b in places}


def naive(code: list[tuple[int, list[Access]]]) -> list[list[tuple[int, int]]]:
    def meet(ours: list[Access], theirs: list[Access]) -> bool:
        return any(
            (a.space, a.buffer) == (b.space, b.buffer) and (a.write or b.write) and lines_of(a) & lines_of(b)
            for a in ours
            for b in theirs
        )

    found = []
    for j, (_, ours) in enumerate(code):
        latest = {lane: i for i, (lane, theirs) in enumerate(code[:j]) if meet(ours, theirs)}
        found.append(sorted(latest.items()))
    return found


BEYOND = [
    (0, [Access(Space.HBM, 0, 136, 305, False, run=1, pitch=56)]),
    (0, [Access(Space.HBM, 0, 252, 301, True)]),
]
"""The last element of the first is beyond the memory: it counts as in the last line."""


@given(work, st.sampled_from([3, 7, 50, 4096]))
@example(BEYOND, 50)
@examples(32, 200)
def test_the_last_conflict_of_each_lane(code: list[tuple[int, list[Access]]], window: int) -> None:
    with patch.object(module, "WINDOW", window):
        got = conflicts((a for _, a in code), [lane for lane, _ in code], LANES, LineMap(SIZES, FINE, least=0))
    assert got == naive(code)


def test_what_one_instruction_touches_twice_is_no_conflict_of_its_own() -> None:
    both = [Access(Space.VMEM, 0, 0, 64, False), Access(Space.VMEM, 0, 0, 64, True)]
    with patch.object(module, "WINDOW", 3):
        assert conflicts([both] * 3, [0, 1, 0], 2, LineMap(SIZES, FINE, least=0)) == [[], [(0, 0)], [(0, 0), (1, 1)]]
