"""Shape rules of operations that move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from systolith.compiler.hlo.attributes import PadDim
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import Shape, array, tuple_of
from systolith.compiler.hlo.shape_rules import Infer, check_call, listed, operand_shapes, require, unique_within


def _broadcast(i: Instruction) -> Shape:
    shape, dims = i.operands[0].shape, i.ints("dimensions", ())
    require(len(dims) == shape.rank, f"dimensions has an entry for each of {shape}'s, got {len(dims)}")
    unique_within(dims, i.shape.rank, "dimensions")
    for source, target in enumerate(dims):
        require(shape.dims[source] == i.dims[target],
                f"dimension {source} of {shape} has the size of dimension {target} of {i.shape}")  # fmt: skip
    return array(shape.dtype, i.dims)


def _reshape(i: Instruction) -> Shape:
    shape = i.operands[0].shape
    require(shape.size == i.shape.size, f"{shape} has {shape.size} elements, {i.shape} has {i.shape.size}")
    return array(shape.dtype, i.dims)


def _bitcast(i: Instruction) -> Shape:
    shape = i.operands[0].shape
    same = not shape.is_array or shape.bytes == i.shape.bytes
    require(same, f"{shape} takes {shape.bytes} bytes, {i.shape} {i.shape.bytes}")
    return i.shape


def _bitcast_convert(i: Instruction) -> Shape:
    """Equal widths keep the shape; else the minor dimension is the ratio, on the narrow side."""
    shape, dtype = i.operands[0].shape, i.shape.dtype
    wide, narrow = shape.dtype.bits, dtype.bits
    if wide == narrow:
        return array(dtype, shape.dims)
    if wide > narrow:
        return array(dtype, (*shape.dims, wide // narrow))
    ratio = narrow // wide
    require(shape.rank > 0 and shape.dims[-1] == ratio, f"the last dimension of {shape} is {ratio} to become {dtype}")
    return array(dtype, shape.dims[:-1])


def _transpose(i: Instruction) -> Shape:
    shape, order = i.operands[0].shape, i.ints("dimensions")
    unique_within(order, shape.rank, "dimensions")
    require(len(order) == shape.rank, f"dimensions is a permutation of 0 to {shape.rank - 1}")
    return array(shape.dtype, [shape.dims[d] for d in order])


def _slice(i: Instruction) -> Shape:
    shape, slices = i.operands[0].shape, i.slices
    require(len(slices) == shape.rank, f"slice has {shape.rank} dimensions, got {len(slices)}")
    for dim, (s, size) in enumerate(zip(slices, shape.dims, strict=True)):
        require(0 <= s.start <= s.limit <= size and s.stride > 0,
                f"slice [{s.start}:{s.limit}:{s.stride}] lies in dimension {dim}, of {size} elements")  # fmt: skip
    return array(shape.dtype, [-(-(s.limit - s.start) // s.stride) for s in slices])


def _concatenate(i: Instruction) -> Shape:
    shapes = operand_shapes(i)
    first = shapes[0]
    dims = i.ints("dimensions")
    require(len(dims) == 1, "dimensions names one dimension")
    unique_within(dims, first.rank, "dimensions")
    (dim,) = dims
    for shape in shapes:
        rest = [s.dims[:dim] + s.dims[dim + 1 :] for s in (first, shape)]
        require(shape.dtype == first.dtype and shape.rank == first.rank and rest[0] == rest[1],
                f"operands agree but for dimension {dim}, got {first} and {shape}")  # fmt: skip
    return array(first.dtype, [*first.dims[:dim], sum(s.dims[dim] for s in shapes), *first.dims[dim + 1 :]])


def _pad(i: Instruction) -> Shape:
    shape, value = operand_shapes(i)
    padding = cast("tuple[PadDim, ...]", i.attributes.get("padding", ()))
    scalar = value.is_array and value.rank == 0 and value.dtype == shape.dtype
    require(scalar, f"padding is a {shape.dtype}[], got {value}")
    require(len(padding) == shape.rank, f"padding has {shape.rank} dimensions, got {len(padding)}")
    sizes = [p.low + p.high + n + max(n - 1, 0) * p.interior for p, n in zip(padding, shape.dims, strict=True)]
    require(all(p.interior >= 0 for p in padding) and all(n >= 0 for n in sizes), f"padding leaves sizes {sizes}")
    return array(shape.dtype, sizes)


def _iota(i: Instruction) -> Shape:
    unique_within([i.integer("iota_dimension")], i.shape.rank, "iota_dimension")
    return i.shape


def _reverse(i: Instruction) -> Shape:
    unique_within(i.ints("dimensions"), i.operands[0].shape.rank, "dimensions")
    return i.operands[0].shape


def _dynamic_slice(i: Instruction) -> Shape:
    shape, sizes = i.operands[0].shape, i.ints("dynamic_slice_sizes")
    _check_starts(i.operands[1:], shape)
    require(len(sizes) == shape.rank and all(0 <= a <= b for a, b in zip(sizes, shape.dims, strict=True)),
            f"dynamic_slice_sizes {sizes} fit in {shape}")  # fmt: skip
    return array(shape.dtype, sizes)


def _dynamic_update_slice(i: Instruction) -> Shape:
    shape, update = i.operands[0].shape, i.operands[1].shape
    _check_starts(i.operands[2:], shape)
    fits = update.rank == shape.rank and all(a <= b for a, b in zip(update.dims, shape.dims, strict=True))
    require(fits and update.dtype == shape.dtype, f"update {update} fits in {shape}")
    return shape


def _check_starts(starts: Sequence[Instruction], shape: Shape) -> None:
    scalar = all(s.shape.is_array and s.shape.rank == 0 and s.shape.dtype.is_integer for s in starts)
    old_form = len(starts) == 1 and starts[0].dims == (shape.rank,)
    found = listed([s.shape for s in starts])
    good = old_form or (scalar and len(starts) == shape.rank)
    require(good, f"there is one integer scalar per dimension of {shape}, got ({found})")


def _gather(i: Instruction) -> Shape:
    shape, indices = operand_shapes(i)
    sizes, offset = i.ints("slice_sizes"), i.ints("offset_dims")
    dropped = (*i.ints("collapsed_slice_dims", ()), *i.ints("operand_batching_dims", ()))
    vector = i.integer("index_vector_dim")
    require(len(sizes) == shape.rank and all(0 <= a <= b for a, b in zip(sizes, shape.dims, strict=True)),
            f"slice_sizes {sizes} fit in {shape}")  # fmt: skip
    unique_within(dropped, shape.rank, "collapsed and batching dimensions")
    unique_within(i.ints("start_index_map"), shape.rank, "start_index_map")
    require(0 <= vector <= indices.rank, f"index_vector_dim is 0 to {indices.rank}, got {vector}")
    width = indices.dims[vector] if vector < indices.rank else 1
    require(width == len(i.ints("start_index_map")), f"start_index_map has {width} entries")
    require(all(sizes[d] <= 1 for d in dropped), "slice_sizes of collapsed and batching dimensions are at most 1")
    window = [n for d, n in enumerate(sizes) if d not in dropped]
    batch = [n for d, n in enumerate(indices.dims) if d != vector]
    rank = len(window) + len(batch)
    unique_within(offset, rank, "offset_dims")
    require(len(offset) == len(window), f"offset_dims has {len(window)} entries")
    left, right = iter(window), iter(batch)
    return array(shape.dtype, [next(left) if d in offset else next(right) for d in range(rank)])


def _scatter(i: Instruction) -> Shape:
    count = (len(i.operands) - 1) // 2
    require(len(i.operands) == 2 * count + 1, "takes arrays, indices, and as many updates as arrays")
    shapes = operand_shapes(i)
    inputs = shapes[:count]
    result = check_call(i.computation(), [array(s.dtype) for s in (*inputs, *shapes[count + 1 :])])
    indices, updates, vector = shapes[count], shapes[count + 1], i.integer("index_vector_dim")
    window = i.ints("update_window_dims")
    unique_within(window, updates.rank, "update_window_dims")
    batch = [n for d, n in enumerate(indices.dims) if d != vector]
    scattered = [n for d, n in enumerate(updates.dims) if d not in window]
    require(batch == scattered, f"the sizes of {updates} outside its window are those of indices {indices}, {batch}")
    return tuple_of(inputs) if result.is_tuple else inputs[0]


MOVEMENT_RULES: dict[str, Infer] = {
    "broadcast": _broadcast,
    "reshape": _reshape,
    "bitcast": _bitcast,
    "bitcast-convert": _bitcast_convert,
    "transpose": _transpose,
    "slice": _slice,
    "concatenate": _concatenate,
    "pad": _pad,
    "iota": _iota,
    "reverse": _reverse,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter,
}
"""Opcode to rule."""
