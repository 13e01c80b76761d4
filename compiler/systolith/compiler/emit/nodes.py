"""Instructions in the order that they have so far, and what each queue knows then to be complete.

What has been ordered from some place on can be taken back, so that a loop is ordered once more.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from systolith.isa.instruction import Instruction
from systolith.isa.opcodes import OPCODES


@dataclass(slots=True)
class Node:
    """An instruction being ordered.

    Attributes:
        instruction: it.
        queue: index of its queue.
        lane: index of its lane: its queue's, but for those that retire alone.
        number: its place in its lane since the last join.
        place: its place in the program.
        index: position in the input, -1 for those added.
        givers: instructions that it waits for.
        takers: queue and place of each instruction that it signals for.
        closed: it is in a loop that has ended: it signals for what follows as often as the same instruction of an
            iteration before signals for the next one.
        waits, signals: its tokens, once they have numbers.
        fence: as in `Instruction`.
    """

    instruction: Instruction
    queue: int
    lane: int
    number: int
    place: int
    index: int
    givers: list[Node] = field(default_factory=list)
    takers: list[tuple[int, int]] = field(default_factory=list)
    closed: bool = False
    waits: list[int] = field(default_factory=list)
    signals: list[int] = field(default_factory=list)
    fence: bool = False


@dataclass(frozen=True)
class Before:
    """What `Nodes` were at some place: how many, and what they knew."""

    many: int
    counts: list[int]
    clocks: list[list[int]]
    left: dict[tuple[int, int], deque[Node]]


class Nodes:
    """The instructions ordered so far.

    Args:
        lanes: how many there are, those of the queues first.
        alone: by queue the lane of what retires alone there.

    Attributes:
        all: the instructions, those added among them.
        since: place of the first one after the last join.
        counts: by lane, its instructions since then.
        clocks: by queue, the last instruction of each lane that it knows to be complete.
        history: by lane and number, what is complete when that instruction is.
        by_number: by lane, its instructions since the last join.
        left: by lane and queue, the instructions whose signals a loop has left over.
        pairs: by lane and queue, who signals and who waits.
    """

    def __init__(self, lanes: int, alone: Mapping[int, int]) -> None:
        self._lanes, self._alone = lanes, alone
        self.all: list[Node] = []
        self.left: dict[tuple[int, int], deque[Node]] = defaultdict(deque)
        self.pairs: dict[tuple[int, int], list[tuple[Node, Node]]] = {}
        self.join()

    def join(self) -> None:
        """All that came before is complete for every queue."""
        self.since = len(self.all)
        self.counts = [0] * self._lanes
        self.clocks = [[-1] * self._lanes for _ in range(self._lanes)]
        self.history: list[list[list[int]]] = [[] for _ in range(self._lanes)]
        self.by_number: list[list[Node]] = [[] for _ in range(self._lanes)]

    def lane(self, instruction: Instruction, q: int) -> int:
        """The lane of an instruction of a queue."""
        return self._alone[q] if OPCODES[instruction.op].retires_alone else q

    def add(self, instruction: Instruction, q: int, index: int, producers: Sequence[Node] = ()) -> Node:
        """Put an instruction at the end, which waits for some of those before it."""
        lane = self.lane(instruction, q)
        node = Node(instruction, q, lane, self.counts[lane], len(self.all), index)
        self.counts[lane] += 1
        self.by_number[lane].append(node)
        self.all.append(node)
        for producer in producers:
            p = producer.lane
            producer.takers.append((q, node.place))
            node.givers.append(producer)
            self.pairs.setdefault((p, q), []).append((producer, node))
            self.know(self.clocks[q], self.history[p][producer.number])
        return node

    def record(self, node: Node) -> None:
        """Record the vector clock of an instruction: what has retired when it has."""
        known = list(self.clocks[node.queue])
        known[node.lane] = node.number
        if node.lane == node.queue:
            beside = self._alone.get(node.queue, node.queue)
            known[beside] = self.counts[beside] - 1
        self.history[node.lane].append(known)

    def know(self, clock: list[int], other: list[int]) -> None:
        """Let a clock know what another does."""
        for p, n in enumerate(other):
            if n > clock[p]:
                clock[p] = n

    def last(self, p: int, q: int) -> int:
        """The last instruction of a lane since the last join that signals to a queue; -1: none does."""
        pairs = self.pairs.get((p, q))
        return pairs[-1][0].number if pairs and pairs[-1][0].place >= self.since else -1

    def before(self) -> Before:
        """What they are now."""
        left = {key: deque(nodes) for key, nodes in self.left.items() if nodes}
        return Before(len(self.all), list(self.counts), [list(clock) for clock in self.clocks], left)

    def back(self, to: Before) -> None:
        """Take back what has been added since; no join may have been among it."""
        for node in self.all[to.many :]:
            for giver in node.givers:
                while giver.takers and giver.takers[-1][1] >= to.many:
                    giver.takers.pop()
        for key, pairs in [*self.pairs.items()]:
            while pairs and pairs[-1][1].place >= to.many:
                pairs.pop()
            if not pairs:
                del self.pairs[key]
        del self.all[to.many :]
        for lane, many in enumerate(to.counts):
            del self.history[lane][many:], self.by_number[lane][many:]
        self.counts, self.clocks = list(to.counts), [list(clock) for clock in to.clocks]
        self.left = defaultdict(deque, {key: deque(nodes) for key, nodes in to.left.items()})
