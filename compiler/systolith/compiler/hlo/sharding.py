"""How a value lies on devices (`sharding`): of an array, and of a tuple element by element.

Source of the forms: `xla/hlo/ir/hlo_sharding.h` and `named_sharding.h`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from systolith.compiler.hlo.device_groups import Axis, Iota, Mesh


@dataclass(frozen=True)
class DimSharding:
    """The axes of a mesh over which one dimension is cut; an open one (`?`) may get more."""

    axes: tuple[Axis, ...] = ()
    open: bool = False

    def __str__(self) -> str:
        return "{" + ", ".join([*map(str, self.axes), *["?"] * self.open]) + "}"


@dataclass(frozen=True)
class NamedSharding:
    """A sharding by the axes of a mesh: `mesh['x'=2,'y'=4], [{'x'}, {?}], replicated={'y'}`.

    Attributes:
        mesh: the mesh; a device number for a mesh of one device (`maximal_mesh[device_id=3]`).
        dims: for each dimension, the axes that cut it; empty with `kind`.
        kind: `replicated`, `unreduced` or `manual` for all axes at once, or empty.
        axes: the same for some axes each: `replicated={'y'}`.
    """

    mesh: Mesh | int
    dims: tuple[DimSharding, ...] = ()
    kind: str = ""
    axes: tuple[tuple[str, tuple[Axis, ...]], ...] = ()

    def __str__(self) -> str:
        if isinstance(self.mesh, int):
            return f"maximal_mesh[device_id={self.mesh}]"
        parts = [str(self.mesh), self.kind or "[" + ", ".join(map(str, self.dims)) + "]"]
        parts += [f"{key}={{{', '.join(map(str, axes))}}}" for key, axes in self.axes]
        return ", ".join(parts)


@dataclass(frozen=True)
class Sharding:
    """A sharding of an array.

    Attributes:
        kind: `replicated`, `maximal`, `manual`, `unknown`, `unreduced`, `tiled` or `named`.
        device: the device of `maximal`.
        tiles: sizes of the array of devices of `tiled`, and the devices, row-major.
        last: kinds of the last dimensions of `tiles`, which cut no dimension of the array: `replicated`, `manual`, ...
        named: the sharding by axes of a mesh.
        group: `shard_as` or `shard_like` and the number of the group.
        metadata: texts of the metadata.
    """

    kind: str
    device: int = 0
    tiles: tuple[int, ...] = ()
    devices: Iota | tuple[int, ...] = ()
    last: tuple[str, ...] = ()
    named: NamedSharding | None = None
    group: tuple[str, int] | None = None
    metadata: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        parts = [self._placement()]
        if self.last == ("replicated",):
            parts.append("last_tile_dim_replicate")
        elif self.last:
            parts.append(f"last_tile_dims={{{', '.join(self.last)}}}")
        if self.group:
            parts.append(f"{self.group[0]} {self.group[1]}")
        if self.metadata and self.named:
            parts[-1] += f", metadata={{{', '.join(self.metadata)}}}"
        elif self.metadata:
            many = ", ".join(self.metadata)
            parts.append(f"metadata={{{many}}}" if len(self.metadata) > 1 else f"metadata={many}")
        return "{" + " ".join(parts) + "}"

    def _placement(self) -> str:
        if self.named:
            return str(self.named)
        if self.kind == "maximal":
            return f"maximal device={self.device}"
        if self.kind != "tiled":
            return self.kind
        if isinstance(self.devices, Iota):
            return f"devices={self.devices}"
        return f"devices=[{','.join(map(str, self.tiles))}]{','.join(map(str, self.devices))}"


@dataclass(frozen=True)
class TupleSharding:
    """Shardings of a tuple's arrays, depth first."""

    elements: tuple[Sharding, ...] = ()

    def __str__(self) -> str:
        return "{" + ", ".join(map(str, self.elements)) + "}"


AnySharding: TypeAlias = Sharding | TupleSharding
