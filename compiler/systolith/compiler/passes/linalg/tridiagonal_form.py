"""Symmetric and Hermitian matrices made tridiagonal by reflectors, packed as LAPACK's `sytrd` packs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.counted_loop import State, counted_loop
from systolith.compiler.passes.linalg.householder import ColumnReflector
from systolith.compiler.passes.linalg.matrices import Matrices
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import S32


@dataclass(frozen=True)
class TridiagonalForm:
    """Makes it.

    Attributes:
        m: makes instructions.
        callees: makes computations.
    """

    m: Matrices
    callees: Callees

    def made(self, x: Instruction, lower: bool) -> tuple[Instruction, ...]:
        """Of `[b, n, n]`, of which one triangle is read: that triangle packed, and the other as it was; the diagonal,
        `[b, n]`, the one beside it, `[b, n - 1]`, both real; and the reflectors' scales, `[b, n - 1]`.

        H_k^H ... H_1^H x H_1 ... H_k is tridiagonal.  From the upper triangle it is made with rows and columns in
        reverse order, from the last column on.
        """
        m, r, (batch, n, _) = self.m, self.m.r, x.dims
        given = x if lower else _reversed(r, x, 1, 2)
        state = [self._symmetric(given), r.full(0, array(x.shape.dtype, (batch, 1, n)))]
        packed, scales = counted_loop(r, self.callees, n - 1, state, self._column, Rewriter, "sytrd")
        packed = Real(r, packed).where(m.triangle(x.shape, "GE"), Real(r, given)).i
        diagonal = m.real(self._beside(packed, 0))
        beside, scale = m.real(self._beside(packed, 1)), r.sliced(scales, ((0, batch), (0, 1), (0, n - 1)))
        results = (diagonal, beside, r.reshaped(scale, (batch, n - 1)))
        if lower:
            return packed, *results
        return (_reversed(r, packed, 1, 2), *(_reversed(r, y, 1) for y in results))

    def _symmetric(self, x: Instruction) -> Instruction:
        """Both triangles from the lower one; the diagonal is real."""
        m, r = self.m, self.m.r
        diagonal = Real(r, r.converted(m.real(x), x.shape.dtype))
        other = diagonal.where(m.triangle(x.shape, "EQ"), Real(r, m.adjoint(x)))
        return Real(r, x).where(m.triangle(x.shape, "GT"), other).i

    def _beside(self, x: Instruction, below: int) -> Instruction:
        """The diagonal so far below the main one: `[b, n - below]`."""
        m, r, (batch, n, _) = self.m, self.m.r, x.dims
        test = m.index(x.shape, 1).test("EQ", m.index(x.shape, 2) + below)
        line = m.reduced(self.callees, "add", Real(r, x).where(test, 0).i, (1,))
        return r.sliced(line, ((0, batch), (0, n - below)))

    def _column(self, r: Rewriter, k: Instruction, state: State) -> Sequence[Instruction]:
        """Make the reflector of column k, and let it act on the rows and columns behind, from both sides."""
        m = Matrices(r)
        x, scales = state
        shape = x.shape
        following = r.emit("add", k, r.constant(1, S32))
        made = ColumnReflector.of(m, self.callees, x, k, following)
        v, tall = made.vector, made.vector.i.shape
        spread = m.spread(made.scale, tall)
        w = (Real(r, m.product(x, v.i)) * spread).where(m.index(tall, 1).test("GE", m.scalar(following, tall)), 0)
        inner = m.reduced(self.callees, "add", (Real(r, m.conjugate(w.i)) * v).i, (1, 2))
        w = w - m.along((Real(r, inner) * 0.5).i, tall, 0) * spread * v
        both = (m.product(w.i, m.adjoint(v.i)), m.product(v.i, m.adjoint(w.i)))
        after = Real(r, x) - Real(r, both[0]) - Real(r, both[1])
        number = m.index(shape, 2).test("EQ", m.scalar(k, shape))
        return [m.spread(made.packed, shape).where(number, after).i, made.noted(scales, k)]


def _reversed(r: Rewriter, x: Instruction, *dimensions: int) -> Instruction:
    return r.emit("reverse", x, dimensions=dimensions)
