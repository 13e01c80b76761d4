"""Shape rules of gather and scatter, with their batching dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.rules.shape_rules import (
    Infer,
    arrays,
    check_reducer,
    flags_of,
    one_or_tuple,
    require,
    sized,
    sizes_agree,
    unique_within,
)
from systolith.compiler.hlo.shape import UNBOUNDED, Shape
from systolith.isa.dtypes import DType


def _ascending(dims: Sequence[int], rank: int, what: str) -> None:
    """Dimension numbers are unique, within the rank and in ascending order."""
    unique_within(dims, rank, what)
    text = ",".join(map(str, dims))
    require(list(dims) == sorted(dims), f"{what} {{{text}}} are in ascending order")


def _indices(i: Instruction, indices: Shape, starts: str) -> tuple[list[int], list[bool]]:
    """Sizes (and flags) of the indices outside the index vector, whose length is that of the attribute `starts`."""
    require(indices.dtype.is_integer, f"indices are integers, got {indices}")
    vector = i.integer("index_vector_dim")
    require(0 <= vector <= indices.rank, f"index_vector_dim is 0 to {indices.rank}, got {vector}")
    width = indices.dims[vector] if vector < indices.rank else 1
    count = len(i.ints(starts))
    require(sizes_agree(width, count), f"{starts} has {width} entries as dimension {vector} of {indices}, got {count}")
    outside = [d for d in range(indices.rank) if d != vector]
    return [indices.dims[d] for d in outside], [flags_of(indices)[d] for d in outside]


def _batching(i: Instruction, operand_dims: str, indices_dims: str, rank: int, indices: Shape) -> tuple[int, ...]:
    """The operand's batching dimensions, paired with those of the indices."""
    own, theirs = i.ints(operand_dims, ()), i.ints(indices_dims, ())
    _ascending(own, rank, operand_dims)
    expanded = indices.rank + (i.integer("index_vector_dim") == indices.rank)
    unique_within(theirs, expanded, indices_dims)
    require(len(own) == len(theirs), f"{operand_dims} and {indices_dims} pair, got {len(own)} and {len(theirs)}")
    return own


def _gather(i: Instruction) -> Shape:
    shape, indices = arrays(i)
    sizes, offset = i.ints("slice_sizes"), i.ints("offset_dims")
    batch, batch_flags = _indices(i, indices, "start_index_map")
    unique_within(i.ints("start_index_map"), shape.rank, "start_index_map")
    collapsed = i.ints("collapsed_slice_dims", ())
    _ascending(collapsed, shape.rank, "collapsed_slice_dims")
    batching = _batching(i, "operand_batching_dims", "start_indices_batching_dims", shape.rank, indices)
    dropped = {*collapsed, *batching}
    _ascending(offset, len(offset) + len(batch), "offset_dims")
    fits = len(sizes) == shape.rank and all(
        a >= 0 and (a <= b or b == UNBOUNDED) for a, b in zip(sizes, shape.dims, strict=True)
    )
    require(fits, f"slice_sizes {sizes} fit in {shape}")
    kept = [d for d in range(shape.rank) if d not in dropped]
    require(len(offset) + len(collapsed) + len(batching) == shape.rank and len(kept) == len(offset),
            f"offset_dims has {len(kept)} entries, one for each dimension of {shape} that is neither collapsed nor "
            f"batching, got {len(offset)}")  # fmt: skip
    require(all(sizes[d] <= 1 for d in dropped), "slice_sizes of collapsed and batching dimensions are at most 1")
    window = iter([(sizes[d], flags_of(shape)[d] and sizes[d] == shape.dims[d]) for d in kept])
    others = iter(zip(batch, batch_flags, strict=True))
    found = [next(window) if d in offset else next(others) for d in range(len(offset) + len(batch))]
    return sized(shape.dtype, [n for n, _ in found], [flag for _, flag in found])


def _scatter(i: Instruction) -> Shape:
    count = len(i.operands) // 2
    require(len(i.operands) == 2 * count + 1, "takes arrays, indices, and as many updates as arrays")
    shapes = arrays(i)
    inputs, indices, updates = shapes[:count], shapes[count], shapes[count + 1 :]
    batch, _ = _indices(i, indices, "scatter_dims_to_operand_dims")
    for shape, update in zip(inputs, updates, strict=True):
        _scatter_one(i, shape, indices, batch, update)
    elements: list[DType] = [u.dtype for u in updates]
    check_reducer(i.computation(), [sized(s.dtype, ()) for s in inputs], elements)
    return one_or_tuple(inputs)


def _scatter_one(i: Instruction, shape: Shape, indices: Shape, batch: list[int], update: Shape) -> None:
    window, inserted = i.ints("update_window_dims"), i.ints("inserted_window_dims", ())
    _ascending(window, update.rank, "update_window_dims")
    _ascending(inserted, shape.rank, "inserted_window_dims")
    unique_within(i.ints("scatter_dims_to_operand_dims"), shape.rank, "scatter_dims_to_operand_dims")
    batching = _batching(i, "input_batching_dims", "scatter_indices_batching_dims", shape.rank, indices)
    kept = [n for d, n in enumerate(shape.dims) if d not in inserted and d not in batching]
    count = len(window) + len(inserted) + len(batching)
    require(count == shape.rank and len(kept) == len(window),
            f"update_window_dims, inserted_window_dims and input_batching_dims are the {shape.rank} dimensions of "
            f"{shape}, got {count}")  # fmt: skip
    scattered = [n for d, n in enumerate(update.dims) if d not in window]
    agree = len(scattered) == len(batch) and all(map(sizes_agree, scattered, batch))
    require(agree, f"the sizes of {update} outside its window are those of indices {indices}, {batch}")
    within = all(update.dims[d] <= n for d, n in zip(window, kept, strict=True))
    require(within, f"the window of updates {update} fits in {shape}")


GATHER_RULES: dict[str, Infer] = {"gather": _gather, "scatter": _scatter}
"""Opcode to rule."""
