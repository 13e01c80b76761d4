"""Liveness: from which step to which a value is needed, of HLO's leaves, of a linear schedule and of buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

V = TypeVar("V", bound=Hashable)


class Live(NamedTuple, Generic[V]):
    """A value's live range: its first and its last step, both included."""

    value: V
    first: int
    last: int


@dataclass
class Liveness(Generic[V]):
    """Live ranges over steps numbered from 0; -1 is before the first step.

    Attributes:
        first: the step that makes a value (or uses it first, if none makes it).
        last: the step that uses it last (or makes it, if none uses it).
    """

    first: dict[V, int] = field(default_factory=dict)
    last: dict[V, int] = field(default_factory=dict)

    def use(self, value: V, step: int) -> None:
        """Let a step name a value; steps are given in their order."""
        self.first.setdefault(value, step)
        self.last[value] = step

    def __iter__(self) -> Iterator[Live[V]]:
        """The ranges, in order of the first step."""
        return (Live(v, self.first[v], self.last[v]) for v in sorted(self.first, key=self.first.__getitem__))

    def alive(self, step: int) -> list[V]:
        """The values that are alive at a step, in order of the first one."""
        return [live.value for live in self if live.first <= step <= live.last]

    def usage(self, size: Callable[[V], int], steps: int) -> list[int]:
        """Total size of the values alive at each of so many steps."""
        change = [0] * (steps + 2)
        for v, first in self.first.items():
            if n := size(v):
                change[max(first, 0)] += n
                change[min(self.last[v], steps) + 1] -= n
        return list(accumulate(change[:steps]))

    def peak(self, size: Callable[[V], int]) -> int:
        """The first step at which what is alive takes most."""
        change = Counter[int]()
        for v, first in self.first.items():
            change[first] += size(v)
            change[self.last[v] + 1] -= size(v)
        steps = sorted(change)
        _, step = max(zip(accumulate(change[n] for n in steps), (-n for n in steps), strict=True), default=(0, 0))
        return -step


def liveness(
    steps: Iterable[tuple[Iterable[V], Iterable[V]]], before: Collection[V] = (), after: Collection[V] = ()
) -> Liveness[V]:
    """Liveness over steps that run one after another.

    Args:
        steps: what each makes, and what it reads.
        before: values that are there before the first step.
        after: values that are needed when the last one is done: they live until the step after it.
    """
    found = Liveness(dict.fromkeys(before, -1), dict.fromkeys(before, -1))
    count = 0
    for n, (makes, reads) in enumerate(steps):
        for v in makes:
            found.first[v] = found.last[v] = n
        for v in reads:
            found.use(v, n)
        count = n + 1
    for v in after:
        found.first.setdefault(v, -1)
        found.last[v] = count
    return found
