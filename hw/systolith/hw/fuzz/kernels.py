"""Random VPU kernels: every micro-operation in every slot, on registers, constants and scalars, in every section."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from systolith.hw.fuzz.draw import Draw
from systolith.isa.chip import Chip
from systolith.isa.dependence import slots_of
from systolith.isa.errors import ProgramError
from systolith.isa.kernel import CONST0, NSCALARS, SCALAR0, Kernel, MicroOp, Section
from systolith.isa.microops import MICROOPS, Slot
from systolith.isa.schedule import VIRTUAL0, schedule_kernel
from systolith.isa.verify_kernel import verify_kernel

_COMPUTING = tuple(m for m in MICROOPS.values() if m.name not in ("ld", "st", "coord", "inside"))
_SALT = 0x6B


@dataclass(frozen=True)
class Shape:
    """A kernel and its requirements on its streams.

    Attributes:
        kernel: scheduled.
        streams: how many.
        loads, stores: those that it loads and stores.
        stored: those that it stores, once for each micro-operation that does.
        coords: for each stream, how many coordinates its pattern needs.
    """

    kernel: Kernel
    streams: int
    loads: frozenset[int]
    stores: frozenset[int]
    stored: tuple[int, ...]
    coords: tuple[int, ...]


class _Writer:
    """Writes a kernel's sections, unscheduled."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.streams = draw.weighted((0, 1, 2, 3, 4, 6, 7, 9, 11), (1, 3, 8, 8, 5, 3, 1, 1, 1)) + draw.below(2)
        self.stored = set(draw.sample(range(self.streams), draw.weighted((0, 1, 2, 3, 5), (1, 9, 9, 5, 2))))
        self.constants = [draw.image() for _ in range(draw.weighted((0, 1, 3, 6), (1, 6, 8, 3)))]
        self.coords = [0] * self.streams
        self.next = VIRTUAL0
        self.unread: set[int] = set()
        self.untouched = draw.shuffled(sorted(self.stored))

    def fresh(self) -> int:
        self.next += 1
        return self.next - 1

    def _operand(self, live: Sequence[int]) -> int:
        """A register mostly; a constant or a scalar too."""
        draw = self.draw
        if live and draw.chance(0.5):
            waiting = [r for r in live if r in self.unread]
            chosen = draw.pick(waiting) if waiting and draw.chance(0.7) else draw.pick(live)
            self.unread.discard(chosen)
            return chosen
        if self.constants and draw.chance(0.5):
            return CONST0 + draw.below(len(self.constants))
        return SCALAR0 + draw.below(NSCALARS)

    def _result(self, live: Sequence[int]) -> int:
        """A value to store: mostly one that nothing has read yet, if there is one."""
        waiting = [r for r in live if r in self.unread]
        if not waiting or self.draw.chance(0.15):
            return self._operand(live)
        self.unread.discard(waiting[-1])
        return waiting[-1]

    def _store(self, ops: list[MicroOp], live: Sequence[int]) -> None:
        """A store: where nothing was stored yet that it would hide, or now and then over something else."""
        if not self.untouched and self.draw.chance(0.7):
            return
        target = self.untouched.pop() if self.untouched else self.draw.pick(sorted(self.stored))
        ops.append(MicroOp("st", -1, (self._result(live),), target))

    def _compute(self, live: Sequence[int], dst: int) -> MicroOp:
        info = self.draw.pick(_COMPUTING)
        return MicroOp(info.name, dst, tuple(self._operand(live) for _ in range(info.sources)))

    def _other(self, dst: int) -> MicroOp:
        """A load, a coordinate, or a mask."""
        draw, n = self.draw, self.draw.below(self.streams)
        op = draw.weighted(("ld", "coord", "inside"), (8, 2, 1))
        if op == "coord":
            number = draw.weighted((0, 1, 3), (5, 2, 1))
            self.coords[n] = max(self.coords[n], number + 1)
            return MicroOp(op, dst, (), 16 * number + n)
        return MicroOp(op, dst, (), n)

    def section(self, length: int, live: list[int], carried: Sequence[int] = ()) -> list[MicroOp]:
        """About `length` micro-operations that may read `live`, which is brought up to date, and write `carried`."""
        draw = self.draw
        ops: list[MicroOp] = []
        updates = set(draw.sample(range(length), len(carried)))
        pending = list(carried)
        for i in range(length):
            if self.stored and i > 1 and draw.chance(0.25):
                self._store(ops, live)
                continue
            dst = pending.pop() if i in updates and pending else self.fresh()
            again = dst in carried
            other = self.streams and draw.chance(0.3) and not again
            ops.append(self._other(dst) if other else self._compute(live, dst))
            self.unread.add(dst)
            if not again:
                live.append(dst)
        return ops

    def finish(self, ops: list[MicroOp], live: Sequence[int], last: bool) -> None:
        """Store values that nothing has read, so that they make a difference; in the end, to every stream."""
        folded = [r for r in live if r in self.unread]
        if self.stored and folded and self.draw.chance(0.9):
            total = folded[0]
            for other in folded[1:]:
                ops.append(MicroOp("xor", self.fresh(), (total, other)))
                total = ops[-1].dst
            target = self.untouched.pop() if self.untouched else self.draw.pick(sorted(self.stored))
            ops.append(MicroOp("st", -1, (total,), target))
            self.unread.difference_update(folded)
        while last and self.untouched:
            self._store(ops, live)


def _sections(draw: Draw, writer: _Writer) -> tuple[list[MicroOp], list[MicroOp], list[MicroOp]]:
    """Prologue, body, epilogue: alone, with carried registers, with invariants, or without a body."""
    kind = draw.weighted(("plain", "carried", "around", "bodiless"), (11, 5, 3, 1))
    length = draw.weighted((2, 5, 9, 14, 24), (3, 6, 5, 3, 1)) + draw.below(3)
    if kind == "plain":
        seen: list[int] = []
        body = writer.section(length, seen)
        writer.finish(body, seen, last=True)
        return [], body, []
    kept: list[int] = []
    prologue = writer.section(draw.between(1, 4), kept)
    carried = [writer.fresh() for _ in range(draw.between(1, 2))] if kind == "carried" else []
    prologue += [MicroOp("mov", c, (writer._operand([]),)) for c in carried]
    live = [*kept[-2:], *carried]
    body = [] if kind == "bodiless" else writer.section(max(length, 3), live, carried)
    after = [r for r in live if draw.chance(0.5)][-3:]
    epilogue = writer.section(draw.between(1, 5), after) if draw.chance(0.8) else []
    if body:
        writer.finish(body, live, last=not epilogue)
    if epilogue:
        writer.finish(epilogue, after, last=True)
    return prologue, body, epilogue


def _shuffle_slots(draw: Draw, section: Section, ii: int, chip: Chip) -> Section:
    """The same cycles, other slots of the class."""
    taken: dict[tuple[Slot, int], list[int]] = defaultdict(list)
    ops = []
    for m in section.ops:
        slot = MICROOPS[m.op].slot
        key = (slot, m.cycle % ii if ii else m.cycle)
        if key not in taken:
            taken[key] = draw.shuffled(range(slots_of(slot, chip)))
        ops.append(replace(m, slot=taken[key].pop()))
    return Section(tuple(ops), section.length)


def _vary(draw: Draw, kernel: Kernel, chip: Chip) -> Kernel:
    """Another legal schedule of the same operations: other slots, a longer interval, longer sections."""
    other = replace(
        kernel,
        prologue=_shuffle_slots(draw, kernel.prologue, 0, chip),
        body=_shuffle_slots(draw, kernel.body, kernel.ii, chip),
        epilogue=_shuffle_slots(draw, kernel.epilogue, 0, chip),
    )
    looser = other
    if draw.chance(0.25):
        looser = replace(looser, ii=looser.ii + draw.between(1, 5))
    if draw.chance(0.15):
        looser = replace(looser, body=Section(looser.body.ops, looser.body.length + draw.between(1, 7)))
    if looser.prologue.ops and draw.chance(0.15):
        looser = replace(looser, prologue=Section(looser.prologue.ops, looser.prologue.length + draw.between(1, 4)))
    if looser is not other:
        try:
            verify_kernel(looser, chip)
        except ProgramError:
            return other
    return looser


@lru_cache(maxsize=4096)
def random_kernel(seed: int, chip: Chip) -> Shape:
    """The kernel of that number."""
    attempt = 0
    while True:
        draw = Draw(_SALT, seed, attempt)
        writer = _Writer(draw)
        sections = _sections(draw, writer)
        try:
            kernel = schedule_kernel(f"k{seed}", *sections, writer.constants, chip)
            break
        except ProgramError:  # more registers than there are
            attempt += 1
    kernel = _vary(draw, kernel, chip)
    ops = [m for s in (kernel.prologue, kernel.body, kernel.epilogue) for m in s.ops]
    loads = frozenset(m.imm for m in ops if m.op == "ld")
    stored = tuple(m.imm for m in ops if m.op == "st")
    return Shape(kernel, writer.streams, loads, frozenset(stored), stored, tuple(writer.coords))
