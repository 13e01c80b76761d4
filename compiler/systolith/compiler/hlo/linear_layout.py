"""Where the elements of an array lie in linear memory: order of dimensions, padded dimensions, tiles.

Offsets count elements, from 0.  Order and padding are those of XLA's `Layout` proto; tiles such as `{1,0:T(8,128)}` are
those of XLA's document "Tiled layout": each tile splits the most minor physical dimensions, as many as it has sizes,
into a grid of tiles and the places inside one, and `*` joins a dimension to the next more minor one first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.shape import Layout, Shape

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
_Physical: TypeAlias = list[tuple[int, Any]]
"""Size of, and index in, each physical dimension, major to minor; an index is an integer or an array of them."""

COMBINED = -1
"""A tile's `*`."""

_TILES = re.compile(r"T((?:\([^()]*\))+)")
_TILE = re.compile(r"\(([^()]*)\)")


def row_major(rank: int) -> Layout:
    """The layout whose last dimension varies fastest."""
    return Layout(tuple(reversed(range(rank))))


def tiles(layout: Layout) -> tuple[tuple[int, ...], ...]:
    """The tiles of a layout in the order of their use: `T(8,128)(2,1)` is ((8, 128), (2, 1))."""
    found = _TILES.search(layout.suffix)
    return tuple(
        tuple(COMBINED if size.strip() == "*" else int(size) for size in tile.split(",") if size.strip())
        for tile in (_TILE.findall(found.group(1)) if found else ())
    )


def check_layout(shape: Shape) -> Layout:
    """The layout of an array (row-major where it has none), checked against its dimensions.

    Raises:
        HloError: the shape is no array, or order, padding or tiles do not fit its dimensions.
    """
    element = shape.dtype
    layout = shape.layout or row_major(shape.rank)
    what = f"layout {layout} of {element}[{','.join(map(str, shape.dims))}]"
    if sorted(layout.minor_to_major) != list(range(shape.rank)):
        raise HloError(f"{what}: minor_to_major must be a permutation of 0 to {shape.rank - 1}")
    padded = layout.padded_dimensions
    if padded and len(padded) != shape.rank:
        raise HloError(f"{what}: padded_dimensions must have {shape.rank} sizes, got {len(padded)}")
    for dimension, (size, wide) in enumerate(zip(shape.dims, padded, strict=False)):
        if wide < size:
            raise HloError(f"{what}: dimension {dimension} of size {size} cannot be padded to {wide}")
    for tile in tiles(layout):
        if not tile or tile[-1] == COMBINED or any(size < 1 and size != COMBINED for size in tile):
            raise HloError(f"{what}: a tile has sizes, all positive, and its last one is not '*'")
    return layout


def is_dense(layout: Layout) -> bool:
    """Whether memory holds the elements and nothing else, in the order of the dimensions."""
    return not layout.padded_dimensions and not tiles(layout)


def _physical(shape: Shape, index: Sequence[Any]) -> _Physical:
    layout = check_layout(shape)
    sizes = layout.padded_dimensions or shape.dims
    dims = [(sizes[d], index[d]) for d in reversed(layout.minor_to_major)]
    for tile in tiles(layout):
        dims = _tiled(dims, tile)
    return dims


def _tiled(dims: _Physical, tile: tuple[int, ...]) -> _Physical:
    dims = [(1, 0)] * (len(tile) - len(dims)) + dims
    split = len(dims) - len(tile)
    outer: _Physical = []
    inner: _Physical = []
    size: int = 1
    index: Any = 0
    for (next_size, next_index), tile_size in zip(dims[split:], tile, strict=True):
        size, index = size * next_size, index * next_size + next_index
        if tile_size == COMBINED:
            continue
        outer.append((-(-size // tile_size), index // tile_size))
        inner.append((tile_size, index % tile_size))
        size, index = 1, 0
    return dims[:split] + outer + inner


def memory_size(shape: Shape) -> int:
    """Elements that an array takes in memory, padding of dimensions and tiles included."""
    return prod(size for size, _ in _physical(shape, (0,) * shape.rank))


def linear_index(shape: Shape, index: Sequence[int]) -> int:
    """The offset in memory of the element at `index`.

    Raises:
        HloError: the index has not one place for each dimension, or one is outside it.
    """
    if len(index) != shape.rank or not all(0 <= i < n for i, n in zip(index, shape.dims, strict=False)):
        raise HloError(f"index {list(index)} is not in {shape}")
    return int(_offset(shape, index))


def _offset(shape: Shape, index: Sequence[Any]) -> Any:
    offset: Any = 0
    for size, place in _physical(shape, index):
        offset = offset * size + place
    return offset


def _offsets(shape: Shape) -> Array:
    """The offset of every element, an array of the shape's sizes."""
    return np.broadcast_to(_offset(shape, np.ix_(*map(np.arange, shape.dims))), shape.dims)


def strides(shape: Shape) -> tuple[int, ...]:
    """By how much the offset grows with each dimension's index.

    Raises:
        HloError: the layout has tiles, in which no dimension has one stride.
    """
    layout = check_layout(shape)
    if tiles(layout):
        raise HloError(f"layout {layout} of {shape} has tiles: its dimensions have no strides")
    sizes = layout.padded_dimensions or shape.dims
    found = [0] * shape.rank
    stride = 1
    for dimension in layout.minor_to_major:
        found[dimension] = stride
        stride *= sizes[dimension]
    return tuple(found)


def to_memory(value: Array, shape: Shape) -> Array:
    """The elements of an array of `shape` as they lie in memory, one-dimensional; padding has the layout's value."""
    layout = check_layout(shape)
    if is_dense(layout):
        return np.ascontiguousarray(value.transpose(layout.minor_to_major[::-1])).reshape(-1)
    memory = np.full(memory_size(shape), layout.padding_value, value.dtype)
    memory[_offsets(shape)] = value
    return memory


def from_memory(memory: Array, shape: Shape) -> Array:
    """The array whose elements lie in `memory` as `shape` says; contents of padding are lost.

    Raises:
        HloError: memory has not as many elements as the shape takes.
    """
    if memory.shape != (memory_size(shape),):
        raise HloError(f"{shape} takes {memory_size(shape)} elements of memory, got {list(memory.shape)}")
    layout = check_layout(shape)
    if is_dense(layout):
        order = layout.minor_to_major[::-1]
        return memory.reshape([shape.dims[d] for d in order]).transpose([order.index(d) for d in range(shape.rank)])
    return np.asarray(memory[_offsets(shape)])
