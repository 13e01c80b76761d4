"""XLA's client interface: literals to a device and back, and computations run on them.

Names and meaning are those of XLA's `Client`: data stays on the device under a handle, `GlobalData`, until it is
transferred; a computation is compiled when it first runs, and then takes any data of its parameters' shapes.  What
every client does is here; `device_transfers.py` has that of devices of this process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from systolith.compiler.hlo.ir import Literal as Value
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.xla_builder.computation import XlaComputation
from systolith.compiler.xla_builder.literal import Literal
from systolith.isa.checked import checked
from systolith.isa.errors import SystolithError
from systolith.runtime.arrays import Array

Loaded = TypeVar("Loaded")


class OnDevice(Protocol):
    """An array in a device's memory."""

    def delete(self) -> None:
        """Free its memory."""


@dataclass(frozen=True, eq=False)
class GlobalData:
    """A value in a device's memory.

    Attributes:
        shape: its shape.
        buffers: one for each array in it, depth first.
    """

    shape: Shape
    buffers: tuple[OnDevice, ...]

    def deconstruct(self) -> list[GlobalData]:
        """The elements of a tuple; they share its memory.

        Raises:
            SystolithError: it is no tuple.
        """
        if not self.shape.is_tuple:
            raise SystolithError(f"expected data that is a tuple, got {self.shape}")
        taken = iter(self.buffers)
        return [GlobalData(e, tuple(next(taken) for leaf in e.leaves() if leaf.is_array)) for e in self.shape.elements]

    def delete(self) -> None:
        """Free its memory now, not when nothing refers to it any more; deleting twice is allowed."""
        for buffer in self.buffers:
            buffer.delete()


@dataclass(frozen=True)
class XlaComputationInstance:
    """A computation, the data to run it on, and the device where that lies."""

    computation: XlaComputation
    arguments: Sequence[GlobalData] = ()
    device: int = 0


class Transfers(ABC, Generic[Loaded]):
    """A client of devices that take literals and computations.  C++'s names are aliases."""

    def __init__(self) -> None:
        self._loaded: WeakKeyDictionary[XlaComputation, Loaded] = WeakKeyDictionary()

    @abstractmethod
    def _put(self, arrays: Sequence[Array], shape: Shape, device: int) -> tuple[OnDevice, ...]:
        """Copy the arrays of a value of `shape` into a device's memory."""

    @abstractmethod
    def _fetch(self, data: GlobalData) -> Literal:
        """Copy a value from a device's memory."""

    @abstractmethod
    def _feed(self, arrays: Sequence[Array], shape: Shape, device: int, config: str) -> None:
        """Append the arrays of a value of `shape` to a device's infeed of a config."""

    @abstractmethod
    def _drain(self, shape: Shape, device: int, config: str) -> Literal:
        """Take a value from a device's outfeed of a config: all of it, or nothing."""

    @abstractmethod
    def _load(self, computation: XlaComputation) -> Loaded:
        """Compile a computation."""

    @abstractmethod
    def _start(self, loaded: Loaded, arguments: Sequence[GlobalData], device: int) -> tuple[OnDevice, ...]:
        """Start a run; its results."""

    @abstractmethod
    def last_record(self) -> dict[str, Any] | None:
        """The record of this client's latest run, once that has ended; None before the first.

        It is the JSON object that `systolith run --json` prints: `cycles`, `launch`, groups, energy, ...

        Raises:
            SystolithError: the run failed.
        """

    @checked
    def report(self, path: str | Path) -> Path:
        """Write the HTML report of this client's latest run, once that has ended.

        Raises:
            SystolithError: there was none, it failed, or the file cannot be written.
        """
        from systolith.reports.html import write_report

        record = self.last_record()
        if record is None:
            raise SystolithError("a report needs a run: this client has made none")
        return write_report(record, path)

    @checked
    def transfer_to_server(self, literal: Literal, device: int = 0) -> GlobalData:
        """Copy a literal into a device's memory.

        Raises:
            SystolithError: the machine has no such element type, or not enough memory.
        """
        return GlobalData(literal.shape, self._put(tuple(arrays_of(literal.value)), literal.shape, device))

    @checked
    def transfer_from_server(self, data: GlobalData) -> Literal:
        """Copy a value from a device's memory; waits for the run that computes it, and raises its exception."""
        return self._fetch(data)

    @checked
    def transfer_to_infeed(self, literal: Literal, device: int = 0, config: str = "") -> None:
        """Append a literal to a device's infeed, a tuple as its arrays in order, as dense row-major bytes.

        Args:
            literal: the value.
            device: which device.
            config: of the infeeds that take it, where the module has infeeds of several configs.

        Raises:
            SystolithError: the chip has no infeed.
        """
        self._feed(tuple(arrays_of(literal.value)), literal.shape, device, config)

    @checked
    def transfer_from_outfeed(self, shape: Shape, device: int = 0, config: str = "") -> Literal:
        """Take the next value of `shape` from a device's outfeed, once the runs called so far have ended.

        Args:
            shape: of the value.
            device: which device.
            config: of the outfeeds that send it, where the module has outfeeds of several configs.

        Raises:
            SystolithError: there are fewer bytes, which stay; the chip has no outfeed; or a size is only bounded.
        """
        if shape.is_dynamic:
            raise SystolithError(f"outfeed: {shape} has a dynamic size; ask for the shape that was sent")
        return self._drain(shape, device, config)

    @checked
    def execute(self, computation: XlaComputation, arguments: Sequence[GlobalData] = (), device: int = 0) -> GlobalData:
        """Run a computation on data of a device; its result stays there.

        Raises:
            SystolithError: the compiler refuses the computation, or the arguments do not match its parameters.
        """
        wanted = computation.program_shape.parameters
        if len(wanted) != len(arguments):
            raise SystolithError(f"{computation.name} takes {len(wanted)} arguments, got {len(arguments)}")
        for number, (shape, data) in enumerate(zip(wanted, arguments, strict=True)):
            if not shape.same(data.shape):
                raise SystolithError(f"{computation.name}: argument {number} is a {shape}, got {data.shape}")
        loaded = self._loaded.get(computation)
        if loaded is None:
            loaded = self._loaded[computation] = self._load(computation)
        return GlobalData(computation.program_shape.result, self._start(loaded, arguments, device))

    @checked
    def execute_and_transfer(
        self, computation: XlaComputation, arguments: Sequence[GlobalData] = (), device: int = 0
    ) -> Literal:
        """Run a computation and copy its result to the host; errors as `execute` and `transfer_from_server`."""
        return self.transfer_from_server(self.execute(computation, arguments, device))

    @checked
    def execute_parallel(self, instances: Sequence[XlaComputationInstance]) -> list[GlobalData]:
        """Start computations, one after the other; those on different devices run at the same time.

        Raises:
            SystolithError: as `execute` of one of them; those before it run to their end.
        """
        return [self.execute(one.computation, one.arguments, one.device) for one in instances]

    transfer = transfer_from_server
    TransferToServer = transfer_to_server
    TransferFromServer = Transfer = transfer_from_server
    TransferToInfeed = transfer_to_infeed
    TransferFromOutfeed = transfer_from_outfeed
    Execute = execute
    ExecuteAndTransfer = execute_and_transfer
    ExecuteParallel = execute_parallel


def arrays_of(value: Value) -> Iterator[Array]:
    """The arrays in a value, depth first."""
    if isinstance(value, tuple):
        for element in value:
            yield from arrays_of(element)
    else:
        yield value


def value_of(shape: Shape, arrays: Iterator[Array]) -> Value:
    """A value of a shape from its arrays in order; tokens have none."""
    if shape.is_array:
        return next(arrays)
    return tuple(value_of(element, arrays) for element in shape.elements)


def dense_parts(data: Array, shape: Shape) -> Iterator[Array]:
    """The arrays of a value of a shape in its dense row-major bytes, depth first; views of `data`, uint8."""
    start = 0
    for leaf in (leaf for leaf in shape.leaves() if leaf.is_array):
        yield data[start : start + leaf.bytes].view(leaf.dtype.stored).reshape(leaf.dims)
        start += leaf.bytes
