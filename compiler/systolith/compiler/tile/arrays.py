"""Arrays of elements in memory: dense strides, views, loops over them, boxes of limited size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from systolith.compiler.index.affine import Box
from systolith.compiler.tile.ir import Array, Buf
from systolith.isa.dtypes import DType


def dense(dims: Sequence[int], size: int) -> tuple[int, ...]:
    """Row-major strides in bytes of an array of elements of `size` bytes."""
    strides = [size] * len(dims)
    for d in range(len(dims) - 2, -1, -1):
        strides[d] = strides[d + 1] * dims[d + 1]
    return tuple(strides)


def dense_array(buf: Buf, dtype: DType, dims: tuple[int, ...], origin: tuple[int, ...] | None = None) -> Array:
    """A dense array at the start of a buffer; `origin`: the index of its first element in the value it is a box of."""
    return Array(buf, dtype.in_memory, dims, dense(dims, dtype.size), origin or (0,) * len(dims))


def dense_like(dims: Sequence[int], strides: Sequence[int], size: int) -> tuple[int, ...]:
    """Strides in bytes of a dense array of elements of `size` bytes, its dimensions nested as `strides` nest them."""
    order = nesting(strides)
    steps = dense([dims[d] for d in order], size)
    return tuple(steps[order.index(d)] for d in range(len(dims)))


def nesting(strides: Sequence[int]) -> list[int]:
    """Dimensions by their stride, the largest first."""
    return sorted(range(len(strides)), key=lambda d: (-abs(strides[d]), d))


def view(array: Array, box: Box) -> Array:
    """The part of an array that a box covers, in place.

    Raises:
        ValueError: the box is not inside.
    """
    offset = array.offset
    for o, n, base, size, stride in zip(box.origin, box.dims, array.origin, array.dims, array.strides, strict=True):
        if o < base or o + n > base + size:
            raise ValueError(f"box {box} is not inside {array.buf.name} {array.origin} {array.dims}")
        offset += (o - base) * stride
    return Array(array.buf, array.dtype, box.dims, array.strides, box.origin, offset, array.dynamic)


def chunks(array: Array, limit: int) -> Iterator[Box]:
    """Boxes of at most `limit` bytes (or one element) that cover an array, cut along the outermost dimensions."""
    room = max(1, limit // array.dtype.size)
    steps = list(array.dims)
    for d in range(len(steps)):
        inner = prod(steps[d + 1 :])
        if inner * steps[d] <= room:
            break
        steps[d] = max(1, room // inner)
    return Box(array.origin, array.dims).tiles([max(1, step) for step in steps])


def parts(array: Array, dtype: DType) -> Array:
    """An array with the parts of each element, of a narrower type, along a new last dimension."""
    count = array.dtype.size // dtype.size
    wider = (*array.dims, count), (*array.strides, dtype.size), (*array.origin, 0)
    return Array(array.buf, dtype, *wider, array.offset, array.dynamic)
