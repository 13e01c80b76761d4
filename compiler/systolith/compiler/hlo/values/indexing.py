"""`gather` and `scatter` in their general form, batching dimensions included."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from systolith.compiler.hlo.ir import Instruction, Literal
from systolith.compiler.hlo.values.dynamic import filled
from systolith.compiler.hlo.values.orders import Calls
from systolith.compiler.hlo.values.reduction import combine_at


def _index_vectors(indices: np.ndarray, vector_dim: int) -> np.ndarray:
    """Indices with the index vector last; one of length 1 is added where the array holds scalars."""
    if vector_dim == indices.ndim:
        return indices[..., np.newaxis]
    return np.moveaxis(indices, vector_dim, -1)


def _starts(
    vectors: np.ndarray,
    rank: int,
    index_map: Sequence[int],
    operand_batch: Sequence[int],
    indices_batch: Sequence[int],
    vector_dim: int,
) -> list[np.ndarray]:
    """Where each block starts, per dimension of the operand: arrays over the batch dimensions of the indices."""
    batch_shape = vectors.shape[:-1]
    starts = [np.zeros(batch_shape, np.int64) for _ in range(rank)]
    for position, dim in enumerate(index_map):
        part = vectors[..., position]
        huge = np.iinfo(np.int64).max
        unsigned = part.dtype.kind == "u"
        starts[dim] = np.minimum(part, part.dtype.type(huge)).astype(np.int64) if unsigned and part.itemsize == 8 \
            else part.astype(np.int64)  # fmt: skip
    for dim, source in zip(operand_batch, indices_batch, strict=True):
        axis = source - (source > vector_dim)
        sizes = [1] * len(batch_shape)
        sizes[axis] = batch_shape[axis]
        starts[dim] = np.broadcast_to(np.arange(batch_shape[axis]).reshape(sizes), batch_shape)
    return starts


def _spread(x: np.ndarray, rank: int, axes: Sequence[int]) -> np.ndarray:
    """An array with its dimensions placed at `axes` of `rank`, the others of size 1."""
    sizes = [1] * rank
    for size, axis in zip(x.shape, axes, strict=True):
        sizes[axis] = size
    return x.reshape(sizes)


def gather(i: Instruction, operands: Sequence[np.ndarray]) -> np.ndarray:
    """`gather`: blocks of `slice_sizes` whose start is clamped so that they lie in the operand."""
    x, indices = operands
    x = filled(x, i.operands[0].dims, i.ints("slice_sizes"))
    sizes = [min(size, n) for size, n in zip(i.ints("slice_sizes"), x.shape, strict=True)]
    offset_dims = i.ints("offset_dims")
    operand_batch = i.ints("operand_batching_dims", ())
    dropped = {*i.ints("collapsed_slice_dims", ()), *operand_batch}
    vector_dim = i.integer("index_vector_dim")
    starts = _starts(
        _index_vectors(indices, vector_dim), x.ndim, i.ints("start_index_map"), operand_batch,
        i.ints("start_indices_batching_dims", ()), vector_dim,
    )  # fmt: skip
    rank = i.shape.rank
    batch_axes = [d for d in range(rank) if d not in offset_dims]
    window_axes = iter(offset_dims)
    index = []
    for dim in range(x.ndim):
        start = np.clip(starts[dim], 0, x.shape[dim] - sizes[dim])
        place = _spread(start, rank, batch_axes)
        if dim not in dropped:
            place = place + _spread(np.arange(sizes[dim]), rank, [next(window_axes)])
        index.append(place)
    result = [1] * rank
    for axis, size in zip(batch_axes, starts[0].shape if starts else (), strict=True):
        result[axis] = size
    for axis, dim in zip(offset_dims, (d for d in range(x.ndim) if d not in dropped), strict=True):
        result[axis] = sizes[dim]
    if 0 in result:
        return np.zeros(result, x.dtype)
    return np.broadcast_to(x[tuple(index)], result)


def scatter(i: Instruction, operands: Sequence[np.ndarray], calls: Calls) -> Literal:
    """`scatter`, variadic too; a block that does not lie in the operand is left out whole.

    Of updates of one element the order is XLA's own: by index vector, then by place in the block.
    """
    count = len(operands) // 2
    inputs, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    places = _scatter_places(i, inputs[0].shape, indices, updates[0].shape)
    results = [np.array(x).reshape(-1) for x in inputs]
    window_dims = i.ints("update_window_dims")
    order = (*(d for d in range(places.ndim) if d not in window_dims), *window_dims)
    flat, *elements = (x.transpose(order).reshape(-1) for x in (places, *updates))
    combine_at(i.computation(), results, flat, elements, calls)
    shaped = [r.reshape(x.shape) for r, x in zip(results, inputs, strict=True)]
    return tuple(shaped) if i.shape.is_tuple else shaped[0]


def _scatter_places(i: Instruction, sizes: Sequence[int], indices: np.ndarray, updates: Sequence[int]) -> np.ndarray:
    """Flat place in the operand for each element of the updates, -1 for those left out."""
    window_dims, operand_batch = i.ints("update_window_dims"), i.ints("input_batching_dims", ())
    dropped = {*i.ints("inserted_window_dims", ()), *operand_batch}
    vector_dim = i.integer("index_vector_dim")
    starts = _starts(
        _index_vectors(indices, vector_dim), len(sizes), i.ints("scatter_dims_to_operand_dims"), operand_batch,
        i.ints("scatter_indices_batching_dims", ()), vector_dim,
    )  # fmt: skip
    rank = len(updates)
    batch_axes = [d for d in range(rank) if d not in window_dims]
    window_axes = iter(window_dims)
    place = np.zeros((1,) * rank, np.int64)
    inside = np.ones((1,) * rank, np.bool_)
    for dim, size in enumerate(sizes):
        start = _spread(starts[dim], rank, batch_axes)
        extent = 1
        offset = np.zeros((1,) * rank, np.int64)
        if dim not in dropped:
            axis = next(window_axes)
            extent = updates[axis]
            offset = _spread(np.arange(extent), rank, [axis])
        inside = inside & (start >= 0) & (start <= size - extent)
        place = place * size + np.where(inside, start, 0) + offset
    return np.broadcast_to(np.where(inside, place, -1), tuple(updates))
