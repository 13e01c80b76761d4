"""Derived tokens order every conflict, balance, and never block: random instructions, an independent checker."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.emit.dependence import Key
from systolith.compiler.emit.tokens import Ordered, Orderer
from systolith.isa.access import Access
from systolith.isa.instruction import Instruction, Space
from systolith.isa.opcodes import MAX_WAITS, queue_of
from tests.examples import examples

QUEUES = ("seq", "ld", "st", "w0", "s0", "vpu", "xlu")
FENCED = {"ld", "st"}
LATCH = "s0 latch"
"""Stands for a latch in the place of a queue: the one instruction that retires alone."""
OPS = {
    "ld": "dma.load", "st": "dma.store", "w0": "mxu.load", "s0": "mxu.matmul", LATCH: "mxu.latch", "vpu": "vpu.run",
    "xlu": "xlu.shuffle",
}  # fmt: skip
SIZES: dict[Key, int] = {(Space.VMEM, 0): 128, (Space.VMEM, 1): 40}
"""Some ranges lie beyond the second one: they must be ordered all the same."""


@dataclass(frozen=True)
class Plan:
    """The accesses of an instruction; found again by the number in its arguments."""

    kind: str
    ranges: tuple[Access, ...]

    @property
    def queue(self) -> str:
        return self.kind.split()[0]


ranges = st.builds(
    lambda key, lo, n, write: Access(Space.VMEM, key, lo * 4, lo * 4 + n, write),
    st.integers(0, 1), st.integers(0, 20), st.integers(1, 40), st.booleans(),
)  # fmt: skip
plans = st.sampled_from([(*QUEUES, LATCH), ("s0", LATCH, "w0")]).flatmap(
    lambda kinds: st.lists(
        st.builds(lambda kind, r: Plan(kind, tuple(r)), st.sampled_from(kinds), st.lists(ranges, max_size=3)),
        max_size=60,
    )
)


def _instruction(number: int, plan: Plan) -> Instruction:
    return Instruction("sts" if plan.queue == "seq" else OPS[plan.kind], {"number": number})


def _order(work: list[Plan], boundaries: frozenset[int], token_max: int = 255) -> Ordered:
    code = [_instruction(n, p) for n, p in enumerate(work)]
    orderer = Orderer(
        QUEUES,
        lambda i: work[int(str(i.args["number"]))].ranges if "number" in i.args else (),
        SIZES,
        token_max,
        4,
        fine=dict.fromkeys(range(16), 2),
    )
    return orderer.run(code, boundaries)


def happens_before(ordered: Ordered) -> list[set[int]]:
    """For each instruction, those that have retired before it starts: from the rules, by transitive closure."""
    code = ordered.instructions
    last: dict[str, int] = {}
    pending: dict[int, list[int]] = {}
    known: list[set[int]] = []
    at_issue: set[int] = set()
    by_queue: dict[str, list[int]] = {q: [] for q in QUEUES}
    for n, instruction in enumerate(code):
        queue = queue_of(instruction)
        before = set(at_issue)
        if queue in last:
            before |= known[last[queue]]
            if instruction.fence:
                before |= set(by_queue[queue])
        for token in instruction.waits:
            producer = pending[token].pop(0)
            before |= known[producer]
            # Retirement is in order, but for latches.
            line = by_queue[queue_of(code[producer])]
            line = line[: line.index(producer) + 1]
            before |= {i for i in line if code[i].op == "mxu.latch" or code[producer].op != "mxu.latch"}
        for token in instruction.signals:
            pending.setdefault(token, []).append(n)
        known.append(before)
        by_queue[queue].append(n)
        last[queue] = n
        if queue == "seq":
            at_issue |= before | {n}
    assert not any(pending.values()), "a signal that nobody takes"
    return known


def conflict(a: Plan, b: Plan) -> bool:
    return any(x.meets(y) and (x.write or y.write) for x in a.ranges for y in b.ranges)


@given(plans, st.sets(st.integers(0, 60), max_size=4))
@examples(25, 150)
def test_conflicts_are_ordered(work: list[Plan], places: set[int]) -> None:
    ordered = _order(work, frozenset(places))
    known = happens_before(ordered)
    where = {source: n for n, source in enumerate(ordered.sources) if source >= 0}
    assert sorted(where) == list(range(len(work)))
    for j, later in enumerate(work):
        for i, earlier in enumerate(work[:j]):
            if conflict(earlier, later):
                same = earlier.queue == later.queue and earlier.queue not in FENCED
                assert same or where[i] in known[where[j]], (i, j)


@given(plans, st.sets(st.integers(0, 60), max_size=4), st.sampled_from([6, 8, 255]))
def test_tokens_have_one_producer_and_one_consumer_and_stay_small(
    work: list[Plan], places: set[int], most: int
) -> None:
    ordered = _order(work, frozenset(places), most)
    counts: Counter[int] = Counter()
    latched: dict[int, bool] = {}
    for instruction in ordered.instructions:
        assert len(instruction.waits) <= MAX_WAITS
        assert len(instruction.signals) <= MAX_WAITS
        for token in instruction.waits:
            assert ordered.tokens[token].consumer == queue_of(instruction)
            counts[token] -= 1
            assert counts[token] >= 0, "waits before it is signalled: a deadlock"
        for token in instruction.signals:
            assert ordered.tokens[token].producer == queue_of(instruction)
            assert latched.setdefault(token, instruction.op == "mxu.latch") == (instruction.op == "mxu.latch")
            counts[token] += 1
            # The consumer's FIFO of 4, and one at its head, can hold that many back.
            assert counts[token] + 5 <= max(most, 6)


@given(plans, st.integers(0, 60))
def test_a_boundary_leaves_nothing_under_way(work: list[Plan], place: int) -> None:
    ordered = _order(work, frozenset({place}))
    if place >= len(work):
        return
    entry = ordered.entries[place]
    known = happens_before(ordered)
    done: set[int] = set()
    for n in range(entry):
        if queue_of(ordered.instructions[n]) == "seq":
            done |= known[n] | {n}
    assert done == set(range(entry))


def test_a_latch_is_no_word_of_the_matmul_before_it() -> None:
    shadow, sums = Access(Space.VMEM, 0, 0, 4, False), Access(Space.VMEM, 1, 0, 4, True)
    both = Access(Space.VMEM, 0, 0, 4, True), Access(Space.VMEM, 1, 0, 4, False)
    ordered = _order([Plan("s0", (sums,)), Plan(LATCH, (shadow,)), Plan("w0", both)], frozenset())
    assert [(i.op, len(i.waits), len(i.signals)) for i in ordered.instructions] == [
        ("mxu.matmul", 0, 1), ("mxu.latch", 0, 1), ("mxu.load", 2, 0)
    ]  # fmt: skip
    # A matmul after the latch tells of both.
    ordered = _order([Plan("s0", (sums,)), Plan(LATCH, (shadow,)), Plan("s0", (sums,)), Plan("w0", both)], frozenset())
    assert [len(i.waits) for i in ordered.instructions] == [0, 0, 0, 1]


def test_what_is_known_already_is_not_waited_for_again() -> None:
    first, second = Access(Space.VMEM, 0, 0, 4, True), Access(Space.VMEM, 0, 64, 68, True)
    work = [Plan("ld", (first,)), Plan("vpu", (first, second)), Plan("s0", (first, second)), Plan("vpu", (second,))]
    ordered = _order(work, frozenset())
    assert [len(i.waits) for i in ordered.instructions] == [0, 1, 1, 1]
