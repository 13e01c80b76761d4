"""Tokens: the order between queues that the addresses call for, derived from what instructions read and write.

Within a segment without labels and jumps, each instruction must start after those it conflicts with.  What it knows to
be complete is a vector clock over queues; what is missing becomes a token (from another queue) or a fence (its own
queue, if that is a DMA queue).  At labels and jumps SEQ joins all queues that are busy, so every path is balanced.

Instructions that retire alone (`mxu.latch`) have tokens of their own: they count as a queue by themselves, a *lane*
next to that of their queue.  Who waits for one knows nothing of what streams before it; who waits for one of the other
lane knows that the latches before it have retired.

The body of a loop is ordered twice, as two iterations (`loops.py`).  Where both come out alike they are folded into
one, whose signals of one iteration are those that the next one waits for; where they do not, SEQ joins the queues
before the loop and after each iteration.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, compress, pairwise

from systolith.compiler.emit.dependence import Key, LineMap, conflicts
from systolith.compiler.emit.loops import Edge, Mark, NotAlikeError, Span, Step, Steps, Unroller, fold
from systolith.compiler.errors import DoesNotFitError
from systolith.isa.access import Access
from systolith.isa.instruction import Instruction, Space
from systolith.isa.opcodes import MAX_TOKENS, MAX_WAITS, OPCODES, queue_of
from systolith.isa.program import TokenDecl

OVERLAPPING = frozenset({"ld", "st"})
"""Queues whose instructions overlap: only a fence (or a token on the way) orders two of the same."""

FINE: dict[int, int] = dict.fromkeys(map(int, Space), 5) | {int(Space.HBM): 0}
"""Log2 of the bytes that are told apart: bytes of HBM, where tiles of any width are neighbours; lines of others."""

ALONE = frozenset(o.queue for o in OPCODES.values() if o.retires_alone)
"""Queues with instructions that retire alone, without their units' numbers."""

REACH = 64
"""Instructions of a queue after which a later one signals in the place of one further back."""


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
        takers: queue and place of each instruction that it signals for.
        left: of an iteration's instruction, after the loop: by queue, how often it may signal for what follows, since
            the one an iteration before signals for the next iteration; None: it is in no loop.
        waits, signals: its tokens, once they have numbers.
        fence: as in `Instruction`.
    """

    instruction: Instruction
    queue: int
    lane: int
    number: int
    place: int
    index: int
    takers: list[tuple[int, int]] = field(default_factory=list)
    left: Counter[int] | None = None
    waits: list[int] = field(default_factory=list)
    signals: list[int] = field(default_factory=list)
    fence: bool = False


@dataclass
class Ordered:
    """Result.

    Attributes:
        instructions: with tokens.
        sources: for each the index of the input it comes from; -1: added.
        tokens: the token table.
        entries: for each boundary, where what follows it starts.
        ends: for each `loop` instruction of the input, where what follows its loop starts.
    """

    instructions: list[Instruction]
    sources: list[int]
    tokens: list[TokenDecl]
    entries: dict[int, int]
    ends: dict[int, int] = field(default_factory=dict)


class Orderer:
    """Derives tokens for a line of instructions.

    Args:
        queues: names, SEQ first.
        touches: what an instruction touches.
        sizes: bytes of each memory, by space and buffer of an access.
        token_max: largest count of a token.
        fifo_depth: of each queue.
        fine: by space, log2 of the bytes of a line: what is in the same line counts as the same place.
    """

    def __init__(
        self,
        queues: Sequence[str],
        touches: Callable[[Instruction], Iterable[Access]],
        sizes: Mapping[Key, int],
        token_max: int,
        fifo_depth: int,
        fine: Mapping[int, int] = FINE,
    ) -> None:
        # Lanes: those of the queues, then those of what retires alone there.
        alone = [q for q in queues if q.rstrip("0123456789") in ALONE]
        self.names = [*queues, *alone]
        self.number = {q: n for n, q in enumerate(queues)}
        self.alone = {self.number[q]: len(queues) + n for n, q in enumerate(alone)}
        self.touches = touches
        self.lines = LineMap(sizes, fine)
        # In program order a token is ahead by no more than this; the consumer's FIFO and its head can add to it.
        self.room = max(1, token_max - fifo_depth - 1)
        self.reach = min(REACH, self.room - 1)
        self.nodes: list[Node] = []
        self.entries: dict[int, int] = {}
        self.marks: list[tuple[Mark, int]] = []
        self._edges: dict[Span, list[int]] = defaultdict(list)
        self._overlap = [q in OVERLAPPING for q in self.names]
        self._pairs: dict[tuple[int, int], list[tuple[Node, Node]]] = {}
        self._reset()

    def _reset(self) -> None:
        n = len(self.names)
        self.counts = [0] * n
        self.clocks = [[-1] * n for _ in range(n)]
        self.history: list[list[list[int]]] = [[] for _ in range(n)]
        self.by_number: list[list[Node]] = [[] for _ in range(n)]

    def run(
        self, instructions: Sequence[Instruction], boundaries: frozenset[int], spans: Collection[Span] = ()
    ) -> Ordered:
        """Order all instructions.

        Args:
            instructions: of the program.
            boundaries: before these SEQ joins every queue.
            spans: loops whose iterations are to overlap.

        Raises:
            NotAlikeError: those of some loops are not all ordered alike.
            DoesNotFitError: there are too few tokens.
        """
        unroller = Unroller(instructions, spans, self.touches, queue_of)
        cuts = sorted(b for b in boundaries if 0 < b < len(instructions))
        for start, end in pairwise([0, *cuts, len(instructions)]):
            if start in boundaries:
                self._join()
                self.entries[start] = len(self.nodes)
            self._segment(instructions, unroller.steps(start, end))
        return self._finish()

    def _segment(self, instructions: Sequence[Instruction], steps: Steps) -> None:
        """Order instructions between which SEQ does not join."""
        touching = [s for s in steps if not isinstance(s, Mark)]
        lanes = [self._lane_of(s, instructions) for s in touching]
        needed = iter(conflicts((s.touched for s in touching), lanes, len(self.names), self.lines))
        numbers: list[int] = []
        for step in steps:
            if isinstance(step, Mark):
                self._mark(step)
                continue
            found = [(p, numbers[place]) for p, place in next(needed)]
            if isinstance(step, Step):
                numbers.append(self._add(instructions[step.index], step.index, found).number)
            else:
                numbers.append(self._edge(step, found))

    def _mark(self, mark: Mark) -> None:
        """Note where a copy of a body begins or ends; what follows the second takes what that took of the first."""
        self.marks.append((mark, len(self.nodes)))
        edges = self._edges[mark.span]
        edges.append(len(self.nodes))
        if len(edges) < 4:
            return
        first, _, second, _ = edges
        edges.clear()
        for one, other in zip(self.nodes[first:second], self.nodes[second:], strict=False):
            other.left = Counter(q for q, place in one.takers if place >= second)

    def _lane_of(self, step: Step | Edge, instructions: Sequence[Instruction]) -> int:
        if isinstance(step, Edge):
            return self.number[step.queue]
        instruction = instructions[step.index]
        return self._lane(instruction, self.number[queue_of(instruction)])

    def _edge(self, edge: Edge, needed: list[tuple[int, int]]) -> int:
        """Let a queue wait before a loop for what the loop needs; gives the queue's last instruction."""
        q = self.number[edge.queue]
        known = [max(pair) for pair in zip(self.clocks[q], self.clocks[0], strict=True)]
        if edge.begins and any(n > known[p] and (p != q or self._overlap[q]) for p, n in needed):
            self._add(self._carrier(q), -1, needed)
        return self.counts[q] - 1

    def _add(self, instruction: Instruction, index: int, needed: list[tuple[int, int]]) -> Node:
        """Order an instruction after those (lane, number)."""
        q = self.number[queue_of(instruction)]
        beside = self.alone.get(q, q)
        clock = self.clocks[q]
        self._know(clock, self.clocks[0])
        clock[0] = self.counts[0] - 1
        missing = [(p, n) for p, n in needed if p not in (q, beside) and n > clock[p]]
        missing = self._reduced(missing)
        while len(missing) > (0 if q == 0 else MAX_WAITS):
            missing = self._take(q, missing)
        node = self._waiting(instruction, q, index, missing)
        if self._overlap[q] and any(p == q and n > clock[q] for p, n in needed):
            node.fence = True
            clock[q] = node.number - 1
        self._record(node)
        return node

    def _take(self, q: int, missing: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Let an added instruction wait for the first few; returns the others."""
        self._record(self._waiting(self._carrier(q), q, -1, missing[:MAX_WAITS]))
        return missing[MAX_WAITS:]

    def _carrier(self, q: int) -> Instruction:
        """An instruction that only waits or signals."""
        return Instruction("sync") if q == 0 else Instruction("nop", {"queue": self.names[q]})

    def _waiting(self, instruction: Instruction, q: int, index: int, missing: list[tuple[int, int]]) -> Node:
        """A node that waits for those (lane, number); who signals comes before it in program order."""
        producers = [self._signaller(p, n, q) for p, n in missing]
        node = self._node(instruction, q, index)
        clock = self.clocks[q]
        for producer in producers:
            p = producer.lane
            producer.takers.append((q, node.place))
            if producer.left is not None:
                producer.left[q] -= 1
            self._pairs.setdefault((p, q), []).append((producer, node))
            self._know(clock, self.history[p][producer.number])
        return node

    def _node(self, instruction: Instruction, q: int, index: int) -> Node:
        lane = self._lane(instruction, q)
        node = Node(instruction, q, lane, self.counts[lane], len(self.nodes), index)
        self.counts[lane] += 1
        self.by_number[lane].append(node)
        self.nodes.append(node)
        return node

    def _lane(self, instruction: Instruction, q: int) -> int:
        return self.alone[q] if OPCODES[instruction.op].retires_alone else q

    def _record(self, node: Node) -> None:
        """Record the vector clock of an instruction: what has retired when it has."""
        known = list(self.clocks[node.queue])
        known[node.lane] = node.number
        if node.lane == node.queue:
            beside = self.alone.get(node.queue, node.queue)
            known[beside] = self.counts[beside] - 1
        self.history[node.lane].append(known)

    def _know(self, clock: list[int], other: list[int]) -> None:
        for p, n in enumerate(other):
            if n > clock[p]:
                clock[p] = n

    def _reduced(self, missing: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Drop what waiting for the others already tells."""
        if len(missing) < 2:
            return missing
        kept = list(missing)
        for item in missing:
            p, n = item
            if any(o is not item and self.history[o[0]][o[1]][p] >= n for o in kept):
                kept.remove(item)
        return kept

    def _signaller(self, p: int, n: int, q: int) -> Node:
        """The instruction of lane `p` that signals queue q for number n: itself, or a later one.

        A later one if it has no signal left, or lies so far back that a nearer one is as good: so no token counts far.
        """
        for node in self.by_number[p][max(n, self.counts[p] - 1 - self.reach) :]:
            if len(node.takers) < MAX_WAITS and (node.left is None or node.left[q] > 0):
                return node
        own = self.number[self.names[p]]
        node = self._node(self._carrier(own), own, -1)
        self._record(node)
        return node

    def _join(self) -> None:
        """SEQ waits for the last instruction of every lane that it does not know to be complete."""
        clock = self.clocks[0]
        missing = [(p, self.counts[p] - 1) for p in range(1, len(self.names)) if self.counts[p] - 1 > clock[p]]
        missing = self._reduced(missing)
        while missing:
            missing = self._take(0, missing)
        self._reset()

    def _finish(self) -> Ordered:
        table = self._numbered()
        out: list[Instruction] = []
        for node in self.nodes:
            i = node.instruction
            if node.waits or node.signals or node.fence:
                i = Instruction(i.op, i.args, i.unit, tuple(node.waits), tuple(node.signals), node.fence)
            out.append(i)
        sources = [n.index for n in self.nodes]
        if not self.marks:
            return Ordered(out, sources, table, self.entries)
        folded = fold(self.marks, [(n.index, n.queue, n.waits, n.signals, n.fence) for n in self.nodes])
        entries = {b: folded.place[at] for b, at in self.entries.items()}
        return Ordered([*compress(out, folded.kept)], [*compress(sources, folded.kept)], table, entries, folded.ends)

    def _numbered(self) -> list[TokenDecl]:
        """The token table: one for a lane and the queue that waits for it, more where a count exceeds what one holds.

        Raises:
            CompileError: there are more than the machine has.
        """
        table: list[TokenDecl] = []
        for (p, q), pairs in sorted(self._pairs.items()):
            first, many = len(table), -(-_most_ahead(pairs) // self.room)
            table += [TokenDecl(self.names[p], self.names[q])] * many
            for k, (producer, consumer) in enumerate(pairs):
                producer.signals.append(first + k % many)
                consumer.waits.append(first + k % many)
        if len(table) > MAX_TOKENS:
            raise DoesNotFitError(f"the program needs {len(table)} tokens, the machine has {MAX_TOKENS}")
        return table


INNER = "SEQ joins the queues in its body"


def ordered(
    orderer: Callable[[], Orderer],
    instructions: Sequence[Instruction],
    boundaries: frozenset[int],
    spans: Collection[Span],
    joined: Mapping[Span, str],
) -> tuple[Ordered, dict[Span, str]]:
    """Order a program, with as many loops as possible whose iterations overlap; gives those that do not, and why.

    Args:
        orderer: makes one.
        instructions, boundaries: as for `Orderer.run`.
        spans: loops.
        joined: those before which and after each iteration of which SEQ joins the queues, and why.
    """
    apart = dict(joined)
    while True:
        edges = {at for s in apart for at in (s.head, s.first, s.end)}
        try:
            found = orderer().run(instructions, boundaries | edges, [s for s in spans if s not in apart])
        except NotAlikeError as problem:
            around = {s: INNER for s in spans for p in problem.why if s.first <= p.first and p.end <= s.end}
            apart = around | dict(problem.why) | apart
            continue
        found.ends.update({s.head: found.entries[s.end] for s in apart})
        return found, apart


def _most_ahead(pairs: Sequence[tuple[Node, Node]]) -> int:
    """How many signals are given before they are taken, in program order."""
    steps = sorted([2 * a.place for a, _ in pairs] + [2 * b.place + 1 for _, b in pairs])
    return max(accumulate(-1 if step % 2 else 1 for step in steps))
