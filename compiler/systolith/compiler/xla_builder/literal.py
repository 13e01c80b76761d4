"""A value on the host with its shape: a module's constant, an argument or a result of a device.

Names follow XLA's `Literal` and `LiteralUtil`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Literal as Value
from systolith.compiler.hlo.lexer import Cursor
from systolith.compiler.hlo.linear_layout import check_layout, from_memory, to_memory
from systolith.compiler.hlo.shape import TOKEN, UNBOUNDED, Layout, Shape, parse_shape, tuple_of
from systolith.compiler.hlo.text.literals import parse_literal, show_literal
from systolith.compiler.xla_builder.arguments import PrimitiveType, element_type, literal
from systolith.isa.checked import as_array, checked
from systolith.isa.dtypes import DType, Kind

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Literal:
    """An array, a tuple or a token, and its shape.  It does not change.

    Attributes:
        shape: with the layout that `elements_in_memory` uses.
        value: the evaluator's form; arrays are not writeable.
    """

    shape: Shape
    value: Value

    @staticmethod
    @checked
    def create(value: Any, element: PrimitiveType | None = None, layout: Layout | None = None) -> Literal:
        """The literal of a numpy array, a number, nested lists of numbers, a literal, or a tuple of such values.

        Args:
            value: the contents.
            element: element type; by default that of a numpy array, and pred, s32, f32 or c64 for Python's numbers.
            layout: of an array; row-major by default.

        Raises:
            HloError: lists are ragged, the type has no name in HLO, a number does not fit, or the layout does not.
        """
        held, shape = literal(value, element)
        for part in _leaves(held):
            part.flags.writeable = False
        return Literal(_with_layout(shape, layout), held)

    @staticmethod
    @checked
    def create_tuple(elements: Sequence[Literal]) -> Literal:
        """A tuple of literals."""
        return Literal(tuple_of([e.shape for e in elements]), tuple(e.value for e in elements))

    @staticmethod
    def create_token() -> Literal:
        """A token."""
        return Literal(TOKEN, ())

    @staticmethod
    @checked
    def of_shape(value: Value, shape: Shape) -> Literal:
        """A value with the layouts of `shape`, of which it has the sizes; of a dynamic dimension at most the bound.

        The literal's own shape has the actual sizes.

        Raises:
            HloError: the value does not fit the shape.
        """
        if isinstance(value, tuple):
            if len(value) != len(shape.elements):
                raise HloError(f"a literal of shape {shape} has {len(shape.elements)} elements, got {len(value)}")
            parts = [Literal.of_shape(v, s) for v, s in zip(value, shape.elements, strict=True)]
            return Literal.create_tuple(parts) if parts else Literal(shape, ())
        found = Literal.create(value, shape.dtype)
        flags = shape.dynamic or (False,) * shape.rank
        if found.shape.rank != shape.rank or not all(
            actual == size or (flag and (actual < size or size == UNBOUNDED))
            for actual, size, flag in zip(found.shape.dims, shape.dims, flags, strict=True)
        ):
            raise HloError(f"expected a literal of shape {shape}, got {found.shape}")
        shape = replace(shape, dims=found.shape.dims, dynamic=())
        check_layout(shape)
        return Literal(shape, found.value)

    @staticmethod
    def r0(value: Any, element: PrimitiveType | None = None) -> Literal:
        """A scalar.

        Raises:
            HloError: the value has dimensions.
        """
        return _of_rank(value, element, 0)

    @staticmethod
    def r1(values: Any, element: PrimitiveType | None = None) -> Literal:
        """A vector."""
        return _of_rank(values, element, 1)

    @staticmethod
    def r2(values: Any, element: PrimitiveType | None = None) -> Literal:
        """A matrix, from rows."""
        return _of_rank(values, element, 2)

    @staticmethod
    def r3(values: Any, element: PrimitiveType | None = None) -> Literal:
        """An array of three dimensions."""
        return _of_rank(values, element, 3)

    @staticmethod
    def r4(values: Any, element: PrimitiveType | None = None) -> Literal:
        """An array of four dimensions."""
        return _of_rank(values, element, 4)

    @staticmethod
    @checked
    def full(shape: Shape, value: Any) -> Literal:
        """An array of `shape` with the same value everywhere; dynamic dimensions have the size of their bound.

        Raises:
            HloError: a dimension has no bound, or the value does not fit the type.
        """
        return Literal.of_shape(np.broadcast_to(Literal.r0(value, shape.dtype).array, _bounds(shape)), shape)

    @staticmethod
    @checked
    def iota(shape: Shape, dimension: int) -> Literal:
        """An array of 0, 1, 2, ... along a dimension.

        Raises:
            HloError: there is no such dimension, or one has no bound.
        """
        if not 0 <= dimension < shape.rank:
            raise HloError(f"iota: {shape} has no dimension {dimension}")
        along = np.arange(_bounds(shape)[dimension]).astype(shape.dtype.stored)
        others = [1] * shape.rank
        others[dimension] = -1
        return Literal.of_shape(np.broadcast_to(along.reshape(others), shape.dims), shape)

    @staticmethod
    def zero(element: PrimitiveType) -> Literal:
        """The scalar 0 of a type."""
        return Literal.r0(0, element)

    @staticmethod
    def one(element: PrimitiveType) -> Literal:
        """The scalar 1 of a type."""
        return Literal.r0(1, element)

    @staticmethod
    def min_value(element: PrimitiveType) -> Literal:
        """The smallest value of a type: -inf where it has one; the initial value of a maximum."""
        return _extreme(element_type(element), lowest=True)

    @staticmethod
    def max_value(element: PrimitiveType) -> Literal:
        """The greatest value of a type: inf where it has one; the initial value of a minimum."""
        return _extreme(element_type(element), lowest=False)

    @staticmethod
    @checked
    def parse(text: str) -> Literal:
        """The literal that a text says: its shape, then its value, as `str` gives them: `f32[2]{0} {1, 2.5}`.

        Raises:
            HloError: the text is no literal of the shape at its start.
        """
        cursor = Cursor(text, "<literal>")
        shape = parse_shape(cursor)
        value = parse_literal(cursor, shape)
        if not cursor.ended:
            cursor.fail("nothing after the literal")
        return Literal.of_shape(value, shape)

    @staticmethod
    @checked
    def from_memory(shape: Shape, memory: Array) -> Literal:
        """The array whose elements lie in `memory`, one-dimensional, as the layout of `shape` says.

        Raises:
            HloError: type or number of the elements differ.
        """
        memory = as_array(memory)
        if memory.dtype != shape.dtype.stored:
            raise HloError(f"the memory of {shape} holds {shape.dtype.stored}, got {memory.dtype}")
        return Literal.of_shape(from_memory(memory, shape), shape)

    def __str__(self) -> str:
        return f"{self.shape.text()} {show_literal(self.value, self.shape)}"

    def __repr__(self) -> str:
        return f"<Literal {self.shape}>"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.array, dtype=dtype, copy=copy)

    def __eq__(self, other: object) -> bool:
        """The same shape but for layouts, and the same values bit by bit: NaN equals itself, -0 is not 0."""
        if not isinstance(other, Literal):
            return NotImplemented
        return self.shape.same(other.shape) and self._bits() == other._bits()

    def __hash__(self) -> int:
        return hash((str(self.shape), tuple(self._bits())))

    def _arrays(self) -> Iterator[tuple[DType, Array]]:
        """Element type and value of each array in it."""
        shapes = self.shape.arrays
        return ((shape.dtype, value) for shape, value in zip(shapes, _leaves(self.value), strict=True))

    def _bits(self) -> list[bytes]:
        """The bits of each array; of types of less than a byte the rest of the byte says nothing."""
        return [
            (value.view(np.uint8) & ((1 << dtype.bits) - 1) if dtype.bits < 8 else value).tobytes()
            for dtype, value in self._arrays()
        ]

    def __len__(self) -> int:
        """Elements of a tuple, or size of an array's first dimension."""
        return len(self.value)

    def __getitem__(self, index: int | tuple[int, ...]) -> Any:
        """An element: a literal of a tuple, by its number; a number of an array, by its index.

        Raises:
            HloError: there is no such element.
        """
        places = index if isinstance(index, tuple) else (index,)
        if self.shape.is_tuple:
            return self.element(*places)
        if len(places) != self.shape.rank or not all(0 <= i < n for i, n in zip(places, self.shape.dims, strict=True)):
            raise HloError(f"a literal of shape {self.shape} has no element {list(places)}")
        return self.array[places]

    def element(self, *index: int) -> Literal:
        """The part of a tuple at an index, one number for each level of nesting.

        Raises:
            HloError: there is none.
        """
        part = self
        for number in index:
            if not part.shape.is_tuple or not 0 <= number < len(part.shape.elements):
                raise HloError(f"a literal of shape {self.shape} has no element {list(index)}")
            part = Literal(part.shape.elements[number], part.value[number])
        return part

    @property
    def array(self) -> Array:
        """The value of an array.

        Raises:
            HloError: the literal is no array.
        """
        if isinstance(self.value, tuple):
            raise HloError(f"expected a literal that is an array, got {self.shape}")
        return self.value

    @property
    def elements_in_memory(self) -> Array:
        """An array's elements in the order, and with the padding, that its layout gives them; one-dimensional."""
        return to_memory(self.array, self.shape)

    @checked
    def relayout(self, layout: Layout) -> Literal:
        """The same array with another layout.

        Raises:
            HloError: the layout does not fit, or the literal is no array.
        """
        return Literal(_with_layout(self.shape, layout), self.value)

    @checked
    def near(self, other: Literal, relative: float = 1e-5, absolute: float = 1e-5) -> bool:
        """The same shape but for layouts; floats within an error, NaN in the same places, other types equal."""
        if not self.shape.same(other.shape):
            return False
        pairs = zip(self._arrays(), _leaves(other.value), strict=True)
        return all(_near(a, b, dtype, relative, absolute) for (dtype, a), b in pairs)


def _bounds(shape: Shape) -> tuple[int, ...]:
    """The sizes of an array."""
    if UNBOUNDED in shape.dims:
        raise HloError(f"{shape} has a dimension without a bound, so no literal of it can be made")
    return shape.dims


def _of_rank(value: Any, element: PrimitiveType | None, rank: int) -> Literal:
    found = Literal.create(value, element)
    if found.shape.is_tuple or found.shape.rank != rank:
        raise HloError(f"expected a value of {rank} dimensions, got {found.shape}")
    return found


def _with_layout(shape: Shape, layout: Layout | None) -> Shape:
    if layout is None:
        return shape
    found = shape.with_layout(layout)
    check_layout(found)
    return found


def _extreme(dtype: DType, lowest: bool) -> Literal:
    if dtype.kind is Kind.PRED:
        return Literal.r0(not lowest, dtype)
    if dtype.is_integer:
        bits = dtype.bits - (dtype.kind is Kind.SIGNED)
        low = -(1 << bits) if dtype.kind is Kind.SIGNED else 0
        return Literal.r0(np.array(low if lowest else (1 << bits) - 1), dtype)
    if dtype.kind is Kind.COMPLEX:
        raise HloError(f"{dtype} has no order, so no least or greatest value")
    infinite = np.array(-np.inf if lowest else np.inf).astype(dtype.stored)
    if np.isinf(infinite.astype(np.float64)):
        return Literal.r0(infinite, dtype)
    return Literal.r0(np.array(dtype.finfo.min if lowest else dtype.finfo.max), dtype)


def _leaves(value: Value) -> Iterator[Array]:
    if isinstance(value, tuple):
        for element in value:
            yield from _leaves(element)
    else:
        yield value


def _near(a: Array, b: Array, dtype: DType, relative: float, absolute: float) -> bool:
    if dtype.kind not in (Kind.FLOAT, Kind.COMPLEX):
        return bool(np.array_equal(a, b))
    wide = np.complex128 if dtype.kind is Kind.COMPLEX else np.float64
    return bool(np.allclose(a.astype(wide), b.astype(wide), rtol=relative, atol=absolute, equal_nan=True))
