"""The builder's implicit broadcasting, written out as HLO's explicit `broadcast` and `reshape`.

HLO has none of it.  A scalar goes with any array.  Arrays of the same number of dimensions are compatible if each pair
of sizes is equal or one of them is 1.  For arrays of different numbers of dimensions `broadcast_dimensions` says, for
each dimension of the smaller, which of the larger it is; sizes of 1 are then as before.  Source: XLA's broadcasting
semantics; `shape_inference.cc` (InferInDimBroadcastShape, InferDegenerateDimensionBroadcastShape) for refusals.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.rules.shape_rules import sized
from systolith.compiler.hlo.shape import UNBOUNDED, Shape
from systolith.compiler.xla_builder.arguments import Ints, ints
from systolith.compiler.xla_builder.constants import Constants
from systolith.compiler.xla_builder.op import XlaOp


def mapped_dims(smaller: Shape, larger: Shape, broadcast_dimensions: Ints) -> tuple[int, ...]:
    """`broadcast_dimensions`, checked: a place in `larger` for each dimension of `smaller`, in ascending order.

    Raises:
        HloError: the rule that is broken.
    """
    places = ints(broadcast_dimensions, "broadcast_dimensions")
    shown = f"{{{','.join(map(str, places))}}}"
    if not places and smaller.rank:
        raise HloError(
            f"{smaller} and {larger} have different numbers of dimensions; broadcast_dimensions is missing, "
            f"a dimension of the second for each of the first's"
        )
    if len(places) != smaller.rank:
        raise HloError(
            f"broadcast_dimensions {shown} has {len(places)} entries, {smaller} has {smaller.rank} dimensions"
        )
    for source, target in enumerate(places):
        if not 0 <= target < larger.rank:
            raise HloError(f"broadcast_dimensions {shown}: {larger} has no dimension {target}")
        small, large = smaller.dims[source], larger.dims[target]
        if small != large and 1 not in (small, large):
            raise HloError(
                f"broadcast_dimensions {shown}: dimension {source} of {smaller} has size {small}, "
                f"dimension {target} of {larger} has {large}"
            )
    if any(low >= high for low, high in pairwise(places)):
        raise HloError(f"broadcast_dimensions {shown} increase strictly")
    return places


def compatible_dims(lhs: Sequence[int], rhs: Sequence[int]) -> tuple[int, ...]:
    """Sizes of the result of two arrays with as many dimensions: per dimension equal, or the other one where one is 1.

    Raises:
        HloError: two sizes are neither.
    """
    for dimension, (left, right) in enumerate(zip(lhs, rhs, strict=True)):
        if left != right and 1 not in (left, right):
            shown = f"[{','.join(map(str, lhs))}] and [{','.join(map(str, rhs))}]"
            raise HloError(
                f"{shown} are incompatible: dimension {dimension} has sizes {left} and {right}, neither is 1"
            )
    return tuple(right if left == 1 else left for left, right in zip(lhs, rhs, strict=True))


class Broadcasting(Constants):
    """Brings operands to one shape."""

    def _match(self, operands: Sequence[XlaOp], broadcast_dimensions: Ints) -> list[XlaOp]:
        """Both operands of an elementwise binary operation with the sizes of its result."""
        lhs, rhs = operands
        left, right = self._instruction(lhs).shape, self._instruction(rhs).shape
        for shape in (left, right):
            if not shape.is_array:
                raise HloError(f"operands are arrays, got {shape}")
        if left.rank == right.rank:
            self._require_identity(left, right, broadcast_dimensions)
        elif left.rank < right.rank:
            lhs = self._raised(lhs, left, right, mapped_dims(left, right, broadcast_dimensions))
        else:
            rhs = self._raised(rhs, right, left, mapped_dims(right, left, broadcast_dimensions))
        left, right = self._instruction(lhs).shape, self._instruction(rhs).shape
        if left.dims == right.dims:
            return [lhs, rhs]
        target = (
            right.dims if not left.rank else left.dims if not right.rank else compatible_dims(left.dims, right.dims)
        )
        if UNBOUNDED in target:
            raise HloError(f"{left} and {right}: broadcasting to a size without a bound is not supported; give a bound")
        return [self._stretched(lhs, target), self._stretched(rhs, target)]

    def _require_identity(self, left: Shape, right: Shape, broadcast_dimensions: Ints) -> None:
        places = ints(broadcast_dimensions, "broadcast_dimensions")
        if places and places != tuple(range(left.rank)):
            shown = ",".join(map(str, places))
            raise HloError(
                f"broadcast_dimensions {{{shown}}}: {left} and {right} have as many dimensions; leave it out"
            )

    def _raised(self, operand: XlaOp, smaller: Shape, larger: Shape, places: Ints) -> XlaOp:
        """The operand with as many dimensions as the larger one's; its own sizes stay; a scalar stays one."""
        if not smaller.rank:
            return operand
        sizes, dynamic = list(larger.dims), [False] * larger.rank
        flags = smaller.dynamic or (False,) * smaller.rank
        for source, target in enumerate(places):
            sizes[target], dynamic[target] = smaller.dims[source], flags[source]
        return self._in_dims(operand, sizes, places, dynamic)

    def _stretched(self, operand: XlaOp, target: Ints) -> XlaOp:
        """The operand with sizes `target`: dimensions of size 1 are dropped by a reshape, then broadcast."""
        shape = self._instruction(operand).shape
        if shape.dims == tuple(target):
            return operand
        if not shape.rank:
            return self._in_dims(operand, target, ())
        kept = [d for d, (size, wanted) in enumerate(zip(shape.dims, target, strict=True)) if size == wanted]
        flags = shape.dynamic or (False,) * shape.rank
        dynamic = tuple(flags[d] for d in kept)
        reshaped = sized(shape.dtype, [shape.dims[d] for d in kept], dynamic)
        with self.scoped_sharding(None):  # a sharding is the broadcast's: the reshape has fewer dimensions
            dropped = self._emit("reshape", [operand], reshaped)
        return self._in_dims(dropped, target, kept, flags)

    def _in_dims(self, operand: XlaOp, sizes: Ints, places: Ints, dynamic: Sequence[bool] = ()) -> XlaOp:
        """HLO's own `broadcast`."""
        shape = sized(self._instruction(operand).shape.dtype, sizes, dynamic)
        return self._emit("broadcast", [operand], shape, dimensions=tuple(places))
