"""Queues of arrays between the host and a device: in order, bounded, filled and emptied while a run goes on.

The host's threads and a run meet at a queue: who finds nothing, or no room, waits for the other for as long as the
queue's patience lasts.  A queue without patience fails at once, which is what a simulation without a host wants.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from threading import Condition
from time import monotonic
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from systolith.isa.dtypes import ELEMENT_TYPES, Kind
from systolith.isa.errors import SystolithError
from systolith.isa.program import BufferDecl

Bytes = npt.NDArray[np.uint8]

LIMIT = 1 << 28
"""Bytes that wait in a device's queue at most, unless its user says otherwise."""

PATIENCE = 10.0
"""Seconds that a device and its host wait for each other, unless the user says otherwise."""


_GLANCE = 0.1
"""Seconds after which who waits looks whether the run is to end."""


def _nothing() -> None:
    """Nothing ends a run."""


class HostQueueError(SystolithError):
    """The host and a run do not agree on what goes through a queue, or one of them does not come."""


@dataclass(frozen=True)
class Item:
    """An array on its way.

    Attributes:
        data: its elements, row-major.
        dtype: XLA's element type name; empty: bytes that may be anything.
        dims: shape.
        bits: elements of types that files cannot name may be unsigned integers of their width.
    """

    data: Bytes
    dtype: str = ""
    dims: tuple[int, ...] = ()
    bits: bool = False

    def __str__(self) -> str:
        return shape_text(self.dtype, self.dims) if self.dtype else f"{self.data.size} bytes"

    def fits(self, want: BufferDecl) -> bool:
        """Whether it is an array of the type and shape that a program takes."""
        if not self.dtype or (self.dtype == want.dtype and self.dims == want.dims):
            return True
        got, element = ELEMENT_TYPES[self.dtype], ELEMENT_TYPES[want.dtype]
        as_bits = self.bits and got.kind is Kind.UNSIGNED and element.stored.isbuiltin != 1
        return as_bits and got.size == element.size and self.dims == want.dims


def shape_text(dtype: str, dims: tuple[int, ...]) -> str:
    """A shape as HLO prints it."""
    return f"{dtype}[{','.join(map(str, dims))}]"


class HostQueue:
    """Arrays from the host to a device (an infeed queue), or from the device to the host (an outfeed queue).

    Attributes:
        name: for messages.
        limit: bytes that wait in it at most; one item goes into an empty queue whatever its size.  None: no limit.
        patience: seconds to wait for the other side.
        runs: of the device, called and not ended: only these can bring anything, or room.
    """

    def __init__(self, name: str = "host queue", limit: int | None = None, patience: float = 0.0) -> None:
        self.name = name
        self.limit = limit
        self.patience = patience
        self.runs = 0
        self._items: deque[Item] = deque()
        self._taken = 0  # bytes of the first item
        self._parts: list[Bytes] = []  # of an item of which some is still to come
        self._count = 0  # items that the run has taken so far
        self._changed = Condition()
        self._closed: str | None = None
        self._look: Callable[[], None] = _nothing

    def __len__(self) -> int:
        return len(self._items)

    @property
    def bytes(self) -> int:
        """Bytes that wait in it."""
        return sum(i.data.size for i in self._items) - self._taken

    def contents(self) -> Bytes:
        """All bytes that wait in it, in order."""
        whole = np.concatenate([np.empty(0, np.uint8), *(i.data for i in self._items), *self._parts])
        return whole[self._taken :]

    # The sender: the host of an infeed queue, a run of an outfeed queue.

    def push(self, array: npt.NDArray[Any], dtype: str = "", bits: bool = False) -> None:
        """Append an array, once there is room; one without elements is none.

        Args:
            array: copied, row-major.
            dtype: XLA's element type; empty: its bytes may be anything.
            bits: as for `Item`.

        Raises:
            HostQueueError: there is no room in time, or the queue is closed.
        """
        array = np.asarray(array)
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy()
        if data.size:
            self._append(Item(data, dtype, array.shape if dtype else (), bits))

    def put(self, data: Bytes, decl: BufferDecl | None) -> None:
        """Append bytes, as the next part of an array that a program declares, if it does.

        Raises:
            HostQueueError: as `push`.
        """
        if decl is None:
            self._append(Item(data))
            return
        size = prod(decl.dims) * ELEMENT_TYPES[decl.dtype].size
        self._parts.append(data)
        if sum(p.size for p in self._parts) >= size:
            whole = np.concatenate(self._parts)
            self._append(Item(whole, decl.dtype, decl.dims))
            self._parts = []

    def _append(self, item: Item) -> None:
        with self._changed:
            if self._closed is not None:
                raise HostQueueError(f"{self.name}: is closed{self._closed}")
            if not self._until(lambda: self._has_room(item)):
                raise HostQueueError(
                    f"{self.name}: no room for {item} after {self.patience:g} s: {len(self)} items of {self.bytes}"
                    f" bytes wait, its limit is {self.limit}; take them in another thread, or raise `limit`"
                )
            self._items.append(item)
            self._changed.notify_all()

    def _has_room(self, item: Item) -> bool:
        return self.limit is None or not self._items or self.bytes + item.data.size <= self.limit

    # The receiver: a run of an infeed queue, the host of an outfeed queue.

    def take(self, size: int, want: BufferDecl | None = None) -> Bytes:
        """The next bytes, once they are there.

        Args:
            size: how many.
            want: the array that a program declares them to be part of.

        Raises:
            HostQueueError: they do not come, or are of another array; nothing is taken.
        """
        with self._changed:
            there = self._until(lambda: self._closed is not None or self.bytes >= size or self._is_other(want))
            if self._is_other(want):
                assert want is not None
                wanted = shape_text(want.dtype, want.dims)
                raise HostQueueError(
                    f"{self.name}: {want.name!r} takes {wanted}, item {self._count} is {self._items[0]}"
                )
            if self.bytes < size:
                raise HostQueueError(self._starved(size, want, there))
            self._changed.notify_all()
            return self._next(size)

    def _is_other(self, want: BufferDecl | None) -> bool:
        """Whether the first item is of another type or shape than wanted, or was taken as another in part."""
        return want is not None and bool(self._items) and not self._items[0].fits(want)

    def _starved(self, size: int, want: BufferDecl | None, closed: bool) -> str:
        what = f"{want.name!r} takes {shape_text(want.dtype, want.dims)} and the queue " if want else ""
        text = f"{self.name}: {what}has fewer than {size} bytes, after {self._count} items"
        if closed and self._closed is not None:
            return f"{text}: the host has closed it{self._closed}"
        return f"{text}, for {self.patience:g} s: push more, or close it" if self.patience else text

    def _next(self, size: int) -> Bytes:
        parts: list[Bytes] = []
        while size:
            head = self._items[0].data
            part = head[self._taken : self._taken + size]
            parts.append(part)
            size -= part.size
            self._taken += part.size
            if self._taken == head.size:
                self._items.popleft()
                self._taken = 0
                self._count += 1
        return np.concatenate(parts) if parts else np.empty(0, np.uint8)

    def pop(self, *wants: tuple[str, tuple[int, ...]]) -> list[Item] | None:
        """The next arrays, once all of them are there; None: no run under way brings them.

        Args:
            wants: of which types and shapes; bytes of which nothing is said are taken as such.  None: whatever is next.

        Raises:
            HostQueueError: there is a run, but it brings none in time; or it is another array.  All stay.
        """
        sizes = [prod(dims) * ELEMENT_TYPES[dtype].size for dtype, dims in wants]
        sent = [want for want, size in zip(wants, sizes, strict=True) if size]
        count = len(sent) if wants else 1

        def there() -> bool:
            if not self._items or self._items[0].dtype:
                return len(self._items) >= count
            return self.bytes >= sum(sizes)

        with self._changed:
            if not self._until(lambda: there() or not self.runs):
                raise HostQueueError(f"{self.name}: a run is under way, and brings nothing for {self.patience:g} s")
            if not there():
                return None
            for (dtype, dims), item in zip(sent, self._items, strict=False):
                if item.dtype and (item.dtype, item.dims) != (dtype, dims):
                    raise HostQueueError(
                        f"{self.name}: {shape_text(dtype, dims)} is asked for, the next item is {item}"
                    )
            self._changed.notify_all()
            if wants:
                return [Item(self._next(size), dtype, dims) for (dtype, dims), size in zip(wants, sizes, strict=True)]
            head = self._items[0]
            return [replace(head, data=self._next(head.data.size - self._taken))]

    # Both.

    def _until(self, ready: Callable[[], bool]) -> bool:
        """Wait until it is so; False: it is not in time."""
        end = monotonic() + self.patience
        while not ready():
            left = end - monotonic()
            if left <= 0:
                return False
            self._changed.wait(min(left, _GLANCE))
            self._look()
        return True

    def close(self, reason: str = "") -> None:
        """Say that nothing more comes: who waits for it fails at once.  `reason`: for that message."""
        with self._changed:
            self._closed = f" ({reason})" if reason else ""
            self._changed.notify_all()

    def open(self) -> None:
        """Take back a `close`."""
        with self._changed:
            self._closed = None

    def clear(self) -> int:
        """Drop what waits; how many items."""
        with self._changed:
            count = len(self._items)
            self._items.clear()
            self._taken = 0
            self._changed.notify_all()
            return count

    def expect_run(self) -> None:
        """A run of the device is called."""
        with self._changed:
            self.runs += 1

    def start_run(self, look: Callable[[], None]) -> None:
        """It begins: messages count its items; `look` is called while it waits, and raises what is to end it."""
        with self._changed:
            self._count = 0
            self._look = look

    def end_run(self, failed: bool) -> None:
        """A run of the device has ended; an item that one that failed has taken or brought in part is whole again."""
        with self._changed:
            self.runs -= 1
            self._look = _nothing
            if failed:
                self._taken = 0
                self._parts = []
            self._changed.notify_all()


class QueuesByNumber(Sequence[HostQueue]):
    """The host queues of one direction, by number; each is made, or found, when it is first used.

    Args:
        count: of queues.
        make: gives the queue of a number.
    """

    def __init__(self, count: int, make: Callable[[int], HostQueue]) -> None:
        self._count = count
        self._make = make
        self._used: dict[int, HostQueue] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> HostQueue: ...
    @overload
    def __getitem__(self, number: slice) -> list[HostQueue]: ...
    def __getitem__(self, number: int | slice) -> HostQueue | list[HostQueue]:
        if isinstance(number, slice):
            return [self[n] for n in range(*number.indices(self._count))]
        if number not in self._used:
            if not 0 <= number < self._count:
                raise IndexError(number)
            self._used[number] = self._make(number)
        return self._used[number]
