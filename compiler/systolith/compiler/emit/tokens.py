"""Tokens: the order between queues that the addresses call for, derived from what instructions read and write.

Within a segment without labels and jumps, each instruction must start after those it conflicts with.  What it knows to
be complete is a vector clock over queues; what is missing becomes a token (from another queue) or a fence (its own
queue, if that is a DMA queue).  At labels and jumps SEQ joins all queues that are busy, so every path is balanced.

Instructions that retire alone (`mxu.latch`) have tokens of their own: they count as a queue by themselves, a *lane*
next to that of their queue.  Who waits for one knows nothing of what streams before it; who waits for one of the other
lane knows that the latches before it have retired.

The body of a loop is ordered twice, as two iterations (`loops.py`).  Where both come out alike they are folded into
one, whose signals of one iteration are those that the next one waits for.  Those of the last iteration are left over:
who next has to wait for that queue takes them first, in their order, so that every count is right from there on.
Where the copies do not come out alike, queues wait before the loop for what only the first one waits for, and what only
the second one waits for is signalled before the loop, too; then no signals are left over around and in the loop; if
they still do not, SEQ joins the queues before the loop and after each iteration.  An outermost loop is ordered anew at
its end where it, or one in it, is found to be unlike.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, compress, pairwise
from typing import NamedTuple

from systolith.compiler.emit.dependence import Key, LineMap, conflicts
from systolith.compiler.emit.loops import (
    AS_IT_IS,
    Edge,
    LoopEdge,
    Mark,
    Span,
    Step,
    Steps,
    Unroller,
    fold,
    inmost,
)
from systolith.compiler.emit.nodes import Before, Node, Nodes
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


Wanted = tuple[int, int, Node | None]
"""A signal: of a lane, for its instruction of a number or a later one; of which one, if that is settled."""


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


SegmentKey = tuple[int, int, tuple[Span, ...]]
"""The first instruction of a segment, the one after its last, and its loops whose iterations overlap."""


class Segment(NamedTuple):
    """Instructions between which SEQ does not join the queues.

    Attributes:
        steps: of them.
        needed: what each step conflicts with, of those that touch memory (`conflicts`).
    """

    steps: Steps
    needed: list[list[tuple[int, int]]]


class Outermost(NamedTuple):
    """A loop in no other one, and what there was before it.

    Attributes:
        span: the loop.
        at: the step of its `loop` instruction.
        numbers: steps before it that touch memory.
        marks: those before it.
        nodes: what they were.
    """

    span: Span
    at: int
    numbers: int
    marks: int
    nodes: Before


class Orderer:
    """Derives tokens for a line of instructions.

    Args:
        queues: names, SEQ first.
        touches: what an instruction touches.
        sizes: bytes of each memory, by space and buffer of an access.
        token_max: largest count of a token.
        fifo_depth: of each queue.
        fine: by space, log2 of the bytes of a line: what is in the same line counts as the same place.
        edges: by the place of their `loop`, how loops are ordered that would not be alike else; more are put there.
        known: segments of the same program, which are kept here.
    """

    def __init__(
        self,
        queues: Sequence[str],
        touches: Callable[[Instruction], Iterable[Access]],
        sizes: Mapping[Key, int],
        token_max: int,
        fifo_depth: int,
        fine: Mapping[int, int] = FINE,
        edges: dict[int, LoopEdge] | None = None,
        known: dict[SegmentKey, Segment] | None = None,
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
        self._nodes = Nodes(len(self.names), self.alone)
        self.entries: dict[int, int] = {}
        self.marks: list[tuple[Mark, int]] = []
        self._edges: dict[int, LoopEdge] = {} if edges is None else edges
        self._known: dict[SegmentKey, Segment] = {} if known is None else known
        self._heads: dict[int, list[int]] = {}
        self._places: dict[Span, list[int]] = defaultdict(list)
        self._first: list[Span] = []
        self.unlike: dict[Span, LoopEdge] = defaultdict(LoopEdge)
        self._different: set[Span] = set()
        self._loop: Outermost | None = None
        self._overlap = [q in OVERLAPPING for q in self.names]

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
                self.entries[start] = len(self._nodes.all)
            loops = tuple(s for s in spans if start <= s.head < end)
            key = start, end, loops
            if key not in self._known:
                self._known[key] = self._conflicts(instructions, unroller.steps(start, end))
            self._segment(instructions, self._known[key], loops)
        return self._finish()

    def _conflicts(self, instructions: Sequence[Instruction], steps: Steps) -> Segment:
        """Steps between which SEQ does not join, with what they conflict with."""
        touching = [s for s in steps if not isinstance(s, Mark)]
        lanes = [self._lane_of(s, instructions) for s in touching]
        return Segment(steps, conflicts((s.touched for s in touching), lanes, len(self.names), self.lines))

    def _segment(self, instructions: Sequence[Instruction], segment: Segment, spans: Collection[Span]) -> None:
        """Order instructions between which SEQ does not join, among them some loops whose iterations overlap."""
        loops = {s.head: s for s in spans}
        numbers: list[int] = []
        at = 0
        while at < len(segment.steps):
            step = segment.steps[at]
            at += 1
            if isinstance(step, Mark):
                self._mark(step)
                if self._loop is not None and step.span == self._loop.span and not self._places[step.span]:
                    at = self._after(at, numbers)
                continue
            found = [(p, numbers[place]) for p, place in segment.needed[len(numbers)]]
            if isinstance(step, Step):
                if instructions[step.index].op == "loop":
                    if self._loop is None and (span := loops.get(step.index)) is not None:
                        self._loop = Outermost(span, at - 1, len(numbers), len(self.marks), self._nodes.before())
                    self._head(step.index)
                numbers.append(self._add(instructions[step.index], step.index, found).number)
            else:
                numbers.append(self._edge(step, found))

    def _after(self, at: int, numbers: list[int]) -> int:
        """The step to go on from after an outermost loop: the loop again, if it or one in it may become alike."""
        assert self._loop is not None
        loop, self._loop = self._loop, None
        inside = {s for s in {*self.unlike, *self._different} if loop.span.head <= s.head < loop.span.end}
        eased = [self._edges.setdefault(s.head, LoopEdge()).eased(self.unlike[s]) for s in inmost(inside)]
        if not any(eased):
            return at
        self._nodes.back(loop.nodes)
        del numbers[loop.numbers :], self.marks[loop.marks :]
        self._different -= inside
        for span in inside:
            self.unlike.pop(span, None)
        return loop.at

    def _head(self, index: int) -> None:
        """Order what comes before a loop so that its iterations are alike."""
        edge = self._edges.get(index, AS_IT_IS)
        if edge.drained:
            self._drain()
        for (q, p), back in edge.waits.items():
            if self._nodes.counts[p] > back:
                self._add(self._carrier(q), -1, [(p, self._nodes.counts[p] - 1 - back)])
        for (q, p), many in Counter((q, p) for q, _, p in edge.primed).items():
            while p == self.number[self.names[p]] and self._nodes.counts[p] - self._nodes.last(p, q) <= many:
                self._add(self._carrier(p), -1, [])
        self._heads[index] = list(self._nodes.counts)

    def _mark(self, mark: Mark) -> None:
        """Note where a copy of a body begins or ends; what follows the second takes what that took of the first."""
        places = self._places[mark.span]
        if not mark.begins and self._edges.get(mark.span.head, AS_IT_IS).drained:
            self._drain(places[-1])
        if not places:
            self._first.append(mark.span)
        elif len(places) == 1:
            self._first.pop()
        self.marks.append((mark, len(self._nodes.all)))
        places.append(len(self._nodes.all))
        if len(places) < 4:
            return
        first, _, second, _ = places
        places.clear()
        for key, nodes in self._nodes.left.items():  # those of loops in the body are among what the second copy took
            self._nodes.left[key] = deque(n for n in nodes if n.place < first)
        for one, other in zip(self._nodes.all[first:second], self._nodes.all[second:], strict=False):
            if one.lane != other.lane:
                self._different.add(mark.span)
                break
            self._compare(mark.span, first, one, other)
            one.closed = other.closed = True
            for q, place in one.takers:
                if place >= second:
                    self._nodes.left[one.lane, q].append(other)

    def _compare(self, span: Span, first: int, one: Node, other: Node) -> None:
        """Note the lanes for which only the first iteration of a loop waits, or only the second one."""
        lanes, others = {giver.lane for giver in one.givers}, {giver.lane for giver in other.givers}
        if lanes == others:
            return
        edge, heads = self.unlike[span], self._heads[span.head]
        for giver in one.givers:
            if giver.place < first and giver.lane not in others:
                key, back = (one.queue, giver.lane), heads[giver.lane] - 1 - giver.number
                edge.waits[key] = min(back, edge.waits.get(key, back))
        for giver in other.givers:
            if one.index >= 0 and giver.lane not in lanes:
                between = sum(n.lane == giver.lane for n in self._nodes.all[one.place : other.place])
                edge.primed[one.queue, one.index, giver.lane] = heads[giver.lane] - 1 - (giver.number - between)

    def _drain(self, since: int = 0) -> None:
        """Take all signals that are left over of instructions from place `since` on."""
        for (p, q), nodes in self._nodes.left.items():
            wanted: list[Wanted] = [(p, n.number, n) for n in nodes if n.place >= since]
            self._nodes.left[p, q] = deque(n for n in nodes if n.place < since)
            while wanted:
                wanted = self._take(q, wanted)

    def _lane_of(self, step: Step | Edge, instructions: Sequence[Instruction]) -> int:
        if isinstance(step, Edge):
            return self.number[step.queue]
        instruction = instructions[step.index]
        return self._nodes.lane(instruction, self.number[queue_of(instruction)])

    def _edge(self, edge: Edge, needed: list[tuple[int, int]]) -> int:
        """Let a queue wait before a loop for what the loop needs; gives the queue's last instruction."""
        q = self.number[edge.queue]
        known = [max(pair) for pair in zip(self._nodes.clocks[q], self._nodes.clocks[0], strict=True)]
        if edge.begins and any(n > known[p] and (p != q or self._overlap[q]) for p, n in needed):
            self._add(self._carrier(q), -1, needed)
        return self._nodes.counts[q] - 1

    def _add(self, instruction: Instruction, index: int, needed: list[tuple[int, int]]) -> Node:
        """Order an instruction after those (lane, number)."""
        q = self.number[queue_of(instruction)]
        beside = self.alone.get(q, q)
        clock = self._nodes.clocks[q]
        self._nodes.know(clock, self._nodes.clocks[0])
        clock[0] = self._nodes.counts[0] - 1
        missing = [(p, n) for p, n in needed if p not in (q, beside) and n > clock[p]]
        wanted = self._wanted(q, self._reduced(missing))
        wanted += self._primed(q, index, {p for p, _, _ in wanted})
        while len(wanted) > (0 if q == 0 else MAX_WAITS) or len({p for p, _, _ in wanted}) < len(wanted):
            wanted = self._take(q, wanted)
        node = self._waiting(instruction, q, index, wanted)
        if self._overlap[q] and any(p == q and n > clock[q] for p, n in needed):
            node.fence = True
            clock[q] = node.number - 1
        self._nodes.record(node)
        return node

    def _wanted(self, q: int, missing: list[tuple[int, int]]) -> list[Wanted]:
        """The signals that a queue waits for: before one of another lane those which a loop left over there."""
        wanted: list[Wanted] = []
        for p, n in missing:
            left = self._nodes.left[p, q]
            known = -1
            while left and known < n:
                node = left.popleft()
                known = node.number
                wanted.append((p, known, node))
            own = self.number[self.names[p]]
            if known < n and own != p and self._open(p, n) is None:
                # An instruction beside the lane is to signal: those that loops left over there come first.
                wanted += [(own, node.number, node) for node in self._nodes.left[own, q]]
                self._nodes.left[own, q].clear()
                wanted.append((own, self._nodes.counts[own], None))
            elif known < n:
                wanted.append((p, n, None))
        return wanted

    def _primed(self, q: int, index: int, lanes: Collection[int]) -> list[Wanted]:
        """Signals that an instruction of a loop's first iteration takes so that it is as in later ones."""
        wanted: list[Wanted] = []
        for span in self._first:
            for (_, n, p), back in self._edges.get(span.head, AS_IT_IS).primed.items():
                if n == index and p not in lanes:
                    number = max(self._nodes.last(p, q) + 1, self._heads[span.head][p] - 1 - back)
                    wanted += self._wanted(q, [(p, number)])
        return wanted

    def _take(self, q: int, wanted: list[Wanted]) -> list[Wanted]:
        """Let an added instruction wait for the first few, one a lane; returns the others."""
        first = {p: n for n, (p, _, _) in reversed([*enumerate(wanted)])}
        taken = sorted(first.values())[:MAX_WAITS]
        self._nodes.record(self._waiting(self._carrier(q), q, -1, [wanted[n] for n in taken]))
        return [w for n, w in enumerate(wanted) if n not in taken]

    def _carrier(self, q: int) -> Instruction:
        """An instruction that only waits or signals."""
        return Instruction("sync") if q == 0 else Instruction("nop", {"queue": self.names[q]})

    def _waiting(self, instruction: Instruction, q: int, index: int, wanted: list[Wanted]) -> Node:
        """A node that waits for some signals; who gives them comes before it in program order."""
        producers = [node or self._signaller(p, n) for p, n, node in wanted]
        return self._nodes.add(instruction, q, index, producers)

    def _reduced(self, missing: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Drop what waiting for the others already tells."""
        if len(missing) < 2:
            return missing
        kept = list(missing)
        for item in missing:
            p, n = item
            if any(o is not item and self._nodes.history[o[0]][o[1]][p] >= n for o in kept):
                kept.remove(item)
        return kept

    def _signaller(self, p: int, n: int) -> Node:
        """The instruction of lane `p` that signals for number n: itself, or a later one.

        A later one if it has no signal left, or lies so far back that a nearer one is as good: so no token counts far.
        """
        if (found := self._open(p, n)) is None:
            own = self.number[self.names[p]]
            found = self._nodes.add(self._carrier(own), own, -1)
            self._nodes.record(found)
        return found

    def _open(self, p: int, n: int) -> Node | None:
        """The instruction of lane `p` from number n on that may still signal; None: there is none."""
        nodes = self._nodes.by_number[p][max(n, self._nodes.counts[p] - 1 - self.reach) :]
        return next((node for node in nodes if len(node.takers) < MAX_WAITS and not node.closed), None)

    def _join(self) -> None:
        """SEQ waits for the last instruction of every lane that it does not know to be complete."""
        self._drain()
        clock = self._nodes.clocks[0]
        missing = [
            (p, self._nodes.counts[p] - 1) for p in range(1, len(self.names)) if self._nodes.counts[p] - 1 > clock[p]
        ]
        wanted = self._wanted(0, self._reduced(missing))
        while wanted:
            wanted = self._take(0, wanted)
        self._nodes.join()

    def _finish(self) -> Ordered:
        table = self._numbered()
        out: list[Instruction] = []
        for node in self._nodes.all:
            i = node.instruction
            if node.waits or node.signals or node.fence:
                i = Instruction(i.op, i.args, i.unit, tuple(node.waits), tuple(node.signals), node.fence)
            out.append(i)
        sources = [n.index for n in self._nodes.all]
        if not self.marks:
            return Ordered(out, sources, table, self.entries)
        tokened = [(n.index, n.queue, n.waits, n.signals, n.fence) for n in self._nodes.all]
        folded = fold(self.marks, tokened, self._different)
        entries = {b: folded.place[at] for b, at in self.entries.items()}
        return Ordered([*compress(out, folded.kept)], [*compress(sources, folded.kept)], table, entries, folded.ends)

    def _numbered(self) -> list[TokenDecl]:
        """The token table: one for a lane and the queue that waits for it, more where a count exceeds what one holds.

        Raises:
            CompileError: there are more than the machine has.
        """
        table: list[TokenDecl] = []
        for (p, q), pairs in sorted(self._nodes.pairs.items()):
            first, many = len(table), -(-_most_ahead(pairs) // self.room)
            table += [TokenDecl(self.names[p], self.names[q])] * many
            for k, (producer, consumer) in enumerate(pairs):
                producer.signals.append(first + k % many)
                consumer.waits.append(first + k % many)
        if len(table) > MAX_TOKENS:
            raise DoesNotFitError(f"the program needs {len(table)} tokens, the machine has {MAX_TOKENS}")
        return table


def _most_ahead(pairs: Sequence[tuple[Node, Node]]) -> int:
    """How many signals are given before they are taken, in program order."""
    steps = sorted([2 * a.place for a, _ in pairs] + [2 * b.place + 1 for _, b in pairs])
    return max(accumulate(-1 if step % 2 else 1 for step in steps))
