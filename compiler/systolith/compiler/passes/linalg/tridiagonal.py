"""Tridiagonal systems: elimination with partial pivoting by a loop over rows, and substitution by another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from systolith.compiler.hlo.attributes import PadDim
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.counted_loop import State, counted_loop
from systolith.compiler.passes.linalg.matrices import Matrices
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import PRED, S32

DIAGONALS = 4
"""Columns of a row before its right sides: the element below, that of the diagonal, the one above, the one above that.
"""


@dataclass(frozen=True)
class Tridiagonal:
    """Solves systems.

    Attributes:
        m: makes instructions.
        callees: makes computations.
    """

    m: Matrices
    callees: Callees

    def solved(
        self, lower: Instruction, diagonal: Instruction, upper: Instruction, b: Instruction, perturbed: bool = False
    ) -> Instruction:
        """X, `[b, n, r]`, of three diagonals, `[b, n]`: in row i stands `lower[i]` beside `diagonal[i]` and `upper[i]`.

        The first element of `lower` and the last of `upper` are not used. `perturbed`: a pivot whose quotients would be
        infinite is changed by the rounding of the largest element of U, so that singular systems have a solution.
        """
        m, r, n = self.m, self.m.r, b.dims[1]
        row = Real(r, r.emit("iota", shape=array(S32, lower.dims), iota_dimension=1))
        above = Real(r, upper).where(row.test("LT", n - 1), 0).i
        columns = [self._ahead(lower), diagonal, above, r.full(0, diagonal.shape)]
        rows = m.joined([*(r.reshaped(x, (*x.dims, 1)) for x in columns), b], 2)
        if n > 1:
            (rows,) = counted_loop(r, self.callees, n - 1, [rows], _eliminate, Rewriter, "tridiagonal")
        edges = (PadDim(0, 0, 0), PadDim(0, 2, 0), PadDim(0, 0, 0))
        behind = r.emit("pad", r.full(0, b.shape), r.constant(0, b.shape.dtype), padding=edges)
        state = [behind, rows, *([self._perturbation(rows)] if perturbed else [])]
        substitute = partial(_substitute, self.callees)
        found, *_ = counted_loop(r, self.callees, n, state, substitute, Rewriter, "tridiagonal")
        return m.cut(found, (0, n), (0, b.dims[2]))

    def _perturbation(self, rows: Instruction) -> Instruction:
        """What pivots are changed by, `[b, 1, 1]`."""
        m, (batch, n, _) = self.m, rows.dims
        upper = m.cut(rows, (0, n), (1, DIAGONALS))
        largest = Real(m.r, m.reduced(self.callees, "maximum", m.size(upper), (1, 2), 0.0))
        info = largest.i.shape.dtype.finfo
        change = (largest * float(info.eps)).of("maximum", largest.like(float(info.smallest_normal)))
        return m.r.reshaped(change.i, (batch, 1, 1))

    def _ahead(self, x: Instruction) -> Instruction:
        """Each element one place before, and a zero."""
        edges = (PadDim(0, 0, 0), PadDim(-1, 1, 0))
        return self.m.r.emit("pad", x, self.m.r.constant(0, x.shape.dtype), padding=edges)


def _eliminate(r: Rewriter, k: Instruction, state: State) -> Sequence[Instruction]:
    """Exchange rows k and k + 1 if the element below is larger, and take a multiple of the first from the second."""
    m = Matrices(r)
    (rows,) = state
    pair = _rows(r, rows, k, 2)
    first, second = (Real(r, m.cut(pair, (at, at + 1), (0, pair.dims[2]))) for at in (0, 1))
    below, top, above = (_column(m, first, at) for at in range(3))
    other, last = (_column(m, second, at) for at in (1, 2))
    swap = Real(r, m.magnitude(below.i)).test("GT", Real(r, m.magnitude(top.i)))
    zero = below.like(0)
    pivot = below.where(swap, top)
    smaller = top.where(swap, below)
    factor = (smaller / pivot).where(smaller.test("NE", 0.0), zero)  # both may be 0
    beside, beyond = other.where(swap, above), last.where(swap, zero)
    under, after = above.where(swap, other), zero.where(swap, last)
    wide = _sides(m, first).i.shape
    whole = r.emit("broadcast", r.reshaped(swap, wide.dims[:1]), shape=array(PRED, wide.dims), dimensions=(0,))
    one, two = _sides(m, first), _sides(m, second)
    upper, rest = two.where(whole, one), one.where(whole, two)
    rest = rest - m.spread(factor, wide) * upper
    lines = [
        [zero, pivot, beside, beyond, upper],
        [_column(m, second, 0), under - factor * beside, after - factor * beyond, zero, rest],
    ]
    made = m.joined([m.joined([x.i for x in line], 2) for line in lines], 1)
    none = r.constant(0, S32)
    return [r.emit("dynamic-update-slice", rows, made, none, k, none)]


def _substitute(callees: Callees, r: Rewriter, step: Instruction, state: State) -> Sequence[Instruction]:
    """Row n - 1 - step of X, of the two rows behind it."""
    m = Matrices(r)
    found, rows, *change = state
    k = r.emit("subtract", r.constant(rows.dims[1] - 1, S32), step)
    line = Real(r, _rows(r, rows, k, 1))
    pivot, above, beyond = (_column(m, line, at) for at in (1, 2, 3))
    sides = _sides(m, line)
    behind = _rows(r, found, r.emit("add", k, r.constant(1, S32)), 2)
    rest = sides
    for at, factor in ((0, above), (1, beyond)):
        rest = rest - m.spread(factor, sides.i.shape) * Real(r, m.cut(behind, (at, at + 1), (0, behind.dims[2])))
    for x in change:
        pivot = _perturbed(m, callees, pivot, rest, Real(r, x))
    none, quotients = r.constant(0, S32), (rest / m.spread(pivot, sides.i.shape)).i
    return [r.emit("dynamic-update-slice", found, quotients, none, k, none), rows, *change]


def _perturbed(m: Matrices, callees: Callees, pivot: Real, sides: Real, change: Real) -> Real:
    """Pivots, `[b, 1, 1]`, farther from 0 where a quotient by one would be infinite."""
    r, size = m.r, Real(m.r, m.size(pivot.i))
    most = m.reduced(callees, "maximum", m.size(sides.i), (1, 2), 0.0)
    least = Real(r, r.reshaped(most, size.i.dims)) * float(size.i.shape.dtype.finfo.smallest_normal)
    infinite = r.emit("or", size.test("EQ", 0.0), least.test("GT", size))
    change = change.of("maximum", least)
    signed = change.where(Real(r, m.real(pivot.i)).test("GE", 0.0), -change)
    return (pivot + Real(r, r.converted(signed.i, pivot.i.shape.dtype))).where(infinite, pivot)


def _rows(r: Rewriter, x: Instruction, k: Instruction, count: int) -> Instruction:
    sizes, none = (x.dims[0], count, x.dims[2]), r.constant(0, S32)
    return r.emit(
        "dynamic-slice", x, none, k, none, shape=array(x.shape.dtype, sizes), dynamic_slice_sizes=sizes
    )  # fmt: skip


def _column(m: Matrices, row: Real, at: int) -> Real:
    return Real(m.r, m.cut(row.i, (0, 1), (at, at + 1)))


def _sides(m: Matrices, row: Real) -> Real:
    return Real(m.r, m.cut(row.i, (0, 1), (DIAGONALS, row.i.dims[2])))
