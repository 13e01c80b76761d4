"""XLA's client interface: literals to a device and back, and computations run on them.

Names and meaning are those of XLA's `Client`: data stays on the device under a handle, `GlobalData`, until it is
transferred; a computation is compiled when it first runs, and then takes any data of its parameters' shapes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload
from weakref import WeakKeyDictionary

from systolith.compiler.hlo.ir import Literal as Value
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


@dataclass(frozen=True, eq=False)
class GlobalData:
    """A value in a device's memory.

    Attributes:
        shape: its shape.
        buffers: one for each array in it, depth first.
    """

    shape: Shape
    buffers: tuple[Buffer, ...]

    def deconstruct(self) -> list[GlobalData]:
        """The elements of a tuple; they share its memory.

        Raises:
            SystolithError: it is no tuple.
        """
        if not self.shape.is_tuple:
            raise SystolithError(f"expected data that is a tuple, got {self.shape}")
        taken = iter(self.buffers)
        return [GlobalData(e, tuple(next(taken) for leaf in e.leaves() if leaf.is_array)) for e in self.shape.elements]


class Transfers(Devices, ABC):
    """Devices that take literals and computations.  C++'s names are aliases."""

    @checked
    def __init__(self, chip: str | Path | Chip = "tpu_v3", devices: int = 1) -> None:
        super().__init__(chip, devices)
        self._executables: WeakKeyDictionary[XlaComputation, Executable] = WeakKeyDictionary()

    @abstractmethod
    def compile(self, module: Module | str, options: Options | None = None) -> Executable:
        """Compile a module for the devices."""

    @checked
    def transfer_to_server(self, literal: Literal, device: int = 0) -> GlobalData:
        """Copy a literal into a device's memory.

        Raises:
            SystolithError: the machine has no such element type, or not enough memory.
        """
        return GlobalData(literal.shape, tuple(self.put(a, device) for a in _arrays(literal.value)))

    @checked
    def transfer(self, data: GlobalData) -> Literal:
        """Copy a value from a device's memory; waits for the run that computes it, and raises its exception."""
        taken = iter(data.buffers)
        return Literal.of_shape(_filled(data.shape, taken), data.shape)

    @overload
    def transfer_in_process(self, source: Array) -> GlobalData: ...
    @overload
    def transfer_in_process(self, source: GlobalData) -> Array: ...
    def transfer_in_process(self, source: Array | GlobalData) -> GlobalData | Array:
        """An array to a device, or data of one array to the host as a view of the device's memory, without literals.

        Raises:
            SystolithError: the data is a tuple.
        """
        if not isinstance(source, GlobalData):
            buffer = self.put(source)
            return GlobalData(array(buffer.dtype, buffer.shape), (buffer,))
        if not source.shape.is_array:
            raise SystolithError(f"transfer_in_process takes an array, got {source.shape}; deconstruct() a tuple")
        (buffer,) = source.buffers
        view = buffer.block().raw().view(buffer.dtype.stored).reshape(buffer.shape)
        view.flags.writeable = False
        return view

    @checked
    def execute(self, computation: XlaComputation, arguments: Sequence[GlobalData] = (), device: int = 0) -> GlobalData:
        """Run a computation on data of a device; its result stays there.

        Raises:
            SystolithError: the compiler refuses the computation, or the arguments do not match its parameters.
        """
        executable = self._executables.get(computation)
        if executable is None:
            executable = self._executables[computation] = self.compile(computation.module())
        wanted = computation.program_shape.parameters
        if len(wanted) != len(arguments):
            raise SystolithError(f"{computation.name} takes {len(wanted)} arguments, got {len(arguments)}")
        for number, (shape, data) in enumerate(zip(wanted, arguments, strict=True)):
            if not shape.same(data.shape):
                raise SystolithError(f"{computation.name}: argument {number} is a {shape}, got {data.shape}")
        buffers = [buffer for data in arguments for buffer in data.buffers]
        return GlobalData(computation.program_shape.result, tuple(executable(*buffers, device=device)))

    @checked
    def execute_and_transfer(
        self, computation: XlaComputation, arguments: Sequence[GlobalData] = (), device: int = 0
    ) -> Literal:
        """Run a computation and copy its result to the host; errors as `execute` and `transfer`."""
        return self.transfer(self.execute(computation, arguments, device))

    TransferToServer = transfer_to_server
    Transfer = transfer
    TransferInProcess = transfer_in_process
    Execute = execute
    ExecuteAndTransfer = execute_and_transfer


def _arrays(value: Value) -> Iterator[Array]:
    if isinstance(value, tuple):
        for element in value:
            yield from _arrays(element)
    else:
        yield value


def _filled(shape: Shape, buffers: Iterator[Buffer]) -> Value:
    """A value of a shape from its arrays in order; tokens have none."""
    if shape.is_array:
        return next(buffers).numpy()
    return tuple(_filled(element, buffers) for element in shape.elements)
