"""Groups of devices (`replica_groups`): a list, an iota that is reshaped and transposed, or axes of a mesh.

Source: `xla/hlo/ir/replica_group.h`, `tile_assignment.h` and `mesh_and_axis.h`.  The three spell the same
thing, lists of device numbers, and print back as they were written.  Sizes are checked before any list is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TypeAlias

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.escapes import escape

MAX_DEVICES = 1 << 20
"""Most devices whose numbers are written out; a longer list is refused."""


@dataclass(frozen=True)
class Iota:
    """Numbers 0, 1, ... in the shape `reshape`, transposed, then taken as `dims`: `[4,2]<=[2,4]T(1,0)`.

    Attributes:
        dims: sizes of the result.
        reshape: sizes in which the numbers count up, row-major.
        transpose: order of those dimensions; empty for as they are.
    """

    dims: tuple[int, ...]
    reshape: tuple[int, ...]
    transpose: tuple[int, ...] = ()

    def numbers(self) -> np.ndarray:
        """The device numbers, of shape `dims`.

        Raises:
            HloError: the sizes do not agree, or there are more than `MAX_DEVICES`.
        """
        count = prod(self.dims)
        if (
            count != prod(self.reshape)
            or min((*self.dims, *self.reshape), default=0) < 0
            or sorted(self.transpose) not in ([], list(range(len(self.reshape))))
        ):
            raise HloError(f"device list {self}: sizes and order do not agree")
        if count > MAX_DEVICES:
            raise HloError(f"device list {self} has {count} devices; at most {MAX_DEVICES} are supported")
        order = self.transpose or tuple(range(len(self.reshape)))
        return np.arange(count, dtype=np.int64).reshape(self.reshape).transpose(order).reshape(self.dims)

    @property
    def order(self) -> str:
        """How the numbers count up, as text: `[2,4]T(1,0)`."""
        tail = f"T({','.join(map(str, self.transpose))})" if self.transpose else ""
        return f"[{','.join(map(str, self.reshape))}]{tail}"

    def __str__(self) -> str:
        return f"[{','.join(map(str, self.dims))}]<={self.order}"


def _axis_name(name: str, quoted: bool) -> str:
    return f"'{escape(name)}'" if quoted else name


@dataclass(frozen=True)
class Mesh:
    """A named mesh: axes with sizes, and its devices where they are not 0, 1, ... in row-major order.

    Attributes:
        axes: name and size of each axis, the major one first.
        devices: device numbers in row-major order, or how to count them; None for 0, 1, ...
        quoted: whether the names print in quotes; XLA printed them without until 2026.
    """

    axes: tuple[tuple[str, int], ...]
    devices: Iota | tuple[int, ...] | None = None
    quoted: bool = True

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for _, size in self.axes)

    def numbers(self) -> np.ndarray:
        """The device numbers, one dimension per axis.

        Raises:
            HloError: the sizes do not agree, or there are more than `MAX_DEVICES`.
        """
        count = prod(self.sizes)
        if count > MAX_DEVICES:
            raise HloError(f"{self} has {count} devices; at most {MAX_DEVICES} are supported")
        if self.devices is None:
            flat = np.arange(count, dtype=np.int64)
        elif isinstance(self.devices, Iota):
            flat = self.devices.numbers().reshape(-1)
        else:
            flat = np.array(self.devices, dtype=np.int64)
        if flat.size != count:
            raise HloError(f"{self} has {count} places for {flat.size} devices")
        return flat.reshape(self.sizes)

    def __str__(self) -> str:
        axes = ",".join(f"{_axis_name(name, self.quoted)}={size}" for name, size in self.axes)
        if self.devices is None:
            return f"mesh[{axes}]"
        if isinstance(self.devices, Iota):
            return f"mesh[{axes}], device_ids=({self.devices.order})"
        return f"mesh[{axes}], device_ids=({','.join(map(str, self.devices))})"


@dataclass(frozen=True)
class Axis:
    """An axis of a mesh, or a part of one: `'x'`, or `'x':(2)4` for the 4 below the 2 most major ones.

    Attributes:
        name: the axis; its number where the text gives that.
        before: product of the sizes of the axis' more major parts; 0 where the whole axis is meant.
        size: size of the part; 0 where the whole axis is meant.
        quoted: whether the name prints in quotes.
    """

    name: str | int
    before: int = 0
    size: int = 0
    quoted: bool = True

    def __str__(self) -> str:
        name = _axis_name(self.name, self.quoted) if isinstance(self.name, str) else str(self.name)
        return f"{name}:({self.before}){self.size}" if self.size else name


@dataclass(frozen=True)
class MeshGroups:
    """Groups along axes of a mesh: `mesh['x'=2,'y'=4] {'y'}`; devices that differ only along the axes are together."""

    mesh: Mesh
    axes: tuple[Axis, ...]

    def numbers(self) -> np.ndarray:
        """The device numbers, one row a group.

        Raises:
            HloError: an axis is not in the mesh or a part does not divide it, or there are too many devices.
        """
        parts = [(number, *part) for number, size in enumerate(self.mesh.sizes) for part in self._split(number, size)]
        grouped = [self._part(axis, parts) for axis in self.axes]
        if len(set(grouped)) != len(grouped):
            raise HloError(f"device groups {self}: an axis is there twice")
        others = [i for i in range(len(parts)) if i not in grouped]
        devices = self.mesh.numbers().reshape([size for _, _, size in parts])
        size = prod(parts[i][2] for i in grouped)
        return devices.transpose([*others, *grouped]).reshape(-1, size)

    def _number(self, axis: Axis) -> int:
        """The number of an axis in the mesh, -1 if it has none of that name."""
        if isinstance(axis.name, int):
            return axis.name
        return next((i for i, (name, _) in enumerate(self.mesh.axes) if name == axis.name), -1)

    def _split(self, number: int, full: int) -> list[tuple[int, int]]:
        """The parts (product of the more major sizes, size) in which the groups' axes cut one axis."""
        cuts = {1, full}
        for axis in self.axes:
            if axis.size and self._number(axis) == number:
                cuts |= {axis.before, axis.before * axis.size}
        ends = sorted(cuts)
        if any(low < 1 or high % low for low, high in pairwise(ends)) or ends[-1] != full:
            raise HloError(f"device groups {self}: the parts of an axis do not divide its size {full}")
        return [(low, high // low) for low, high in pairwise(ends)] or [(1, 1)]

    def _part(self, axis: Axis, parts: list[tuple[int, int, int]]) -> int:
        number = self._number(axis)
        for index, (owner, before, size) in enumerate(parts):
            if owner == number and (not axis.size or (before, size) == (axis.before, axis.size)):
                return index
        raise HloError(f"device groups {self}: no axis {axis} in the mesh")

    def __str__(self) -> str:
        return f"{self.mesh} {{{','.join(map(str, self.axes))}}}"


_Spelling: TypeAlias = "tuple[tuple[int, ...], ...] | Iota | MeshGroups"


@dataclass(frozen=True)
class DeviceGroups:
    """The groups of a collective: `{{0,1},{2,3}}`, `{}` (all devices together), `[2,4]<=[8]`, `mesh['x'=2] {'x'}`."""

    spelling: _Spelling = ()

    @property
    def lists(self) -> tuple[tuple[int, ...], ...]:
        """The device numbers of each group; no group at all stands for one group of all.

        Raises:
            HloError: an iota or mesh whose sizes do not agree, or with more than `MAX_DEVICES` devices.
        """
        if isinstance(self.spelling, tuple):
            return self.spelling
        return tuple(tuple(group) for group in self.spelling.numbers().tolist())

    def __str__(self) -> str:
        if isinstance(self.spelling, tuple):
            return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in self.spelling) + "}"
        return str(self.spelling)
