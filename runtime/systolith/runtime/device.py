"""Devices of one chip, and the arrays in their HBM."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from systolith.isa.checked import as_array, checked
from systolith.isa.chip import Chip, load_chip
from systolith.isa.dtypes import ELEMENT_TYPES, DType, dtype
from systolith.isa.errors import SystolithError
from systolith.runtime.arrays import Array, bytes_of
from systolith.runtime.hbm import HbmAllocator, OutOfMemoryError, Range
from systolith.runtime.sized import valid
from systolith.runtime.task import CallerQueue, Task, TaskQueue
from systolith.sim.memory import HostQueue, Machine

MOST_DEVICES = 4096


class DeletedBufferError(SystolithError):
    """A buffer was used after it was deleted."""


class Buffer:
    """An array in the HBM of one device: dense, row-major.

    A buffer that a running program is still to fill is *pending*; reading it waits for the program, and raises
    its exception.

    Attributes:
        device: where it lies.
        shape: dimensions in elements.
        dtype: XLA's element type.
        sizes: for each dimension the buffer that holds how much of it there is, None: all of it; empty: of all of them.
    """

    def __init__(
        self, device: Device, element: DType, shape: tuple[int, ...], place: Range, memory: Array | None = None
    ) -> None:
        """`memory`: the bytes at `place`; zeros unless given."""
        self.device = device
        self.dtype = element
        self.shape = shape
        self._place: Range | None = place
        # Freed when nothing refers to the buffer any more, or by `delete`.
        self._release = weakref.finalize(self, device.hbm.release, place)
        size = int(np.prod(shape, dtype=np.int64)) * element.size
        self._bytes = np.zeros(size, np.uint8) if memory is None else memory
        self._pending: Task[Any] | None = None
        self._end = "was deleted"
        self.sizes: tuple[Buffer | None, ...] = ()

    def __repr__(self) -> str:
        state = "deleted" if self._place is None else f"HBM offset {self._place.offset}"
        return f"<Buffer {self.dtype}[{','.join(map(str, self.shape))}] on {self.device}, {state}>"

    @property
    def layout(self) -> tuple[int, ...]:
        """minor_to_major: the fastest varying dimension first."""
        return tuple(reversed(range(len(self.shape))))

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self._bytes.size

    @property
    def deleted(self) -> bool:
        """Whether it was, or its memory was taken by a run."""
        return self._place is None

    @property
    def offset(self) -> int:
        """Byte offset in the device's HBM."""
        return self._live().offset

    def _live(self) -> Range:
        if self._place is None:
            raise DeletedBufferError(f"buffer {self.dtype}[{','.join(map(str, self.shape))}] {self._end}")
        return self._place

    def raw(self) -> Array:
        """Its bytes in HBM, uint8; not a copy."""
        self._live()
        return self._bytes

    def fill_by(self, pending: Task[Any]) -> None:
        """Say which run fills it."""
        self._pending = pending

    def block(self) -> Buffer:
        """Wait until its contents are there; raises the exception of the run that fills it."""
        self._live()
        if self._pending is not None:
            self._pending.result()
        return self

    def contents(self) -> Callable[[], Array]:
        """A function that waits for the run that is to fill it now, and gives its bytes in HBM (uint8, not a copy).

        It raises that run's exception.
        """
        self._live()
        pending, memory = self._pending, self._bytes

        def wait() -> Array:
            if pending is not None:
                pending.result()
            return memory

        return wait

    def donate(self, to: str, element: DType, shape: tuple[int, ...]) -> Buffer:
        """A new buffer with this one's memory and contents; from now on this one counts as deleted.

        Args:
            to: which program takes it, for messages.
            element, shape: of the new buffer, which has as many bytes.
        """
        heir = Buffer(self.device, element, shape, self._live(), self._bytes)
        heir._pending = self._pending
        self._release.detach()
        self._place, self._bytes = None, np.zeros(0, np.uint8)
        self._end = f"was donated to {to}, which took its memory"
        return heir

    def numpy(self) -> Array:
        """A copy of its contents on the host: of dynamic sizes the part that there is."""
        self.block()
        whole = self._bytes.view(self.dtype.stored).reshape(self.shape)
        return valid(whole, [None if n is None else n.numpy() for n in self.sizes]).copy()

    def delete(self) -> None:
        """Free its HBM; deleting twice is allowed."""
        if self._place is not None:
            if self._pending is not None:
                self._pending.wait()
            self._release()
            self._place = None
            self._bytes = np.zeros(0, np.uint8)


def element_type(array: Array) -> DType:
    """XLA's element type of a numpy array.

    Raises:
        SystolithError: there is none.
    """
    for candidate in ELEMENT_TYPES.values():
        if candidate.stored == array.dtype:
            return dtype(candidate.name)
    raise SystolithError(f"numpy type {array.dtype} has no XLA element type; convert the array first")


class Device:
    """One chip core with its HBM.

    Attributes:
        number: 0 to devices - 1.
        hbm: its allocator.
        queue: runs are executed one after the other, in the order of their calls.
        infeed, outfeed: queues of bytes between host and device, which live across runs.
    """

    def __init__(self, chip: Chip, number: int) -> None:
        self.chip = chip
        self.number = number
        self.hbm = HbmAllocator(chip.hbm.bytes)
        self.queue: TaskQueue | CallerQueue = TaskQueue(f"device{number}")
        self.infeed = [HostQueue() for _ in range(chip.host.queues)]
        self.outfeed = [HostQueue() for _ in range(chip.host.queues)]

    def __repr__(self) -> str:
        return f"{self.chip.name}:{self.number}"

    def attach_queues(self, machine: Machine) -> None:
        """Give a run's machine this device's host queues."""
        machine.infeed, machine.outfeed = self.infeed, self.outfeed

    @checked
    def empty(self, element: DType, shape: tuple[int, ...]) -> Buffer:
        """A buffer of zeros."""
        return allocate(self, element, shape)

    @checked
    def put(self, array: Array) -> Buffer:
        """Copy an array into HBM.

        Raises:
            SystolithError: there is no such element type, or not enough HBM.
        """
        array = as_array(array)
        # ascontiguousarray makes a scalar one-dimensional: the shape is the given one's.
        buffer = self.empty(element_type(array), array.shape)
        buffer.raw()[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return buffer


def allocate(device: Device, element: DType, shape: tuple[int, ...]) -> Buffer:
    """A buffer of zeros on a device, of a shape that is known to be one."""
    size = bytes_of(element, shape)
    place = device.hbm.allocate(size)
    try:
        memory = np.zeros(size, np.uint8)
    except (MemoryError, ValueError) as error:  # numpy says either
        device.hbm.release(place)
        raise OutOfMemoryError(f"the machine has no room for {element}{list(shape)}: {error}") from None
    return Buffer(device, element, shape, place, memory)


class Devices:
    """Devices of one kind of chip.

    Args:
        chip: name of a preset, path of a TOML file, or a configuration.
        devices: how many.
    """

    @checked
    def __init__(self, chip: str | Path | Chip = "tpu_v3", devices: int = 1) -> None:
        if not 1 <= devices <= MOST_DEVICES:
            raise SystolithError(f"devices: {devices}: a client has from 1 to {MOST_DEVICES}")
        self.chip = chip if isinstance(chip, Chip) else load_chip(chip)
        self.devices = [Device(self.chip, n) for n in range(devices)]

    @checked
    def device(self, number: int) -> Device:
        """A device.

        Raises:
            SystolithError: there is no such device.
        """
        if not 0 <= number < len(self.devices):
            raise SystolithError(f"device {number}: the client has {len(self.devices)}, numbered from 0")
        return self.devices[number]

    @checked
    def put(self, array: Array, device: int = 0) -> Buffer:
        """Copy an array into a device's HBM.

        Raises:
            SystolithError: there is no such device or element type, or not enough HBM.
        """
        return self.device(device).put(array)
