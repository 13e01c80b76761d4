"""LU factors with partial pivoting, by blocks of columns: a loop over a block's columns, then products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.counted_loop import State, counted_loop
from systolith.compiler.passes.linalg.matrices import Matrices
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import S32


@dataclass(frozen=True)
class Lu:
    """Makes the factors of matrices.

    Attributes:
        m: makes instructions.
        callees: makes computations.
        block: columns of a block.
    """

    m: Matrices
    callees: Callees
    block: int

    def factored(self, x: Instruction) -> tuple[Instruction, Instruction]:
        """Both factors in place of `[b, m, n]`; and the rows, from 0, that were exchanged with rows 0, 1, ...

        A column whose pivot is 0 stays as it is.
        """
        m, (_, rows, columns) = self.m, x.dims
        pivots = []
        for first in range(0, min(rows, columns), self.block):
            last = min(first + self.block, rows, columns)
            panel, exchanged, order = self._panel(m.cut(x, (first, rows), (first, last)))
            pivots.append(Real(m.r, exchanged) + first)
            left = m.cut(x, (first, rows), (0, first))
            right = m.cut(x, (first, rows), (last, columns))
            parts = [panel]
            if first:
                parts.insert(0, m.ordered(left, order))
            if last < columns:
                parts.append(self._behind(panel, m.ordered(right, order)))
            below = m.joined(parts, 2)
            x = m.joined([m.cut(x, (0, first), (0, columns)), below], 1) if first else below
        return x, m.joined([p.i for p in pivots], 1)

    def order(self, pivots: Instruction, rows: int) -> Instruction:
        """The rows, `[b, rows]`, in the order that the exchanges `[b, k]` give."""
        r = self.m.r
        batch, count = pivots.dims

        def exchange(r: Rewriter, k: Instruction, state: State) -> Sequence[Instruction]:
            order, pivots = state
            other = self._picked(r, pivots, self._places(r, pivots, k))
            return [Matrices(r).exchanged(self.callees, order, 1, k, other), pivots]

        first = r.emit("iota", shape=array(S32, (batch, rows)), iota_dimension=1)
        return counted_loop(r, self.callees, count, [first, pivots], exchange, Rewriter, "order")[0]

    def _behind(self, panel: Instruction, right: Instruction) -> Instruction:
        """The part right of a panel: its rows of the upper factor, and what remains of the rows below."""
        m, (_, rows, width) = self.m, panel.dims
        upper = m.r.emit(
            "triangular-solve",
            m.cut(panel, (0, width), (0, width)),
            top := m.cut(right, (0, width), (0, right.dims[2])),
            shape=top.shape,
            left_side=True,
            lower=True,
            unit_diagonal=True,
            transpose_a="NO_TRANSPOSE",
        )
        if rows == width:
            return upper
        rest = m.without(
            m.cut(right, (width, rows), (0, right.dims[2])), m.cut(panel, (width, rows), (0, width)), upper
        )
        return m.joined([upper, rest], 1)

    def _panel(self, x: Instruction) -> State:
        """The factors of a panel of at least as many rows as columns, the exchanges, and the order of its rows."""
        m, (batch, rows, width) = self.m, x.dims
        pivots = m.r.full(0, array(S32, (batch, width)))
        order = m.r.emit("iota", shape=array(S32, (batch, rows)), iota_dimension=1)
        return counted_loop(m.r, self.callees, width, [x, pivots, order], self._column, Rewriter, "lu")

    def _column(self, r: Rewriter, k: Instruction, state: State) -> Sequence[Instruction]:
        """Exchange rows, and take the multiples of row k from those below."""
        m = Matrices(r)
        x, pivots, order = state
        shape, line = x.shape, array(x.shape.dtype, (x.dims[0], 1, x.dims[2]))
        best = self._pivot(m, m.at(x, None, k), k)  # [b]
        place = Real(r, r.emit("broadcast", best, shape=array(S32, shape.dims), dimensions=(0,)))
        number, current = m.index(shape, 1), m.scalar(k, shape)
        chosen, first = number.test("EQ", place), number.test("EQ", current)
        top = Real(r, r.reshaped(m.reduced(self.callees, "add", Real(r, x).where(chosen, 0.0).i, (1,)), line.dims))
        upper, old = m.spread(top, shape), m.spread(m.at(x, k, None), shape)
        swapped = upper.where(first, old.where(chosen, Real(r, x)))
        pivot = m.at(top.i, r.constant(0, S32), k)
        spread = m.spread(pivot, shape)
        factors = m.spread(self._below(m, x, k, best) / m.spread(pivot, array(line.dtype, (*shape.dims[:2], 1))), shape)
        column, at = m.index(shape, 2), m.scalar(k, shape)
        reduced = factors.where(column.test("EQ", at), swapped - factors * upper)
        changed = r.emit("and", number.test("GT", current), column.test("GE", at))
        result = Real(r, x).where(spread.test("EQ", 0.0), reduced.where(changed, swapped))
        zero = r.reshaped(pivot.i, shape.dims[:1])
        moved = Real(r, best).where(Real(r, zero).test("NE", 0.0), m.scalar(k, array(S32, shape.dims[:1])))
        return [result.i, self._noted(r, pivots, k, best), m.exchanged(self.callees, order, 1, k, moved.i)]

    def _pivot(self, m: Matrices, column: Real, k: Instruction) -> Instruction:
        """The first row, from row k on, of the largest magnitude; NaN is less than all."""
        r, shape = m.r, column.i.shape
        number = m.index(shape, 1)
        size = Real(r, m.magnitude(column.i))
        size = size.where(size.test("EQ", size), -1.0)
        size = size.where(number.test("GE", m.scalar(k, shape)), -2.0)
        top = m.reduced(self.callees, "maximum", size.i, (1, 2), -2.0)
        places = number.where(size.test("EQ", m.along(top, shape, 0)), shape.dims[1]).i
        return m.reduced(self.callees, "minimum", places, (1, 2), shape.dims[1])

    def _below(self, m: Matrices, x: Instruction, k: Instruction, best: Instruction) -> Real:
        """Column k, where the pivot's row has the element of row k."""
        column = m.at(x, None, k)
        shape = column.i.shape
        place = Real(m.r, m.r.emit("broadcast", best, shape=array(S32, shape.dims), dimensions=(0,)))
        return m.spread(m.at(x, k, k), shape).where(m.index(shape, 1).test("EQ", place), column)

    def _picked(self, r: Rewriter, line: Instruction, here: Instruction) -> Instruction:
        """The one element of each row that is here."""
        return Matrices(r).reduced(self.callees, "add", r.emit("select", here, line, r.full(0, line.shape)), (1,))

    def _noted(self, r: Rewriter, line: Instruction, k: Instruction, value: Instruction) -> Instruction:
        """Rows with a value at column k."""
        here = self._places(r, line, k)
        spread = r.emit("broadcast", value, shape=line.shape, dimensions=(0,))
        return r.emit("select", here, spread, line)

    def _places(self, r: Rewriter, line: Instruction, k: Instruction) -> Instruction:
        number = Real(r, r.emit("iota", shape=array(S32, line.dims), iota_dimension=1))
        return number.test("EQ", Real(r, r.spread(k, number.i.shape)))
