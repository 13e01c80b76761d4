"""The race detector: accesses to the same bytes that nothing orders.

It goes by the guarantees of the hardware (docs/machine.md, section Order), never by observed times: a race is found
even where this chip's timing hides it.  Each queue has a clock: for every queue, how many of its instructions have
retired for certain when the queue's next instruction starts.  Retirement is in order, so one number a queue says all,
but for those that retire alone (`mxu.latch`), which are numbered by themselves.

- An instruction starts after all that SEQ knew when it issued it, after those before it in its queue have started, and
  after its tokens' signallers have retired, with all that those knew.  When it has retired, so have all before it in
  its queue; but when it retires alone, of those before it only the ones that do, too.
- In the queues of SEQ, MXU, VPU and XLU it also comes after its predecessors' memory effects; in the DMA queues only
  after those before a fence, its own or an earlier one's.

The accesses of an instruction are those of `isa.access`, which the compiler orders, too.  Accesses that every
clock knows are dropped, so each is compared only with those in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from systolith.isa.access import Access
from systolith.isa.errors import ProgramError
from systolith.sim.naming import Describe, Iterations

UNORDERED = ("ld", "st")
FIRST_CAPACITY = 256
PLACE = ("lo", "hi", "run", "pitch")
COLUMNS = len(PLACE) + 3
Clock = NDArray[np.int64]
Executed = tuple[int, Iterations]
"""An executed instruction: its index, and the iterations that it was in."""


@dataclass(frozen=True, slots=True)
class Hazard:
    """A race.

    Attributes:
        kind: "write after read" and so on, in program order.
        place: memory, such as `vmem 0`, `hbm 3` (buffer), `acc 0`, `shadow 0`.
        start, end: the bytes in common.
        first, second: instruction indices.
        text: one line for people.
    """

    kind: str
    place: str
    start: int
    end: int
    first: int
    second: int
    text: str

    def __str__(self) -> str:
        return self.text


class Live:
    """Accesses of one sort (reads or writes) to one memory, as columns."""

    def __init__(self) -> None:
        self.size = 0
        # lo, hi, run, pitch, queue, position in the queue, index
        self.rows = np.zeros((FIRST_CAPACITY, COLUMNS), np.int64)
        self.iterations: list[Iterations] = []
        self._slots: dict[tuple[int, ...], int] = {}

    def conflicts(self, access: Access, clock: Clock) -> Iterator[tuple[list[int], Iterations]]:
        """Rows of accesses that share bytes with one and that `clock` does not know, and their iterations."""
        rows = self.rows[: self.size]
        found = (rows[:, 0] < access.hi) & (rows[:, 1] > access.lo) & (rows[:, 5] > clock[rows[:, 4]])
        for slot in np.flatnonzero(found).tolist():
            row = rows[slot].tolist()
            if access.meets(access._replace(**dict(zip(PLACE, row, strict=False)))):
                yield row, self.iterations[slot]

    def add(
        self, access: Access, place: tuple[int, int, int], iterations: Iterations, known: Callable[[], Clock]
    ) -> None:
        """Keep an access.  It replaces an earlier one of the same queue to the same bytes: who knows it knows that one.

        Args:
            access: the range, and whether it is written.
            place: queue, position in the queue, instruction index.
            iterations: in which the instruction is executed.
            known: lower bound of all clocks, for dropping.
        """
        row = (access.lo, access.hi, access.run, access.pitch, *place)
        slot = self._slots.get(row[:5])
        if slot is None:
            if self.size == len(self.rows):
                self._drop(known())
            slot = self._slots[row[:5]] = self.size
            self.size += 1
            self.iterations.append(iterations)
        else:
            self.iterations[slot] = iterations
        self.rows[slot] = row

    def _drop(self, known: Clock) -> None:
        late = self.rows[:, 5] > known[self.rows[:, 4]]
        kept = self.rows[late]
        self.iterations = [*compress(self.iterations, late.tolist())]
        self.size = len(kept)
        self.rows = np.zeros((max(FIRST_CAPACITY, 2 * self.size), COLUMNS), np.int64)
        self.rows[: self.size] = kept
        self._slots = {tuple(row[:5]): i for i, row in enumerate(kept.tolist())}


class RaceDetector:
    """Takes the executed instructions in program order and collects the first races.

    Args:
        queues: names of the queues in use, `seq` first.
        tokens: how many tokens there are.
        describe: text for an executed instruction.
        limit: races to collect; each pair of instructions counts once.
    """

    def __init__(self, queues: Sequence[str], tokens: int, describe: Describe, limit: int = 10) -> None:
        self.hazards: list[Hazard] = []
        self._numbers = {name: n for n, name in enumerate(queues)}
        self._ordered = [name not in UNORDERED for name in queues]
        # Numbers of those that retire in order first, by queue, then of those that retire alone.
        self._clocks = [np.zeros(2 * len(queues), np.int64) for _ in queues]
        self._count = np.zeros(2 * len(queues), np.int64)
        self._tokens: list[deque[Clock]] = [deque() for _ in range(tokens)]
        self._live: dict[tuple[int, int, bool], Live] = {}
        self._describe = describe
        self._limit = limit
        self._pairs: set[tuple[int, int]] = set()

    def execute(
        self,
        index: int,
        queue: str,
        waits: Iterable[int],
        signals: Sequence[int],
        fence: bool,
        accesses: Sequence[Access],
        alone: bool = False,
        iterations: Iterations = (),
    ) -> None:
        """The next instruction of the program; `alone`: it does not retire in order; `iterations`: of loops around it.

        Raises:
            ProgramError: it waits for a token that nothing before it signals.
        """
        q = self._numbers[queue]
        clock = self._clocks[q]
        if q:
            np.maximum(clock, self._clocks[0], out=clock)
        for t in waits:
            if not self._tokens[t]:
                raise ProgramError(
                    f"{self._describe(index, iterations)} waits for token {t}, which nothing before it signals"
                )
            np.maximum(clock, self._tokens[t].popleft(), out=clock)
        if fence:
            clock[self._own(q)] = self._count[self._own(q)]
        before = self._before(q)
        number = q + len(self._clocks) if alone else q
        self._count[number] += 1
        for a in accesses:
            self._check(a, before, index, iterations)
        for a in accesses:
            live = self._live.setdefault((a.space, a.buffer, a.write), Live())
            live.add(a, (number, int(self._count[number]), index), iterations, self._known)
        if signals:
            retired = clock.copy()
            own = slice(number, number + 1) if alone else self._own(q)
            retired[own] = self._count[own]
            for t in signals:
                self._tokens[t].append(retired)
        if not q:
            clock[0] = self._count[0]

    def _own(self, q: int) -> slice:
        """Where a clock has the numbers of queue `q`."""
        return slice(q, None, len(self._clocks))

    def _before(self, q: int) -> Clock:
        """The clock of memory effects that precede the next instruction of queue `q`."""
        before = self._clocks[q]
        if self._ordered[q]:
            before = before.copy()
            before[self._own(q)] = self._count[self._own(q)]
        return before

    def _known(self) -> Clock:
        """A lower bound of the clock of the next instruction of any queue."""
        befores = (np.maximum(self._before(q), self._clocks[0]) for q in range(len(self._clocks)))
        return np.asarray(np.min(list(befores), axis=0), np.int64)

    def _check(self, access: Access, clock: Clock, index: int, iterations: Iterations) -> None:
        for wrote in (True, False) if access.write else (True,):
            live = self._live.get((access.space, access.buffer, wrote))
            if live is None:
                continue
            for (lo, hi, _, _, _, _, other), before in live.conflicts(access, clock):
                if len(self.hazards) < self._limit and (other, index) not in self._pairs:
                    self._pairs.add((other, index))
                    common = (max(lo, access.lo), min(hi, access.hi))
                    self.hazards.append(self._hazard(access, wrote, common, (other, before), (index, iterations)))

    def _hazard(
        self, access: Access, wrote: bool, common: tuple[int, int], first: Executed, second: Executed
    ) -> Hazard:
        verb = {True: "write", False: "read"}
        kind = f"{verb[access.write]} after {verb[wrote]}"
        place = f"{access.space.name.lower()} {access.buffer}"
        text = (
            f"race, {kind}: {place} bytes {common[0]} to {common[1] - 1}: {self._describe(*first)} and "
            f"{self._describe(*second)} are not ordered"
        )
        return Hazard(kind, place, *common, first[0], second[0], text)
