"""QR factors with exchanges of columns, as LAPACK's `geqp3` makes them: the largest column that is left comes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.counted_loop import State, counted_loop
from systolith.compiler.passes.linalg.householder import Householder
from systolith.compiler.passes.linalg.matrices import Matrices
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter


@dataclass(frozen=True)
class PivotedQr:
    """Makes them.

    Attributes:
        m: makes instructions.
        callees: makes computations.
    """

    m: Matrices
    callees: Callees

    def factored(self, x: Instruction, fixed: Instruction) -> tuple[Instruction, Instruction, Instruction]:
        """R above the reflectors' columns, their scales, `[b, min(m, n)]`, and the order of the columns, `[b, n]`.

        Behind column m there are no reflectors, but still columns that may have to come first.

        Args:
            x: `[b, m, n]`.
            fixed: `[b, n]`, s32: not 0 for columns that come first.
        """
        m, r, (batch, rows, columns) = self.m, self.m.r, x.dims
        order, count = m.index(fixed.shape, 1).i, min(rows, columns)
        state = [x, r.full(0, array(x.shape.dtype, (batch, 1, columns))), order, fixed]
        x, scales, order, _ = counted_loop(r, self.callees, columns, state, self._column, Rewriter, "geqp3")
        return x, r.reshaped(m.cut(scales, (0, 1), (0, count)), (batch, count)), order

    def _column(self, r: Rewriter, k: Instruction, state: State) -> Sequence[Instruction]:
        """Exchange column k with the one that comes next, and make its reflector."""
        m = Matrices(r)
        x, scales, order, fixed = state
        next_ = self._next(m, x, k, fixed)
        x, order, fixed = (m.exchanged(self.callees, y, d, k, next_) for y, d in ((x, 2), (order, 1), (fixed, 1)))
        return [*Householder(m, self.callees, x.dims[2]).column(r, k, [x, scales]), order, fixed]

    def _next(self, m: Matrices, x: Instruction, k: Instruction, fixed: Instruction) -> Instruction:
        """The first column from k on that is fixed, else the longest of those without the rows above row k: `[b]`.

        Lengths are over the largest element, so that squares are in range.
        """
        r, count = m.r, fixed.dims[1]
        row = m.index(x.shape, 1)
        size = Real(r, m.size(x))
        size = size.where(row.test("GE", m.scalar(k, x.shape)), 0)
        behind = m.index(x.shape, 2).test("GE", m.scalar(k, x.shape))
        largest = Real(r, m.reduced(self.callees, "maximum", size.where(behind, 0).i, (1, 2), 0.0))
        even = size / m.along(largest.where(largest.test("NE", 0.0), 1.0).i, size.i.shape, 0)
        squares = Real(r, m.reduced(self.callees, "add", (even * even).i, (1,)))
        squares = squares.like(float("inf")).where(Real(r, fixed).test("NE", 0), squares)
        number = m.index(fixed.shape, 1)
        squares = squares.where(number.test("GE", m.scalar(k, fixed.shape)), -1.0)
        most = m.along(m.reduced(self.callees, "maximum", squares.i, (1,), -1.0), squares.i.shape, 0)
        # Of a column with a NaN none is the longest: column k stays.
        here = number.where(squares.test("EQ", most), count).i
        found = Real(r, m.reduced(self.callees, "minimum", here, (1,), count))
        return found.where(found.test("LT", count), m.scalar(k, found.i.shape)).i
