"""The host's view of a system: devices of one chip, their memories, and compiling for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.ir import Module
from systolith.compiler.lowering import Options
from systolith.isa.checked import as_array, checked
from systolith.isa.chip import Chip, load_chip
from systolith.isa.dtypes import DType
from systolith.isa.errors import SystolithError
from systolith.isa.program import Program
from systolith.isa.verify import verify_program
from systolith.runtime.arrays import Array, bytes_of
from systolith.runtime.buffer import Buffer, element_type
from systolith.runtime.executable import Executable
from systolith.runtime.global_data import Transfers
from systolith.runtime.hbm import HbmAllocator, OutOfMemoryError
from systolith.runtime.sources import parse_module
from systolith.runtime.task import TaskQueue
from systolith.runtime.tuning import with_tuner
from systolith.sim.memory import HostQueue, Machine

MOST_DEVICES = 4096


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
        self.queue = TaskQueue(f"device{number}")
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
        size = bytes_of(element, shape)
        place = self.hbm.allocate(size)
        try:
            memory = np.zeros(size, np.uint8)
        except (MemoryError, ValueError) as error:  # numpy says either
            self.hbm.release(place)
            raise OutOfMemoryError(f"the machine has no room for {element}{list(shape)}: {error}") from None
        return Buffer(self, element, shape, place, memory)

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


class Client(Transfers):
    """Devices of one kind of chip.

    Args:
        chip: name of a preset, path of a TOML file, or a configuration.
        devices: how many.
    """

    @checked
    def __init__(self, chip: str | Path | Chip = "tpu_v3", devices: int = 1) -> None:
        super().__init__()
        if not 1 <= devices <= MOST_DEVICES:
            raise SystolithError(f"devices: {devices}: a client has from 1 to {MOST_DEVICES}")
        self.chip = chip if isinstance(chip, Chip) else load_chip(chip)
        self.devices = [Device(self.chip, n) for n in range(devices)]

    @checked
    def compile(self, module: Module | str, options: Options | None = None) -> Executable:
        """Compile a module, or HLO text, for this client's chip.

        Raises:
            SystolithError: the text is no HLO, or the module cannot be compiled for the chip.
        """
        if isinstance(module, str):
            module = parse_module(module, "<string>", left_out=True)
        compiled = compile_module(module, self.chip, with_tuner(options or Options(), self.chip))
        return Executable(self, compiled.program, compiled)

    @checked
    def load(self, program: Program | str | Path) -> Executable:
        """Load a compiled program.

        Raises:
            SystolithError: it is for another chip, or breaks a rule of the instruction set.
        """
        from systolith.isa.binary import load

        if not isinstance(program, Program):
            program = load(program)
        verify_program(program, self.chip)
        return Executable(self, program)

    @checked
    def put(self, array: Array, device: int = 0) -> Buffer:
        """Copy an array into a device's HBM.

        Raises:
            SystolithError: there is no such device or element type, or not enough HBM.
        """
        return self.device(device).put(array)

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
    def infeed(self, queue: int = 0, device: int = 0) -> Infeed:
        """An infeed queue of a device.

        Raises:
            SystolithError: the chip has no such queue.
        """
        return Infeed(self._host_queue(self.device(device).infeed, queue, "infeed"))

    @checked
    def outfeed(self, queue: int = 0, device: int = 0) -> Outfeed:
        """An outfeed queue of a device.

        Raises:
            SystolithError: the chip has no such queue.
        """
        return Outfeed(self._host_queue(self.device(device).outfeed, queue, "outfeed"), self.device(device))

    def _host_queue(self, queues: list[HostQueue], number: int, what: str) -> HostQueue:
        if not 0 <= number < len(queues):
            raise SystolithError(f"{what} queue {number}: chip {self.chip.name} has {len(queues)}")
        return queues[number]


class Infeed:
    """Arrays from the host to a device; a run that needs more than there is fails and says so."""

    def __init__(self, queue: HostQueue) -> None:
        self._queue = queue

    def push(self, *arrays: Array) -> None:
        """Append arrays, as their dense row-major bytes."""
        taken = [as_array(array) for array in arrays]
        for array in taken:
            element_type(array)
            self._queue.push(array)


class Outfeed:
    """Arrays from a device to the host."""

    def __init__(self, queue: HostQueue, device: Device) -> None:
        self._queue = queue
        self._device = device

    @checked
    def pop(self, element: DType, shape: tuple[int, ...]) -> Array:
        """The next array of a given type and shape, once the runs called so far have ended.

        Raises:
            SystolithError: there are fewer bytes.
        """
        size = bytes_of(element, shape)
        self._device.queue.submit(lambda: None).result()
        data = self._queue.take(size)
        if data is None:
            raise SystolithError(f"outfeed: {element}{list(shape)} takes {size} bytes, there are fewer")
        return data.view(element.stored).reshape(shape)
