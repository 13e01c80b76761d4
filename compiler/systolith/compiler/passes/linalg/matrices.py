"""Batches of matrices, arrays `[b, m, n]`, for passes that write operations on matrices with others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import F32, PRED, S32, Kind

BLOCK = 128
"""Columns of a block: those of a matrix unit."""

_STARTS = {"add": 0, "and": True, "or": False}


@dataclass(frozen=True)
class Matrices:
    """Makes what computes with batches of matrices."""

    r: Rewriter

    def taken(self, x: Instruction) -> Instruction:
        """An operand as `[b, m, n]`, of at least 32 bits."""
        *batch, m, n = x.dims
        return self.r.reshaped(self.widened(x), (prod(batch), m, n))

    def widened(self, x: Instruction) -> Instruction:
        """An array in at least 32 bits."""
        return self.r.converted(x, F32) if x.shape.dtype.bits < F32.bits else x

    def given(self, x: Instruction, shape: Shape) -> Instruction:
        """A result with the shape and type that it has to have."""
        return self.r.reshaped(self.r.converted(x, shape.dtype), shape.dims)

    def transposed(self, x: Instruction) -> Instruction:
        """Each matrix transposed."""
        return self.r.emit("transpose", x, dimensions=(0, 2, 1))

    def conjugate(self, x: Instruction) -> Instruction:
        """The conjugate of each number; real ones as they are."""
        if x.shape.dtype.kind is not Kind.COMPLEX:
            return x
        return self.r.emit("complex", self.real(x), self.r.emit("negate", self.imaginary(x)))

    def adjoint(self, x: Instruction) -> Instruction:
        """Each matrix transposed and conjugate."""
        return self.conjugate(self.transposed(x))

    def real(self, x: Instruction) -> Instruction:
        """The real parts."""
        return self._part("real", x)

    def imaginary(self, x: Instruction) -> Instruction:
        """The imaginary parts of complex numbers."""
        return self._part("imag", x)

    def size(self, x: Instruction) -> Instruction:
        """Absolute values."""
        return self.r.emit("abs", x, shape=array(x.shape.dtype.part, x.dims))

    def magnitude(self, x: Instruction) -> Instruction:
        """Absolute values; of complex numbers, as LAPACK chooses pivots, the sum of those of their parts."""
        parts = [Real(self.r, self._part(name, x)).of("abs") for name in ("real", "imag")]
        return (parts[0] + parts[1] if x.shape.dtype.kind is Kind.COMPLEX else parts[0]).i

    def square(self, x: Instruction) -> Instruction:
        """Squares of the absolute values."""
        parts = [Real(self.r, self._part(name, x)) for name in ("real", "imag")]
        squares = [part * part for part in parts]
        return (squares[0] + squares[1] if x.shape.dtype.kind is Kind.COMPLEX else squares[0]).i

    def times(self, x: Instruction, factor: Real) -> Instruction:
        """Numbers times real ones, in as many dimensions."""
        parts = [(Real(self.r, self._part(name, x)) * factor).i for name in ("real", "imag")]
        return self.r.emit("complex", *parts) if x.shape.dtype.kind is Kind.COMPLEX else parts[0]

    def finite(self, x: Instruction) -> Instruction:
        """Whether each number is neither infinite nor NaN."""
        real, imaginary = (
            self.r.emit("is-finite", self._part(name, x), shape=array(PRED, x.dims)) for name in ("real", "imag")
        )
        return self.r.emit("and", real, imaginary) if x.shape.dtype.kind is Kind.COMPLEX else real

    def _part(self, opcode: str, x: Instruction) -> Instruction:
        if x.shape.dtype.kind is not Kind.COMPLEX:
            return x
        return self.r.emit(opcode, x, shape=array(x.shape.dtype.part, x.dims))

    def cut(self, x: Instruction, rows: tuple[int, int], columns: tuple[int, int]) -> Instruction:
        """The part of each matrix from the first to before the last row and column."""
        return self.r.sliced(x, ((0, x.dims[0]), rows, columns))

    def joined(self, parts: Sequence[Instruction], d: int) -> Instruction:
        """Concatenated along a dimension, without parts of size 0."""
        parts = [p for p in parts if p.dims[d]] or parts[:1]
        return parts[0] if len(parts) == 1 else self.r.emit("concatenate", *parts, dimensions=(d,))

    def product(self, a: Instruction, b: Instruction) -> Instruction:
        """A b, as exact as its type whatever precision is asked of the program's own products."""
        return self.r.emit(
            "dot",
            a,
            b,
            shape=array(a.shape.dtype, (a.dims[0], a.dims[1], b.dims[2])),
            lhs_batch_dims=(0,),
            rhs_batch_dims=(0,),
            lhs_contracting_dims=(2,),
            rhs_contracting_dims=(1,),
            algorithm="dot_f32_f32_f32",
        )

    def without(self, x: Instruction, a: Instruction, b: Instruction) -> Instruction:
        """X - a b."""
        return self.r.emit("subtract", x, self.product(a, b))

    def reduced(
        self, callees: Callees, opcode: str, x: Instruction, dims: Sequence[int], start: float | None = None
    ) -> Instruction:
        """Elements along some dimensions combined by one operation, from a number on (None: what changes nothing)."""
        kept = array(x.shape.dtype, [n for d, n in enumerate(x.dims) if d not in dims])
        first = self.r.constant(_STARTS[opcode] if start is None else start, x.shape.dtype)
        combine = callees.reducer(opcode, x.shape.dtype)
        return self.r.emit("reduce", x, first, shape=kept, dimensions=tuple(dims), to_apply=combine)

    def identity(self, shape: Shape) -> Instruction:
        """Ones on the diagonal, zeros elsewhere."""
        return Real(self.r, self.r.full(1, shape)).where(self.triangle(shape, "EQ"), 0).i

    def along(self, x: Instruction, shape: Shape, d: int) -> Real:
        """`[b]`, or `[b, n]` with n along dimension `d`, repeated to the dimensions of a shape."""
        target = array(x.shape.dtype, shape.dims)
        return Real(self.r, self.r.emit("broadcast", x, shape=target, dimensions=(0, d)[: x.shape.rank]))

    def ordered(self, x: Instruction, order: Instruction) -> Instruction:
        """The rows of each matrix in an order, `[b, m]`."""
        return self.r.emit(
            "gather",
            x,
            order,
            shape=x.shape,
            offset_dims=(2,),
            collapsed_slice_dims=(1,),
            start_index_map=(1,),
            operand_batching_dims=(0,),
            start_indices_batching_dims=(0,),
            index_vector_dim=2,
            slice_sizes=(1, 1, x.dims[2]),
        )

    def exchanged(self, callees: Callees, x: Instruction, d: int, k: Instruction, other: Instruction) -> Instruction:
        """With element k along a dimension of each, and another, `[b]`, in each other's places."""
        r, kept = self.r, [e for e in range(x.shape.rank) if e != d]
        number = self.index(x.shape, d)
        here, there = number.test("EQ", self.scalar(k, x.shape)), number.test("EQ", self.along(other, x.shape, 0))
        moved = self.reduced(callees, "add", Real(r, x).where(there, 0).i, (d,))
        sizes = tuple(1 if e == d else n for e, n in enumerate(x.dims))
        starts = [k if e == d else r.constant(0, S32) for e in range(x.shape.rank)]
        own = r.emit("dynamic-slice", x, *starts, shape=array(x.shape.dtype, sizes), dynamic_slice_sizes=sizes)
        own = r.reshaped(own, moved.dims)
        first, second = (Real(r, r.emit("broadcast", y, shape=x.shape, dimensions=tuple(kept))) for y in (moved, own))
        return first.where(here, second.where(there, Real(r, x))).i

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
