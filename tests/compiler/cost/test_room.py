"""Room notes for which other numbers all that was asked would have come out alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.cost.room import Room

COMPARISONS: list[Callable[[Any, Any], bool]] = [
    lambda room, n: n > room,
    lambda room, n: n >= room,
    lambda room, n: n < room,
    lambda room, n: n <= room,
    lambda room, n: room > n,
    lambda room, n: room >= n,
    lambda room, n: room < n,
    lambda room, n: room <= n,
    lambda room, n: bool(room),
]
OTHERS: list[Callable[[Any, Any], Any]] = [
    lambda room, n: room // 8,
    lambda room, n: n - room,
    lambda room, n: min(room - 1, n),
    lambda room, n: room == n,
    lambda room, n: hash(room),
    lambda room, n: f"{room:,}",
    lambda room, n: [0][: room if room < 3 else 0],
    lambda room, n: room > n + 0.5,
    lambda room, n: list(range(room)) if room < 9 else 0,
]
Asked = list[tuple[int, int]]
asked = st.lists(st.tuples(st.integers(0, len(COMPARISONS) - 1), st.integers(0, 60)), max_size=6)


def _answers(room: Any, questions: Asked) -> list[bool]:
    return [COMPARISONS[k](room, n) for k, n in questions]


@given(st.integers(0, 50), st.integers(0, 50), asked)
def test_comparisons_come_out_alike_for_all_that_it_serves(size: int, other: int, questions: Asked) -> None:
    room = Room(size)
    assert _answers(room, questions) == _answers(size, questions)
    assert room.serves(size)
    if room.serves(other):
        assert _answers(other, questions) == _answers(size, questions)
    else:
        assert _answers(other, questions) != _answers(size, questions)


@given(st.integers(0, 50), st.integers(0, len(OTHERS) - 1), st.integers(0, 50))
def test_what_depends_on_the_number_is_served_by_itself_alone(size: int, which: int, n: int) -> None:
    room = Room(size)
    assert OTHERS[which](room, n) == OTHERS[which](size, n)
    assert room.serves(size)
    for other in range(52):
        if room.serves(other):
            assert OTHERS[which](other, n) == OTHERS[which](size, n)
