"""Rematerialisation: fewer temporaries alive in HBM at once, because values are computed again.

For modules that do not fit in HBM.  As in XLA's HloRematerialization, what is alive at the step of the peak, not used
there, and costs the fewest cycles for each byte saved is computed again just before its next use: from operands that
are alive there, are kept until then, or are themselves computed again.  What nothing used before is only made later,
which costs nothing.  Every change lowers the peak, or the number of steps that reach it; loops and branches have lines
of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from systolith.compiler.hlo.ir import Computation, Instruction, Module
from systolith.compiler.memory.aliasing import parameter_leaves, read_aliases, read_donors
from systolith.compiler.memory.linear_schedule import AGAIN, LinearSchedule, Step, line_of
from systolith.compiler.memory.residency import Leaf, leaf_bytes, leaves_of, nested
from systolith.compiler.ops.group import Group

MOST_TRIED = 24
"""Values, the cheapest first, among which the one that is computed again is chosen, if one of them will do."""

MOST_GROUPS = 16
"""Groups that run again for one value, at most."""


@dataclass(frozen=True)
class Remade:
    """A change.

    Attributes:
        group: what is computed again, or only later.
        before: the instruction that needs it then.
        groups: that run again for it.
        cycles: estimated, in all executions; 0 if it is only made later.
        bytes: fewer at the step of the peak.
        peak: bytes of temporaries alive at once, after it.
    """

    group: str
    before: str
    groups: int
    cycles: int
    bytes: int
    peak: int


@dataclass(frozen=True)
class _Change:
    """A line with a value computed again."""

    line: LinearSchedule
    group: Step
    before: Step
    run: tuple[Step, ...]
    cycles: int
    saved: int

    @property
    def price(self) -> tuple[float, int]:
        """Cycles a byte; of what costs the same, the largest saving first."""
        return self.cycles / self.saved, -self.saved


class Rematerialiser:
    """A grouped module whose peak in HBM is to fall.

    Attributes:
        lines: its computations that run, as they are so far.
    """

    def __init__(self, module: Module, spilled: Collection[Leaf], cycles: Mapping[str, int]) -> None:
        """`spilled`: leaves that lie in HBM, in memory of their own; `cycles`: of each group, in all executions."""
        self.entry = module.entry
        self.lines: dict[Computation, LinearSchedule] = {}
        self._cycles = cycles
        self._peaks: dict[Computation, int] = {}
        given = parameter_leaves(module)
        taken = {a.parameter for a in read_aliases(module)}.union(read_donors(module))
        self._read(module.entry, spilled, [given[n] for n in taken])

    def _read(self, computation: Computation, spilled: Collection[Leaf], pinned: Collection[Leaf]) -> None:
        self.lines[computation] = line_of(computation, spilled, pinned)
        for inner in (c for i in computation.instructions for c in nested(i)):
            # The next state of a loop is made in the place of this one.
            self._read(inner, spilled, leaves_of(*inner.parameters))

    @property
    def peak(self) -> int:
        """Bytes of temporaries alive at once."""
        return self._peak(self.entry)

    def lower(self, goal: int) -> Iterator[Remade]:
        """Change lines until the peak is at most `goal` bytes, or nothing lowers it."""
        while self.peak > goal:
            found = [(computation, c) for computation, at in self._summit() if (c := self._best(computation, at))]
            if not found:
                return
            computation, change = min(found, key=lambda f: f[1].price)
            self.lines[computation] = change.line
            self._peaks.clear()
            group, before = change.group.instruction.name, change.before.instruction.name
            yield Remade(group, before, len(change.run), change.cycles, change.saved, self.peak)

    def _peak(self, computation: Computation) -> int:
        if computation not in self._peaks:
            self._peaks[computation] = max(self._usage(computation), default=0)
        return self._peaks[computation]

    def _usage(self, computation: Computation) -> list[int]:
        return self.lines[computation].usage(self._inside(computation))

    def _inside(self, computation: Computation) -> dict[Instruction, int]:
        steps = {s.instruction: nested(s.instruction) for s in self.lines[computation].steps}
        return {i: max(map(self._peak, inner)) for i, inner in steps.items() if inner}

    def _summit(self) -> Iterator[tuple[Computation, int]]:
        """Where the peak is reached first: the step in the entry, the step in what that runs, and so on."""
        computation: Computation | None = self.entry
        while computation is not None:
            usage = self._usage(computation)
            if not usage:
                return
            at = usage.index(max(usage))
            yield computation, at
            inner = nested(self.lines[computation].steps[at].instruction)
            computation = max(inner, key=self._peak, default=None)

    def _best(self, computation: Computation, at: int) -> _Change | None:
        """The cheapest change of a line that lowers its peak at a step."""
        line, inside = self.lines[computation], self._inside(computation)
        usage = line.usage(inside)
        height = max(usage), usage.count(max(usage))
        best: _Change | None = None
        cheapest = sorted(self._candidates(line, at), key=lambda c: c[0])
        for tried, (price, group, needed) in enumerate(cheapest):
            if best is not None and (tried >= MOST_TRIED or price >= best.price):
                break
            for kept in (True, False):
                run = _again(line, group, needed, kept)
                if run is None:
                    continue
                new = run.line.usage(inside)
                saved = usage[at] - new[run.line.steps.index(line.steps[at])]
                if saved > 0 and (max(new), new.count(max(new))) < height:
                    more = sum(map(self._cost, run.steps)) - sum(map(self._cost, run.dropped))
                    change = _Change(run.line, group, line.steps[needed], run.steps, more, saved)
                    best = change if best is None or change.price < best.price else best
        return best

    def _cost(self, step: Step) -> int:
        name = step.instruction.name
        return self._cycles.get(name, self._cycles.get(name.partition(AGAIN)[0], 0))

    def _candidates(self, line: LinearSchedule, at: int) -> Iterator[tuple[tuple[float, int], Step, int]]:
        """Groups whose values are only alive at a step: the least that a byte can cost, the step of the next use."""
        needed = set(line.steps[at].reads)
        ends = set(line.ends)
        seen: set[int] = set()
        after = {v: n for n in range(len(line.steps) - 1, at, -1) for v in line.steps[n].reads}
        for step in line.steps[:at]:
            seen.update(step.reads)
        for step in line.steps[:at]:
            size = sum(line.sizes[v] for v in step.makes if line.liveness.last[v] > at)
            if not size or not isinstance(step.instruction, Group) or not needed.union(ends).isdisjoint(step.makes):
                continue
            cycles = 0 if seen.isdisjoint(step.makes) else self._cost(step)
            yield (cycles / size, -size), step, min(after[v] for v in step.makes if v in after)


@dataclass(frozen=True)
class _Run:
    """A line in which groups run again: which, and those that nothing needs any more."""

    line: LinearSchedule
    steps: tuple[Step, ...]
    dropped: tuple[Step, ...]


def _again(line: LinearSchedule, group: Step, at: int, kept: bool) -> _Run | None:
    """A line that computes a group's values again, or only, before a step; None if that is impossible.

    Args:
        line: the computation.
        group: its step.
        at: the step before which it runs.
        kept: operands that are not alive there are kept until then; else groups that make them run again, too.
    """
    leaves, sizes = list(line.leaves), list(line.sizes)
    run: list[Step] = []
    renamed: dict[int, int] = {}

    def make(step: Step) -> bool:
        if len(run) >= MOST_GROUPS or not isinstance(step.instruction, Group):
            return False
        for v in step.reads:
            if line.liveness.last[v] >= at or v in renamed:
                continue
            if v not in line.makers:
                if v in line.pinned:
                    return False
            elif kept:
                # A value in VMEM may have to leave it if it stays for longer.
                sizes[v] = leaf_bytes(leaves[v])
            elif not make(line.makers[v]):
                return False
        new = range(len(leaves), len(leaves) + len(step.makes))
        leaves.extend(leaves[v] for v in step.makes)
        sizes.extend(sizes[v] for v in step.makes)
        run.append(replace(_reading(step, renamed), makes=tuple(new)))
        renamed.update(zip(step.makes, new, strict=True))
        return True

    if not make(group):
        return None
    after = (s if renamed.keys().isdisjoint(s.reads) else _reading(s, renamed) for s in line.steps[at:])
    left: list[Step] = []
    dropped: list[Step] = []
    # What nothing read before stays.
    needed = line.makers.keys() - {v for s in line.steps for v in s.reads} | set(line.ends)
    for step in reversed((*line.steps[:at], *run, *after)):
        if needed.isdisjoint(step.makes):
            dropped.append(step)
        else:
            left.append(step)
            needed.update(step.reads)
    changed = LinearSchedule(tuple(reversed(left)), tuple(leaves), tuple(sizes), line.ends, line.pinned)
    return _Run(changed, tuple(run), tuple(dropped))


def _reading(step: Step, renamed: Mapping[int, int]) -> Step:
    """A step with other values in place of those that it reads."""
    return replace(step, reads=tuple(renamed.get(v, v) for v in step.reads))
