"""Tokens of loops order every conflict of every iteration, balance, and never block: random nests, written out.

The checker is that of `test_order.py`; it sees no loops.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from random import Random

import pytest

from systolith.compiler.emit.loops import EASED, LoopEdge, Span
from systolith.compiler.emit.overlap import ordered
from systolith.compiler.emit.tokens import Ordered, Orderer, Segment, SegmentKey
from systolith.isa.access import Access
from systolith.isa.instruction import Instruction, Space
from tests.compiler.tokens.test_order import LATCH, OPS, QUEUES, Plan, conflict, happens_before
from tests.examples import seeds

UNITS = [
    ["s0", LATCH, "ld"],
    ["s0", LATCH, "ld", "w0"],
    ["s0", LATCH, "ld", "vpu"],
    ["ld", "st", "vpu"],
    ["vpu", "xlu"],
]


@dataclass
class Nest:
    """A program: instructions, None for the head of a loop; and the loops."""

    work: list[Plan | None] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)


def cell(number: int, write: bool) -> Access:
    return Access(Space.VMEM, 0, 4 * number, 4 * number + 4, write)


def drawn(seed: int) -> Nest:
    dice, nest = Random(seed), Nest()
    kinds, cells = dice.choice(UNITS), dice.randint(2, 5)

    def add(many: int) -> None:
        for _ in range(many):
            kind = dice.choice(kinds)
            writes = kind == "ld" or (kind in ("vpu", "xlu", "w0") and dice.random() < 0.5)
            some = dice.sample(range(cells), dice.choice((1, 1, 2)))
            nest.work.append(Plan(kind, tuple(cell(c, writes and not n) for n, c in enumerate(some))))

    def loop(depth: int) -> None:
        head = len(nest.work)
        nest.work.append(None)
        for _ in range(dice.randint(2, 5)):
            if depth and dice.random() < 0.3:
                loop(depth - 1)
            else:
                add(1)
        nest.spans.append(Span(head, head + 1, len(nest.work), dice.randint(2, 4)))

    add(dice.randint(0, 4))
    for _ in range(dice.randint(1, 3)):
        loop(1)
        add(dice.randint(0, 4))
    nest.spans.sort(key=lambda s: s.head)
    return nest


def code_of(nest: Nest) -> list[Instruction]:
    work = enumerate(nest.work)
    code = [Instruction("loop") if plan is None else Instruction(OPS[plan.kind], {"number": n}) for n, plan in work]
    return [*code, Instruction("halt")]


def orderer_of(nest: Nest, token_max: int) -> Callable[..., Orderer]:
    """Makes orderers of its code: `ordered` gives how loops are to be ordered, and what it knows of segments."""

    def touches(i: Instruction) -> tuple[Access, ...]:
        plan = nest.work[int(str(i.args["number"]))] if "number" in i.args else None
        return () if plan is None else plan.ranges

    return partial(Orderer, QUEUES, touches, {(int(Space.VMEM), 0): 256}, token_max, 4, dict.fromkeys(range(16), 2))


def order(nest: Nest, token_max: int) -> tuple[Ordered, int, list[dict[int, LoopEdge]]]:
    """Its order, how many of its loops overlap, and for each time it was ordered, how its loops were."""
    runs: list[dict[int, LoopEdge]] = []

    def make(edges: dict[int, LoopEdge], known: dict[SegmentKey, Segment]) -> Orderer:
        runs.append(edges)
        return orderer_of(nest, token_max)(edges, known)

    found, apart = ordered(make, code_of(nest), frozenset({len(nest.work)}), nest.spans, {})
    return found, len(nest.spans) - len(apart), runs


def written_out(found: Ordered, nest: Nest) -> Ordered:
    """Every iteration of its loops one after another."""
    counts = {span.head: span.count for span in nest.spans}
    places: list[int] = []

    def go(at: int, end: int) -> None:
        while at < end:
            places.append(at)
            source = found.sources[at]
            if found.instructions[at].op != "loop":
                at += 1
                continue
            for _ in range(counts[source]):
                go(at + 1, found.ends[source])
            at = found.ends[source]

    go(0, len(found.instructions))
    instructions = [Instruction("sync") if i.op == "loop" else i for i in (found.instructions[p] for p in places)]
    return Ordered(instructions, [found.sources[p] for p in places], found.tokens, {})


def checked(nest: Nest, token_max: int = 255) -> int:
    """See that conflicting instructions of all iterations are ordered; how many loops overlap."""
    found, overlapping, _ = order(nest, token_max)
    out = written_out(found, nest)
    known = happens_before(out)
    plans = [nest.work[s] if 0 <= s < len(nest.work) else None for s in out.sources]
    last: dict[int, int] = {}
    for n, plan in enumerate(plans):
        for source, m in last.items() if plan is not None else ():
            earlier = nest.work[source]
            assert earlier is not None
            same = earlier.queue == plan.queue and plan.queue not in ("ld", "st")  # type: ignore[union-attr]
            assert same or not conflict(earlier, plan) or m in known[n], (n, m)  # type: ignore[arg-type]
        if plan is not None:
            last[out.sources[n]] = n
    return overlapping


@pytest.mark.parametrize("token_max", [255, 9])
def test_conflicts_of_all_iterations_are_ordered(token_max: int) -> None:
    tried = seeds(60, 600)
    assert sum(checked(drawn(seed), token_max) for seed in tried) >= len(tried) // 2


@pytest.mark.parametrize("token_max", [255, 9])
def test_a_loop_that_is_ordered_anew_keeps_nothing_of_what_was_tried(token_max: int) -> None:
    """The order is that of who knew from the beginning how each loop has to be ordered, found in one run."""
    found_at_once, tried = 0, seeds(60, 600)
    for seed in tried:
        nest = drawn(seed)
        found, overlapping, runs = order(nest, token_max)
        if len(runs) == 1 and runs[0] and overlapping == len(nest.spans):
            found_at_once += 1
            knowing = orderer_of(nest, token_max)(deepcopy(runs[0]))
            assert knowing.run(code_of(nest), frozenset({len(nest.work)}), nest.spans) == found
    assert found_at_once >= len(tried) // 8


def test_a_latch_after_a_loop_is_waited_for_beside_signals_that_its_unit_left_over() -> None:
    """No latch may signal for what follows its loop, so something of its unit does, after what the loop left over."""
    before = [Plan("ld", (cell(1, True),)), Plan("s0", (cell(0, False),))]
    body = [Plan("ld", (cell(0, True),)), Plan("s0", (cell(0, False),)), Plan(LATCH, (cell(1, False),))]
    after = [Plan("ld", (cell(1, True),)), Plan("ld", (cell(0, True),))]
    assert checked(Nest([*before, None, *body, *after], [Span(2, 3, 6, 4)])) == 1


def test_a_loop_that_stays_different_is_given_up() -> None:
    """Each try orders it anew, and what it waits for differs every time."""
    edge = LoopEdge()
    tried = [(edge.eased(LoopEdge(waits={(1, 2): 100 - n})), edge.drained) for n in range(2 * EASED + 1)]
    assert tried == [(True, False)] * EASED + [(True, True)] * EASED + [(False, True)]
