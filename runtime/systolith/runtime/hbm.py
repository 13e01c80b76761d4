"""Allocation of a device's HBM: best fit over a sorted free list, neighbours merged on release."""

from __future__ import annotations

from bisect import bisect, insort
from dataclasses import dataclass
from threading import RLock

from systolith.isa.errors import SystolithError

ALIGNMENT = 512


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


class HbmAllocator:
    """Allocates ranges of one device's HBM.

    Args:
        capacity: bytes of HBM.

    Attributes:
        in_use: bytes allocated now, alignment included.
        high_water: the most that ever were.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._free: list[Range] = [Range(0, capacity)]
        self._used: dict[int, int] = {}
        self.in_use = 0
        self.high_water = 0
        self._lock = RLock()  # buffers are freed by whatever thread drops the last reference

    def allocate(self, size: int) -> Range:
        """Take `size` bytes (rounded up to the alignment).

        Raises:
            OutOfMemoryError: no free range is large enough.
        """
        with self._lock:
            return self._take(size, -(-max(size, 1) // ALIGNMENT) * ALIGNMENT)

    def _take(self, size: int, need: int) -> Range:
        fits = [r for r in self._free if r.size >= need]
        if not fits:
            largest = max((r.size for r in self._free), default=0)
            raise OutOfMemoryError(
                f"HBM is full: {size} bytes wanted, {self.capacity - self.in_use} of {self.capacity} free, "
                f"largest free range {largest}; delete buffers or take a chip with more HBM"
            )
        best = min(fits, key=lambda r: r.size)
        self._free.remove(best)
        if best.size > need:
            insort(self._free, Range(best.offset + need, best.size - need))
        self._used[best.offset] = need
        self.in_use += need
        self.high_water = max(self.high_water, self.in_use)
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
