"""Batches of matrices, arrays `[b, m, n]`, for passes that write operations on matrices with others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import F32, S32

BLOCK = 128
"""Columns of a block: those of a matrix unit."""


@dataclass(frozen=True)
class Matrices:
    """Makes what computes with batches of matrices."""

    r: Rewriter

    def taken(self, x: Instruction) -> Instruction:
        """An operand as `[b, m, n]`, of at least 32 bits."""
        *batch, m, n = x.dims
        wide = self.r.converted(x, F32) if x.shape.dtype.bits < F32.bits else x
        return self.r.reshaped(wide, (prod(batch), m, n))

    def given(self, x: Instruction, shape: Shape) -> Instruction:
        """A result with the shape and type that it has to have."""
        return self.r.reshaped(self.r.converted(x, shape.dtype), shape.dims)

    def transposed(self, x: Instruction) -> Instruction:
        """Each matrix transposed."""
        return self.r.emit("transpose", x, dimensions=(0, 2, 1))

    def cut(self, x: Instruction, rows: tuple[int, int], columns: tuple[int, int]) -> Instruction:
        """The part of each matrix from the first to before the last row and column."""
        return self.r.sliced(x, ((0, x.dims[0]), rows, columns))

    def joined(self, parts: Sequence[Instruction], d: int) -> Instruction:
        """Concatenated along a dimension."""
        return parts[0] if len(parts) == 1 else self.r.emit("concatenate", *parts, dimensions=(d,))

    def product(self, a: Instruction, b: Instruction) -> Instruction:
        """A b, in full precision."""
        return self.r.emit(
            "dot",
            a,
            b,
            shape=array(a.shape.dtype, (a.dims[0], a.dims[1], b.dims[2])),
            lhs_batch_dims=(0,),
            rhs_batch_dims=(0,),
            lhs_contracting_dims=(2,),
            rhs_contracting_dims=(1,),
            operand_precision=("highest", "highest"),
        )

    def without(self, x: Instruction, a: Instruction, b: Instruction) -> Instruction:
        """X - a b."""
        return self.r.emit("subtract", x, self.product(a, b))

    def index(self, shape: Shape, d: int) -> Real:
        """The row (1) or column (2) of each element."""
        return Real(self.r, self.r.emit("iota", shape=array(S32, shape.dims), iota_dimension=d))

    def scalar(self, x: Instruction, shape: Shape) -> Real:
        """A scalar, repeated to the dimensions of a shape."""
        return Real(self.r, self.r.spread(x, array(x.shape.dtype, shape.dims)))

    def triangle(self, shape: Shape, direction: str) -> Instruction:
        """Where a row's number compares with the column's so: GE is the lower triangle."""
        return self.index(shape, 1).test(direction, self.index(shape, 2))

    def at(self, x: Instruction, row: Instruction | None, column: Instruction | None) -> Real:
        """A row or column of each matrix, or an element, at computed places; None: all rows, or columns."""
        sizes = (x.dims[0], x.dims[1] if row is None else 1, x.dims[2] if column is None else 1)
        zero = self.r.constant(0, S32)
        starts = [zero if start is None else start for start in (None, row, column)]
        shape = array(x.shape.dtype, sizes)
        return Real(self.r, self.r.emit("dynamic-slice", x, *starts, shape=shape, dynamic_slice_sizes=sizes))

    def spread(self, x: Real, shape: Shape) -> Real:
        """Rows, columns or elements, repeated over matrices."""
        kept = tuple(d for d in range(3) if x.i.dims[d] == shape.dims[d])
        line = self.r.reshaped(x.i, [shape.dims[d] for d in kept])
        target = array(x.i.shape.dtype, shape.dims)
        return Real(self.r, self.r.emit("broadcast", line, shape=target, dimensions=kept))
