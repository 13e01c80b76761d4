"""Eigenvalues and eigenvectors of matrices of any kind, from their Schur forms, as LAPACK's `geev` gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.counted_loop import State, counted_loop
from systolith.compiler.passes.linalg.matrices import Matrices
from systolith.compiler.passes.linalg.schur import SchurForm, block, transformed, unit_vector
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import DTYPES, PRED, S32, Kind


@dataclass(frozen=True)
class Eig:
    """Finds them.

    Attributes:
        m: makes instructions.
        callees: makes computations.
        schur: the Schur forms.
    """

    m: Matrices
    callees: Callees
    schur: SchurForm

    @property
    def real(self) -> bool:
        """Whether the matrices are."""
        return self.schur.form.shape.dtype.kind is not Kind.COMPLEX

    def values(self) -> list[Instruction]:
        """Eigenvalues, `[b, n]`, of real matrices their real and imaginary parts: of pairs the positive one first."""
        m, form = self.m, self.schur.form
        parts = [self._beside(form, 0)]
        if self.real:
            below, above = (Real(m.r, self._beside(form, k)) for k in (1, -1))
            size = below.of("abs").of("sqrt") * above.of("abs").of("sqrt")
            none = m.r.full(0, array(form.shape.dtype, (form.dims[0], 1)))
            before = m.joined([none, m.r.narrowed(size.i, 1, 0, form.dims[1] - 1)], 1)
            parts.append((size - Real(m.r, before)).i)
        return parts

    def _beside(self, x: Instruction, below: int) -> Instruction:
        """The diagonal so far below the main one, in the columns' places and filled with zeros: `[b, n]`."""
        m = self.m
        test = m.index(x.shape, 1).test("EQ", m.index(x.shape, 2) + below)
        dim = 1 if below >= 0 else 2
        return m.reduced(self.callees, "add", Real(m.r, x).where(test, 0).i, (dim,))

    def vectors(self) -> tuple[Instruction, Instruction]:
        """Left and right eigenvectors, in columns of length 1 whose largest elements are real.

        Of real matrices, vectors of real values are real, those of pairs are conjugate, and signs are LAPACK's.
        """
        m, r = self.m, self.m.r
        form, basis = self._triangular()
        flipped = r.emit("reverse", m.adjoint(form), dimensions=(1, 2))
        left = r.emit("reverse", self._solved(flipped), dimensions=(1, 2))
        sides = [m.product(basis, x) for x in (left, self._solved(form))]
        if self.schur.balance is not None:
            factor = m.along(self.schur.balance, form.shape, 1)
            sides = [m.times(x, y) for x, y in zip(sides, (factor.like(1.0) / factor, factor), strict=True)]
        if not self.real:
            return self._normal(sides[0], None), self._normal(sides[1], None)
        below, above = (Real(r, self._beside(self.schur.form, k)) for k in (1, -1))
        sign = above.like(1.0).where(above.test("GE", 0.0), -1.0)
        wide = above.of("abs").test("GE", below.of("abs"))
        first = below.test("NE", 0.0)
        signs = [sign.like(1.0).where(keep, sign).where(first, 1.0) for keep in (wide, r.emit("not", wide))]
        results = [self._paired(self._normal(x, sign), first) for x, sign in zip(sides, signs, strict=True)]
        return results[0], results[1]

    def _paired(self, x: Instruction, first: Instruction) -> Instruction:
        """Columns whose value is real as their real parts, and behind the first of a pair its conjugate."""
        m, r, (batch, _, n) = self.m, self.m.r, x.dims
        if n == 1:
            before = other = r.full(False, array(PRED, x.dims))
            conjugate = x
        else:
            line = m.joined([r.full(False, array(PRED, (batch, 1))), r.narrowed(first, 1, 0, n - 1)], 1)
            before, other = (m.along(y, x.shape, 2).i for y in (line, r.emit("or", line, first)))
            conjugate = m.joined([r.narrowed(x, 2, 0, 1), r.narrowed(m.conjugate(x), 2, 0, n - 1)], 2)
        whole = r.emit("complex", m.real(x), r.full(0, array(x.shape.dtype.part, x.dims)))
        return Real(r, conjugate).where(before, Real(r, x).where(other, Real(r, whole))).i

    def _triangular(self) -> tuple[Instruction, Instruction]:
        """The form, complex and triangular, and its vectors."""
        m, r, schur = self.m, self.m.r, self.schur
        if not self.real:
            return schur.form, schur.vectors
        n, dtype = schur.form.dims[1], DTYPES[f"c{2 * schur.form.shape.dtype.bits}"]
        w = m.joined([r.converted(x, dtype) for x in (schur.form, schur.vectors)], 1)
        if n > 1:
            (w,) = counted_loop(r, self.callees, n - 1, [w], _split, Rewriter, "eig.split")
        form = m.cut(w, (0, n), (0, n))
        return Real(r, form).where(m.triangle(form.shape, "LE"), 0).i, m.cut(w, (n, 2 * n), (0, n))

    def _solved(self, form: Instruction) -> Instruction:
        """Eigenvectors of triangular matrices, in columns, by substitution from the last row on."""
        m, r, n = self.m, self.m.r, form.dims[1]
        values = r.reshaped(self._beside(form, 0), (form.dims[0], 1, n))

        def row(r: Rewriter, count: Instruction, state: State) -> Sequence[Instruction]:
            return [self._row(Matrices(r), count, *state), *state[1:]]

        state = [m.identity(form.shape), form, values]
        return counted_loop(r, self.callees, n, state, row, Rewriter, "eig.vectors")[0]

    def _row(
        self, m: Matrices, count: Instruction, x: Instruction, form: Instruction, values: Instruction
    ) -> Instruction:
        """Row n - 1 - count of the columns behind it; columns that grow too large are made smaller."""
        r, n = m.r, form.dims[1]
        k = r.emit("subtract", r.constant(n - 1, S32), count)
        line = values.shape
        behind = m.index(line, 2).test("GT", m.scalar(k, line))
        above = m.at(form, k, None).where(behind, 0)
        total = Real(r, m.product(above.i, x))
        gap = Real(r, values) - m.spread(m.at(form, k, k), line)
        info = gap.i.shape.dtype.part.finfo
        size = Real(r, m.magnitude(gap.i))
        gap = gap.where(size.test("GE", float(info.eps) / 8), float(info.eps) / 8)
        found = (total / gap).where(behind, 0)
        grown = Real(r, m.magnitude(found.i))
        large = grown.test("GT", float(info.eps) ** -2)
        shrink = grown.like(1.0).where(r.emit("not", large), grown.like(1.0) / grown)
        here = m.index(x.shape, 1).test("EQ", m.scalar(k, x.shape))
        own = r.emit("and", here, m.spread(Real(r, behind), x.shape).i)
        made = m.spread(found, x.shape).where(own, Real(r, x))
        return m.times(made.i, m.spread(shrink, x.shape))

    def _normal(self, x: Instruction, sign: Real | None) -> Instruction:
        """Columns of length 1 whose largest element is real: positive, or with the sign that it has times another."""
        m, r = self.m, self.m.r
        size = Real(r, m.size(x))
        largest = m.along(m.reduced(self.callees, "maximum", size.i, (1,), 0.0), size.i.shape, 2)
        one = largest.like(1.0)
        even = m.times(x, one / largest.where(largest.test("NE", 0.0), one))
        row = m.index(size.i.shape, 1)
        first = m.reduced(self.callees, "minimum", row.where(size.test("EQ", largest), x.dims[1]).i, (1,), x.dims[1])
        top = Real(r, even).where(row.test("EQ", m.along(first, row.i.shape, 2)), 0)
        phase = m.reduced(self.callees, "add", m.conjugate(top.i), (1,))
        if sign is not None:
            phase = m.times(phase, sign.where(Real(r, m.real(phase)).test("GE", 0.0), -sign))
        turned = (Real(r, even) * m.along(phase, x.shape, 2)).i
        squares = m.reduced(self.callees, "add", m.square(turned), (1,))
        return m.times(turned, one / m.along(squares, one.i.shape, 2).of("sqrt"))


def _split(r: Rewriter, k: Instruction, state: State) -> Sequence[Instruction]:
    """A block of rows k and k + 1, [[a, b], [c, a]] with b c < 0, turned to be triangular."""
    m, (w,) = Matrices(r), state
    _, b, c, _ = block(m, w, k)
    upper, lower = (Real(r, m.real(x.i)) for x in (b, c))
    none = lower.test("EQ", 0.0)
    size = upper.of("abs").of("sqrt") * lower.of("abs").of("sqrt")
    x, y = unit_vector(upper, size, none)
    zero = x.like(0.0)
    diagonal, beside = r.emit("complex", x.i, zero.i), r.emit("complex", zero.i, y.i)
    rows = [m.joined(pair, 2) for pair in ([diagonal, beside], [beside, diagonal])]
    return [transformed(m, w, k, m.joined(rows, 1))]
