"""When the host has data for a run, and room for what it puts out: given beforehand, as cycles of the run.

A transfer from an infeed queue begins once all its bytes have arrived at the host's end of the link; one to an outfeed
queue once the queue has room for all of them (`host.room` bytes, less those that the host has not taken).  The link's
own time is part of the instruction's (`isa/timing.py`).  How long the host waits for room: `host_credits.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

from systolith.isa.errors import SystolithError
from systolith.isa.program import Program, Role


class HostTimesError(SystolithError):
    """The host's times are none, or end before the run does."""


Steps = Sequence[tuple[int, int]]
"""(cycle, bytes) pairs: these bytes more from that cycle on."""

TimesOfQueues = Mapping[int, Steps] | Mapping[str, Steps] | Mapping[int | str, Steps]
"""Those of queues, by number or config."""


class NumberedTimes(NamedTuple):
    """`HostTimes` by the numbers of queues."""

    infeed: Mapping[int, Steps]
    outfeed: Mapping[int, Steps]


@dataclass(frozen=True)
class HostTimes:
    """Times at which the host sends and takes bytes in a run.

    Attributes:
        infeed: of infeed queues by number or config, when how many bytes arrive.  Those left out: all are there at
            cycle 0.
        outfeed: of outfeed queues by number or config, when the host takes how many bytes.  Those left out: each at
            once.
    """

    infeed: TimesOfQueues = field(default_factory=dict)
    outfeed: TimesOfQueues = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, queues in (("infeed", self.infeed), ("outfeed", self.outfeed)):
            if not isinstance(queues, Mapping):
                raise HostTimesError(f"{what}: {queues!r}: must be queues with (cycle, bytes) pairs")
            for number, steps in queues.items():
                if not isinstance(number, int | str):
                    raise HostTimesError(f"{what} queue {number!r}: must be a number or a config")
                if not _in_order(steps):
                    text = "must be (cycle, bytes) pairs of integers that are not negative, the cycles in order"
                    raise HostTimesError(f"{what} queue {number!r}: {text}")

    def numbered(self, program: Program) -> NumberedTimes:
        """The same by the numbers of a program's queues.

        Raises:
            ProgramError: it has no queue of a config.
            HostTimesError: a queue is named twice.
        """
        return NumberedTimes(
            _numbered(self.infeed, program, Role.INFEED), _numbered(self.outfeed, program, Role.OUTFEED)
        )


def _numbered(named: TimesOfQueues, program: Program, role: Role) -> dict[int, Steps]:
    found: dict[int, Steps] = {}
    for name, steps in named.items():
        number = program.host_queue(role, name)
        if number in found:
            raise HostTimesError(f"{role} queue {number}: has two lists of times, one as {name!r}")
        found[number] = steps
    return found


ALL_THERE = HostTimes()
"""A host that sends everything before the run, and takes everything at once."""


def _in_order(steps: object) -> bool:
    """Whether a queue's steps are as they must be, wherever they are from."""
    if not isinstance(steps, Sequence) or not all(isinstance(s, Sequence) and len(s) == 2 for s in steps):
        return False
    if not all(isinstance(n, int) and n >= 0 for step in steps for n in step):
        return False
    return all(a[0] <= b[0] for a, b in pairwise(steps))


def totals(steps: Steps) -> list[tuple[int, int]]:
    """(cycle, bytes so far) pairs of increasing cycles."""
    found: dict[int, int] = {}
    for (cycle, _), total in zip(steps, accumulate(size for _, size in steps), strict=True):
        found[cycle] = total
    return list(found.items())


class HostClock:
    """When transfers of one direction begin, one after another.

    Args:
        what: for messages: `infeed` or `outfeed`.
        steps: of its queues.
        room: bytes that the chip may be ahead of the host.
    """

    def __init__(self, what: str, steps: Mapping[int, Steps], room: int) -> None:
        self._what = what
        self._totals = {number: totals(of) for number, of in steps.items()}
        self._room = room
        self._moved: dict[int, int] = {}

    def begin(self, queue: int, size: int, start: int) -> int:
        """When the next transfer of `size` bytes of a queue begins, which starts at `start`.

        Raises:
            HostTimesError: never: the host's times end before.
        """
        moved = self._moved[queue] = self._moved.get(queue, 0) + size
        steps = self._totals.get(queue)
        if steps is None or moved <= self._room:
            return start
        place = bisect_left(steps, moved - self._room, key=lambda step: step[1])
        if place == len(steps):
            total = steps[-1][1] if steps else 0
            raise HostTimesError(
                f"{self._what} queue {queue}: the run moves {moved} bytes, the host's times end after {total}"
                + (f", and {self._room} wait" if self._room else "")
            )
        return max(start, steps[place][0])
