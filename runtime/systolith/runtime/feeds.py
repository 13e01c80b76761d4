"""Infeed and outfeed of a device, as the host's threads use them while programs run."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from systolith.compiler.hlo.shape import Shape
from systolith.isa.checked import as_array, checked
from systolith.isa.dtypes import DType, dtype
from systolith.isa.errors import SystolithError
from systolith.runtime.arrays import Array, bytes_of, element_type
from systolith.sim.host_queue import HostQueue, Item


class _Feed:
    """One side of a host queue: what is the same for both."""

    def __init__(self, queue: HostQueue) -> None:
        self._queue = queue

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._queue.name}, {len(self)} waiting>"

    def __len__(self) -> int:
        """Arrays that wait in it."""
        return len(self._queue)

    def __bool__(self) -> bool:
        return True

    @property
    def limit(self) -> int | None:
        """Bytes that wait in it at most (one array goes into an empty queue whatever its size); None: no limit."""
        return self._queue.limit

    @limit.setter
    @checked
    def limit(self, limit: int | None) -> None:
        if limit is not None and limit < 0:
            raise SystolithError(f"{self._queue.name}: limit {limit!r}: must be bytes, or None")
        self._queue.limit = limit

    @property
    def patience(self) -> float:
        """Seconds that host and run wait for each other before the one that waits fails."""
        return self._queue.patience

    @patience.setter
    @checked
    def patience(self, seconds: float) -> None:
        if not 0 <= seconds < float("inf"):
            raise SystolithError(f"{self._queue.name}: patience {seconds!r}: must be seconds, 0 or more")
        self._queue.patience = float(seconds)

    def clear(self) -> int:
        """Drop what waits in it; how many arrays."""
        return self._queue.clear()


class Infeed(_Feed):
    """Arrays from the host to a device.

    As a context it opens the queue, and closes it at the end: a run that still needs more then fails at once, with the
    exception of the block, if there is one.
    """

    def push(self, *arrays: Array) -> None:
        """Append arrays, each once there is room; the parts of a tuple one after the other, depth first.

        Raises:
            SystolithError: there is no element type for one, no room in time, or the queue is closed.
        """
        taken = [(element_type(array), array) for array in map(as_array, arrays)]
        for element, array in taken:
            self._queue.push(array, element.name)

    @checked
    def close(self, reason: str = "") -> None:
        """Say that nothing more comes: a run that needs more fails at once, and says the reason."""
        self._queue.close(reason)

    def open(self) -> None:
        """Take back a `close`."""
        self._queue.open()

    def __enter__(self) -> Infeed:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close(f"{kind.__name__}: {error}" if kind else "")


class Outfeed(_Feed):
    """Arrays from a device to the host."""

    @checked
    def pop(self, element: DType | None = None, shape: tuple[int, ...] | None = None) -> Array:
        """The next array, once a run has brought it.

        Args:
            element, shape: what it must be; needed where a program by hand says nothing of its bytes.

        Raises:
            SystolithError: no run under way brings one, in time; or the next one is another.
        """
        if element is None or shape is None:
            if element is not None or shape is not None:
                raise SystolithError(f"{self._queue.name}: give both, type and shape, or neither")
            found = self._queue.pop()
        else:
            bytes_of(element, shape)
            found = self._queue.pop((element.name, tuple(shape)))
        if found is None:
            what = "it is empty"
            if element is not None and shape is not None:
                what = f"{element}{list(shape)} takes {bytes_of(element, shape)} bytes, there are fewer"
            raise SystolithError(f"{self._queue.name}: {what}, and no run is under way")
        return _array(self._queue, found[0])

    def pop_value(self, shape: Shape) -> Iterator[Array]:
        """The arrays of the next value of a shape, depth first: all of them, or none.

        Raises:
            SystolithError: as `pop`.
        """
        leaves = [leaf for leaf in shape.leaves() if leaf.is_array]
        found = self._queue.pop(*((leaf.dtype.name, leaf.dims) for leaf in leaves)) if leaves else []
        if found is None:
            raise SystolithError(f"{self._queue.name}: {shape} takes {shape.bytes} bytes, there are fewer")
        return (_array(self._queue, item) for item in found)


def _array(queue: HostQueue, item: Item) -> Array:
    if not item.dtype:
        raise SystolithError(f"{queue.name}: {item}: say of which type and shape, the program does not")
    return item.data.view(dtype(item.dtype).stored).reshape(item.dims)
