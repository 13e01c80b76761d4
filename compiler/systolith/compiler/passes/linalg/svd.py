"""Singular values and vectors by QR factors and one-sided Jacobi rotations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from systolith.compiler.hlo.attributes import PadDim
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.counted_loop import State
from systolith.compiler.passes.linalg.householder import Householder
from systolith.compiler.passes.linalg.jacobi import (
    Rotation,
    evened,
    gone_round,
    halves,
    in_order,
    negligible,
    scaled,
    swept,
)
from systolith.compiler.passes.linalg.matrices import Matrices
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter


@dataclass(frozen=True)
class Singular:
    """The decomposition of `[b, m, n]`; NaN of matrices with an element that is not finite.

    Attributes:
        values: `[b, min(m, n)]`, real, from the greatest on.
        left: U, `[b, m, m]` or `[b, m, min(m, n)]`.
        right: V^H, `[b, n, n]` or `[b, min(m, n), n]`.
        fine: `[b]`, whether all elements of a matrix are finite.
    """

    values: Instruction
    left: Instruction
    right: Instruction
    fine: Instruction


@dataclass(frozen=True)
class Svd:
    """Finds them.

    Attributes:
        m: makes instructions.
        callees: makes computations.
        block: columns of a block of a QR factor.
    """

    m: Matrices
    callees: Callees
    block: int

    def solved(self, x: Instruction, full: bool) -> Singular:
        """Of `[b, m, n]`; with all vectors, or as many as values: those of R of the QR factors, of a wide matrix those
        of the adjoint.
        """
        m = self.m
        _, rows, columns = x.dims
        if rows < columns:
            other = self.solved(m.adjoint(x), full)
            return Singular(other.values, m.adjoint(other.right), m.adjoint(other.left), other.fine)
        given = scaled(m, self.callees, x)
        reflectors = Householder(m, self.callees, self.block)
        packed, scales = reflectors.factored(given.x)
        values, inner, right = self._square(self._upper(m.cut(packed, (0, columns), (0, columns))))
        if full and rows > columns:
            edges = (PadDim(0, 0, 0), PadDim(0, 0, 0), PadDim(0, rows - columns, 0))
            packed = m.r.emit("pad", packed, m.r.constant(0, packed.shape.dtype), padding=edges)
        q = reflectors.product(packed, scales)
        first = m.product(m.cut(q, (0, rows), (0, columns)), inner)
        left = m.joined([first, m.cut(q, (0, rows), (columns, q.dims[2]))], 2)
        whole = (Real(m.r, values) * m.along(given.scale, values.shape, 0)).i
        return Singular(given.checked(m, whole), given.checked(m, left), given.checked(m, right), given.fine)

    def _upper(self, x: Instruction) -> Instruction:
        return Real(self.m.r, x).where(self.m.triangle(x.shape, "LE"), 0).i

    def _square(self, x: Instruction) -> tuple[Instruction, Instruction, Instruction]:
        """Values, U and V^H of R, an upper triangle.

        With R^H = Q L^H, rotations J make the columns of L J orthogonal, so that V = Q J; they are fewer for L than for
        R (Drmac and Veselic, 2008).  The columns' lengths are the values, and QR factors of L J have U, whose columns
        are orthogonal where values are 0, too.
        """
        m, r, n = self.m, self.m.r, x.dims[1]
        reflectors = Householder(m, self.callees, self.block)
        packed, scales = reflectors.factored(m.adjoint(x))
        lower = evened(m, m.adjoint(self._upper(packed)), (2,))
        turns = evened(m, reflectors.product(packed, scales), (2,))
        state = [*halves(m, lower, 2), *halves(m, turns, 2)]
        found = swept(r, self.callees, lower.dims[2], state, self._step, self._after, "svd")
        turned, turns = (m.joined(pair, 2) for pair in (found[:2], found[2:]))
        values, rows, right = in_order(
            m, self.callees, self._values(turned, turns), "GT", m.adjoint(turned), m.adjoint(turns)
        )
        packed, scales = reflectors.factored(m.adjoint(m.cut(rows, (0, n), (0, n))))
        q = reflectors.product(packed, scales)
        diagonal = Real(r, packed).where(m.triangle(packed.shape, "EQ"), 0).i
        ends = Real(r, m.real(m.reduced(self.callees, "add", diagonal, (1,))))
        signs = r.converted(ends.like(1).where(ends.test("GE", 0.0), -1).i, q.shape.dtype)
        left = (Real(r, q) * m.along(signs, q.shape, 2)).i
        return r.sliced(values, ((0, x.dims[0]), (0, n))), left, m.cut(right, (0, n), (0, n))

    def _values(self, turned: Instruction, turns: Instruction) -> Instruction:
        """Lengths of columns; -1 for a column that was added, which has zeros in V."""
        m = self.m
        squares, lengths = (Real(m.r, m.reduced(self.callees, "add", m.square(x), (1,))) for x in (turned, turns))
        values = squares.of("sqrt")
        return values.like(-1.0).where(lengths.test("EQ", 0.0), values).i

    def _step(self, r: Rewriter, state: State) -> Sequence[Instruction]:
        """Rotate all pairs of columns of L J and V, halves `[b, n, k]` of each."""
        m = Matrices(r)
        a, b, v, w = state
        p, q = (m.reduced(self.callees, "add", m.square(x), (1,)) for x in (a, b))
        off = m.reduced(self.callees, "add", (Real(r, m.conjugate(a)) * Real(r, b)).i, (1,))
        turn = Rotation.of(m, p, q, off)
        return [*gone_round(m, *turn.columns(a, b), 2), *gone_round(m, *turn.columns(v, w), 2)]

    def _after(self, r: Rewriter, state: State) -> tuple[State, Instruction]:
        """Whether some columns are less orthogonal than rounding leaves them."""
        m = Matrices(r)
        turned = m.joined(state[:2], 2)
        gram = m.product(m.adjoint(turned), turned)
        length = Real(r, m.reduced(self.callees, "add", m.square(turned), (1,))).of("sqrt").i
        least = m.along(length, gram.shape, 1) * m.along(length, gram.shape, 2)
        dtype = least.i.shape.dtype
        least = least * (max(8.0, sqrt(turned.dims[1])) * float(dtype.finfo.eps))
        far = Real(r, m.size(gram)).test("GT", least.of("maximum", negligible(dtype)))
        beside = r.emit("and", far, m.triangle(gram.shape, "NE"))
        return state, m.reduced(self.callees, "or", beside, (0, 1, 2))
