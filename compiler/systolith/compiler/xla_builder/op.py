"""A value in a computation that is being built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import Shape
from systolith.isa.dtypes import Kind

Operand: TypeAlias = "XlaOp | bool | int | float | complex | np.ndarray | np.generic"
"""An operand of an elementwise operation; a number becomes a constant of the other operand's element type."""


class Operators(ABC):
    """The interface of a value to its builder: its shape, and the operations that Python's operators mean.

    Attributes:
        name: name of the computation that is being built.
    """

    name: str

    @property
    @abstractmethod
    def first_error(self) -> HloError | None:
        """The first error; None while there is none."""

    @abstractmethod
    def get_shape(self, operand: XlaOp) -> Shape: ...
    @abstractmethod
    def neg(self, operand: XlaOp, /) -> XlaOp: ...
    @abstractmethod
    def not_(self, operand: XlaOp, /) -> XlaOp: ...
    @abstractmethod
    def abs(self, operand: XlaOp, /) -> XlaOp: ...
    @abstractmethod
    def add(self, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp: ...
    @abstractmethod
    def sub(self, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp: ...
    @abstractmethod
    def mul(self, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp: ...
    @abstractmethod
    def div(self, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp: ...
    @abstractmethod
    def rem(self, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp: ...
    @abstractmethod
    def pow(self, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp: ...
    @abstractmethod
    def and_(self, lhs: Operand, rhs: Operand, *rest: Operand | Sequence[int]) -> XlaOp: ...
    @abstractmethod
    def or_(self, lhs: Operand, rhs: Operand, *rest: Operand | Sequence[int]) -> XlaOp: ...
    @abstractmethod
    def xor(self, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp: ...
    @abstractmethod
    def shift_left(self, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp: ...
    @abstractmethod
    def shift_right_arithmetic(self, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp: ...
    @abstractmethod
    def shift_right_logical(self, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp: ...
    @abstractmethod
    def eq(self, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp: ...
    @abstractmethod
    def ne(self, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp: ...
    @abstractmethod
    def ge(self, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp: ...
    @abstractmethod
    def gt(self, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp: ...
    @abstractmethod
    def le(self, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp: ...
    @abstractmethod
    def lt(self, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp: ...
    @abstractmethod
    def dot(self, lhs: XlaOp, rhs: XlaOp) -> XlaOp: ...


class XlaOp:
    """A value that a builder's instruction gives.

    Arithmetic and bitwise operators mean the builder's methods.  `==`, `<` and the like do not: two values are equal if
    they are the same instruction's, and comparisons are `eq`, `ne`, `ge`, `gt`, `le` and `lt`.

    Attributes:
        builder: the builder that it belongs to.
        instruction: the instruction, None where an error kept it from being made.
    """

    __slots__ = ("builder", "instruction")
    __array_ufunc__ = None  # numpy leaves `array + op` to this class

    def __init__(self, builder: Operators, instruction: Instruction | None) -> None:
        self.builder = builder
        self.instruction = instruction

    def __repr__(self) -> str:
        return f"<XlaOp {self.instruction.name}: {self.instruction.shape}>" if self.instruction else "<XlaOp, invalid>"

    @property
    def valid(self) -> bool:
        """Whether it is a value, and not the result of an operation in error."""
        return self.instruction is not None

    @property
    def shape(self) -> Shape:
        """Its shape.

        Raises:
            HloError: the builder's first error, if that kept the value from being made.
        """
        return self.builder.get_shape(self)

    def __neg__(self) -> XlaOp:
        return self.builder.neg(self)

    def __invert__(self) -> XlaOp:
        return self.builder.not_(self)

    def __abs__(self) -> XlaOp:
        return self.builder.abs(self)

    def __add__(self, other: Operand) -> XlaOp:
        return self.builder.add(self, other)

    def __radd__(self, other: Operand) -> XlaOp:
        return self.builder.add(other, self)

    def __sub__(self, other: Operand) -> XlaOp:
        return self.builder.sub(self, other)

    def __rsub__(self, other: Operand) -> XlaOp:
        return self.builder.sub(other, self)

    def __mul__(self, other: Operand) -> XlaOp:
        return self.builder.mul(self, other)

    def __rmul__(self, other: Operand) -> XlaOp:
        return self.builder.mul(other, self)

    def __truediv__(self, other: Operand) -> XlaOp:
        return self.builder.div(self, other)

    def __rtruediv__(self, other: Operand) -> XlaOp:
        return self.builder.div(other, self)

    def __mod__(self, other: Operand) -> XlaOp:
        return self.builder.rem(self, other)

    def __rmod__(self, other: Operand) -> XlaOp:
        return self.builder.rem(other, self)

    def __pow__(self, other: Operand) -> XlaOp:
        return self.builder.pow(self, other)

    def __rpow__(self, other: Operand) -> XlaOp:
        return self.builder.pow(other, self)

    def __and__(self, other: Operand) -> XlaOp:
        return self.builder.and_(self, other)

    def __rand__(self, other: Operand) -> XlaOp:
        return self.builder.and_(other, self)

    def __or__(self, other: Operand) -> XlaOp:
        return self.builder.or_(self, other)

    def __ror__(self, other: Operand) -> XlaOp:
        return self.builder.or_(other, self)

    def __xor__(self, other: Operand) -> XlaOp:
        return self.builder.xor(self, other)

    def __rxor__(self, other: Operand) -> XlaOp:
        return self.builder.xor(other, self)

    def __lshift__(self, other: Operand) -> XlaOp:
        return self.builder.shift_left(self, other)

    def __rlshift__(self, other: Operand) -> XlaOp:
        return self.builder.shift_left(other, self)

    def __rshift__(self, other: Operand) -> XlaOp:
        """Arithmetic for signed elements, logical for unsigned ones."""
        signed = self.instruction is not None and self._kind() is Kind.SIGNED
        shift = self.builder.shift_right_arithmetic if signed else self.builder.shift_right_logical
        return shift(self, other)

    def __rrshift__(self, other: Operand) -> XlaOp:
        signed = self._kind() is Kind.SIGNED
        shift = self.builder.shift_right_arithmetic if signed else self.builder.shift_right_logical
        return shift(other, self)

    def __matmul__(self, other: XlaOp) -> XlaOp:
        return self.builder.dot(self, other)

    def _kind(self) -> Kind | None:
        element = self.instruction.shape.element if self.instruction else None
        return element.kind if element else None

    def eq(self, other: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
        return self.builder.eq(self, other, broadcast_dimensions)

    def ne(self, other: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
        return self.builder.ne(self, other, broadcast_dimensions)

    def ge(self, other: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
        return self.builder.ge(self, other, broadcast_dimensions)

    def gt(self, other: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
        return self.builder.gt(self, other, broadcast_dimensions)

    def le(self, other: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
        return self.builder.le(self, other, broadcast_dimensions)

    def lt(self, other: Operand, broadcast_dimensions: Sequence[int] = ()) -> XlaOp:
        return self.builder.lt(self, other, broadcast_dimensions)


def several(values: object, least: int = 0) -> list[XlaOp]:
    """A list of values, from a list or from one value.

    Raises:
        HloError: it is neither, or has fewer than `least`.
    """
    if isinstance(values, XlaOp):
        return [values]
    if not isinstance(values, list | tuple):
        raise HloError(f"a value (XlaOp) or a list of values is needed, got {type(values).__name__}")
    if len(values) < least:
        raise HloError(f"operands is a list of at least {least} value, got {len(values)}")
    return list(values)
