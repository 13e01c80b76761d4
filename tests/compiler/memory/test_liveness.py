"""Liveness over steps, against a walk over the steps for each value."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.memory.liveness import liveness
from tests.examples import examples

Steps = list[tuple[list[int], list[int]]]


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Steps, list[int], list[int]]:
    """Steps that make new values and read those that are there; values before the first, and after the last."""
    before = list(range(draw(st.integers(0, 3))))
    known, steps = list(before), []
    for _ in range(draw(st.integers(0, 8))):
        reads = draw(st.lists(st.sampled_from(known), max_size=3)) if known else []
        makes = [len(known) + k for k in range(draw(st.integers(0, 2)))]
        known += makes
        steps.append((makes, reads))
    return steps, before, draw(st.lists(st.sampled_from(known), max_size=3)) if known else []


@examples(25, 300)
@given(schedules())
def test_a_value_is_alive_from_the_step_that_makes_it_to_that_which_uses_it_last(
    case: tuple[Steps, list[int], list[int]],
) -> None:
    steps, before, after = case
    found = liveness(steps, before, after)
    alive: list[set[int]] = []
    for n in range(len(steps)):
        there = set(before).union(*(makes for makes, _ in steps[: n + 1]))
        needed = set(after).union(*(reads for _, reads in steps[n:]))
        alive.append((there & needed) | set(steps[n][0]))
    assert [set(found.alive(n)) for n in range(len(steps))] == alive
    usage = [sum(1 + v for v in values) for values in alive]
    assert found.usage(lambda v: 1 + v, len(steps)) == usage
    if usage and not before and not after:
        assert found.peak(lambda v: 1 + v) == (usage.index(max(usage)) if max(usage) else 0)
