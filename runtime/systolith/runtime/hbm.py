"""Allocation of a device's HBM: best fit over a sorted free list, neighbours merged on release."""

from __future__ import annotations

from bisect import bisect, insort
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from systolith.isa.errors import SystolithError
from systolith.runtime.task import ProcessLock

ALIGNMENT = 512
_SHOWN = 4  # of those that hold memory, in a message


class OutOfMemoryError(SystolithError):
    """A device's HBM has no free range that is large enough."""


@dataclass(frozen=True, order=True)
class Range:
    """Bytes `offset` to `offset + size` of HBM."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        """The byte after it."""
        return self.offset + self.size


class Owner(NamedTuple):
    """For whom memory is allocated: a program, or the host, and what of it."""

    program: str
    what: str

    def __str__(self) -> str:
        return f"{self.what} of {self.program}"


HOST = Owner("the host", "array")


class Allocation:
    """A range that is given back when nothing refers to it any more."""

    __slots__ = ("_hbm", "range")

    def __init__(self, hbm: HbmAllocator, taken: Range) -> None:
        self._hbm, self.range = hbm, taken

    def __del__(self) -> None:
        self._hbm.release(self.range)

    def pass_to(self, owner: Owner) -> None:
        """Say whose it is from now on."""
        self._hbm.owners[self.range.offset] = owner


class HbmAllocator:
    """Allocates ranges of one device's HBM.

    Args:
        capacity: bytes of HBM.

    Attributes:
        in_use: bytes allocated now, alignment included.
        high_water: the most that ever were.
        allocations: how many there have been.
        largest: bytes of the largest of them.
        owners: for whom each range is that is allocated, by its offset.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._free: list[Range] = [Range(0, capacity)]
        self._used: dict[int, int] = {}
        self.in_use = 0
        self.high_water = 0
        self.allocations = self.largest = 0
        self.owners: dict[int, Owner] = {}
        self._lock = ProcessLock()  # buffers are freed by whatever thread drops the last reference

    def hold(self, size: int, owner: Owner = HOST) -> Allocation:
        """As `allocate`; given back when nothing refers to it."""
        return Allocation(self, self.allocate(size, owner))

    def allocate(self, size: int, owner: Owner = HOST) -> Range:
        """Take `size` bytes (rounded up to the alignment) for someone.

        Raises:
            OutOfMemoryError: no free range is large enough.
        """
        with self._lock:
            taken = self._take(size, -(-max(size, 1) // ALIGNMENT) * ALIGNMENT)
            self.owners[taken.offset] = owner
            return taken

    def _take(self, size: int, need: int) -> Range:
        fits = [r for r in self._free if r.size >= need]
        if not fits:
            raise OutOfMemoryError(
                f"HBM is full: {size} bytes wanted, {self.capacity - self.in_use} of {self.capacity} free, "
                f"largest free range {self.largest_free}{self._holders()}; delete buffers or take a chip with more HBM"
            )
        best = min(fits, key=lambda r: r.size)
        self._free.remove(best)
        if best.size > need:
            insort(self._free, Range(best.offset + need, best.size - need))
        self._used[best.offset] = need
        self.in_use += need
        self.high_water = max(self.high_water, self.in_use)
        self.allocations += 1
        self.largest = max(self.largest, need)
        return Range(best.offset, need)

    def release(self, taken: Range) -> None:
        """Give a range back.

        Raises:
            ValueError: it is not allocated (released twice, or never taken).
        """
        with self._lock:
            self._give_back(taken)

    def _give_back(self, taken: Range) -> None:
        if self._used.get(taken.offset) != taken.size:
            raise ValueError(f"HBM range {taken.offset} of {taken.size} bytes is not allocated")
        del self._used[taken.offset]
        self.owners.pop(taken.offset, None)
        self.in_use -= taken.size
        at = bisect(self._free, taken)
        first, last = at, at
        if at and self._free[at - 1].end == taken.offset:
            first = at - 1
        if at < len(self._free) and self._free[at].offset == taken.end:
            last = at + 1
        around = [*self._free[first:last], taken]
        merged = Range(min(r.offset for r in around), sum(r.size for r in around))
        self._free[first:last] = [merged]

    @property
    def largest_free(self) -> int:
        """Bytes of the largest free range."""
        with self._lock:
            return max((r.size for r in self._free), default=0)

    @property
    def fragmentation(self) -> float:
        """The part of the free bytes that is not in the largest free range, 0 to 1."""
        with self._lock:
            free = self.capacity - self.in_use
            return 1 - self.largest_free / free if free else 0.0

    def held(self) -> list[tuple[Owner, Range]]:
        """All that is allocated, the largest first."""
        with self._lock:
            ranges = [(self.owners[offset], Range(offset, size)) for offset, size in self._used.items()]
        return sorted(ranges, key=lambda one: (-one[1].size, one[1].offset))

    def _holders(self) -> str:
        """Who holds most of the memory, for a message; empty if nobody has any."""
        held = self.held()
        if not held:
            return ""
        total, count = Counter[str](), Counter[str](owner.program for owner, _ in held)
        for owner, taken in held:
            total[owner.program] += taken.size
        programs = ", ".join(f"{name} {size} in {count[name]}" for name, size in total.most_common(_SHOWN))
        largest = ", ".join(f"{owner} {taken.size}" for owner, taken in held[:_SHOWN])
        return f"; held by {programs}; the largest: {largest}"
