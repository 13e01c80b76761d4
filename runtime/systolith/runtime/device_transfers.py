"""XLA's client interface to devices of this process."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.options import Options
from systolith.compiler.xla_builder.computation import XlaComputation
from systolith.compiler.xla_builder.literal import Literal
from systolith.isa.checked import checked
from systolith.isa.chip import Chip
from systolith.isa.errors import SystolithError
from systolith.runtime.arrays import Array
from systolith.runtime.device import Buffer, Devices
from systolith.runtime.executable import Executable
from systolith.runtime.global_data import GlobalData, Transfers, value_of


class DeviceTransfers(Devices, Transfers[Executable]):
    """Devices that take literals and computations."""

    @checked
    def __init__(self, chip: str | Path | Chip = "tpu_v3", devices: int = 1) -> None:
        Devices.__init__(self, chip, devices)
        Transfers.__init__(self)

    @abstractmethod
    def compile(self, module: Module | str | bytes, options: Options | None = None) -> Executable:
        """Compile a module for the devices."""

    def last_record(self) -> dict[str, Any] | None:
        return None if self.latest is None else self.latest.result().record()

    @overload
    def transfer_in_process(self, source: Array) -> GlobalData: ...
    @overload
    def transfer_in_process(self, source: GlobalData) -> Array: ...
    def transfer_in_process(self, source: Array | GlobalData) -> GlobalData | Array:
        """An array to a device, or data of one array to the host as a view of the device's memory, without literals.

        Raises:
            SystolithError: the data is a tuple, or another client's.
        """
        if not isinstance(source, GlobalData):
            buffer = self.put(source)
            return GlobalData(array(buffer.dtype, buffer.shape), (buffer,))
        if not source.shape.is_array:
            raise SystolithError(f"transfer_in_process takes an array, got {source.shape}; deconstruct() a tuple")
        (buffer,) = self._own(source)
        view = buffer.block().raw().view(buffer.dtype.stored).reshape(buffer.shape)
        view.flags.writeable = False
        return view

    TransferInProcess = transfer_in_process

    def _own(self, data: GlobalData) -> Iterator[Buffer]:
        """The buffers of data of this client."""
        for buffer in data.buffers:
            if not isinstance(buffer, Buffer) or buffer.device not in self.devices:
                raise SystolithError(f"data of shape {data.shape} is another client's; transfer it to this one")
            yield buffer

    def _put(self, arrays: Sequence[Array], shape: Shape, device: int) -> tuple[Buffer, ...]:
        return tuple(self.put(one, device) for one in arrays)

    def _fetch(self, data: GlobalData) -> Literal:
        return Literal.of_shape(value_of(data.shape, (buffer.numpy() for buffer in self._own(data))), data.shape)

    def _load(self, computation: XlaComputation) -> Executable:
        return self.compile(computation.module())

    def _start(self, loaded: Executable, arguments: Sequence[GlobalData], device: int) -> tuple[Buffer, ...]:
        return tuple(loaded(*(buffer for data in arguments for buffer in self._own(data)), device=device))
