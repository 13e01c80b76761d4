"""Eigenvalues and eigenvectors of symmetric and Hermitian matrices by Jacobi's method, as XLA expands `Eigh`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.counted_loop import State
from systolith.compiler.passes.linalg.jacobi import Rotation, evened, gone_round, halves, in_order, scaled, swept
from systolith.compiler.passes.linalg.matrices import Matrices
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter


@dataclass(frozen=True)
class Eigen:
    """Eigenvalues and eigenvectors as they are found.

    Attributes:
        values: `[b, n]`, real; NaN of matrices with an element that is not finite.
        vectors: `[b, n, n]`, in columns; likewise.
        fine: `[b]`, whether all elements of a matrix are finite.
    """

    values: Instruction
    vectors: Instruction
    fine: Instruction


@dataclass(frozen=True)
class Eigh:
    """Finds them.

    Attributes:
        m: makes instructions.
        callees: makes computations.
    """

    m: Matrices
    callees: Callees

    def solved(self, x: Instruction, lower: bool) -> Eigen:
        """Of `[b, n, n]`, of which one triangle is read; values from the least on.

        Values are Rayleigh's quotients of the vectors, so that what the rotations round does not add up in them.
        """
        m, r, n = self.m, self.m.r, x.dims[1]
        given = scaled(m, self.callees, self._symmetric(x, lower))
        w = self._even(given.x)
        tops = [halves(m, half, 2) for half in halves(m, w, 1)]
        state = [*tops[0], *tops[1], *halves(m, m.identity(w.shape), 1)]
        *_, first, second = swept(r, self.callees, w.dims[1], state, self._step, self._after, "eigh")
        rows = m.joined([first, second], 1)  # V^H
        quotients = m.real((Real(r, m.product(rows, w)) * Real(r, m.conjugate(rows))).i)
        values, rows = in_order(m, self.callees, m.reduced(self.callees, "add", quotients, (2,)), "LT", rows)
        whole = Real(r, r.sliced(values, ((0, x.dims[0]), (0, n))))
        vectors = m.adjoint(m.cut(rows, (0, n), (0, n)))
        whole = whole * m.along(given.scale, whole.i.shape, 0)
        return Eigen(given.checked(m, whole.i), given.checked(m, vectors), given.fine)

    def _symmetric(self, x: Instruction, lower: bool) -> Instruction:
        """Both triangles from one; the diagonal is real."""
        m, r = self.m, self.m.r
        own = m.triangle(x.shape, "GT" if lower else "LT")
        diagonal = Real(r, r.converted(m.real(x), x.shape.dtype))
        other = diagonal.where(m.triangle(x.shape, "EQ"), Real(r, m.adjoint(x)))
        return Real(r, x).where(own, other).i

    def _even(self, x: Instruction) -> Instruction:
        """If the number of rows is odd, with one more row and column, whose value is the greatest.

        No value is above the largest sum of a row's elements, which are less than 2.
        """
        wide = evened(self.m, x, (1, 2))
        if wide is x:
            return x
        r, n = self.m.r, x.dims[1]
        corner = r.emit("and", self.m.triangle(wide.shape, "EQ"), self.m.index(wide.shape, 1).test("EQ", n))
        return Real(r, r.full(4 * n, wide.shape)).where(corner, Real(r, wide)).i

    def _step(self, r: Rewriter, state: State) -> Sequence[Instruction]:
        """Rotate all pairs, in quarters `[b, k, k]` of the matrix and halves `[b, k, n]` of V^H."""
        m = Matrices(r)
        corner, right, left, last, v, w = state
        here = m.triangle(corner.shape, "EQ")
        diagonals = [m.reduced(self.callees, "add", Real(r, x).where(here, 0).i, (1,)) for x in (corner, last, right)]
        p, q = map(m.real, diagonals[:2])
        turn = Rotation.of(m, p, q, diagonals[2])
        corner, left = turn.rows(corner, left)
        right, last = turn.rows(right, last)
        corner, right = turn.columns(corner, right)
        left, last = turn.columns(left, last)
        ends = [(Real(r, p) - Real(r, turn.t)).i, (Real(r, q) + Real(r, turn.t)).i]
        dtype = corner.shape.dtype
        corner, last = (
            m.along(r.converted(end, dtype), x.shape, 1).where(here, Real(r, x)).i
            for end, x in zip(ends, (corner, last), strict=True)
        )
        right, left = (Real(r, r.full(0, x.shape)).where(here, Real(r, x)).i for x in (right, left))
        corner, right = gone_round(m, corner, right, 2)
        left, last = gone_round(m, left, last, 2)
        corner, left = gone_round(m, corner, left, 1)
        right, last = gone_round(m, right, last, 1)
        return [corner, right, left, last, *gone_round(m, *turn.rows(v, w), 1)]

    def _after(self, r: Rewriter, state: State) -> tuple[State, Instruction]:
        """Whether some matrix has more beside its diagonal than rounding leaves there.

        The value of the row that `_even` adds does not count: no other element is as large, by far.
        """
        m = Matrices(r)
        here = m.triangle(state[0].shape, "EQ")
        squares = [Real(r, m.square(x)) for x in state[:4]]
        added = (3.0 * (2 * state[0].dims[1] - 1)) ** 2
        counted = [x.like(0).where(x.test("GT", added), x) for x in (squares[0], squares[3])]
        every = counted[0] + squares[1] + squares[2] + counted[1]
        beside = squares[1] + squares[2] + (squares[0] + squares[3]).like(0).where(here, squares[0] + squares[3])
        whole, off = (Real(r, m.reduced(self.callees, "add", x.i, (1, 2))) for x in (every, beside))
        least = 8.0 * float(whole.i.shape.dtype.finfo.eps)
        return state, m.reduced(self.callees, "or", off.test("GT", whole * least**2), (0,))
