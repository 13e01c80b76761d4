"""Entering and leaving code that is written for one device of a partitioned whole: `jax.shard_map` before partitioning.

Custom calls cut a global array, which every partition has, into this partition's piece, and put pieces together again.
Shardy's pairs of them give shardings as text (`xla.sdy.GlobalToLocalShape`), GSPMD's as the attribute `sharding`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from systolith.compiler.hlo.device_groups import Axis, Iota, Mesh
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction, Literal, Module
from systolith.compiler.hlo.sharding import DimSharding, Sharding
from systolith.compiler.hlo.values.devices import Device, frontend_text


class Run(Protocol):
    """The interface of these custom calls to the evaluator."""

    device: Device
    module: Module | None


@dataclass(frozen=True)
class _Cut:
    """How an array is cut: pieces along each dimension, and which of them each device (a row) has."""

    pieces: tuple[int, ...]
    places: np.ndarray

    def region(self, device: int, sizes: Sequence[int]) -> tuple[slice, ...]:
        """Where a device's piece, of these sizes, lies in the whole."""
        return tuple(slice(k * n, (k + 1) * n) for k, n in zip(self.places[device].tolist(), sizes, strict=True))


def _by_tiles(sharding: Sharding, rank: int) -> _Cut:
    devices = sharding.devices
    flat = devices.numbers().reshape(-1) if isinstance(devices, Iota) else np.array(devices)
    places = np.zeros((flat.size, rank), np.int64)
    places[flat] = np.stack(np.unravel_index(np.arange(flat.size), sharding.tiles), axis=-1)[:, :rank]
    return _Cut(sharding.tiles[:rank], places)


def _by_axes(mesh: Mesh, dims: Sequence[DimSharding], rank: int, manual: Sequence[str] | None) -> _Cut:
    flat = mesh.numbers().reshape(-1)
    sizes = dict(mesh.axes)
    coordinates = dict(zip(sizes, np.unravel_index(np.arange(flat.size), mesh.sizes), strict=True))
    pieces = [1] * rank
    places = np.zeros((flat.size, rank), np.int64)
    for dim, cut in enumerate(dims):
        for axis in cut.axes:
            name = str(axis.name)
            if name not in sizes:
                raise HloError(f"the mesh has no axis {name!r}; it has {', '.join(sizes)}")
            if manual is not None and name not in manual:
                continue
            size = axis.size or sizes[name]
            below = sizes[name] // ((axis.before or 1) * size)
            places[flat, dim] = places[flat, dim] * size + coordinates[name] // below % size
            pieces[dim] *= size
    return _Cut(tuple(pieces), places)


_MESH = re.compile(r"(\w+) = #sdy\.mesh<\[([^\]]*)\](?:, device_ids=\[([\d, ]*)\])?>")
_SHARDING = re.compile(r"<@(\w+),\s*\[([^\]]*)\]")
_DIM = re.compile(r"\{([^{}]*)\}")
_AXIS = re.compile(r'"([^"]+)"(?::\((\d+)\)(\d+))?')
_SIZE = re.compile(r'"([^"]+)"=(\d+)')
_MANUAL = re.compile(r"manual_axes\{([^{}]*)\}")


def _shardy(i: Instruction, key: str, number: int, run: Run) -> _Cut:
    """How operand `number` of a custom call is cut, by the text of its attribute `key` and the module's meshes."""
    found = list(_SHARDING.finditer(frontend_text(i.attributes, f"xla.sdy.{key}")))
    texts = frontend_text(run.module.attributes, "xla.sdy.meshes") if run.module else ""
    meshes = {m[1]: m for m in _MESH.finditer(texts)}
    if number >= len(found) or found[number][1] not in meshes:
        raise HloError(f"frontend_attributes give no sharding on a known mesh for operand {number}")
    _, axes, devices = meshes[found[number][1]].groups()
    ids = tuple(int(n) for n in devices.split(",")) if devices else None
    mesh = Mesh(tuple((name, int(size)) for name, size in _SIZE.findall(axes)), ids)
    dims = [
        DimSharding(tuple(Axis(name, int(before or 0), int(size or 0)) for name, before, size in _AXIS.findall(dim)))
        for dim in _DIM.findall(found[number][2])
    ]
    manual = _MANUAL.search(frontend_text(i.attributes, "xla.sdy.manual_axes"))
    return _by_axes(
        mesh, dims, i.operands[number].shape.rank, [name for name, _, _ in _AXIS.findall(manual[1])] if manual else None
    )


def _gspmd(i: Instruction, rank: int) -> _Cut:
    """How an instruction's array is cut by its `sharding`."""
    sharding = i.attributes.get("sharding")
    if isinstance(sharding, Sharding) and sharding.named and isinstance(sharding.named.mesh, Mesh):
        return _by_axes(sharding.named.mesh, sharding.named.dims, rank, None)
    if isinstance(sharding, Sharding) and sharding.kind == "tiled":
        return _by_tiles(sharding, rank)
    raise HloError(f"the sharding of {i.name!r} does not say how the array is cut")


def _check(cut: _Cut, whole: Sequence[int], piece: Sequence[int], run: Run) -> None:
    if len(cut.places) != run.device.topology.partitions:
        raise HloError(f"the sharding is for {len(cut.places)} partitions; the run has {run.device.topology}")
    if [n * k for n, k in zip(piece, cut.pieces, strict=True)] != list(whole):
        raise HloError(f"{list(cut.pieces)} pieces of {list(piece)} do not make {list(whole)}")


def _piece(x: np.ndarray, cut: Callable[[], _Cut], dims: tuple[int, ...], run: Run) -> np.ndarray:
    """This partition's piece of an array."""
    if x.shape == dims:
        return x
    _check(found := cut(), x.shape, dims, run)
    return x[found.region(run.device.partition, dims)]


def _whole(
    i: Instruction, number: int, x: np.ndarray, cut: Callable[[], _Cut], dims: tuple[int, ...], run: Run
) -> np.ndarray:
    """The array, operand `number`, whose piece each partition brings."""
    if x.shape == dims:
        return x
    _check(found := cut(), dims, x.shape, run)
    first = run.device.number - run.device.partition
    members = tuple(range(first, first + run.device.topology.partitions))
    result = np.empty(dims, x.dtype)
    for partition, piece in enumerate(run.device.meet(i, (i, number), members, x).values):
        result[found.region(partition, x.shape)] = piece
    return result


def _results(i: Instruction, each: Callable[[int, tuple[int, ...]], np.ndarray]) -> Literal:
    """One result for each operand, given its number and its sizes."""
    if not i.shape.is_tuple:
        return each(0, i.dims)
    return tuple(each(number, shape.dims) for number, shape in enumerate(i.shape.elements))


def _global_to_local(i: Instruction, xs: list[np.ndarray], run: Run) -> Literal:
    return _results(i, lambda n, dims: _piece(xs[n], lambda: _shardy(i, "in_shardings", n, run), dims, run))


def _local_to_global(i: Instruction, xs: list[np.ndarray], run: Run) -> Literal:
    return _results(i, lambda n, dims: _whole(i, n, xs[n], lambda: _shardy(i, "out_shardings", n, run), dims, run))


def _full_to_shard(i: Instruction, xs: list[np.ndarray], run: Run) -> Literal:
    return _piece(xs[0], lambda: _gspmd(i.operands[0], xs[0].ndim), i.dims, run)


def _shard_to_full(i: Instruction, xs: list[np.ndarray], run: Run) -> Literal:
    return _whole(i, 0, xs[0], lambda: _gspmd(i, xs[0].ndim), i.dims, run)


MANUAL_SHARDING: dict[str, Callable[[Instruction, list[np.ndarray], Run], Literal]] = {
    "xla.sdy.GlobalToLocalShape": _global_to_local,
    "xla.sdy.LocalToGlobalShape": _local_to_global,
    "SPMDFullToShardShape": _full_to_shard,
    "SPMDShardToFullShape": _shard_to_full,
}
"""Custom call target to function."""
