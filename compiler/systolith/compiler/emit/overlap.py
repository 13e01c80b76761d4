"""Which loops of a program have iterations that overlap: it is ordered in rounds until all of those are alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from systolith.compiler.emit.loops import UNLIKE, LoopEdge, NotAlikeError, Span, inmost
from systolith.compiler.emit.tokens import Ordered, Orderer, Segment, SegmentKey
from systolith.isa.instruction import Instruction

INNER = "SEQ joins the queues in its body"


def ordered(
    orderer: Callable[[dict[int, LoopEdge], dict[SegmentKey, Segment]], Orderer],
    instructions: Sequence[Instruction],
    boundaries: frozenset[int],
    spans: Collection[Span],
    joined: Mapping[Span, str],
) -> tuple[Ordered, dict[Span, str]]:
    """Order a program, with as many loops as possible whose iterations overlap; gives those that do not, and why.

    Args:
        orderer: makes one; given how loops are ordered that would not be alike else, and segments that are known.
        instructions, boundaries: as for `Orderer.run`.
        spans: loops.
        joined: those before which and after each iteration of which SEQ joins the queues, and why.
    """
    apart = dict(joined)
    edges: dict[int, LoopEdge] = {}
    known: dict[SegmentKey, Segment] = {}
    while True:
        cuts = {at for s in apart for at in (s.head, s.first, s.end)}
        for span in apart:
            edges.pop(span.head, None)
        made = orderer(edges, known)
        try:
            found = made.run(instructions, boundaries | cuts, [s for s in spans if s not in apart])
        except NotAlikeError as problem:
            unlike = inmost([span for span, why in problem.why.items() if why == UNLIKE])
            eased = [edges.setdefault(span.head, LoopEdge()).eased(made.unlike[span]) for span in unlike]
            if any(eased):
                continue
            around = {s: INNER for s in spans for p in problem.why if s.first <= p.first and p.end <= s.end}
            apart = around | dict(problem.why) | apart
            continue
        found.ends.update({s.head: found.entries[s.end] for s in apart})
        return found, apart
