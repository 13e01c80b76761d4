"""Tokens of a random program: those that its accesses call for, and others.

A body of steps is ordered with vector clocks, as the compiler orders straight-line code; here loops carry tokens over
their back-edges.  Lanes are the queues, then those of instructions that retire alone (`mxu.latch`).  The clock of a
lane has a number for each lane: the last of its steps that has retired for certain.

A loop within a body counts as one step of each lane that it uses.  A step of its queue before it waits for those that
its steps conflict with, and one after it signals for them.  Order between iterations is a token that is signalled once
before the loop and taken once after it; since nothing touches less in a later iteration, order between neighbours is
enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from systolith.hw.fuzz.draw import Draw
from systolith.hw.fuzz.tree import Loop, Node, Step, carrier
from systolith.isa.access import Access
from systolith.isa.chip import Chip
from systolith.isa.opcodes import MAX_TOKENS, queues
from systolith.isa.program import TokenDecl

OVERLAPPING = ("ld", "st")
_SECOND = 1 << 20
"""Added to the numbers of the second iteration of a body."""
_EXTRA_LIMIT = MAX_TOKENS - 60
"""Tokens from which on none are added that nothing needs."""

Clock = list[int]


class Tokens:
    """The token table.

    Args:
        chip: its queues and counters.

    Attributes:
        lanes: names of the queues, then of those whose instructions retire alone.
        room: signals of a token that may be ahead of their waits in program order: the consumer's FIFO adds to it.
        extras: how often a body gets 0, 1, 3 and 8 groups of tokens that nothing needs.
    """

    def __init__(self, chip: Chip) -> None:
        names = queues(chip)
        alone = [q for q in names if q[0] == "s" and q[1:].isdigit()]
        self.lanes = [*names, *alone]
        self.number = {q: n for n, q in enumerate(names)}
        self.beside = {self.number[q]: len(names) + n for n, q in enumerate(alone)}
        self.room = max(1, chip.token.max - chip.fifo.depth - 1)
        self.table: list[TokenDecl] = []
        self.extras = (3, 3, 2, 1)

    def new(self, producer: str, consumer: str) -> int:
        self.table.append(TokenDecl(producer, consumer))
        return len(self.table) - 1

    @property
    def spare(self) -> bool:
        """Whether there may be tokens that nothing needs."""
        return len(self.table) < _EXTRA_LIMIT

    def lane(self, step: Step) -> int:
        q = self.number[step.queue]
        return self.beside[q] if step.alone else q

    def queue(self, lane: int) -> int:
        return lane if lane < len(self.number) else self.number[self.lanes[lane]]


@dataclass(eq=False)
class _Point:
    """A step in its lane, or a loop's share of a lane.

    Attributes:
        item: the step or the loop.
        known: the clock when it has retired.
        sources: those whose tokens it takes, in the same iteration.
    """

    item: Node
    lane: int
    number: int
    touches: Sequence[Access]
    known: Clock = field(default_factory=list)
    sources: list[_Point] = field(default_factory=list)
    fence: bool = False


@dataclass
class _Pair:
    """A token between a lane and a queue: its number, its last signaller, how often it is used."""

    token: int
    last: int
    uses: int


@dataclass
class Carried:
    """A token that is signalled before a loop and taken after it."""

    producer: str
    consumer: str
    token: int
    count: int


def _know(clock: Clock, other: Clock) -> None:
    for lane, number in enumerate(other):
        if number > clock[lane]:
            clock[lane] = number


class Body:
    """Orders a list of nodes: a program, or a loop's body."""

    def __init__(self, tokens: Tokens, draw: Draw, looped: bool) -> None:
        n = len(tokens.lanes)
        self.tokens, self.draw, self.looped = tokens, draw, looped
        self.out: list[Node] = []
        self.points: list[_Point] = []
        self.carried: list[Carried] = []
        self._counts = [0] * n
        self._clocks: list[Clock] = [[-1] * n for _ in range(n)]
        self._lanes: list[list[_Point]] = [[] for _ in range(n)]
        self._touched: dict[tuple[int, int], list[tuple[int, int, bool, int, int]]] = defaultdict(list)
        self._pairs: dict[tuple[int, int], list[_Pair]] = defaultdict(list)
        self._due: list[Carried] = []

    def order(self, nodes: Sequence[Node]) -> list[Node]:
        """The nodes with tokens and fences, and steps that only wait and signal among them."""
        for node in nodes:
            if isinstance(node, Step):
                self._step(node)
            elif isinstance(node, Loop):
                self._loop(node)
            else:
                self.out.append(node)
        self._extras()
        if self.looped:
            self._close()
        self._settle()
        return self.out

    def uses(self) -> dict[int, list[Access]]:
        """The accesses of each lane."""
        found: dict[int, list[Access]] = defaultdict(list)
        for point in self.points:
            found[point.lane] += point.touches
        return found

    # Conflicts and clocks.

    def _conflicts(self, touches: Iterable[Access]) -> Clock:
        """For each lane, the number of the last one that conflicts with the accesses; -1: none."""
        latest = [-1] * len(self._counts)
        for a in touches:
            for lo, hi, write, lane, number in self._touched[a.space, a.buffer]:
                if (write or a.write) and lo < a.hi and a.lo < hi and number > latest[lane]:
                    latest[lane] = number
        return latest

    def _needs(self, q: int, touches: Iterable[Access], clock: Clock) -> tuple[list[tuple[int, int]], bool]:
        """(lane, number) of those that have to retire first, and whether a fence is needed."""
        latest = self._conflicts(touches)
        own = (q, self.tokens.beside.get(q, q))
        missing = [(p, n) for p, n in enumerate(latest) if p not in own and n > clock[p]]
        return missing, self.tokens.lanes[q] in OVERLAPPING and latest[q] > clock[q]

    def _point(self, item: Node, lane: int, touches: Sequence[Access]) -> _Point:
        point = _Point(item, lane, self._counts[lane], touches)
        self._counts[lane] += 1
        self._lanes[lane].append(point)
        self.points.append(point)
        return point

    def _record(self, point: _Point) -> None:
        """Record a point: its clock when it has retired, and its accesses."""
        lane, q = point.lane, self.tokens.queue(point.lane)
        known = list(self._clocks[q])
        known[lane] = point.number
        if lane == q and q in self.tokens.beside:
            beside = self.tokens.beside[q]
            known[beside] = self._counts[beside] - 1
        point.known = known
        for a in point.touches:
            self._touched[a.space, a.buffer].append((a.lo, a.hi, a.write, lane, point.number))

    # Steps and loops, in program order.

    def _clock(self, q: int) -> Clock:
        clock = self._clocks[q]
        _know(clock, self._clocks[0])
        clock[0] = self._counts[0] - 1
        return clock

    def _step(self, step: Step) -> None:
        lane = self.tokens.lane(step)
        q = self.tokens.queue(lane)
        self._pay(step)
        clock = self._clock(q)
        missing, fence = self._needs(q, step.touches, clock)
        sources = self._take(q, missing, step, step.group)
        point = self._point(step, lane, step.touches)
        point.sources = sources
        if fence and self._needs(q, step.touches, clock)[1]:
            step.fence = True
        if step.fence:
            point.fence = True
            clock[q] = self._counts[q] - 1 - (lane == q)
        self.out.append(step)
        self._record(point)

    def _take(self, q: int, missing: list[tuple[int, int]], step: Step | None, group: int) -> list[_Point]:
        """Let a step of queue `q`, or others before it, wait for the missing ones; returns the signallers."""
        sources, numbers, clock = [], [], self._clocks[q]
        for p, n in self.draw.shuffled(missing):
            if n <= clock[p] and not self.draw.chance(0.1):
                continue
            source, number = self._signal(p, n, q, group)
            sources.append(source)
            numbers.append(number)
            _know(clock, source.known)
        taker = step
        for number in numbers:
            if taker is None or not taker.can_wait or number in taker.waits:
                taker = carrier(self.tokens.lanes[q], group)
                self.out.append(taker)
            taker.waits.append(number)
        return sources

    def _signal(self, p: int, n: int, q: int, group: int) -> tuple[_Point, int]:
        """A signal for queue `q` that says that number `n` of lane `p` has retired: who gives it, and the token."""
        found = [x for x in self._lanes[p][n:] if isinstance(x.item, Step) and x.item.can_signal]
        if found and not self.draw.chance(0.06):
            source = found[0] if self.draw.chance(0.7) else self.draw.pick(found)
        else:
            p = self.tokens.queue(p)
            source = self._carrier(p, group)
        step = source.item
        assert isinstance(step, Step)
        number = self._token(source, q)
        step.signals.append(number)
        return source, number

    def _carrier(self, q: int, group: int) -> _Point:
        """A step that only signals, here."""
        step = carrier(self.tokens.lanes[q], group)
        self.out.append(step)
        self._clock(q)
        point = self._point(step, q, ())
        self._record(point)
        return point

    def _token(self, source: _Point, q: int) -> int:
        """A token from the source's lane to `q` whose earlier signals all come before this one."""
        pairs = self._pairs[source.lane, q]
        good = [x for x in pairs if x.last < source.number and x.uses < self.tokens.room]
        if good and self.draw.chance(0.75):
            pair = self.draw.pick(good)
        else:
            lanes = self.tokens.lanes
            pair = _Pair(self.tokens.new(lanes[source.lane], lanes[q]), -1, 0)
            pairs.append(pair)
        pair.last = source.number
        pair.uses += 1
        return pair.token

    def _loop(self, loop: Loop) -> None:
        inner = Body(self.tokens, self.draw, looped=True)
        loop.body = inner.order(loop.body)
        for c in inner.carried:
            self._prime(c)
        uses = inner.uses()
        sources = {}
        for lane, touches in uses.items():
            q = self.tokens.queue(lane)
            clock = self._clock(q)
            missing, fence = self._needs(q, touches, clock)
            sources[lane] = self._take(q, missing, None, 0)
            if fence:
                step = carrier(self.tokens.lanes[q])
                step.fence = True
                self.out.append(step)
                clock[q] = self._counts[q] - 1
        self.out.append(loop)
        for lane, touches in uses.items():
            point = self._point(loop, lane, touches)
            point.sources = sources[lane]
            self._record(point)
        self._due += inner.carried

    # Tokens over back-edges.

    def _prime(self, c: Carried) -> None:
        """Signal a carried token before its loop: by steps that are there, or by others."""
        lane = self._lanes[self.tokens.number[c.producer]]
        there = [x.item for x in lane if isinstance(x.item, Step) and x.item.can_signal]
        for _ in range(c.count):
            step = there.pop() if there and self.draw.chance(0.5) else None
            if step is None:
                made = self._carrier(self.tokens.number[c.producer], 0).item
                assert isinstance(made, Step)
                step = made
            step.signals.append(c.token)

    def _pay(self, step: Step) -> None:
        """Take tokens that are left over from loops."""
        for c in list(self._due):
            if c.consumer == step.queue and step.can_wait and c.token not in step.waits and self.draw.chance(0.6):
                step.waits.append(c.token)
                c.count -= 1
                if not c.count:
                    self._due.remove(c)

    def _settle(self) -> None:
        """Take the signals still left over; after the last loop of a program they may stay."""
        for c in self._due:
            if not self.looped and self.draw.chance(0.5):
                continue
            for _ in range(c.count):
                step = carrier(c.consumer)
                step.waits.append(c.token)
                self.out.append(step)

    def _close(self) -> None:
        """Order between one iteration and the next: the body once more, after itself."""
        first = [list(p.known) for p in self.points]
        known = {id(p): k for p, k in zip(self.points, first, strict=True)}
        ends = [list(c) for c in self._clocks]
        second: dict[int, Clock] = {}
        place = {id(item): n for n, item in enumerate(self.out)}
        for point in list(self.points):
            lane, q = point.lane, self.tokens.queue(point.lane)
            clock = self._clocks[q]
            _know(clock, self._clocks[0])
            clock[0] = 2 * _SECOND
            for source in point.sources:
                _know(clock, second.get(id(source), known.get(id(source), clock)))
            if point.fence:
                clock[q] = self._before(point, q)
            missing, fence = self._needs(q, point.touches, clock)
            for p, n in missing:
                if n > clock[p]:
                    _know(clock, self._carry(point, p, n, q, ends, place))
            if fence and self._needs(q, point.touches, clock)[1]:
                self._fence(point)
                clock[q] = self._before(point, q)
            mine = list(clock)
            mine[lane] = _SECOND + point.number
            if lane == q and q in self.tokens.beside:
                mine[self.tokens.beside[q]] = max(mine[self.tokens.beside[q]], self._counts[self.tokens.beside[q]] - 1)
            second[id(point)] = mine
        self._carried_extras()

    def _before(self, point: _Point, q: int) -> int:
        """The last one of the queue before a point of the second iteration."""
        return _SECOND + point.number - 1 if point.lane == q and point.number else self._counts[q] - 1

    def _fence(self, point: _Point) -> None:
        if isinstance(point.item, Step):
            point.item.fence = True
        else:
            step = carrier(self.tokens.lanes[self.tokens.queue(point.lane)])
            step.fence = True
            self._insert(step, point.item)

    def _insert(self, step: Step, item: Node) -> None:
        at = next(n for n, other in enumerate(self.out) if other is item)
        self.out.insert(at, step)

    def _carry(self, point: _Point, p: int, n: int, q: int, ends: list[Clock], place: dict[int, int]) -> Clock:
        """Let a point wait for number `n` of lane `p` of the iteration before; the clock then."""
        main = self.tokens.queue(p)
        if p == main:
            found = self._lanes[p][n:]
        else:
            # A latch's token is signalled by latches only, so there is no first signal: a later step does.
            latch = place[id(self._lanes[p][n].item)]
            found = [x for x in self._lanes[main] if place.get(id(x.item), latch) > latch]
        able = [x for x in found if isinstance(x.item, Step) and x.item.can_signal]
        source = self.draw.pick(able) if able else self._tail(main, ends)
        step = source.item
        assert isinstance(step, Step)
        token = self.tokens.new(self.tokens.lanes[main], self.tokens.lanes[q])
        step.signals.append(token)
        self._waiter(point).waits.append(token)
        self.carried.append(Carried(self.tokens.lanes[main], self.tokens.lanes[q], token, 1))
        return source.known

    def _tail(self, q: int, ends: list[Clock]) -> _Point:
        """A step at the end of the body that signals for all of its queue."""
        step = carrier(self.tokens.lanes[q])
        self.out.append(step)
        point = _Point(step, q, self._counts[q], ())
        self._counts[q] += 1
        self._lanes[q].append(point)
        known = list(ends[q])
        known[q] = point.number
        if q in self.tokens.beside:
            known[self.tokens.beside[q]] = self._counts[self.tokens.beside[q]] - 1
        point.known = known
        return point

    def _waiter(self, point: _Point) -> Step:
        """The point's step, or one before it."""
        item = point.item
        if isinstance(item, Step) and item.can_wait:
            return item
        step = carrier(self.tokens.lanes[self.tokens.queue(point.lane)], item.group if isinstance(item, Step) else 0)
        self._insert(step, item)
        return step

    # Tokens that nothing needs.

    def _ends(self) -> tuple[list[tuple[int, Step]], list[tuple[int, Step]]]:
        """Steps that may signal, steps that may wait, each with its place in the body."""
        steps = [(n, s) for n, s in enumerate(self.out) if isinstance(s, Step)]
        return [x for x in steps if x[1].can_signal], [x for x in steps if x[1].can_wait]

    def _extras(self) -> None:
        """Tokens with several signals ahead of their waits, and steps that wait for and signal many."""
        for _ in range(self.draw.weighted((0, 1, 3, 8), self.tokens.extras)):
            signallers, waiters = self._ends()
            if not signallers or not waiters or not self.tokens.spare:
                return
            at, first = self.draw.pick(signallers)
            later = [s for n, s in waiters if n > at]
            if not later:
                continue
            own = [s for s in later if s.queue == first.queue]
            consumer = first.queue if own and self.draw.chance(0.25) else self.draw.pick(later).queue
            lane = self.tokens.lane(first)
            mine = [x for x in signallers if self.tokens.lane(x[1]) == lane and x[0] >= at]
            theirs = [x for x in waiters if x[1].queue == consumer and x[0] > at]
            self._bundle(mine, theirs, self.tokens.new(first.queue, consumer))

    def _bundle(self, mine: list[tuple[int, Step]], theirs: list[tuple[int, Step]], token: int) -> None:
        """One token, signalled by some and taken by as many, each after its signal."""
        taken = -1
        for n, (at, step) in enumerate(mine[: min(self.tokens.room, 1 + self.draw.below(4))]):
            match = next((x for x in theirs if x[0] > max(at, taken) and token not in x[1].waits), None)
            if match is None or (n and self.draw.chance(0.2)):
                return
            if self.draw.chance(0.4):
                later = [x for x in theirs if x[0] >= match[0] and token not in x[1].waits]
                match = self.draw.pick(later)
            step.signals.append(token)
            match[1].waits.append(token)
            taken = match[0]

    def _carried_extras(self) -> None:
        """Tokens over the back-edge with a head start of one to three iterations."""
        for _ in range(self.draw.weighted((0, 1, 2), (2, 2, 1))):
            signallers, waiters = self._ends()
            signallers = [x for x in signallers if not x[1].alone]
            if not signallers or not waiters or not self.tokens.spare:
                return
            producer, consumer = self.draw.pick(signallers)[1], self.draw.pick(waiters)[1]
            token = self.tokens.new(producer.queue, consumer.queue)
            producer.signals.append(token)
            consumer.waits.append(token)
            ahead = min(self.draw.weighted((1, 2, 3), (3, 2, 1)), self.tokens.room)
            self.carried.append(Carried(producer.queue, consumer.queue, token, ahead))
