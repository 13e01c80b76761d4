"""Parameters and constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from systolith.compiler.hlo.element_types import ELEMENT_TYPES
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.shape import Layout, Shape, array
from systolith.compiler.xla_builder.arguments import (
    PrimitiveType,
    ShapeLike,
    as_shape,
    element_type,
    expect,
    flag,
    integer,
    sequence,
)
from systolith.compiler.xla_builder.building import Building
from systolith.compiler.xla_builder.literal import Literal
from systolith.compiler.xla_builder.op import Operand, XlaOp
from systolith.isa.dtypes import DType


def to_literal(value: object, dtype: PrimitiveType | None = None, layout: Layout | None = None) -> Literal:
    """A literal from a value as for `Literal.create`, and any spelling of the element type."""
    checked = None if layout is None else expect(layout, Layout, "layout")
    return Literal.create(value, None if dtype is None else element_type(dtype), checked)


class Constants(Building):
    """Values that come from the caller, when the computation runs or when it is built."""

    def parameter(
        self, parameter_number: int, shape: ShapeLike, name: str = "", replicated_at_leaf_buffers: Sequence[bool] = ()
    ) -> XlaOp:
        """The argument with a number.

        Args:
            parameter_number: from 0, each once.
            shape: its shape.
            name: its name; `parameter` if empty.
            replicated_at_leaf_buffers: per array in it, whether replicas get the same value.
        """
        number = integer(parameter_number, "parameter_number")
        if any(i.number == number for i in self._parameters):
            raise HloError(f"parameter {number} is there already")
        leaves = "replicated_at_leaf_buffers"
        replicated = tuple(flag(held, leaves) for held in sequence(replicated_at_leaf_buffers, leaves))
        made = self._emit(
            "parameter",
            shape=as_shape(shape),
            stem=expect(name, str, "name") or None,
            number=number,
            parameter_replication=replicated or None,
        )
        self._parameters.append(self._instruction(made))
        return made

    def constant_literal(self, literal: object) -> XlaOp:
        """A constant: a `Literal`, a numpy array, a number, nested lists of numbers, or a tuple of these.

        An array whose elements are all the same becomes a scalar and a broadcast.
        """
        return self._constant(to_literal(literal))

    def constant(self, value: object, dtype: PrimitiveType | None = None, layout: Layout | None = None) -> XlaOp:
        """A constant of an element type; by default that of a numpy array, and pred, s32, f32 or c64 of numbers."""
        return self._constant(to_literal(value, dtype, layout))

    def _constant(self, literal: Literal) -> XlaOp:
        shape = literal.shape
        if shape.is_array and shape.size > 1:
            flat = np.ascontiguousarray(literal.array).reshape(-1)
            raw = flat.view(np.uint8).reshape(flat.size, -1)
            if bool((raw == raw[0]).all()):
                scalar = self._emit("constant", shape=array(shape.dtype), value=flat[0:1].reshape(()))
                return self._emit("broadcast", [scalar], shape, dimensions=())
        return self._emit("constant", shape=shape, value=literal.value)

    def _constant_of_rank(self, rank: int, value: object, dtype: PrimitiveType | None, layout: Layout | None) -> XlaOp:
        literal = to_literal(value, dtype, layout)
        if not literal.shape.is_array or literal.shape.rank != rank:
            raise HloError(f"a value of {rank} dimensions is needed, got {literal.shape}")
        return self._constant(literal)

    def constant_r0(self, value: object, dtype: PrimitiveType | None = None) -> XlaOp:
        """A scalar."""
        return self._constant_of_rank(0, value, dtype, None)

    def constant_r1(self, values: object, value: object = None, dtype: PrimitiveType | None = None) -> XlaOp:
        """A vector: `constant_r1(values, dtype)`, or `constant_r1(length, value, dtype)` with the same everywhere."""
        if not isinstance(values, int):
            wanted = cast("PrimitiveType | None", value) if dtype is None else dtype
            return self._constant_of_rank(1, values, wanted, None)
        length = integer(values, "length")
        if length < 0:
            raise HloError(f"length is 0 or more, got {length}")
        scalar = to_literal(value, dtype)
        return self._constant(Literal.full(array(scalar.shape.dtype, (length,)), scalar.array))

    def constant_r2(self, values: object, dtype: PrimitiveType | None = None) -> XlaOp:
        """A matrix, from rows."""
        return self._constant_of_rank(2, values, dtype, None)

    def constant_r3(self, values: object, dtype: PrimitiveType | None = None) -> XlaOp:
        """An array of three dimensions."""
        return self._constant_of_rank(3, values, dtype, None)

    def constant_r4(self, values: object, dtype: PrimitiveType | None = None) -> XlaOp:
        """An array of four dimensions."""
        return self._constant_of_rank(4, values, dtype, None)

    def constant_from_array(self, values: object, dtype: PrimitiveType | None = None) -> XlaOp:
        """An array of any number of dimensions."""
        return self._constant(to_literal(values, dtype))

    def constant_from_array_with_layout(
        self, values: object, layout: Layout, dtype: PrimitiveType | None = None
    ) -> XlaOp:
        """An array with a layout."""
        return self._constant(to_literal(values, dtype, layout))

    def constant_r2_from_array2d(self, values: object, dtype: PrimitiveType | None = None) -> XlaOp:
        """A matrix."""
        return self._constant_of_rank(2, values, dtype, None)

    def constant_r3_from_array3d(self, values: object, dtype: PrimitiveType | None = None) -> XlaOp:
        """An array of three dimensions."""
        return self._constant_of_rank(3, values, dtype, None)

    def constant_r4_from_array4d(self, values: object, dtype: PrimitiveType | None = None) -> XlaOp:
        """An array of four dimensions."""
        return self._constant_of_rank(4, values, dtype, None)

    def iota(self, shape: ShapeLike | PrimitiveType, iota_dimension: int) -> XlaOp:
        """0, 1, 2, ... along a dimension of `shape`; or, with an element type in its place, a vector of that length."""
        number = integer(iota_dimension, "iota_dimension")
        if not isinstance(shape, Shape) and not (isinstance(shape, str) and "[" in shape):
            return self._iota(array(element_type(shape), (number,)), 0)
        return self._iota(as_shape(shape), number)

    def _iota(self, shape: Shape, dimension: int) -> XlaOp:
        if shape.is_dynamic:
            raise HloError(f"the result of iota has static sizes, got {shape}")
        return self._emit("iota", shape=shape, iota_dimension=dimension)

    def scalar_like(self, prototype: XlaOp, value: object) -> XlaOp:
        """A scalar constant of a value's element type."""
        return self._scalar(value, self._instruction(prototype).shape.dtype)

    def zero(self, element: PrimitiveType) -> XlaOp:
        """The scalar 0 of a type."""
        return self._scalar(0, element_type(element))

    def one(self, element: PrimitiveType) -> XlaOp:
        """The scalar 1 of a type."""
        return self._scalar(1, element_type(element))

    def min_value(self, element: PrimitiveType) -> XlaOp:
        """The smallest value of a type, -inf where it has one; the initial value of a maximum."""
        return self._constant(Literal.min_value(element_type(element)))

    def max_value(self, element: PrimitiveType) -> XlaOp:
        """The greatest value of a type, inf where it has one; the initial value of a minimum."""
        return self._constant(Literal.max_value(element_type(element)))

    def _scalar(self, value: object, dtype: DType) -> XlaOp:
        return self._emit("constant", shape=array(dtype), value=to_literal(value, dtype).array)

    def _s32(self, value: int) -> XlaOp:
        return self._scalar(value, ELEMENT_TYPES["s32"])

    def _operands(self, *given: Operand) -> list[XlaOp]:
        """Values as they are; numbers as constants of the first value's element type, arrays as constants."""
        first = next((operand for operand in given if isinstance(operand, XlaOp)), None)
        if first is None:
            raise HloError("at least one operand is a value of a builder (XlaOp)")
        element = self._instruction(first).shape.element
        found: list[XlaOp] = []
        for operand in given:
            if isinstance(operand, XlaOp):
                found.append(operand)
            elif isinstance(operand, bool | int | float | complex):
                if element is None:
                    raise HloError(f"a number goes with an array, got {self._instruction(first).shape}")
                found.append(self._scalar(operand, element))
            elif isinstance(operand, np.ndarray | np.generic):
                found.append(self._constant(to_literal(operand)))
            else:
                raise HloError(f"an operand is a value (XlaOp), a number or an array, got {type(operand).__name__}")
        return found
