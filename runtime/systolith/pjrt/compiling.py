"""From what jaxlib hands over to a program of the runtime."""

from __future__ import annotations

from typing import Any

from systolith.compiler.hlo.proto.schema import message_class
from systolith.pjrt.partition import Shardings
from systolith.pjrt.status import UNIMPLEMENTED, PluginError
from systolith.runtime.inputs.stablehlo import proto_of_mlir


def hlo_proto(code: bytes, form: str) -> bytes:
    """A program as a serialized HloModuleProto.

    Args:
        code: the program.
        form: "mlir" (StableHLO, perhaps with Shardy, as a portable artifact, bytecode or text) or "hlo".

    Raises:
        PluginError: another format.
    """
    if form == "hlo":
        return code
    if form != "mlir":
        raise PluginError(UNIMPLEMENTED, f"a program in format {form!r}: expected mlir or hlo")
    return proto_of_mlir(code)


def with_shardings(proto: bytes, shardings: Shardings) -> bytes:
    """A serialized HloModuleProto that says how its parameters and results lie on the devices."""
    made: Any = message_class("HloModuleProto").FromString(proto)
    made.spmd_parameters_shardings.extend(shardings.parameters)
    made.spmd_output_sharding.CopyFrom(shardings.result)
    data: bytes = made.SerializeToString()
    return data


def with_config(proto: bytes, devices: int) -> bytes:
    """A serialized HloModuleProto as an HloModuleProtoWithConfig: with the layouts of its parameters and result."""
    made: Any = message_class("HloModuleProtoWithConfig")()
    made.hlo_module.ParseFromString(proto)
    made.config.entry_computation_layout.CopyFrom(made.hlo_module.host_program_shape)
    made.config.replica_count, made.config.num_partitions = 1, devices
    data: bytes = made.SerializeToString()
    return data


def compile_options(data: bytes) -> Any:
    """The CompileOptions of jaxlib."""
    from jaxlib import xla_client

    return xla_client.CompileOptions.ParseFromString(data)


def assigned_devices(data: bytes) -> list[int]:
    """The devices of a serialized DeviceAssignmentProto: those of a replica's partitions stand together."""
    assignment: Any = message_class("DeviceAssignmentProto").FromString(data)
    columns = [c.replica_device_ids for c in assignment.computation_devices]
    return [n for replica in zip(*columns, strict=True) for n in replica]
