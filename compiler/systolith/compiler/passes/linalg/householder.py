"""Householder reflectors: QR factors of matrices in blocks of columns, and the products of reflectors.

A reflector is H = 1 - s v v^H, with zeros in v above a one in its own row; factors and their packing are LAPACK's
(`geqrf`, `orgqr`).  Those of a block act together as 1 - V T V^H, with T upper triangular, so that all but the block's
own columns are products.
"""

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


@dataclass(frozen=True)
class Householder:
    """Makes factors and products.

    Attributes:
        m: makes instructions.
        callees: makes computations.
        block: reflectors of a block.
    """

    m: Matrices
    callees: Callees
    block: int

    def factored(self, x: Instruction) -> tuple[Instruction, Instruction]:
        """Of `[b, m, n]`: R above the reflectors' columns, in the same dimensions, and their scales, `[b, min(m, n)]`.

        H_k^H ... H_1^H x = R.  Where nothing is to be reflected the scale is 0.
        """
        m, (_, rows, columns) = self.m, x.dims
        scales = []
        for first, last in self._blocks(min(rows, columns)):
            panel, scale = self._panel(m.cut(x, (first, rows), (first, last)))
            scales.append(m.r.reshaped(scale, (x.dims[0], last - first)))
            right = m.cut(x, (first, rows), (last, columns))
            if last < columns:
                v = self._vectors(panel)
                right = self._reflected(v, m.adjoint(self._triangle(v, scale)), right)
            below = m.joined([m.cut(x, (first, rows), (0, first)), panel, right], 2)
            x = m.joined([m.cut(x, (0, first), (0, columns)), below], 1)
        return x, m.joined(scales, 1)

    def product(self, packed: Instruction, scales: Instruction) -> Instruction:
        """The first columns of H_1 H_2 ... H_k, as many as `packed`, `[b, m, n]`, has; `scales` is `[b, k]`."""
        m, (_, rows, columns) = self.m, packed.dims
        count = scales.dims[1]
        q = m.identity(packed.shape)
        for first, last in reversed(self._blocks(count)):
            v, t = self._block(packed, scales, first, last)
            corner = m.cut(q, (first, rows), (first, columns))
            turned = self._reflected(v, t, corner)
            below = m.joined([m.cut(q, (first, rows), (0, first)), turned], 2)
            q = m.joined([m.cut(q, (0, first), (0, columns)), below], 1)
        return q

    def applied(self, packed: Instruction, scales: Instruction, x: Instruction, adjoint: bool) -> Instruction:
        """H_1 H_2 ... H_k x, or the adjoint of that product times x, `[b, m, n]`; `packed` is `[b, m, k]`."""
        m, (_, rows, columns) = self.m, x.dims
        blocks = self._blocks(scales.dims[1])
        for first, last in blocks if adjoint else reversed(blocks):
            v, t = self._block(packed, scales, first, last)
            below = self._reflected(v, m.adjoint(t) if adjoint else t, m.cut(x, (first, rows), (0, columns)))
            x = m.joined([m.cut(x, (0, first), (0, columns)), below], 1)
        return x

    def _block(
        self, packed: Instruction, scales: Instruction, first: int, last: int
    ) -> tuple[Instruction, Instruction]:
        """V and T of some reflectors."""
        m, (batch, rows, _) = self.m, packed.dims
        v = self._vectors(m.cut(packed, (first, rows), (first, last)))
        scale = m.r.reshaped(m.r.sliced(scales, ((0, batch), (first, last))), (batch, 1, last - first))
        return v, self._triangle(v, scale)

    def _blocks(self, count: int) -> list[tuple[int, int]]:
        return [(first, min(first + self.block, count)) for first in range(0, count, self.block)]

    def _vectors(self, panel: Instruction) -> Instruction:
        """The reflectors' vectors of a packed panel, `[b, m, w]`."""
        m = self.m
        below = Real(m.r, panel).where(m.triangle(panel.shape, "GT"), 0)
        return Real(m.r, m.r.full(1, panel.shape)).where(m.triangle(panel.shape, "EQ"), below).i

    def _triangle(self, v: Instruction, scale: Instruction) -> Instruction:
        """T of the vectors `[b, m, w]` and scales `[b, 1, w]`: (1 + S U)^-1 S, U what V^H V has above its diagonal."""
        m, r = self.m, self.m.r
        width = v.dims[2]
        gram = m.product(m.adjoint(v), v)
        column = m.spread(Real(r, m.transposed(scale)), gram.shape)
        system = (Real(r, gram) * column).where(m.triangle(gram.shape, "LT"), Real(r, m.identity(gram.shape))).i
        diagonal = column.where(m.triangle(gram.shape, "EQ"), 0).i
        if width == 1:
            return diagonal
        return r.emit(
            "triangular-solve",
            system,
            diagonal,
            shape=diagonal.shape,
            left_side=True,
            lower=False,
            unit_diagonal=True,
            transpose_a="NO_TRANSPOSE",
        )

    def _reflected(self, v: Instruction, t: Instruction, x: Instruction) -> Instruction:
        """(1 - V T V^H) x."""
        m = self.m
        return m.without(x, v, m.product(t, m.product(m.adjoint(v), x)))

    def _panel(self, x: Instruction) -> State:
        """A panel of at least as many rows as columns, packed, and its scales, `[b, 1, w]`."""
        scales = self.m.r.full(0, array(x.shape.dtype, (x.dims[0], 1, x.dims[2])))
        return counted_loop(self.m.r, self.callees, x.dims[2], [x, scales], self.column, Rewriter, "qr")

    def column(self, r: Rewriter, k: Instruction, state: State) -> Sequence[Instruction]:
        """Make the reflector of column k, and let it act on the columns behind."""
        m = Matrices(r)
        x, scales = state
        shape = x.shape
        made = ColumnReflector.of(m, self.callees, x, k, k)
        spread = m.spread(made.vector, shape)
        dots = m.reduced(self.callees, "add", (Real(r, m.conjugate(spread.i)) * Real(r, x)).i, (1,))
        line = array(shape.dtype, (shape.dims[0], 1, shape.dims[2]))
        factor = Real(r, r.reshaped(dots, line.dims)) * m.spread(Real(r, m.conjugate(made.scale.i)), line)
        after = Real(r, x) - spread * m.spread(factor, shape)
        number, current = m.index(shape, 2), m.scalar(k, shape)
        packed = m.spread(made.packed, shape)
        result = after.where(number.test("GT", current), packed.where(number.test("EQ", current), Real(r, x)))
        return [result.i, made.noted(scales, k)]


@dataclass(frozen=True)
class ColumnReflector:
    """The reflector of one column of each matrix, which leaves zeros below one of its rows.

    Attributes:
        m: makes instructions.
        vector: v, `[b, m, 1]`, zeros above the row.
        scale: s, `[b, 1, 1]`.
        packed: the column as LAPACK packs it: as it was above the row, what is left in the row, v below.
    """

    m: Matrices
    vector: Real
    scale: Real
    packed: Real

    @staticmethod
    def of(m: Matrices, callees: Callees, x: Instruction, k: Instruction, row: Instruction) -> ColumnReflector:
        """Of column k of `[b, m, n]`, with zeros below a row."""
        column = m.at(x, None, k)
        tall = column.i.shape
        below, on_row = (m.index(tall, 1).test(way, m.scalar(row, tall)) for way in ("GT", "EQ"))
        end, scale, divisor = reflector(m, callees, m.at(x, row, k), column.where(below, 0).i)
        vector = (column / m.spread(divisor, tall)).where(below, column.like(1).where(on_row, 0))
        packed = vector.where(below, m.spread(end, tall).where(on_row, column))
        return ColumnReflector(m, vector, scale, packed)

    def noted(self, scales: Instruction, k: Instruction) -> Instruction:
        """Scales, `[b, 1, n]`, with this one in place k."""
        m, line = self.m, scales.shape
        here = m.index(line, 2).test("EQ", m.scalar(k, line))
        return m.spread(self.scale, line).where(here, Real(m.r, scales)).i


def reflector(m: Matrices, callees: Callees, top: Real, rest: Instruction) -> tuple[Real, Real, Real]:
    """The element that the reflector leaves, its scale, and the divisor of the others.

    Lengths are those of the column over its largest element, so that squares are in range.

    Args:
        m: makes instructions.
        callees: makes computations.
        top: the element, `[b, 1, 1]`.
        rest: the column with zeros from there up, `[b, m, 1]`.
    """
    r, dims = m.r, top.i.dims

    def single(x: Instruction) -> Real:
        return Real(r, r.reshaped(x, dims))

    def lifted(x: Real) -> Real:
        return Real(r, r.converted(x.i, rest.shape.dtype))

    largest = single(m.reduced(callees, "maximum", m.size(rest), (1, 2), 0.0))
    largest = largest.of("maximum", Real(r, m.size(top.i)))
    unit = largest.where(largest.test("NE", 0.0), 1.0)
    small = m.square((Real(r, rest) / m.spread(lifted(unit), rest.shape)).i)
    others = single(m.reduced(callees, "add", small, (1, 2)))
    length = (Real(r, m.square((top / lifted(unit)).i)) + others).of("sqrt") * unit
    real = Real(r, m.real(top.i))
    end = (-length).where(real.test("GE", 0.0), length)
    still = _still(m, top, others)
    divisor = top - lifted(end)
    scale = top.like(0).where(still, -divisor / lifted(end))
    return top.where(still, lifted(end)), scale, top.like(1).where(still, divisor)


def _still(m: Matrices, top: Real, others: Real) -> Instruction:
    """Whether there is nothing to reflect: all others are 0, and the element is real."""
    zero = others.test("EQ", 0.0)
    if top.i.shape.dtype == others.i.shape.dtype:
        return zero
    return m.r.emit("and", zero, Real(m.r, m.imaginary(top.i)).test("EQ", 0.0))
