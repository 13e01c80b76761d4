"""The client, its devices and their memories, as jaxlib asks for them."""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from systolith import compiler, isa
from systolith.compiler import plugins
from systolith.pjrt.entries import STRUCTURES
from systolith.pjrt.objects import Object, array, drain, find
from systolith.pjrt.records import Recorder
from systolith.pjrt.settings import Settings
from systolith.pjrt.status import FAILED_PRECONDITION, INVALID_ARGUMENT, PluginError
from systolith.pjrt.table import entry, nothing
from systolith.runtime.device import Device, Devices
from systolith.runtime.jax_platform import PLATFORM
from systolith.runtime.task import CallerQueue


class Description(Object):
    """The description of a device."""

    kind = "DeviceDescription"

    def __init__(self, device: Device) -> None:
        super().__init__(owned=False)
        self.view.id = device.number
        self.text("device_kind", f"{PLATFORM} {device.chip.name}")
        for field in ("debug_string", "to_string"):
            self.text(field, f"SystolithDevice(id={device.number}, chip={device.chip.name})")
        self.view.attributes = self.hold(named_values(self, {"chip": device.chip.name}))
        self.view.num_attributes = 1


class Memory(Object):
    """A device's HBM."""

    kind = "Memory"

    def __init__(self, of: DeviceObject) -> None:
        super().__init__(owned=False)
        self.of = of
        self.view.id = of.device.number
        self.text("kind", "device")
        for field in ("debug_string", "to_string"):
            self.text(field, f"HBM of device {of.device.number}, {of.device.chip.hbm.bytes} bytes")
        self.list_of("devices", "num_devices", [of])


class DeviceObject(Object):
    """A device of the runtime."""

    kind = "Device"

    def __init__(self, device: Device) -> None:
        super().__init__(owned=False)
        self.device = device
        self.description = Description(device)
        self.view.device_description = self.description.address
        self.view.is_addressable = True
        self.view.local_hardware_id = device.number
        self.memory = Memory(self)
        self.view.memory = self.memory.address
        self.list_of("memories", "num_memories", [self.memory])


class Topology(Object):
    """The devices, as compilation without them sees them."""

    kind = "TopologyDescription"

    def __init__(self, settings: Settings, descriptions: Sequence[Description], owned: bool = False) -> None:
        super().__init__(owned)
        self.settings = settings
        self.text("platform_name", PLATFORM)
        self.text("platform_version", platform_version(settings))
        self.list_of("descriptions", "num_descriptions", descriptions)


class ClientObject(Object):
    """Devices of the runtime, which runs programs in the thread that calls."""

    kind = "Client"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.recorder = Recorder(settings.report) if settings.report else None
        if self.recorder is not None:
            atexit.register(self.recorder.finish)
        self.system = Devices(settings.chip, settings.devices)
        for device in self.system.devices:
            device.queue = CallerQueue()
        self.devices = [DeviceObject(device) for device in self.system.devices]
        self.topology = Topology(settings, [d.description for d in self.devices])
        self.text("platform_name", PLATFORM)
        self.text("platform_version", platform_version(settings))
        self.list_of("devices", "num_devices", self.devices)
        self.list_of("addressable_devices", "num_addressable_devices", self.devices)
        self.list_of("addressable_memories", "num_addressable_memories", [d.memory for d in self.devices])
        self.view.topology = self.topology.address


def platform_version(settings: Settings) -> str:
    """All on which a compiled program depends beside its module: it is part of the key of JAX's compilation cache."""
    about = (version("systolith"), compiler_stamp(), settings.chip.name, settings.chip.digest(), settings.precision)
    return "systolith {} ({}), chip {} {}, precision {}".format(*about)


@cache
def compiler_stamp() -> str:
    """Tells versions of the compiler's files apart, by their sizes and dates, and what packages add to it."""
    found = sha256(plugins.stamp().encode())
    for area in (compiler, isa):
        for path in sorted(Path(area.__path__[0]).rglob("*.py")):
            status = path.stat()
            found.update(f"{path.name} {status.st_size} {status.st_mtime_ns}".encode())
    return found.hexdigest()[:12]


def named_values(holder: Object, values: dict[str, str | float | int | tuple[int, ...]]) -> Any:
    """A C array of named values; `holder` keeps what it points to."""
    struct = STRUCTURES["NamedValue"]
    made = (struct * max(len(values), 1))()
    for one, (name, value) in zip(made, values.items(), strict=False):
        one.struct_size = ctypes.sizeof(struct)
        one.name, one.name_size = holder.hold(ctypes.create_string_buffer(name.encode())), len(name)
        one.value_size = 1
        if isinstance(value, str):
            one.value = holder.hold(ctypes.create_string_buffer(value.encode()))
            one.type, one.value_size = 0, len(value)
        elif isinstance(value, int):
            one.type, one.value = 1, value
        elif isinstance(value, tuple):
            one.type, one.value, one.value_size = 2, holder.hold(array(ctypes.c_int64, value)), len(value)
        else:
            one.type, one.value = 3, int.from_bytes(ctypes.c_float(value), "little")
    return made


def read_named_values(address: int | None, count: int) -> dict[str, str | int]:
    """Options that are texts and integers, from a C array of named values."""
    struct = STRUCTURES["NamedValue"]
    found: dict[str, str | int] = {}
    for one in (struct * count).from_address(address) if address and count else ():
        name = ctypes.string_at(one.name, one.name_size).decode()
        if one.type == 0:
            found[name] = ctypes.string_at(one.value, one.value_size).decode()
        elif one.type == 1:
            found[name] = ctypes.c_int64(one.value or 0).value
        else:
            raise PluginError(INVALID_ARGUMENT, f"option {name}: expected a text or an integer")
    return found


@entry("Client_Create")
def create(args: Any) -> None:
    """A client with the options of `jax_pjrt_client_create_options`, else of the environment."""
    if args.struct_size < ctypes.sizeof(args):
        raise PluginError(FAILED_PRECONDITION, "this jaxlib is older than PJRT 0.69: install jax 0.10 or later")
    settings = Settings.read(read_named_values(args.create_options, args.num_options))
    args.client = ClientObject(settings).address


@entry("Client_LookupDevice")
def lookup(args: Any) -> None:
    """A device by its number."""
    args.device = _numbered(args.client, args.id)


@entry("Client_LookupAddressableDevice")
def lookup_addressable(args: Any) -> None:
    """A device by its number."""
    args.addressable_device = _numbered(args.client, args.local_hardware_id)


def _numbered(client: int, number: int) -> int:
    devices = find(client).devices
    if not 0 <= number < len(devices):
        raise PluginError(INVALID_ARGUMENT, f"device {number}: there are {len(devices)}, numbered from 0")
    address: int = devices[number].address
    return address


@entry("Client_DefaultDeviceAssignment")
def default_assignment(args: Any) -> None:
    """Replicas and partitions in the order of the devices."""
    wanted, there = args.num_replicas * args.num_partitions, len(find(args.client).devices)
    if wanted > min(there, args.size):
        raise PluginError(INVALID_ARGUMENT, f"{wanted} devices wanted, there are {there}: set SYSTOLITH_DEVICES")
    numbers = (ctypes.c_int32 * wanted).from_address(args.assignment)
    numbers[:] = range(wanted)


@entry("Device_MemoryStats")
def memory_stats(args: Any) -> None:
    """Use of a device's HBM."""
    drain()
    known = find(args.device).device.memory_stats()
    fields = [name for name, _ in type(args)._fields_]
    for name in fields[fields.index("bytes_in_use") :]:
        setattr(args, name, name.removesuffix("_is_set") in known if name.endswith("_is_set") else known.get(name, 0))


@entry("TopologyDescription_Serialize")
def serialize_topology(args: Any) -> None:
    """A text that is the same for topologies for which programs are the same."""
    topology = find(args.topology)
    settings = topology.settings
    data = ctypes.create_string_buffer(f"{platform_version(settings)}, {settings.devices} devices".encode())
    topology.hold(data)
    args.serialized_bytes, args.serialized_bytes_size = ctypes.addressof(data), len(data.value)
    args.serialized_topology = topology.address
    args.deleter = nothing()


@entry("Plugin_Attributes")
def attributes(args: Any) -> None:
    """The StableHLO that the plugin reads: that of the installed jaxlib, which does the reading."""
    args.attributes, args.num_attributes = _attributes()


@cache
def _attributes() -> tuple[int, int]:
    """Address and number of the plugin's attributes, which live for ever."""
    from jaxlib.mlir.dialects import stablehlo

    version = tuple(int(n) for n in stablehlo.get_current_version().split("."))
    values = {"stablehlo_current_version": version, "stablehlo_minimum_version": version}
    plugin = Plugin(owned=False)
    return plugin.hold(named_values(plugin, dict(values))), len(values)


class Plugin(Object):
    """Keeps the plugin's attributes; jaxlib does not see it."""

    kind = "Error"
