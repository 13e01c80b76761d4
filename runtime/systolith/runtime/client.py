"""The host's view of a system: devices of one chip, and compiling and loading programs for them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.options import Options
from systolith.compiler.xla_builder.literal import Literal
from systolith.isa.binary import load
from systolith.isa.checked import checked
from systolith.isa.errors import SystolithError
from systolith.isa.program import Program
from systolith.runtime.arrays import Array
from systolith.runtime.device import Devices
from systolith.runtime.device_transfers import DeviceTransfers
from systolith.runtime.executable import Executable, load_for
from systolith.runtime.feeds import Infeed, Outfeed
from systolith.runtime.global_data import value_of
from systolith.runtime.host_queues import HostQueues
from systolith.runtime.inputs.sources import parse_module
from systolith.runtime.tuning import with_tuner
from systolith.sim.host_queue import HostQueue


class Client(DeviceTransfers):
    """Devices of one kind of chip.

    Args:
        chip: name of a preset, path of a TOML file, or a configuration.
        devices: how many.
    """

    @checked
    def compile(self, module: Module | str | bytes, options: Options | None = None) -> Executable:
        """Compile a module, or what `parse_module` takes, for this client's chip.

        Raises:
            SystolithError: it is no module, or the module cannot be compiled for the chip.
        """
        if not isinstance(module, Module):
            module = parse_module(module)
        return compile_for(self, module, options or Options())

    @checked
    def load(self, program: Program | str | Path) -> Executable:
        """Load a compiled program.

        Raises:
            SystolithError: it is for another chip, or breaks a rule of the instruction set.
        """
        return load_for(self, program if isinstance(program, Program) else load(program))

    @checked
    def infeed(self, config: int | str = "", device: int = 0) -> Infeed:
        """An infeed queue of a device: that of modules with one `infeed_config`, or, of others, that of this config.

        Args:
            config: or a queue's number, for assembly that says no more.
            device: which device.

        Raises:
            SystolithError: the chip has no such queue.
        """
        return Infeed(self._host_queue(self.device(device).infeed, config))

    @checked
    def outfeed(self, config: int | str = "", device: int = 0) -> Outfeed:
        """An outfeed queue of a device: that of modules with one `outfeed_config`, or, of others, that of this config.

        Args:
            config: or a queue's number, for assembly that says no more.
            device: which device.

        Raises:
            SystolithError: the chip has no such queue.
        """
        return Outfeed(self._host_queue(self.device(device).outfeed, config))

    def _feed(self, arrays: Sequence[Array], shape: Shape, device: int, config: str) -> None:
        self.infeed(config, device).push(*arrays)

    def _drain(self, shape: Shape, device: int, config: str) -> Literal:
        return Literal.of_shape(value_of(shape, self.outfeed(config, device).pop_value(shape)), shape)

    def _host_queue(self, queues: HostQueues, config: int | str) -> HostQueue:
        if not queues.count or not (isinstance(config, str) or 0 <= config < queues.count):
            raise SystolithError(f"{queues.role} queue {config or 0!r}: chip {self.chip.name} has {queues.count}")
        return queues.of(config)


def compile_for(devices: Devices, module: Module, options: Options) -> Executable:
    """Compile a module for devices.

    Raises:
        SystolithError: it cannot be compiled for their chip.
    """
    from systolith.compiler.driver import compile_module  # late: it takes long to import

    compiled = compile_module(module, devices.chip, with_tuner(options, devices.chip))
    return Executable(devices, compiled.program, compiled)


class ClientLibrary:
    """The client of this process."""

    @staticmethod
    @cache
    def client_library_or_die() -> Client:
        """One client of one device with the default chip, the same at each call."""
        return Client()

    ClientLibraryOrDie = LocalClientOrDie = client_library_or_die
