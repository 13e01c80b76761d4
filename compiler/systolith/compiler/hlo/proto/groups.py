"""Devices in a serialized module: `replica_groups`, shardings and meshes, spelled as XLA prints them.

Source: `xla/hlo/ir/hlo_sharding.cc`, `tile_assignment.cc`, `named_sharding.cc`, `mesh_and_axis.cc`, `replica_group.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.proto.metadata import metadata_list, metadata_text

SHARDING_TYPES = dict(enumerate("replicated maximal tuple other manual unknown unreduced".split()))


def numbers(values: Iterable[int]) -> str:
    """`1,2,3`."""
    return ",".join(map(str, values))


def groups_text(proto: Any) -> str:
    """The `replica_groups` of a collective: a list, an iota or axes of a mesh; old modules have only the list."""
    if proto.HasField("mesh_axes_replica_group_list"):
        groups = proto.mesh_axes_replica_group_list
        return f"{_mesh(groups.mesh)} {_axes(groups.axes, groups.mesh)}"
    if proto.HasField("iota_collective_device_list"):
        iota = proto.iota_collective_device_list
        return f"[{iota.num_replica_groups},{iota.num_devices_per_group}]<={_iota(iota)}"
    if proto.HasField("collective_device_list"):
        proto = proto.collective_device_list
    return "{" + ",".join("{" + numbers(group.replica_ids) + "}" for group in proto.replica_groups) + "}"


def _iota(proto: Any) -> str:
    """`[2,4]`, or `[2,4]T(1,0)` where the order is not 0, 1, ..."""
    order = list(proto.iota_transpose_perm)
    turned = f"T({numbers(order)})" if order != sorted(order) else ""
    return f"[{numbers(proto.iota_reshape_dims)}]{turned}"


def sharding_text(proto: Any) -> str:
    """An `OpSharding`.

    Raises:
        HloError: its type is not known.
    """
    if proto.HasField("named_sharding"):
        return _named(proto.named_sharding)
    kind = _sharding_type(proto.type)
    if kind == "tuple":
        return "{" + ", ".join(map(sharding_text, proto.tuple_shardings)) + "}"
    if kind == "maximal":
        kind = f"maximal device={numbers(proto.tile_assignment_devices)}"
    elif kind == "other":
        kind = _tiled(proto)
    group = f" {'shard_like' if proto.shard_group_type else 'shard_as'} {proto.shard_group_id}"
    origin = metadata_list(proto.metadata) if len(proto.metadata) > 1 else "".join(map(metadata_text, proto.metadata))
    return f"{{{kind}{group * bool(proto.is_shard_group)}{f' metadata={origin}' if origin else ''}}}"


def _sharding_type(number: int) -> str:
    if number not in SHARDING_TYPES:
        raise HloError(f"sharding type {number} is not known")
    return SHARDING_TYPES[number]


def _tiled(proto: Any) -> str:
    """`devices=[2,1,2]<=[4] last_tile_dims={manual}`."""
    listed = f"<={_iota(proto)}" if proto.iota_reshape_dims else numbers(proto.tile_assignment_devices)
    text = f"devices=[{numbers(proto.tile_assignment_dimensions)}]{listed}"
    last = [_sharding_type(kind) for kind in proto.last_tile_dims]
    if proto.replicate_on_last_tile_dim or last == ["replicated"]:
        return text + " last_tile_dim_replicate"
    return text + f" last_tile_dims={{{', '.join(last)}}}" * bool(last)


def _named(proto: Any) -> str:
    """`{mesh['x'=2,'y'=4], [{'x'}, {?}], replicated={'y'}}`."""
    mesh = proto.mesh
    if not mesh.axes and len(mesh.device_ids) == 1:
        return f"{{maximal_mesh[device_id={mesh.device_ids[0]}]}}"
    dims = ", ".join(_axes(d.axes, mesh, not d.is_closed) for d in proto.dim_shardings)
    parts = [_mesh(mesh), f"[{dims}]"]
    for key in ("replicated", "unreduced", "manual"):
        axes = getattr(proto, f"{key}_axes")
        if axes:
            parts.append(f"{key}={_axes(axes, mesh)}")
    if proto.metadata:
        parts.append(f"metadata={metadata_list(proto.metadata)}")
    return "{" + ", ".join(parts) + "}"


def _mesh(proto: Any) -> str:
    axes = ",".join(f"'{axis.name}'={axis.size}" for axis in proto.axes)
    if proto.HasField("iota_transform"):
        iota = proto.iota_transform
        order = f"T({numbers(iota.transpose_perm)})"
        return f"mesh[{axes}], device_ids=([{numbers(iota.reshape_dims)}]{order})"
    return f"mesh[{axes}]" + f", device_ids=({numbers(proto.device_ids)})" * bool(proto.device_ids)


def _axes(refs: Any, mesh: Any, is_open: bool = False) -> str:
    """`{'x', 'y':(1)2, ?}`, axes by the numbers of their places in the mesh."""
    return "{" + ", ".join([*(_axis(ref, mesh) for ref in refs), *["?"] * is_open]) + "}"


def _axis(ref: Any, mesh: Any) -> str:
    if not 0 <= ref.mesh_axis_index < len(mesh.axes):
        raise HloError(f"axis {ref.mesh_axis_index} of a mesh that has {len(mesh.axes)}")
    part = f":({ref.sub_axis_info.pre_size}){ref.sub_axis_info.size}" if ref.HasField("sub_axis_info") else ""
    return f"'{mesh.axes[ref.mesh_axis_index].name}'{part}"
