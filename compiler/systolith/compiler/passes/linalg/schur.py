"""Schur forms T of matrices, Q^H x Q = T, by the QR algorithm on Hessenberg forms with implicit shifts.

Real matrices take two shifts at a time (Francis, 1961): T is upper triangular but for blocks of two rows, whose
diagonals are equal and whose other elements differ in sign, as LAPACK's `gees` leaves them.  Complex ones take one.
An iteration finds in each matrix of a batch the last block that is not done, and chases a bulge down its diagonal; the
loop over rows is the same for all matrices, and where a matrix has no block nothing turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.attributes import PadDim
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.counted_loop import State, counted_loop
from systolith.compiler.passes.linalg.balancing import Balancing
from systolith.compiler.passes.linalg.hessenberg import HessenbergForm
from systolith.compiler.passes.linalg.householder import reflector
from systolith.compiler.passes.linalg.jacobi import Scaled, negligible, scaled
from systolith.compiler.passes.linalg.matrices import Matrices
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import PRED, S32, Kind

ITERATIONS = 30
"""Iterations a row (at least ten rows) after which a matrix is given up, as LAPACK's; most need two."""

STUCK = 10
"""So many iterations on one block are followed by one with other shifts."""


@dataclass(frozen=True)
class SchurForm:
    """Schur forms as they are found.

    Attributes:
        given: the matrices, over powers of two.
        form: T, `[b, n, n]`, of the matrices over these.
        balance: `[b, n]`, the diagonal of D where T is that of D^-1 x D.
        vectors: Q, `[b, n, n]`.
        failed: `[b]`, whether the iteration was given up.
    """

    given: Scaled
    form: Instruction
    balance: Instruction | None
    vectors: Instruction
    failed: Instruction

    def scaled(self, m: Matrices, x: Instruction) -> Instruction:
        """Elements of the form, `[b, ...]`, as the matrices given have them."""
        return self.given.checked(m, m.times(x, m.along(self.given.scale, x.shape, 0)))

    def info(self, m: Matrices) -> Instruction:
        """1 for a matrix that was given up, -1 for one with an element that is not finite, else 0: `[b]`."""
        zero = Real(m.r, m.r.full(0, array(S32, self.given.fine.dims)))
        return zero.like(1).where(self.failed, zero.where(self.given.fine, -1)).i


@dataclass(frozen=True)
class Schur:
    """Finds them.

    Attributes:
        m: makes instructions.
        callees: makes computations.
        block: reflectors of a block of the Hessenberg form.
        real: whether the matrices are.
    """

    m: Matrices
    callees: Callees
    block: int
    real: bool

    @staticmethod
    def of(m: Matrices, callees: Callees, block: int, x: Instruction, balanced: bool = False) -> SchurForm:
        """Of `[b, n, n]`; where only eigenvalues and eigenvectors are wanted, of balanced ones."""
        given, balance = scaled(m, callees, x), None
        even = given.x
        if balanced:
            even, balance = Balancing(m, callees).balanced(even)
        form, vectors, failed = Schur(m, callees, block, x.shape.dtype.kind is not Kind.COMPLEX)._solved(even)
        return SchurForm(given, form, balance, vectors, failed)

    @property
    def _rows(self) -> int:
        """Rows that a step turns: one more than there are shifts."""
        return 3 if self.real else 2

    def _solved(self, x: Instruction) -> tuple[Instruction, Instruction, Instruction]:
        m, r, (batch, n, _) = self.m, self.m.r, x.dims
        if n == 1:
            return x, m.identity(x.shape), r.full(False, array(PRED, (batch,)))
        hessenberg = HessenbergForm(m, self.callees, self.block)
        packed, scales = hessenberg.made(x)
        halves = [packed, hessenberg.product(packed, scales)]
        if self.real:  # the last step turns two rows, with zeros in place of a third one
            edge = tuple(PadDim(0, int(d > 0), 0) for d in range(3))
            halves = [r.emit("pad", y, r.constant(0, x.shape.dtype), padding=edge) for y in halves]
        size = halves[0].dims[1]
        h, found = self._deflated(r, halves[0])
        state = [m.joined([h, halves[1]], 1), *found, r.full(0, array(S32, (batch,)))]
        state = [*state, self._any(r, found[1])]
        trips = ITERATIONS * max(n, 10)
        w, _, last, *_ = counted_loop(r, self.callees, trips, state, self._iteration, Rewriter, "qr", lambda s: s[-1])
        if self.real:
            (w,) = counted_loop(r, self.callees, n - 1, [w], self._standard, Rewriter, "schur")
        form, vectors = m.cut(w, (0, n), (0, n)), m.cut(w, (size, size + n), (0, n))
        lines = 1 if self.real else 0
        kept = m.index(form.shape, 1).test("LE", m.index(form.shape, 2) + lines)
        form = Real(r, form).where(kept, 0).i
        return form, vectors, Real(r, last).test("GT", 0)

    def _any(self, r: Rewriter, last: Instruction) -> Instruction:
        return Matrices(r).reduced(self.callees, "or", Real(r, last).test("GT", 0), (0,))

    def _deflated(self, r: Rewriter, h: Instruction) -> tuple[Instruction, list[Instruction]]:
        """A Hessenberg form without what is negligible beside its diagonal; and the first and last row of its last
        block that is not done, `[b]`: 0 and 0 where there is none.
        """
        m, shape = Matrices(r), h.shape
        row, column = m.index(shape, 1), m.index(shape, 2)
        beside, on = row.test("EQ", column + 1), row.test("EQ", column)
        large = r.emit("and", beside, self._large(m, h, on))
        kept = r.emit("or", row.test("LE", column), large)
        return Real(r, h).where(kept, 0).i, self._last_block(r, large)

    def _large(self, m: Matrices, h: Instruction, on: Instruction) -> Instruction:
        """Of elements beside the diagonal: whether they are not negligible (Ahues and Tisseur, 1997)."""
        r, size = m.r, Real(m.r, m.magnitude(h))
        mirrored = Real(r, m.transposed(size.i))
        diagonal = m.reduced(self.callees, "add", Real(r, h).where(on, 0).i, (1,))
        own, before = (m.along(diagonal, h.shape, d) for d in (1, 2))
        sizes = [Real(r, m.magnitude(x.i)) for x in (own, before, before - own)]
        near = sizes[0] + sizes[1]
        info = size.i.shape.dtype.finfo
        most, least = (size.of(way, mirrored) for way in ("maximum", "minimum"))
        far, close = (sizes[0].of(way, sizes[2]) for way in ("maximum", "minimum"))
        whole = most + far
        whole = whole.where(whole.test("GT", 0.0), 1.0)
        eps, tiny = float(info.eps), negligible(size.i.shape.dtype)
        first = size.test("GT", near.where(near.test("GT", 0.0), 1.0) * eps)
        second = (least * (most / whole)).test("GT", (close * (far / whole) * eps).of("maximum", size.like(tiny)))
        return r.emit("and", size.test("GT", tiny), r.emit("or", first, second))

    def _last_block(self, r: Rewriter, large: Instruction) -> list[Instruction]:
        """The first and last row of the last block that is not done, from where elements beside the diagonal stay."""
        m, (batch, n, _) = Matrices(r), large.dims
        joined = m.reduced(self.callees, "or", large, (1,))  # row k and the next one
        line = array(S32, (batch, n))
        number, left = m.index(line, 1), joined
        if self.real:  # blocks of two rows are done
            flat = r.emit("pad", joined, r.constant(False, PRED), padding=(PadDim(0, 0, 0), PadDim(1, 1, 0)))
            neighbours = [r.narrowed(flat, 1, first, first + n) for first in (0, 2)]
            left = r.emit("and", joined, r.emit("or", *neighbours))
        last = m.reduced(self.callees, "maximum", (number + 1).where(left, 0).i, (1,), 0)
        before = r.emit("and", number.test("LT", m.along(last, line, 0)), r.emit("not", joined))
        first = m.reduced(self.callees, "maximum", (number + 1).where(before, 0).i, (1,), 0)
        return [first, last]

    def _iteration(self, r: Rewriter, _: Instruction, state: State) -> Sequence[Instruction]:
        """Chase a bulge, and find the next block."""
        m = Matrices(r)
        w, first, last, stuck, _ = state
        n = w.dims[2]
        h = m.cut(w, (0, n), (0, n))
        start = self._start(m, h, first, last, stuck)

        def step(r: Rewriter, k: Instruction, state: State) -> Sequence[Instruction]:
            w, *given = state
            return [self._chased(Matrices(r), w, k, *given), *given]

        trips = n - self._rows + 1
        after = counted_loop(r, self.callees, trips, [w, first, last, start], step, Rewriter, "bulge")[0]
        h, found = self._deflated(r, m.cut(after, (0, n), (0, n)))
        both = m.joined([h, m.cut(after, (n, 2 * n), (0, n))], 1)
        again = Real(r, found[1]).test("EQ", Real(r, last))
        stuck = (Real(r, stuck) + 1).where(again, 0).i
        return [both, *found, stuck, self._any(r, found[1])]

    def _start(
        self, m: Matrices, h: Instruction, first: Instruction, last: Instruction, stuck: Instruction
    ) -> Instruction:
        """The first column of the block's shifted product, `[b, 2 or 3, 1]`."""
        r = m.r

        def element(at: Instruction, i: int, j: int) -> Real:
            row, column = (
                m.index(h.shape, d).test("EQ", m.along(at, array(S32, h.dims), 0) + k) for d, k in ((1, i), (2, j))
            )
            return Real(r, m.reduced(self.callees, "add", Real(r, h).where(r.emit("and", row, column), 0).i, (1, 2)))

        other = Real(r, r.emit("remainder", stuck, r.full(STUCK, stuck.shape))).test("EQ", STUCK - 1)
        a, b, c, d = (element(last, i, j) for i, j in ((-1, -1), (-1, 0), (0, -1), (0, 0)))
        p, q = element(first, 0, 0), element(first, 1, 0)
        if not self.real:
            column = [p - self._shift(m, a, b, c, d).where(r.emit("not", other), d + self._sizes(m, c)), q]
        else:
            w = self._sizes(m, c) + self._sizes(m, element(last, -1, -2))
            half, nearer = (a - d) * 0.5, self._shift(m, a, b, c, d)
            paired = (half * half + b * c).test("LT", 0.0)
            total = (w * 1.5).where(other, (a + d).where(paired, nearer * 2.0))
            product = (w * w).where(other, (a * d - b * c).where(paired, nearer * nearer))
            u, v, x = (element(first, i, j) for i, j in ((0, 1), (1, 1), (2, 1)))
            column = [p * p + u * q - total * p + product, q * (p + v - total), q * x]
        return m.joined([r.reshaped(x.i, (x.i.dims[0], 1, 1)) for x in column], 1)

    @staticmethod
    def _sizes(m: Matrices, x: Real) -> Real:
        return Real(m.r, m.r.converted(m.magnitude(x.i), x.i.shape.dtype))

    @staticmethod
    def _shift(m: Matrices, a: Real, b: Real, c: Real, d: Real) -> Real:
        """The eigenvalue of [[a, b], [c, d]] that is nearer to d (Wilkinson's shift)."""
        half = (a - d) * 0.5
        product = b * c
        root = (half * half + product).of("sqrt")
        sums = [half + root, half - root]
        larger = Real(m.r, m.square(sums[0].i)).test("GE", Real(m.r, m.square(sums[1].i)))
        sum_ = sums[0].where(larger, sums[1])
        none = Real(m.r, m.magnitude(sum_.i)).test("EQ", 0.0)
        return d - d.like(0).where(none, product / sum_.like(1).where(none, sum_))

    def _chased(
        self, m: Matrices, w: Instruction, k: Instruction, first: Instruction, last: Instruction, start: Instruction
    ) -> Instruction:
        """Rows k, k + 1, ... turned so that column k - 1 has zeros, as a similarity."""
        r, rows = m.r, self._rows
        before = r.emit("maximum", r.emit("subtract", k, r.constant(1, S32)), r.constant(0, S32))
        sizes = (w.dims[0], rows, 1)
        shape = array(w.shape.dtype, sizes)
        column = r.emit("dynamic-slice", w, r.constant(0, S32), k, before, shape=shape, dynamic_slice_sizes=sizes)
        here = m.scalar(k, shape)
        begin, end = (m.along(x, shape, 0) for x in (first, last))
        x = Real(r, start).where(here.test("EQ", begin), Real(r, column))
        # Below the block's last row there is nothing to turn.
        x = x.where((m.index(shape, 1) + here).test("LE", end), 0)
        top = Real(r, r.narrowed(x.i, 1, 0, 1))
        rest = m.joined([r.full(0, top.i.shape), r.narrowed(x.i, 1, 1, rows)], 1)
        _, scale, divisor = reflector(m, self.callees, top, rest)
        v = (Real(r, rest) / m.spread(divisor, shape)).where(m.index(shape, 1).test("GT", 0), 1.0)
        active = r.emit("and", here.test("GE", begin), here.test("LT", end))
        s = m.spread(scale, shape).where(active, 0)
        turn = Real(r, m.identity(array(w.shape.dtype, (w.dims[0], rows, rows)))) - Real(
            r, m.product((v * s).i, m.adjoint(v.i))
        )
        return transformed(m, w, k, turn.i)

    def _standard(self, r: Rewriter, k: Instruction, state: State) -> Sequence[Instruction]:
        """Rows k and k + 1, where they are a block: turned to be triangular, or to have equal diagonals."""
        m, (w,) = Matrices(r), state
        a, b, c, d = block(m, w, k)
        half, none = (a - d) * 0.5, c.test("EQ", 0.0)
        square = half * half + b * c
        real = square.test("GE", 0.0)
        x, y = unit_vector(*self._direction(half, b + c, c, square, real), none)
        rows = [m.joined([p.i, q.i], 2) for p, q in ((x, -y), (y, x))]
        w = transformed(m, w, k, m.joined(rows, 1))
        a, _, _, d = block(m, w, k)
        row, column = (m.index(w.shape, dim) - m.scalar(k, w.shape) for dim in (1, 2))
        pair = m.spread(Real(r, r.emit("not", r.emit("or", none, real))), w.shape).i
        on = r.emit("or", *(r.emit("and", row.test("EQ", at), column.test("EQ", at)) for at in (0, 1)))
        below = r.emit("and", row.test("EQ", 1), column.test("EQ", 0))
        zero = Real(r, w).like(0).where(r.emit("and", below, m.spread(Real(r, real), w.shape).i), Real(r, w))
        return [m.spread((a + d) * 0.5, w.shape).where(r.emit("and", on, pair), zero).i]

    @staticmethod
    def _direction(half: Real, sums: Real, c: Real, square: Real, real: Instruction) -> tuple[Real, Real]:
        """Along which a block [[a, b], [c, d]] is turned: an eigenvector, or what makes the diagonal equal.

        Args:
            half: (a - d) / 2.
            sums: b + c.
            c: the element below.
            square: of half the distance of the eigenvalues, negative where they are no real numbers.
            real: whether they are.
        """
        root = square.of("maximum", 0.0).of("sqrt")
        z = half + root.where(half.test("GE", 0.0), -root)
        spread = length(half * 2.0, sums)
        whole = spread.where(spread.test("NE", 0.0), 1.0)
        cosine = ((sums.of("abs") / whole + 1.0) * 0.5).of("sqrt")
        way = half.like(1.0).where(sums.test("GE", 0.0), -1.0)
        return z.where(real, cosine), c.where(real, -(half / (whole * cosine)) * way)


def block(m: Matrices, w: Instruction, k: Instruction) -> tuple[Real, Real, Real, Real]:
    """The elements of rows and columns k and k + 1, `[b, 1, 1]` each."""
    following = m.r.emit("add", k, m.r.constant(1, S32))
    a, b, c, d = (m.at(w, row, column) for row in (k, following) for column in (k, following))
    return a, b, c, d


def transformed(m: Matrices, w: Instruction, k: Instruction, u: Instruction) -> Instruction:
    """U^H acts on rows k, k + 1, ... and U on these columns, of h and of what lies below it, `[b, 2 n, n]`."""
    r, (batch, tall, n), size = m.r, w.dims, u.dims[1]
    zero, dtype = r.constant(0, S32), w.shape.dtype

    def part(x: Instruction, starts: Sequence[Instruction], sizes: tuple[int, ...]) -> Instruction:
        return r.emit("dynamic-slice", x, *starts, shape=array(dtype, sizes), dynamic_slice_sizes=sizes)

    rows = m.product(m.adjoint(u), part(w, (zero, k, zero), (batch, size, n)))
    after = r.emit("dynamic-update-slice", w, rows, zero, k, zero)
    columns = m.product(part(after, (zero, zero, k), (batch, tall, size)), u)
    return r.emit("dynamic-update-slice", after, columns, zero, zero, k)


def length(x: Real, y: Real) -> Real:
    """The length of (x, y), with squares in range."""
    large = x.of("abs").of("maximum", y.of("abs"))
    unit = large.where(large.test("NE", 0.0), 1.0)
    return ((x / unit) * (x / unit) + (y / unit) * (y / unit)).of("sqrt") * unit


def unit_vector(x: Real, y: Real, none: Instruction) -> tuple[Real, Real]:
    """(x, y) over its length; (1, 0) where `none` holds, and of (0, 0)."""
    whole = length(x, y)
    still = x.r.emit("or", none, whole.test("EQ", 0.0))
    turns, unit = x.r.emit("not", still), whole.like(1.0).where(still, whole)
    return (x / unit).where(turns, 1.0), (y / unit).where(turns, 0.0)
