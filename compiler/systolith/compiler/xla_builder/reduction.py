"""Operations that apply a computation to scalars: reductions, windows, scatter, map, sort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Module
from systolith.compiler.xla_builder.arguments import Ints, Pairs, expect, flag, integer, ints
from systolith.compiler.xla_builder.computation import XlaComputation
from systolith.compiler.xla_builder.contraction import Contraction
from systolith.compiler.xla_builder.op import XlaOp, several
from systolith.compiler.xla_builder.padding import Padding, make_padding, make_window
from systolith.compiler.xla_builder.scalars import less_than_computation

Callee = XlaComputation | Module


@dataclass(frozen=True)
class ScatterDimensionNumbers:
    """Which dimension of a scatter's operands is what."""

    update_window_dims: Ints = ()
    inserted_window_dims: Ints = ()
    scatter_dims_to_operand_dims: Ints = ()
    index_vector_dim: int = 0
    input_batching_dims: Ints = ()
    scatter_indices_batching_dims: Ints = ()


class Reduction(Contraction):
    """Elements combined, placed, ordered and changed as a computation says."""

    def reduce(
        self,
        operands: XlaOp | Sequence[XlaOp],
        init_values: XlaOp | Sequence[XlaOp],
        computation: Callee,
        dimensions_to_reduce: Ints,
    ) -> XlaOp:
        """Elements along some dimensions combined by a computation; several arrays at once give a tuple."""
        dims = ints(dimensions_to_reduce, "dimensions_to_reduce")
        values = [*several(operands), *several(init_values)]
        return self._emit("reduce", values, dimensions=dims, to_apply=self._embedded(computation))

    def reduce_all(self, operand: XlaOp, init_value: XlaOp, computation: Callee) -> XlaOp:
        """All elements combined."""
        return self.reduce(operand, init_value, computation, range(len(self._dims(operand))))

    def reduce_window(
        self,
        operands: XlaOp | Sequence[XlaOp],
        init_values: XlaOp | Sequence[XlaOp],
        computation: Callee,
        window_dimensions: Ints,
        window_strides: Ints,
        padding: Padding | str,
    ) -> XlaOp:
        """Elements in each place of a window combined, with padding by name."""
        pads = make_padding(self._dims(several(operands, least=1)[0]), window_dimensions, window_strides, padding)
        return self.reduce_window_with_general_padding(
            operands, init_values, computation, window_dimensions, window_strides, padding=pads
        )

    def reduce_window_with_general_padding(
        self,
        operands: XlaOp | Sequence[XlaOp],
        init_values: XlaOp | Sequence[XlaOp],
        computation: Callee,
        window_dimensions: Ints,
        window_strides: Ints | None = None,
        base_dilations: Ints | Pairs | None = None,
        window_dilations: Ints | None = None,
        padding: Pairs | None = None,
    ) -> XlaOp:
        """Elements in each place of a window combined.

        The first generation gives the padding in the place of `base_dilations`: a list of pairs.
        """
        bases, pads = _told_apart(base_dilations, padding)
        window = make_window(window_dimensions, window_strides, pads, bases, window_dilations)
        values = [*several(operands), *several(init_values)]
        return self._emit("reduce-window", values, window=window, to_apply=self._embedded(computation))

    def select_and_scatter(
        self,
        operand: XlaOp,
        select: Callee,
        window_dimensions: Ints,
        window_strides: Ints,
        padding: Padding | str,
        source: XlaOp,
        init_value: XlaOp,
        scatter: Callee,
    ) -> XlaOp:
        """Each element of `source` goes to the element of its window that `select` picks; padding by name."""
        pads = make_padding(self._dims(operand), window_dimensions, window_strides, padding)
        return self.select_and_scatter_with_general_padding(
            operand, select, window_dimensions, window_strides, pads, source, init_value, scatter
        )

    def select_and_scatter_with_general_padding(
        self,
        operand: XlaOp,
        select: Callee,
        window_dimensions: Ints,
        window_strides: Ints,
        padding: Pairs,
        source: XlaOp,
        init_value: XlaOp,
        scatter: Callee,
    ) -> XlaOp:
        """Each element of `source` goes to the element of its window that `select` picks."""
        return self._emit(
            "select-and-scatter",
            [operand, source, init_value],
            window=make_window(window_dimensions, window_strides, padding, None, None),
            select=self._embedded(select),
            scatter=self._embedded(scatter),
        )

    def scatter(
        self,
        inputs: XlaOp | Sequence[XlaOp],
        scatter_indices: XlaOp,
        updates: XlaOp | Sequence[XlaOp],
        update_computation: Callee,
        dimension_numbers: ScatterDimensionNumbers,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
    ) -> XlaOp:
        """Inputs with slices of `updates` combined into them at places that `scatter_indices` holds."""
        n = expect(dimension_numbers, ScatterDimensionNumbers, "dimension_numbers")
        batching = bool(n.input_batching_dims or n.scatter_indices_batching_dims)
        return self._emit(
            "scatter",
            [*several(inputs), scatter_indices, *several(updates)],
            update_window_dims=ints(n.update_window_dims, "update_window_dims"),
            inserted_window_dims=ints(n.inserted_window_dims, "inserted_window_dims"),
            scatter_dims_to_operand_dims=ints(n.scatter_dims_to_operand_dims, "scatter_dims_to_operand_dims"),
            input_batching_dims=ints(n.input_batching_dims, "input_batching_dims") if batching else None,
            scatter_indices_batching_dims=(
                ints(n.scatter_indices_batching_dims, "scatter_indices_batching_dims") if batching else None
            ),
            index_vector_dim=integer(n.index_vector_dim, "index_vector_dim"),
            indices_are_sorted=True if indices_are_sorted else None,
            unique_indices=True if unique_indices else None,
            to_apply=self._embedded(update_computation),
        )

    def map(
        self,
        operands: Sequence[XlaOp],
        computation: Callee,
        dimensions: Ints | None = None,
        static_operands: Sequence[XlaOp] = (),
    ) -> XlaOp:
        """A computation of scalars applied to each index of the operands.

        Args:
            operands: arrays of equal sizes.
            computation: takes a scalar of each operand, then the static operands.
            dimensions: all dimensions in order, as XLA requires; may be left out.
            static_operands: values that each application gets whole; with arrays among them the result is a loop.
        """
        if isinstance(dimensions, list | tuple) and any(
            isinstance(d, XlaOp) for d in dimensions
        ):  # Map(operands, computation, static_operands)
            static_operands, dimensions = dimensions, None
        values = several(operands, least=1)
        dims = self._dims(values[0])
        if dimensions is not None and ints(dimensions, "dimensions") != tuple(range(len(dims))):
            raise HloError(f"dimensions are all of the operand's in order, got {list(dimensions)}")
        statics = several(static_operands)
        if any(self._dims(operand) for operand in statics):
            return self._looped(values, computation, statics)
        values += [self._stretched(operand, dims) for operand in statics]
        return self._emit("map", values, dimensions=tuple(range(len(dims))), to_apply=self._embedded(computation))

    def _looped(self, operands: Sequence[XlaOp], computation: Callee, static_operands: Sequence[XlaOp]) -> XlaOp:
        """A loop over the elements, since HLO's `map` gives each application scalars only."""
        dims, result = self._dims(operands[0]), self._embedded(computation).result.shape
        if any(self._dims(operand) != dims for operand in operands) or not result.is_array or result.rank:
            raise HloError(f"operands have equal sizes, and the computation gives a scalar, got {result}")
        size = prod(dims)
        flat = [self.reshape(operand, (size,)) for operand in operands]
        gathered = self._in_dims(self._scalar(0, result.dtype), (size,), ())
        start = self.tuple([self._s32(0), gathered, *flat, *static_operands])
        state = self._instruction(start).shape

        condition = self.create_sub_builder("map-condition")
        condition.lt(condition.get_tuple_element(condition.parameter(0, state), 0), size)

        body = self.create_sub_builder("map-body")
        index, before, *rest = body._elements(body.parameter(0, state))
        scalars = [body.reshape(body.dynamic_slice(value, [index], (1,)), ()) for value in rest[: len(flat)]]
        element = body.reshape(body.call(computation, [*scalars, *rest[len(flat) :]]), (1,))
        body.tuple([body.add(index, 1), body.dynamic_update_slice(before, element, [index]), *rest])

        done = self.while_(condition.build(), body.build(), start)
        return self.reshape(self.get_tuple_element(done, 1), dims)

    def while_(self, condition: Callee, body: Callee, init: XlaOp) -> XlaOp:
        """`init`, to which `body` is applied while `condition` is true of it."""
        return self._emit("while", [init], condition=self._embedded(condition), body=self._embedded(body))

    def call(self, computation: Callee, operands: Sequence[XlaOp] = ()) -> XlaOp:
        """The result of a computation."""
        return self._emit("call", several(operands), to_apply=self._embedded(computation))

    def sort(
        self,
        operands: XlaOp | Sequence[XlaOp],
        comparator: Callee | None = None,
        dimension: int = -1,
        is_stable: bool = False,
    ) -> XlaOp:
        """Arrays sorted together along a dimension (-1: the last).

        Args:
            operands: an array, or several of equal sizes, which give a tuple.
            comparator: whether an element comes before another, of two scalars per array; without one the first array
                is in ascending order.
            dimension: to sort along.
            is_stable: equal elements keep their order.
        """
        values = several(operands, least=1)
        rank = len(self._dims(values[0]))
        wanted = integer(dimension, "dimension")
        axis = self._axis(rank - 1 if wanted == -1 else wanted, rank)
        shapes = [self._array(value) for value in values]
        if comparator is None:
            comparator = less_than_computation([shape.dtype for shape in shapes])
        return self._emit(
            "sort",
            values,
            dimensions=(axis,),
            is_stable=True if is_stable else None,
            to_apply=self._embedded(comparator),
        )

    def top_k(self, operand: XlaOp, k: int, largest: bool = True) -> XlaOp:
        """The k largest (smallest) elements along the last dimension, and their indices; equals keep their order."""
        return self._emit("topk", [operand], k=integer(k, "k"), largest=flag(largest, "largest"))


def _told_apart(bases: Ints | Pairs | None, padding: Pairs | None) -> tuple[Ints | None, Pairs | None]:
    """Base dilations and padding, where the first may be given in the place of the other."""
    if padding is None and isinstance(bases, list | tuple) and bases and not isinstance(bases[0], int):
        return None, bases
    return bases, padding  # type: ignore[return-value]
