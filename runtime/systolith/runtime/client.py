"""The host's view of a system: devices of one chip, and compiling and loading programs for them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.options import Options
from systolith.compiler.xla_builder.literal import Literal
from systolith.isa.binary import load
from systolith.isa.checked import as_array, checked
from systolith.isa.dtypes import DType, dtype
from systolith.isa.errors import SystolithError
from systolith.isa.program import Program
from systolith.runtime.arrays import Array, bytes_of
from systolith.runtime.device import Device, Devices, element_type
from systolith.runtime.device_transfers import DeviceTransfers
from systolith.runtime.executable import Executable, load_for
from systolith.runtime.global_data import dense_parts, value_of
from systolith.runtime.sources import parse_module
from systolith.runtime.tuning import with_tuner
from systolith.sim.memory import HostQueue


class Client(DeviceTransfers):
    """Devices of one kind of chip.

    Args:
        chip: name of a preset, path of a TOML file, or a configuration.
        devices: how many.
    """

    @checked
    def compile(self, module: Module | str, options: Options | None = None) -> Executable:
        """Compile a module, or HLO text, for this client's chip.

        Raises:
            SystolithError: the text is no HLO, or the module cannot be compiled for the chip.
        """
        if isinstance(module, str):
            module = parse_module(module, "<string>", left_out=True)
        return compile_for(self, module, options or Options())

    @checked
    def load(self, program: Program | str | Path) -> Executable:
        """Load a compiled program.

        Raises:
            SystolithError: it is for another chip, or breaks a rule of the instruction set.
        """
        return load_for(self, program if isinstance(program, Program) else load(program))

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

    def _feed(self, arrays: Sequence[Array], shape: Shape, device: int) -> None:
        self.infeed(device=device).push(*arrays)

    def _drain(self, shape: Shape, device: int) -> Literal:
        taken = self.outfeed(device=device).pop(dtype("u8"), (shape.bytes,))
        return Literal.of_shape(value_of(shape, dense_parts(taken, shape)), shape)

    def _host_queue(self, queues: list[HostQueue], number: int, what: str) -> HostQueue:
        if not 0 <= number < len(queues):
            raise SystolithError(f"{what} queue {number}: chip {self.chip.name} has {len(queues)}")
        return queues[number]


def compile_for(devices: Devices, module: Module, options: Options) -> Executable:
    """Compile a module for devices.

    Raises:
        SystolithError: it cannot be compiled for their chip.
    """
    compiled = compile_module(module, devices.chip, with_tuner(options, devices.chip))
    return Executable(devices, compiled.program, compiled)


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


class ClientLibrary:
    """The client of this process."""

    @staticmethod
    @cache
    def client_library_or_die() -> Client:
        """One client of one device with the default chip, the same at each call."""
        return Client()

    ClientLibraryOrDie = LocalClientOrDie = client_library_or_die
