"""Compiled programs: compiling, keeping, and running them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from systolith.compiler.options import Options
from systolith.isa.binary import from_bytes, to_bytes
from systolith.isa.program import Program, Role
from systolith.pjrt import profiler
from systolith.pjrt.buffers import TYPE_CODES, BufferObject, copied, integers
from systolith.pjrt.compiling import (
    assigned_devices,
    compile_options,
    hlo_proto,
    with_config,
    with_shardings,
)
from systolith.pjrt.devices import ClientObject, DeviceObject, named_values
from systolith.pjrt.entries import STRUCTURES
from systolith.pjrt.large_stack import on_large_stack
from systolith.pjrt.native import READY
from systolith.pjrt.objects import Object, array, drain, find
from systolith.pjrt.partition import local
from systolith.pjrt.settings import Settings
from systolith.pjrt.status import INVALID_ARGUMENT, UNIMPLEMENTED, PluginError
from systolith.pjrt.table import entry, nothing
from systolith.runtime.client import compile_for
from systolith.runtime.device import Buffer, Device
from systolith.runtime.executable import Executable, load_for, start
from systolith.runtime.inputs.sources import parse_proto
from systolith.runtime.memories import numbered, overwritten
from systolith.runtime.sized import is_sized

_MAGIC = b"systolith executable 1\0"
_SIZES = struct.Struct("<QQQ")


class Loaded(Object):
    """A program on the devices that it was compiled for.

    Attributes:
        executable: of the runtime.
        proto: its module, a serialized HloModuleProto.
        options: how it was compiled, a serialized CompileOptionsProto.
        recorder: notes its runs.
        devices: where it runs; one a replica and partition.
        taken: parameters whose memory it overwrites.
        parameters: element type and shape of each.
        tokens: of which arguments and results JAX has tokens, by number.
    """

    kind = "LoadedExecutable"

    def __init__(self, client: ClientObject, executable: Executable, proto: bytes, options: bytes) -> None:
        super().__init__()
        self.executable: Executable | None = executable
        self.proto, self.options, self.recorder = proto, options, client.recorder
        parsed = compile_options(options)
        self.replicas, self.partitions = parsed.num_replicas, parsed.num_partitions
        self.devices = _assigned(client, parsed)
        self.taken = overwritten(executable.program)
        self.parameters = [(d.dtype, d.dims) for _, d in numbered(executable.program, Role.PARAMETER)]
        self.tokens = _tokens(executable.program, proto)
        self.fingerprint = sha256(proto + options).hexdigest()
        self.list_of("addressable_devices", "num_addressable_devices", self.devices)
        self.text("executable_fingerprint", self.fingerprint)

    def live(self) -> Executable:
        """The executable of the runtime.

        Raises:
            PluginError: it was deleted.
        """
        if self.executable is None:
            raise PluginError(INVALID_ARGUMENT, "the executable was deleted")
        return self.executable

    def expected(self, device: DeviceObject) -> list[tuple[str, tuple[int, ...], Device]]:
        """Element type, shape and device of each argument."""
        return [(element, shape, device.device) for element, shape in self.parameters]

    def released(self) -> None:
        self.executable = None


class Tokens(NamedTuple):
    """Arguments and results that are tokens of ordered effects, by number; nothing moves for them."""

    arguments: tuple[int, ...] = ()
    results: tuple[int, ...] = ()


_MAKE_TOKENS = (b"after-all", b"infeed", b"outfeed")
"""Opcodes of modules that have tokens and do not call the host: others need not be read for them."""


def _tokens(program: Program, proto: bytes) -> Tokens:
    """The tokens of a module."""
    if all(d.role is not Role.CALL for d in program.buffers) and not any(word in proto for word in _MAKE_TOKENS):
        return Tokens()
    entry = parse_proto(proto).entry
    given = [leaf for p in entry.parameters for leaf in p.shape.leaves()]
    arguments, results = (
        [n for n, s in enumerate(of) if not s.is_array] for of in (given, entry.result.shape.leaves())
    )
    return Tokens(tuple(arguments), tuple(results))


def _assigned(client: ClientObject, options: Any) -> list[DeviceObject]:
    """The devices that options name, else the first ones."""
    if options.device_assignment is None:
        return client.devices[: options.num_replicas * options.num_partitions]
    numbers = assigned_devices(options.device_assignment.serialize())
    if not all(0 <= n < len(client.devices) for n in numbers):
        raise PluginError(INVALID_ARGUMENT, f"devices {numbers}: there are {len(client.devices)}, numbered from 0")
    return [client.devices[n] for n in numbers]


class Compiled(Object):
    """A program without its devices."""

    kind = "Executable"

    def __init__(self, loaded: Loaded) -> None:
        super().__init__()
        self.loaded = loaded
        executable = loaded.live()
        program, view = executable.program, self.view
        results = [(d.dtype, d.dims) for _, d in numbered(program, Role.RESULT)]
        for number in loaded.tokens.results:
            results.insert(number, ("token", ()))
        self.text("executable_name", program.name)
        self.text("executable_fingerprint", loaded.fingerprint)
        view.num_replicas, view.num_partitions = loaded.replicas, loaded.partitions
        view.num_outputs = len(results)
        properties = named_values(self, dict(executable.cost_analysis()))
        view.properties, view.num_properties = self.hold(properties), len(properties)
        self._outputs(results)

    def _outputs(self, results: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        view, kind = self.view, b"device"
        text = self.hold(ctypes.create_string_buffer(kind))
        view.memory_kinds = self.hold(array(ctypes.c_void_p, (text,) * len(results)))
        view.memory_kind_sizes = self.hold(array(ctypes.c_size_t, (len(kind),) * len(results)))
        view.output_types = self.hold(array(ctypes.c_int32, tuple(TYPE_CODES[element] for element, _ in results)))
        view.dims = self.hold(array(ctypes.c_int64, tuple(n for _, dims in results for n in dims)))
        view.dim_sizes = self.hold(array(ctypes.c_size_t, tuple(len(dims) for _, dims in results)))


def chosen_precision(options: Sequence[tuple[str, object]], settings: Settings) -> str | None:
    """The precision that `jax.jit(compiler_options=...)` asks for, else that of the client.

    Raises:
        PluginError: there is another option.
    """
    for name, _ in options:
        if name != "precision":
            raise PluginError(INVALID_ARGUMENT, f"compiler option {name!r}: must be precision")
    return str(options[-1][1]) if options else settings.precision


def _loaded(client: ClientObject, proto: bytes, options: bytes) -> Loaded:
    parsed, module = compile_options(options), parse_proto(proto)
    if (devices := parsed.num_replicas * parsed.num_partitions) > 1:
        proto = with_shardings(proto, local(module, devices))
    wanted = Options(precision=chosen_precision(parsed.env_option_overrides, client.settings), probes=False)
    executable = compile_for(client.system, module, wanted)
    if is_sized(executable.program.buffers):
        raise PluginError(UNIMPLEMENTED, "the program takes or gives arrays of dynamic sizes; take and give the bounds")
    return Loaded(client, executable, proto, options)


@entry("Client_Compile")
def compile_program(args: Any) -> None:
    """Compile a program for the devices that its options name."""
    drain()
    client: ClientObject = find(args.client)
    program = STRUCTURES["Program"].from_address(args.program)
    code = ctypes.string_at(program.code, program.code_size)
    form = ctypes.string_at(program.format, program.format_size).decode()
    options = ctypes.string_at(args.compile_options, args.compile_options_size)
    args.executable = on_large_stack(lambda: _loaded(client, hlo_proto(code, form), options)).address


@entry("LoadedExecutable_GetExecutable")
def get_executable(args: Any) -> None:
    """Give the program of a loaded executable, without its devices."""
    args.executable = Compiled(find(args.loaded_executable)).address


@entry("LoadedExecutable_Delete")
def delete_executable(args: Any) -> None:
    """Let go a program; jaxlib takes no error."""
    gone: Loaded = find(args.executable)
    gone.executable = None
    gone.view.is_deleted = True


@entry("LoadedExecutable_Execute")
def execute(args: Any) -> None:
    """Run a program on each of its devices; the results are there when the call returns."""
    drain()
    loaded: Loaded = find(args.executable)
    devices = [find(args.execute_device)] if args.execute_device else loaded.devices
    if len(devices) != args.num_devices:
        raise PluginError(INVALID_ARGUMENT, f"arguments for {args.num_devices} devices, the program has {len(devices)}")
    options = STRUCTURES["ExecuteOptions"].from_address(args.options)
    kept = set(integers(options.non_donatable, options.num_non_donatable))
    made: list[list[Buffer]] = []
    for number, device in enumerate(devices):
        given = _pointers(_pointers(args.argument_lists, args.num_devices)[number], args.num_args)
        arrays = [n for n in range(args.num_args) if n not in loaded.tokens.arguments]
        results = _run(loaded, device, [find(given[n]) for n in arrays], {arrays.index(n) for n in kept & {*arrays}})
        made.append(_with_tokens(loaded, device, results))
    # Known to jaxlib once all are there: it would not destroy those of devices before one that fails.
    for number, (device, results) in enumerate(zip(devices, made, strict=True)):
        places = _pointers(_pointers(args.output_lists, args.num_devices)[number], len(results))
        places[:] = [BufferObject(result, device).address for result in results]
    if args.device_complete_events:
        _pointers(args.device_complete_events, args.num_devices)[:] = [READY] * args.num_devices


def _with_tokens(loaded: Loaded, device: DeviceObject, results: list[Buffer]) -> list[Buffer]:
    """The results, and for each token an array without elements, which JAX gives to the next call that is ordered."""
    for number in loaded.tokens.results:
        results.insert(number, device.device.put(np.zeros(0, np.bool_)))
    return results


def _pointers(address: int | None, count: int) -> Any:
    return (ctypes.c_void_p * count).from_address(address) if address and count else []


def _run(loaded: Loaded, device: DeviceObject, given: list[BufferObject], kept: set[int]) -> list[Buffer]:
    """Run a program on one device.

    Args:
        loaded: the program.
        device: where.
        given: its arguments.
        kept: numbers of arguments that it must not overwrite.
    """
    executable, began = loaded.live(), profiler.now()
    arguments = [
        copied(one.buffer, device) if number in kept and number in loaded.taken else one.buffer
        for number, one in enumerate(given)
    ]
    try:
        if [(a.dtype.name, a.shape, a.device) for a in arguments] == loaded.expected(device):
            results, task = start(executable, device.device, arguments)
        else:
            executable(*arguments, device=device.device.number)  # says what is wrong
            raise PluginError(INVALID_ARGUMENT, "the arguments are not those of the program")
        run = task.result()
        profiler.note(began, device.device, run)
        if loaded.recorder is not None:
            loaded.recorder.add(loaded.fingerprint, run)
    finally:
        for number in loaded.taken - kept:
            if given[number].buffer.deleted:
                given[number].deleted()
    return results


@entry("Executable_SizeOfGeneratedCodeInBytes")
def size_of_code(args: Any) -> None:
    """Bytes of a program's binary."""
    args.size_in_bytes = find(args.executable).loaded.live().memory.binary


@entry("Executable_GetCompiledMemoryStats")
def compiled_memory_stats(args: Any) -> None:
    """HBM that a program takes."""
    use = find(args.executable).loaded.live().memory
    known = {
        "generated_code_size_in_bytes": use.binary,
        "argument_size_in_bytes": use.parameters,
        "output_size_in_bytes": use.results + use.aliased,
        "alias_size_in_bytes": use.aliased,
        "temp_size_in_bytes": use.temporaries + use.constants,
        "peak_memory_in_bytes": use.hbm,
        "total_size_in_bytes": use.hbm,
    }
    fields = [name for name, _ in type(args)._fields_]
    for name in fields[fields.index("generated_code_size_in_bytes") :]:
        if getattr(type(args), name).offset < args.struct_size:
            setattr(args, name, known.get(name, 0))


@entry("Executable_OptimizedProgram")
def optimized_program(args: Any) -> None:
    """The module of a program, as an HloModuleProtoWithConfig; first only its size."""
    compiled: Compiled = find(args.executable)
    data = with_config(compiled.loaded.proto, len(compiled.loaded.devices))
    program = STRUCTURES["Program"].from_address(args.program)
    form = b"hlo_with_config"
    program.format, program.format_size = compiled.hold(ctypes.create_string_buffer(form)), len(form)
    if program.code:
        ctypes.memmove(program.code, data, len(data))
    program.code_size = len(data)


@entry("Executable_Serialize")
def serialize(args: Any) -> None:
    """A program as bytes: its options, its module, its binary."""
    compiled: Compiled = find(args.executable)
    loaded = compiled.loaded
    parts = (loaded.options, loaded.proto, to_bytes(loaded.live().program))
    data = _MAGIC + _SIZES.pack(*map(len, parts)) + b"".join(parts)
    kept = ctypes.create_string_buffer(data, len(data))
    args.serialized_bytes, args.serialized_bytes_size = compiled.hold(kept), len(data)
    args.serialized_executable, args.deleter = compiled.address, nothing()


@entry("Executable_DeserializeAndLoad")
def deserialize(args: Any) -> None:
    """The program that `serialize` wrote."""
    drain()
    client: ClientObject = find(args.client)
    data = ctypes.string_at(args.serialized, args.serialized_size)
    start = len(_MAGIC) + _SIZES.size
    if not data.startswith(_MAGIC) or len(data) < start:
        raise PluginError(INVALID_ARGUMENT, "these bytes are no executable of this version of systolith")
    options, proto, _ = _SIZES.unpack_from(data, len(_MAGIC))
    program = from_bytes(data[start + options + proto :], "executable")
    chosen = data[start : start + options]
    if args.options and args.options_size:
        chosen = ctypes.string_at(args.options, args.options_size)
    loaded = Loaded(client, load_for(client.system, program), data[start + options : start + options + proto], chosen)
    args.loaded_executable = loaded.address
