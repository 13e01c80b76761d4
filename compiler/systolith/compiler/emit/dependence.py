"""Which earlier instructions the instructions of a straight line conflict with: the last one of each lane.

Conflicts depend on addresses and program order alone, so those of a whole window of instructions are found at once.
Memories are lines, numbered one memory after another.  Lines that the same ranges of a window cover are one *atom*,
wherever they lie: a tile of columns is a thousand pieces of memory, but one atom as long as nothing else cuts it.  So
the work grows with the ranges and how they cut each other, not with their bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from systolith.compiler.emit.stamps import Ints, Stamps, follow
from systolith.isa.access import Access

WINDOW = 4096
"""Uses of memory that are looked at together."""

CLOSE = 32
"""Numbers lie close to each other in a range of less than so many times as many numbers."""

LEAST_PITCH = 256
"""Bytes: gaps of ranges at a smaller pitch are not regarded."""

VIEWS = 1 << 16
"""A memory may go by several numbers of a buffer, which differ by multiples of this: then they do not conflict."""

MOST_PIECES = 1 << 16
"""A range of more pieces counts as one interval."""

Key = tuple[int, int]
"""A memory: space and buffer of an access."""


class Lines(NamedTuple):
    """Lines of a range: `pieces` intervals of `width`, `step` apart.

    Those from `end`, the end of `memory`, on count as the line before it.
    """

    memory: int
    first: int
    width: int
    step: int
    pieces: int
    end: int


class LineMap:
    """Numbers of lines; memories come one after another as they are first touched.

    Args:
        sizes: bytes of each memory.
        fine: by space, log2 of the bytes of a line.
        least: bytes; at a smaller pitch, and where there are over `MOST_PIECES` pieces, a range counts as one interval.
    """

    def __init__(self, sizes: Mapping[Key, int], fine: Mapping[int, int], least: int = LEAST_PITCH) -> None:
        self._sizes, self._fine, self._least = sizes, fine, least
        self._memories: dict[Key, tuple[int, int, int]] = {}
        self._end = 0
        self._known: dict[Access, int] = {}
        self.ranges: list[Lines] = []

    def number(self, access: Access) -> int:
        """The number in `ranges` of what an access touches."""
        found = self._known.get(access)
        if found is None:
            found = self._known[access] = len(self.ranges)
            self.ranges.append(self._lines(access))
        return found

    def _lines(self, a: Access) -> Lines:
        """Lines of an access; what lies beyond the memory counts as its last line."""
        shift, base, last = self._memories.get((a.space, a.buffer)) or self._open(a)
        end = base + last + 1
        first = min(max(a.lo, 0) >> shift, last)
        if a.pitch and a.pitch >= self._least and a.pitch % (1 << shift) == 0 and a.lo >= 0:
            width, step = ((a.lo + a.run - 1) >> shift) + 1 - first, a.pitch >> shift
            pieces = -(-(a.hi - a.lo) // a.pitch)
            if width < step and pieces <= MOST_PIECES:
                return Lines(end, base + first, width, step, pieces, end)
        width = max(first, min((a.hi - 1) >> shift, last)) + 1 - first
        return Lines(end, base + first, width, 0, 1, end)

    def _open(self, a: Access) -> tuple[int, int, int]:
        """(log2 of a line's bytes, number of the first line, lines but one) of a memory not touched before."""
        size = self._sizes.get((a.space, a.buffer % VIEWS), a.hi)
        shift = self._fine.get(a.space, 0)
        memory = self._memories[a.space, a.buffer] = (shift, self._end, size >> shift)
        self._end += (size >> shift) + 1
        return memory


@dataclass(frozen=True)
class Past:
    """Who touched what last: 1 + the place of an instruction; 0: none did.

    Attributes:
        bounds: first line of each run of lines; the last run has no end.
        written, read: [runs, lanes].
    """

    bounds: Ints
    written: Stamps
    read: Stamps

    def at(self, bounds: Ints) -> Past:
        """The same, cut at `bounds`, among which its own are."""
        run = np.searchsorted(self.bounds, bounds, "right") - 1
        known = (run >= 0)[:, None]
        return Past(bounds, *(np.where(known, table[run], 0) for table in (self.written, self.read)))

    def merged(self) -> Past:
        """The same in as few runs as will do."""
        changes = [(table[1:] != table[:-1]).any(axis=1) for table in (self.written, self.read)]
        new = np.append(True, np.logical_or(*changes))
        return Past(self.bounds[new], self.written[new], self.read[new])


@dataclass(frozen=True)
class Atoms:
    """Lines divided by the ranges that cover them.

    Attributes:
        many: how many atoms there are.
        bounds: first line of each run of lines.
        of_run: the atom that each run belongs to.
        begin: where the atoms of each range begin in `found`, and their end.
        found: the atoms of the first range, of the second one, and so on.
    """

    many: int
    bounds: Ints
    of_run: Ints
    begin: Ints
    found: Ints


def conflicts(
    touched: Iterable[Iterable[Access]], lanes: Sequence[int], many: int, lines: LineMap
) -> list[list[tuple[int, int]]]:
    """For each instruction of a straight line: (lane, place of the lane's last one that it conflicts with).

    Args:
        touched: what each touches.
        lanes: of each.
        many: how many lanes there are.
        lines: of the memories.
    """
    uses = [(k, lines.number(a), a.write) for k, each in enumerate(touched) for a in each if a.hi > a.lo]
    latest: list[list[tuple[int, int]]] = [[] for _ in lanes]
    if not uses:
        return latest
    place, number, write = np.array(uses, np.int64).T
    known = _distinct(number)
    number = np.searchsorted(known, number)
    ranges = np.array([lines.ranges[n] for n in known.tolist()], np.int64)
    memory = ranges[number, 0]
    # What nothing writes conflicts with nothing.
    kept = np.flatnonzero(np.isin(memory, memory[write == 1]))
    order = kept[np.argsort(memory[kept], kind="stable")]
    lane, needed = np.array(lanes, np.int64), np.zeros((len(lanes), many), np.int32)
    past = nothing = Past(np.zeros(1, np.int64), *np.zeros((2, 1, many), np.int32))
    for fresh, window in _windows(memory[order], place[order]):
        own = order[window]
        used = _distinct(number[own])
        before = nothing if fresh else past
        atoms, here = divide(ranges[used], before.bounds), place[own]
        row = np.searchsorted(used, number[own])
        past = _follow((here, lane[here], write[own]), row, atoms, before.at(atoms.bounds), needed)
    which, by = np.nonzero(needed)
    for k, p, n in zip(which.tolist(), by.tolist(), needed[which, by].tolist(), strict=True):
        latest[k].append((p, n - 1))
    return latest


def _windows(memory: Ints, place: Ints) -> Iterator[tuple[bool, slice]]:
    """Windows of uses sorted by memory, then place: some whole memories, or a part of one.

    Yields also whether nothing before matters, since the window begins a memory.
    """
    ends = np.append(np.flatnonzero(np.diff(memory)) + 1, len(memory))
    begin, fresh = 0, True
    while begin < len(memory):
        limit = begin + WINDOW
        whole = int(ends[np.searchsorted(ends, limit, "right") - 1]) if ends[0] <= limit else 0
        if whole <= begin:
            # What one instruction uses is not divided.
            whole = limit - int(np.argmax(place[begin:limit][::-1] != place[limit]))
        yield fresh, slice(begin, whole)
        begin, fresh = whole, bool((ends == whole).any())


def _distinct(values: Ints) -> Ints:
    """Sorted, each once: what `numpy.unique` gives by hashing, which takes much longer.

    Where they lie close to each other they are marked, not sorted.
    """
    first, last = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if last - first < CLOSE * len(values):
        marks = np.zeros(last - first + 1, np.bool_)
        marks[values - first] = True
        return np.flatnonzero(marks) + first
    ordered = np.sort(values)
    found: Ints = ordered[np.append(True, ordered[1:] != ordered[:-1])]
    return found


def _places(values: Ints, distinct: Ints) -> Ints:
    """Where values are among distinct ones, all of which are sorted."""
    first, last = int(distinct[0]), int(distinct[-1])
    if last - first < CLOSE * len(values):
        number = np.zeros(last - first + 1, np.int64)
        number[distinct - first] = np.arange(len(distinct))
        return number[values - first]
    return np.searchsorted(distinct, values)


def divide(ranges: Ints, bounds: Ints) -> Atoms:
    """Atoms of some ranges (rows as in `Lines`); what `bounds` divide is divided into runs.

    Lines get the sum of numbers drawn for the ranges that cover them: those of one sum are one atom.  Should two sums
    meet by chance (in 64 bits), two atoms become one, which orders too much, never too little.
    """
    _, first, width, step, pieces, end = ranges.T
    row = np.repeat(np.arange(len(ranges)), pieces)
    starts = np.minimum(first[row] + step[row] * _counting(pieces), end[row] - 1)
    ends = np.minimum(starts + width[row], end[row])
    bounds = _distinct(np.concatenate([starts, ends, bounds]))
    from_, to = _places(starts, bounds), _places(ends, bounds)
    drawn = np.random.default_rng(0).integers(1 << 63, size=len(ranges), dtype=np.uint64)[row]
    steps = np.zeros(len(bounds), np.uint64)
    np.add.at(steps, from_, drawn)
    np.subtract.at(steps, to, drawn)
    of = np.cumsum(steps).view(np.int64)
    sums = _distinct(of)
    of_run = np.searchsorted(sums, of)
    runs = to - from_
    pairs = np.repeat(row, runs) * len(sums) + of_run[np.repeat(from_, runs) + _counting(runs)]
    of, found = np.divmod(_distinct(pairs), len(sums))
    return Atoms(len(sums), bounds, of_run, np.searchsorted(of, np.arange(len(ranges) + 1)), found)


def _counting(counts: Ints) -> Ints:
    """0 to n - 1 for each n, one after another."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1]) - np.repeat(ends - counts, counts)


def _follow(use: tuple[Ints, Ints, Ints], row: Ints, atoms: Atoms, past: Past, needed: Stamps) -> Past:
    """The past after a window; what its instructions conflict with goes to `needed`, [places, lanes].

    Args:
        use: place, lane, and whether it writes, of each use, by place.
        row: the range that it touches.
        atoms: those of the ranges.
        past: before, cut as the atoms are.
        needed: see `follow`.
    """
    runs = np.argsort(atoms.of_run, kind="stable")
    heads = np.searchsorted(atoms.of_run[runs], np.arange(atoms.many))
    before = [np.maximum.reduceat(table[runs], heads, axis=0) for table in (past.written, past.read)]
    written, read = (table.copy() for table in before)
    follow(*use, atoms.begin[row], atoms.begin[row + 1], atoms.found, (written, read), needed)
    new = (np.where(after > old, after, 0)[atoms.of_run] for after, old in zip((written, read), before, strict=True))
    return Past(past.bounds, *map(np.maximum, (past.written, past.read), new)).merged()
