"""Devices of one chip, and the arrays in their HBM."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from systolith.isa.checked import as_array, checked
from systolith.isa.chip import Chip, load_chip
from systolith.isa.dtypes import DType
from systolith.isa.errors import SystolithError
from systolith.isa.program import Role
from systolith.runtime.arrays import Array, bytes_of, element_type
from systolith.runtime.hbm import HOST, Allocation, HbmAllocator, OutOfMemoryError, Owner
from systolith.runtime.host_queues import HostQueues, queues_of_run
from systolith.runtime.sized import valid
from systolith.runtime.task import CallerQueue, ProcessLock, Task, TaskQueue, finished
from systolith.sim.memory import Machine

MOST_DEVICES = 4096


_CPU = (1, 0)  # DLPack's number of the host's memory
_FINISHED = finished()


class DeletedBufferError(SystolithError):
    """A buffer was used after it was deleted."""


class Buffer:
    """An array in the HBM of one device: dense, row-major.

    A buffer that a running program is still to fill is *pending*; reading it waits for the program, and raises
    its exception.  Numpy reads it as an array, and libraries that take arrays of others by DLPack: each gets a copy.

    Attributes:
        device: where it lies.
        shape: dimensions in elements.
        dtype: XLA's element type.
        sizes: for each dimension the buffer that holds how much of it there is, None: all of it; empty: of all of them.
    """

    def __init__(self, device: Device, element: DType, shape: tuple[int, ...], held: Allocation, memory: Array) -> None:
        """`memory`: the bytes at `held`."""
        self.device = device
        self.dtype = element
        self.shape = shape
        self._held: Allocation | None = held
        self._bytes = memory
        self._pending: Task[Any] | None = None
        self._end = "was deleted"
        self.sizes: tuple[Buffer | None, ...] = ()

    def __repr__(self) -> str:
        if self._held is None:
            state = self._end
        else:
            state = f"HBM offset {self._held.range.offset}{'' if self.is_ready() else ', pending'}"
        return f"<Buffer {self._type()} on {self.device}, {state}>"

    def _type(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

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
        return self._held is None

    @property
    def offset(self) -> int:
        """Byte offset in the device's HBM."""
        return self.held().range.offset

    def held(self) -> Allocation:
        """Its range of HBM: not given to others as long as anything refers to it.

        Raises:
            DeletedBufferError: it was deleted, or its memory was taken by a run.
        """
        if self._held is None:
            raise DeletedBufferError(f"buffer {self._type()} {self._end}")
        return self._held

    def raw(self) -> Array:
        """Its bytes in HBM, uint8; not a copy."""
        self.held()
        return self._bytes

    def fill_by(self, pending: Task[Any]) -> None:
        """Say which run fills it."""
        self._pending = pending

    def is_ready(self) -> bool:
        """Whether the run that fills it has ended, well or not."""
        return self.ready_event.is_ready

    @property
    def ready_event(self) -> Task[Any]:
        """The end of the run that fills it: `is_ready`, `wait(timeout)`, `error()`, `on_ready(callback)`."""
        return self._pending or _FINISHED

    def block(self) -> Buffer:
        """Wait until its contents are there; raises the exception of the run that fills it.

        Ctrl-C meanwhile ends that run.
        """
        self.held()
        self.ready_event.result()
        return self

    def cancel(self) -> None:
        """End the run that is to fill it: reading its results raises an exception then.  Once it has ended: nothing."""
        self.ready_event.cancel()

    def contents(self) -> Callable[[], Array]:
        """A function that waits for the run that is to fill it now, and gives its bytes in HBM (uint8, not a copy).

        It raises that run's exception.
        """
        self.held()
        pending, memory = self.ready_event, self._bytes

        def wait() -> Array:
            pending.result()
            return memory

        return wait

    def donate(self, to: Owner, element: DType, shape: tuple[int, ...]) -> Buffer:
        """A new buffer with this one's memory and contents; from now on this one counts as deleted.

        Args:
            to: which program takes it.
            element, shape: of the new buffer, which has as many bytes.
        """
        held = self.held()
        heir = Buffer(self.device, element, shape, held, self._bytes)
        heir._pending = self._pending
        held.pass_to(to)
        self._gone(f"was donated to {to.program}, which took its memory")
        return heir

    def numpy(self) -> Array:
        """A copy of its contents on the host: of dynamic sizes the part that there is."""
        whole = self.contents()().view(self.dtype.stored).reshape(self.shape)
        return valid(whole, [None if n is None else n.numpy() for n in self.sizes]).copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError(f"{self!r}: an array of it is a copy; take copy=None")
        return self.numpy().astype(dtype or self.dtype.stored, copy=False)

    def __float__(self) -> float:
        return float(self.numpy().item())

    def __int__(self) -> int:
        return int(self.numpy().item())

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A copy of it on the host, as DLPack's capsule.

        Raises:
            BufferError: numpy does not export such elements; a copy is not wanted; or it is wanted elsewhere.
        """
        if copy is False or dl_device not in (None, _CPU):
            raise BufferError(f"{self!r}: by DLPack there are copies on the host only")
        return self.numpy().__dlpack__(max_version=max_version)

    @checked
    def to(self, device: int | Device) -> Buffer:
        """A copy on a device, given by its number if it is of the same client; does not wait.

        Raises:
            SystolithError: there is no such device, or it has not enough HBM.
        """
        source = self.device
        target = source.neighbour(device) if isinstance(device, int) else device
        contents, held = self.contents(), [self.held()]
        made = allocate(target, self.dtype, self.shape)

        def copy() -> None:
            try:
                made_memory[:] = contents()
            finally:
                held.clear()

        made_memory = made.raw()
        # In the queue of the source: a later run there may take its memory.
        made.fill_by(source.queue.submit(copy))
        made.sizes = tuple(None if size is None else size.to(target) for size in self.sizes)
        return made

    def delete(self) -> None:
        """Free its HBM, once the runs that use it have ended; deleting twice is allowed."""
        if self._held is not None:
            self._gone("was deleted")

    def _gone(self, end: str) -> None:
        self._end = end
        self._held, self._bytes = None, np.zeros(0, np.uint8)


class Device:
    """One chip core with its HBM.

    Attributes:
        number: 0 to devices - 1.
        hbm: its allocator.
        queue: runs are executed one after the other, in the order of their calls.
        calling: held from the look at a run's arguments to its place in the queue.
        infeed, outfeed: queues of arrays between host and device, which live across runs.
    """

    def __init__(self, chip: Chip, number: int, devices: Devices | None = None) -> None:
        """`devices`: among which it is."""
        self.chip = chip
        self.number = number
        self._devices = None if devices is None else weakref.ref(devices)
        self.calling = ProcessLock()
        self.hbm = HbmAllocator(chip.hbm.bytes)
        self.queue: TaskQueue | CallerQueue = TaskQueue(f"device{number}")
        self.infeed = HostQueues(Role.INFEED, chip.host.queues)
        self.outfeed = HostQueues(Role.OUTFEED, chip.host.queues)

    def __repr__(self) -> str:
        return f"{self.chip.name}:{self.number}"

    def neighbour(self, number: int) -> Device:
        """The device of the same client with a number.

        Raises:
            SystolithError: there is none.
        """
        if number == self.number:
            return self
        devices = self._devices() if self._devices is not None else None
        if devices is None:
            raise SystolithError(f"device {number}: the client of {self} is no more; give the device itself")
        return devices.device(number)

    def memory_stats(self) -> dict[str, int | float]:
        """Use of HBM, by XLA's names, in bytes; `fragmentation` is the part of free memory that is not in one range."""
        hbm = self.hbm
        return {
            "bytes_in_use": hbm.in_use,
            "peak_bytes_in_use": hbm.high_water,
            "bytes_limit": hbm.capacity,
            "largest_free_block_bytes": hbm.largest_free,
            "num_allocs": hbm.allocations,
            "largest_alloc_size": hbm.largest,
            "fragmentation": hbm.fragmentation,
        }

    def cancel(self) -> None:
        """End its runs, under way and called, as `Buffer.cancel` ends one: those, too, whose results nobody has."""
        self.queue.cancel()

    def attach_queues(self, machine: Machine, look: Callable[[], None]) -> None:
        """Give a run's machine this device's host queues; `look`: called while it waits, raises what is to end it."""
        machine.infeed = queues_of_run(self.infeed, machine.program, look)
        machine.outfeed = queues_of_run(self.outfeed, machine.program, look)

    def expect_run(self) -> None:
        """A run is called: who waits at a queue of the host may count on it."""
        self.infeed.expect_run()
        self.outfeed.expect_run()

    def end_run(self, failed: bool) -> None:
        """A run has ended."""
        self.infeed.end_run(failed)
        self.outfeed.end_run(failed)

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


def hold(device: Device, size: int, owner: Owner) -> Allocation:
    """Bytes of HBM, given back when nothing refers to them.  If there are not enough, runs under way end first.

    Raises:
        OutOfMemoryError: there are not enough.
    """
    try:
        return device.hbm.hold(size, owner)
    except OutOfMemoryError:
        device.queue.drain()
        gc.collect()  # buffers in cycles: of an exception that was caught, among others
    return device.hbm.hold(size, owner)


def allocate(device: Device, element: DType, shape: tuple[int, ...], owner: Owner | None = None) -> Buffer:
    """A buffer of zeros on a device, of a shape that is known to be one.

    Args:
        device: where.
        element, shape: what.
        owner: who holds it, for messages; None: the host.
    """
    size = bytes_of(element, shape)
    held = hold(device, size, owner or Owner(HOST.program, f"{element}[{','.join(map(str, shape))}]"))
    try:
        memory = np.zeros(size, np.uint8)
    except (MemoryError, ValueError) as error:  # numpy says either
        del held  # at once: the traceback keeps what this function has
        raise OutOfMemoryError(f"the machine has no room for {element}{list(shape)}: {error}") from None
    return Buffer(device, element, shape, held, memory)


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
        self.devices = [Device(self.chip, n, self) for n in range(devices)]
        self.latest: Task[Any] | None = None  # the run that was started last

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.devices)} x {self.chip.name}>"

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
