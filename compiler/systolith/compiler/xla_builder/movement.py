"""Operations that move elements, tuples, and sizes that are only known when the computation runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from systolith.compiler.hlo.attributes import PadDim, SliceDim
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.rules.shape_rules import sized
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.xla_builder.arguments import (
    Ints,
    ShapeLike,
    as_shape,
    expect,
    flag,
    integer,
    ints,
    pad_dims,
    sequence,
)
from systolith.compiler.xla_builder.elementwise import Elementwise
from systolith.compiler.xla_builder.op import XlaOp, several


@dataclass(frozen=True)
class GatherDimensionNumbers:
    """Which dimension of a gather's operands and result is what."""

    offset_dims: Ints = ()
    collapsed_slice_dims: Ints = ()
    start_index_map: Ints = ()
    index_vector_dim: int = 0
    operand_batching_dims: Ints = ()
    start_indices_batching_dims: Ints = ()


class Movement(Elementwise):
    """Arrays whose elements come from other places of arrays."""

    def broadcast(self, operand: XlaOp, broadcast_sizes: Ints) -> XlaOp:
        """The operand repeated along new dimensions on the left."""
        shape, sizes = self._array(operand), ints(broadcast_sizes, "broadcast_sizes")
        places = range(len(sizes), len(sizes) + shape.rank)
        dynamic = (False,) * len(sizes) + (shape.dynamic or (False,) * shape.rank)
        return self._in_dims(operand, (*sizes, *shape.dims), tuple(places), dynamic)

    def broadcast_in_dim(self, operand: XlaOp, out_dim_size: Ints, broadcast_dimensions: Ints) -> XlaOp:
        """The operand with sizes `out_dim_size`; its dimensions, of size 1 or the result's, are the ones given."""
        shape, sizes = self._array(operand), ints(out_dim_size, "out_dim_size")
        places = ints(broadcast_dimensions, "broadcast_dimensions")
        if len(places) != shape.rank:
            raise HloError(f"broadcast_dimensions has an entry for each of {shape}'s dimensions, got {len(places)}")
        inner, dynamic = list(sizes), [False] * len(sizes)
        flags = shape.dynamic or (False,) * shape.rank
        for source, place in enumerate(places):
            target = self._axis(place, len(sizes), "broadcast_dimensions")
            if shape.dims[source] not in (1, sizes[target]):
                raise HloError(
                    f"dimension {source} of {shape} has size 1 or {sizes[target]}, that of dimension {target}"
                )
            inner[target], dynamic[target] = shape.dims[source], flags[source]
        return self._stretched(self._in_dims(operand, inner, places, dynamic), sizes)

    def reshape(
        self, operand: XlaOp | ShapeLike, dimensions: Ints | XlaOp | None = None, new_sizes: Ints | None = None
    ) -> XlaOp:
        """The same elements in row-major order with other sizes.

        Args:
            operand: an array.
            dimensions: the sizes; or, where `new_sizes` is given, the order in which the operand's dimensions are
                taken, the slowest first.
            new_sizes: the sizes.
        """
        if isinstance(dimensions, XlaOp):  # Reshape(shape, operand)
            return self._emit("reshape", [dimensions], self._reshaped_to(operand))
        if not isinstance(operand, XlaOp):
            raise HloError(f"an operand is a value of a builder (XlaOp), got {type(operand).__name__}")
        if dimensions is None and new_sizes is None:
            raise HloError("the new sizes are missing")
        if dimensions is not None and new_sizes is not None:
            order = ints(dimensions, "dimensions")
            if order != tuple(range(len(self._dims(operand)))):
                operand = self._emit("transpose", [operand], dimensions=order)
        sizes = ints(new_sizes if new_sizes is not None else dimensions or (), "new_sizes")
        return self._emit("reshape", [operand], array(self._array(operand).dtype, sizes))

    def _reshaped_to(self, shape: XlaOp | ShapeLike) -> Shape:
        if isinstance(shape, XlaOp):
            raise HloError("a reshape takes sizes or a shape, got a value (XlaOp); dynamic_reshape takes values")
        return as_shape(shape)

    def reshape_with_inferred_dimension(self, operand: XlaOp, new_sizes: Ints, inferred_dimension: int) -> XlaOp:
        """`reshape`, where one dimension of the result takes up the operand's dynamic sizes."""
        shape, sizes = self._array(operand), ints(new_sizes, "new_sizes")
        inferred = self._axis(inferred_dimension, len(sizes), "inferred_dimension")
        dynamic = [shape.is_dynamic and d == inferred for d in range(len(sizes))]
        return self._emit("reshape", [operand], sized(shape.dtype, sizes, dynamic), inferred_dimension=inferred)

    def dynamic_reshape(
        self,
        operand: XlaOp,
        dim_sizes: Sequence[XlaOp],
        new_size_bounds: Ints,
        dims_are_dynamic: Sequence[bool],
    ) -> XlaOp:
        """`reshape` to sizes that are values.

        Args:
            operand: an array.
            dim_sizes: the size of each dimension, s32 scalars.
            new_size_bounds: the most that each size can be.
            dims_are_dynamic: whether each size may be less.
        """
        sizes, bounds = several(dim_sizes), ints(new_size_bounds, "new_size_bounds")
        flags = [flag(held, "dims_are_dynamic") for held in sequence(dims_are_dynamic, "dims_are_dynamic")]
        if not len(sizes) == len(bounds) == len(flags):
            raise HloError(f"{len(sizes)} sizes, {len(bounds)} bounds and {len(flags)} flags are as many")
        return self._emit("dynamic-reshape", [operand, *sizes], sized(self._array(operand).dtype, bounds, flags))

    def collapse(self, operand: XlaOp, dimensions: Ints) -> XlaOp:
        """One dimension in the place of several, which are next to each other and in order."""
        sizes, taken = self._dims(operand), ints(dimensions, "dimensions")
        if len(taken) <= 1:
            return operand
        first = self._axis(taken[0], len(sizes), "dimensions")
        if taken != tuple(range(first, first + len(taken))):
            shown = ",".join(map(str, taken))
            raise HloError(f"dimensions {{{shown}}} are consecutive and in order; reshape takes an order of its own")
        self._axis(taken[-1], len(sizes), "dimensions")
        after = first + len(taken)
        return self.reshape(operand, (*sizes[:first], prod(sizes[first:after]), *sizes[after:]))

    def transpose(self, operand: XlaOp, permutation: Ints | None = None) -> XlaOp:
        """Dimension i of the result is dimension permutation[i] of the operand; without one a matrix is transposed."""
        if permutation is None:
            if len(self._dims(operand)) != 2:
                raise HloError(f"the operand is a matrix unless a permutation is given, got {operand.shape}")
            permutation = (1, 0)
        return self._emit("transpose", [operand], dimensions=ints(permutation, "permutation"))

    def rev(self, operand: XlaOp, dimensions: Ints) -> XlaOp:
        """Elements in the opposite order along some dimensions."""
        return self._emit("reverse", [operand], dimensions=ints(dimensions, "dimensions"))

    def slice(self, operand: XlaOp, start_indices: Ints, limit_indices: Ints, strides: Ints | None = None) -> XlaOp:
        """Every stride-th element from start up to, not including, limit, in each dimension."""
        starts, limits = ints(start_indices, "start_indices"), ints(limit_indices, "limit_indices")
        steps = ints(strides, "strides") if strides is not None else (1,) * len(starts)
        rank = len(self._dims(operand))
        if not len(starts) == len(limits) == len(steps) == rank:
            raise HloError(f"start, limit and stride for each of {rank} dimensions")
        return self._emit("slice", [operand], slice=tuple(map(SliceDim, starts, limits, steps)))

    def slice_in_dim(
        self, operand: XlaOp, start_index: int, limit_index: int, stride: int = 1, dimno: int = 0
    ) -> XlaOp:
        """A slice of one dimension, all of the others."""
        sizes = self._dims(operand)
        axis = self._axis(dimno, len(sizes), "dimno")
        slices = [SliceDim(0, n) for n in sizes]
        slices[axis] = SliceDim(*ints((start_index, limit_index, stride), "start, limit and stride"))
        return self._emit("slice", [operand], slice=tuple(slices))

    def dynamic_slice(self, operand: XlaOp, start_indices: XlaOp | Sequence[XlaOp], slice_sizes: Ints) -> XlaOp:
        """A slice of fixed sizes from places that are values; places clamp so that the slice is within.

        Args:
            operand: an array.
            start_indices: a scalar for each dimension, or one vector of them.
            slice_sizes: size in each dimension.
        """
        starts = self._starts(operand, start_indices)
        return self._emit("dynamic-slice", [operand, *starts], dynamic_slice_sizes=ints(slice_sizes, "slice_sizes"))

    def dynamic_update_slice(self, operand: XlaOp, update: XlaOp, start_indices: XlaOp | Sequence[XlaOp]) -> XlaOp:
        """The operand with a part of the update's sizes replaced; places as in `dynamic_slice`."""
        return self._emit("dynamic-update-slice", [operand, update, *self._starts(operand, start_indices)])

    def _starts(self, operand: XlaOp, start_indices: XlaOp | Sequence[XlaOp]) -> list[XlaOp]:
        """A scalar for each dimension; the first generation gives one vector."""
        if not isinstance(start_indices, XlaOp):
            return several(start_indices)
        rank = len(self._dims(operand))
        if self._dims(start_indices) != (rank,):
            raise HloError(f"start_indices is a vector of {rank}, got {start_indices.shape}")
        parts = [self.slice_in_dim(start_indices, d, d + 1) for d in range(rank)]
        return [self.reshape(part, ()) for part in parts]

    def concat_in_dim(self, operands: Sequence[XlaOp], dimension: int) -> XlaOp:
        """Arrays one after the other along a dimension."""
        if isinstance(operands, XlaOp):
            raise HloError("operands is a list of values, got one value")
        return self._emit("concatenate", several(operands, least=1), dimensions=(integer(dimension, "dimension"),))

    def pad(self, operand: XlaOp, padding_value: XlaOp, padding_config: Sequence[PadDim | Ints]) -> XlaOp:
        """Elements added before, after and between, per dimension; negative numbers of the first two take away."""
        config = pad_dims(padding_config)
        if not config and not self._dims(operand):
            return operand  # XLA's parser has no text for the padding of no dimension
        return self._emit("pad", [operand, padding_value], padding=config)

    def pad_in_dim(self, operand: XlaOp, padding_value: XlaOp, dimno: int, pad_lo: int, pad_hi: int) -> XlaOp:
        """Padding of one dimension."""
        sizes = self._dims(operand)
        dims = [PadDim(0, 0)] * len(sizes)
        dims[self._axis(dimno, len(sizes), "dimno")] = PadDim(*ints((pad_lo, pad_hi), "pad_lo and pad_hi"))
        return self.pad(operand, padding_value, dims)

    def gather(
        self,
        input: XlaOp,
        start_indices: XlaOp,
        dimension_numbers: GatherDimensionNumbers,
        slice_sizes: Ints,
        indices_are_sorted: bool = False,
    ) -> XlaOp:
        """Slices of `input` from places that `start_indices` holds."""
        n = expect(dimension_numbers, GatherDimensionNumbers, "dimension_numbers")
        batching = bool(n.operand_batching_dims or n.start_indices_batching_dims)
        return self._emit(
            "gather",
            [input, start_indices],
            offset_dims=ints(n.offset_dims, "offset_dims"),
            collapsed_slice_dims=ints(n.collapsed_slice_dims, "collapsed_slice_dims"),
            start_index_map=ints(n.start_index_map, "start_index_map"),
            operand_batching_dims=ints(n.operand_batching_dims, "operand_batching_dims") if batching else None,
            start_indices_batching_dims=(
                ints(n.start_indices_batching_dims, "start_indices_batching_dims") if batching else None
            ),
            index_vector_dim=integer(n.index_vector_dim, "index_vector_dim"),
            slice_sizes=ints(slice_sizes, "slice_sizes"),
            indices_are_sorted=True if indices_are_sorted else None,
        )

    def tuple(self, elements: Sequence[XlaOp] = ()) -> XlaOp:
        """A tuple of values."""
        return self._emit("tuple", several(elements))

    def get_tuple_element(self, tuple_data: XlaOp, index: int) -> XlaOp:
        """An element of a tuple."""
        return self._emit("get-tuple-element", [tuple_data], index=integer(index, "index"))

    def _elements(self, value: XlaOp) -> list[XlaOp]:
        """The elements of a tuple; of any other value itself."""
        shape = self._instruction(value).shape
        if not shape.is_tuple:
            return [value]
        return [self.get_tuple_element(value, index) for index in range(len(shape.elements))]

    def get_dimension_size(self, operand: XlaOp, dimension: int) -> XlaOp:
        """The size of a dimension, s32; a constant where the size is static."""
        shape = self._array(operand)
        axis = self._axis(dimension, shape.rank)
        if shape.dynamic and shape.dynamic[axis]:
            return self._emit("get-dimension-size", [operand], dimensions=(axis,))
        return self._s32(shape.dims[axis])

    def set_dimension_size(self, operand: XlaOp, size: XlaOp, dimension: int) -> XlaOp:
        """The operand, of which one dimension has a size that is a value; its static size is the bound.

        A constant that is the bound makes the dimension static.
        """
        shape, count = self._array(operand), self._instruction(size)
        axis = self._axis(dimension, shape.rank)
        if count.shape.dims or count.shape.element is None or count.shape.element.name != "s32":
            raise HloError(f"the size is s32[], got {count.shape}")
        full = isinstance(count.literal, np.ndarray) and int(count.literal) == shape.dims[axis]
        flags = list(shape.dynamic or (False,) * shape.rank)
        flags[axis] = not full
        made = replace(shape, dynamic=tuple(flags) if any(flags) else ())
        return self._emit("set-dimension-size", [operand, size], made, dimensions=(axis,))

    def remove_dynamic_dimension(self, operand: XlaOp, dimension: int) -> XlaOp:
        """The operand with its full size in a dimension."""
        axis = self._axis(dimension, len(self._dims(operand)))
        return self.set_dimension_size(operand, self._s32(self._dims(operand)[axis]), axis)

    def optimization_barrier(self, operand: XlaOp) -> XlaOp:
        """The operand; nothing that needs it is computed before all of it is there."""
        return self._emit("opt-barrier", [operand])

    def _array(self, operand: XlaOp) -> Shape:
        self._dims(operand)
        return self._instruction(operand).shape
