"""Loops from stretches of a program that repeat (LLVM: loop reroll), nested ones from the inside.

A stretch repeats with a period if each operation is the one a period earlier, but for two things: buffers on the chip,
each of which takes the place of one of the period before, and offsets, which move by constants.  The first repetitions
stay written out, since what comes before overlaps with them; the others become the iterations of a `Loop`, whose
buffers lie in one piece of memory.  What runs, and in which order, stays the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, groupby

import numpy as np
import numpy.typing as npt

from systolith.compiler.explain import Decision
from systolith.compiler.schedule.repetition import LEAST, LONGEST, SMALLEST, Form, Lives, Places, Repetition, moved_to
from systolith.compiler.tile.builder import FIRST_VAR
from systolith.compiler.tile.ir import Arg, Block, Buf, Item, Loop, Ref, TileOp, VReg
from systolith.isa.chip import Chip
from systolith.isa.instruction import Instruction, Space
from systolith.isa.opcodes import queue_of

ENOUGH = 0.5
"""Part of the operations that loops of the best period save, which loops of a shorter one save at least."""


@dataclass
class Rerolled:
    """A block with loops.

    Attributes:
        block: it.
        now: what has become of operations whose buffers are in other places than before, and of the last one of a
            group that a loop ends: what comes after the loop.
        decisions: the loops.
        memory: of the buffers of loops, under names that other blocks may have, too.
    """

    block: Block
    now: dict[TileOp, TileOp] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    memory: list[Buf] = field(default_factory=list)


class Keys:
    """What operations are compared by; searches in the same operations share it.

    Attributes:
        wanted: places for each buffer of a loop, by estimate, of repetitions so far.
    """

    def __init__(self) -> None:
        self.wanted: dict[Hashable, int] = {}
        self._numbers: dict[object, int] = {}
        self._known: dict[int, tuple[object, int]] = {}
        self._of: dict[TileOp, tuple[int, tuple[Ref, ...]]] = {}

    def of(self, op: TileOp) -> tuple[int, tuple[Ref, ...]]:
        """Its key (0: it is like no other), and its streams, where they lay when it was lowered."""
        found = self._of.get(op)
        if found is None:
            found = self._of[op] = self._made(op)
        return found

    def number(self, value: object) -> int:
        """The same for equal objects."""
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = value, self._numbers.setdefault(value, len(self._numbers) + 1)
        return known[1]

    def _made(self, op: TileOp) -> tuple[int, tuple[Ref, ...]]:
        parts = [(name, part) for name, v in op.args.items() for part in (v if type(v) is tuple else (v,))]
        refs = tuple(part for _, part in parts if type(part) is Ref)
        if any(type(part) is VReg for _, part in parts) or any(map(_bound, refs)):
            return 0, refs
        own = (op.op, op.unit, op.origin.group, op.origin.macs)
        key = (*own, *((name, self._part(part)) for name, part in parts))
        return self._numbers.setdefault(key, len(self._numbers) + 1), refs

    def _part(self, part: Arg) -> object:
        if type(part) is not Ref:
            return part if type(part) in (int, str) else self.number(part)
        if part.buf is None:
            return self.number(part.pattern), part.bias
        fixed = part.offset if part.buf.space is Space.ACC else 0
        from_ = self.number(part.dynamic)
        moves = [stride for _, stride in part.moves]
        return part.buf.space, part.buf.unit, self.number(part.pattern), fixed, part.bias, from_, *moves


def reroll(
    block: Block,
    whole: Iterable[Buf],
    room: int,
    chip: Chip,
    spare: int = 0,
    smallest: int = 0,
    numbers: Iterator[int] | None = None,
    keys: Keys | None = None,
) -> Rerolled:
    """Make loops of repetitions.

    Args:
        block: operations in the order in which they run.
        whole: buffers that stay where they are, since they hold something before it or after.
        room: bytes of VMEM that the buffers of one loop may take.
        chip: the target.
        spare: places for each buffer of a loop more than it takes by estimate.
        smallest: operations of a group in which repetitions are looked for; 0: `SMALLEST`.
        numbers: of induction variables; None: from the first on.
        keys: of its operations; None: of no other search.
    """
    smallest = smallest or SMALLEST
    if sum(1 for _ in block.ops()) < smallest:
        return Rerolled(block)
    search = _Search(block, frozenset(whole), room, chip, spare, smallest, numbers or count(FIRST_VAR), keys or Keys())
    found = Rerolled(search.block(block), decisions=search.decisions, memory=search.places.memory)
    if search.places.of:
        found.block = moved_to(found.block, search.places, found.now)
    found.now |= search.ends
    return found


class _Search:
    """The search for repetitions.

    Args:
        block, whole, room, chip, spare, smallest, numbers, keys: as for `reroll`.

    Attributes:
        places: of the buffers of loops.
        ends: what stands for the last operation of a group that a loop ends.
        decisions: the loops so far.
    """

    def __init__(
        self,
        block: Block,
        whole: frozenset[Buf],
        room: int,
        chip: Chip,
        spare: int,
        smallest: int,
        variables: Iterator[int],
        keys: Keys,
    ) -> None:
        self.lives, self.room, self.chip = Lives(block, whole), room, chip
        self.spare, self.smallest, self._variables, self._keys = spare, smallest, variables, keys
        self.places = Places()
        self.ends: dict[TileOp, TileOp] = {}
        self.decisions: list[Decision] = []

    def block(self, block: Block) -> Block:
        """The block with loops."""
        out = Block()
        for straight, items in groupby(block.items, lambda item: isinstance(item, TileOp)):
            if not straight:
                out.items += map(self._region, items)
                continue
            ops = [op for op in items if isinstance(op, TileOp)]
            segment = range(self.lives.at[ops[0]], self.lives.at[ops[-1]] + 1)
            for _, group in groupby(ops, lambda op: op.origin.group):
                out.items += self._straight([*group], segment)
        return out

    def _region(self, item: Item) -> Item:
        return item if isinstance(item, TileOp | Loop) else item.with_regions([*map(self.block, item.regions)])

    def _straight(self, ops: Sequence[TileOp], segment: range) -> list[Item]:
        """Operations of one group with loops: of the shortest period first, which may shorten longer ones.

        Args:
            ops: in order.
            segment: places of operations around them, between which there are no regions.
        """
        if len(ops) < self.smallest:
            return [*ops]
        forms = [self._form(op) for op in ops]
        while (made := self._once(forms, segment)) is not None:
            forms = made
        items = [f.item for f in forms]
        if isinstance(items[-1], Loop):
            items.append(self._end(ops[-1]))
        return items

    def _end(self, op: TileOp) -> TileOp:
        """An operation after the loop that ends a group: with it the group's results are there."""
        queue = queue_of(Instruction(op.op, {}, op.unit))
        self.ends[op] = TileOp("nop", {"queue": queue}, replace(op.origin, what="end", macs=0))
        return self.ends[op]

    def _once(self, forms: list[Form], segment: range) -> list[Form] | None:
        """The items with loops of one period; None: no period is worth it."""
        keys = np.array([f.key for f in forms], np.int64)
        sizes = np.array([f.size for f in forms], np.int64).cumsum()
        if sizes[-1] < LEAST:
            return None
        for period in _periods(keys, sizes):
            out: list[Form] = []
            at = 0
            for start, end in _stretches(keys, sizes, period):
                while (start := max(start, at)) + 3 * period <= end:
                    found = Repetition(forms, start, end, period, segment, self.lives, self.places.of)
                    loop = (
                        found.loop(self._variables, self.places, self.room, self.spare, self.chip, self._keys.wanted)
                        if found.count > 2
                        else None
                    )
                    if loop is None:
                        start = found.after
                        continue
                    self.decisions.append(loop.decision)
                    out += [*forms[at : loop.first], self._form(loop.loop)]
                    start = at = loop.end
            if at:
                # What loops have in common may be in other places now.
                return [self._form(f.item) for f in [*out, *forms[at:]]]
        return None

    def _form(self, item: Item) -> Form:
        """How an item is compared with others."""
        if isinstance(item, Loop):
            forms = [self._form(inner) for inner in item.body.items]
            refs = tuple(ref for f in forms for ref in f.refs)
            body = ("loop", item.count, *(f.key for f in forms))
            assert isinstance(item.count, int)
            length = item.count * sum(f.length for f in forms)
            return Form(self._keys.number(body), refs, sum(f.size for f in forms), item, forms[0].at, length)
        assert isinstance(item, TileOp)
        key, refs = self._keys.of(item)
        at = self.lives.at[item]
        if self.places.of:
            refs = tuple(map(self.places.ref, refs))
        return Form(key or -1 - at, refs, 1, item, at)


def _bound(ref: Ref) -> bool:
    """Whether a stream has biases in registers or an index list: then it is like no other."""
    return ref.index is not None or any(type(b) is VReg for b in ref.bias)


def _periods(keys: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> Iterator[int]:
    """Periods with which keys repeat: the shortest that saves `ENOUGH` of what any does, and so on of the others.

    Args:
        keys: of the items.
        sizes: instructions up to each, with it.
    """
    left = _bounds(keys, np.diff(sizes, prepend=0))
    saved: dict[int, int] = {}

    def saves(period: int) -> int:
        if period not in saved:
            saved[period] = sum(_saved(sizes, period, *ends) for ends in _stretches(keys, sizes, period))
        return saved[period]

    while left:
        most = 0
        for period, bound in sorted(left.items(), key=lambda each: -each[1]):
            if bound <= most:
                break
            most = max(most, saves(period))
        if not most:
            return
        enough = most * ENOUGH
        period = next(p for p, bound in left.items() if bound >= enough and saves(p) >= enough)
        del left[period]
        yield period


def _bounds(keys: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> dict[int, int]:
    """For each period, the instructions of items that are as the one a period earlier: it cannot save more.

    `sizes`: instructions of each item.
    """
    small, alike = keys.astype(np.int32), bool((sizes == 1).all())
    found = {}
    for period in range(1, min(LONGEST, len(keys) // 3) + 1):
        same = small[period:] == small[:-period]
        bound = int(np.count_nonzero(same)) if alike else int(sizes[period:] @ same)
        if bound >= LEAST:
            found[period] = bound
    return found


def _saved(sizes: npt.NDArray[np.int64], period: int, start: int, end: int) -> int:
    """Instructions that a loop of a stretch saves at most."""
    return int(sizes[end - 1] - sizes[start + 2 * period - 1])


def _stretches(keys: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], period: int) -> Iterator[tuple[int, int]]:
    """Where keys repeat with a period for long enough: the first item, and the one after the last."""
    same = np.concatenate([[False], (keys[period:] == keys[:-period]) & (keys[period:] >= 0), [False]])
    edges = np.flatnonzero(same[1:] != same[:-1])
    for first, last in edges.reshape(-1, 2).tolist():
        end = last + period
        if last - first >= 2 * period and sizes[end - 1] - sizes[first] >= LEAST:
            yield first, end
