"""Matrices balanced by a similarity with powers of two, as LAPACK's `gebal` scales them (James and others, 2014).

Rows and columns with one number get lengths that are near, so that small eigenvalues of badly scaled matrices keep
their digits.  Unlike LAPACK's no rows are exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.counted_loop import State, counted_loop
from systolith.compiler.passes.linalg.matrices import Matrices
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import DTYPES, PRED

SWEEPS = 64
"""Sweeps over all rows after which scaling ends in any case; most matrices need two or three."""

GAIN = 0.95
"""A row is scaled where the sum of both lengths falls below so much of what it was (LAPACK's)."""


@dataclass(frozen=True)
class Balancing:
    """Scales them.

    Attributes:
        m: makes instructions.
        callees: makes computations.
    """

    m: Matrices
    callees: Callees

    def balanced(self, x: Instruction) -> tuple[Instruction, Instruction]:
        """D^-1 x D of `[b, n, n]`, and the diagonal of D, `[b, n]`, real."""
        r = self.m.r
        scale = r.full(1, array(x.shape.dtype.part, x.dims[:2]))
        if x.dims[1] == 1:
            return x, scale
        state = [x, scale, r.constant(True, PRED)]
        name = "balance.sweeps"
        x, scale, _ = counted_loop(r, self.callees, SWEEPS, state, self._sweep, Rewriter, name, lambda s: s[2])
        return x, scale

    def _sweep(self, r: Rewriter, _: Instruction, state: State) -> Sequence[Instruction]:
        x, scale, _ = state
        changed = r.full(False, array(PRED, x.dims[:1]))
        x, scale, changed = counted_loop(
            r, self.callees, x.dims[1], [x, scale, changed], self._row, Rewriter, "balance"
        )
        return [x, scale, Matrices(r).reduced(self.callees, "or", changed, (0,))]

    def _row(self, r: Rewriter, k: Instruction, state: State) -> Sequence[Instruction]:
        """Scale row and column k."""
        m = Matrices(r)
        x, scale, changed = state
        column, row = (self._length(m, m.at(x, *at).i) for at in ((None, k), (k, None)))
        factor = self._factor(r, column, row)
        none = r.emit("or", column.test("EQ", 0.0), row.test("EQ", 0.0))
        less = (column * factor + row / factor).test("LT", (column + row) * GAIN)
        turns = r.emit("and", less, r.emit("not", none))
        factor = factor.where(turns, 1.0)
        real = array(x.shape.dtype.part, x.dims)
        own = [m.index(real, d).test("EQ", m.scalar(k, real)) for d in (1, 2)]
        spread = m.along(factor.i, real, 0)
        one = spread.like(1.0)
        after = m.times(m.times(x, (one / spread).where(own[0], 1.0)), spread.where(own[1], 1.0))
        here = m.index(scale.shape, 1).test("EQ", m.scalar(k, scale.shape))
        noted = Real(r, scale) * m.along(factor.i, scale.shape, 0).where(here, 1.0)
        return [after, noted.i, r.emit("or", changed, turns)]

    def _length(self, m: Matrices, x: Instruction) -> Real:
        """Of rows or columns, `[b]`, of elements below 2."""
        return Real(m.r, m.reduced(self.callees, "add", m.square(x), (1, 2))).of("sqrt")

    def _factor(self, r: Rewriter, column: Real, row: Real) -> Real:
        """The least power of two that brings both lengths to within a factor of two of each other."""
        info = column.i.shape.dtype.finfo
        word = DTYPES[f"s{info.bits}"]
        ratio = (row / column).of("log") * (1 / log(2))
        up, down = ((ratio + k) * 0.5 for k in (-1.0, 1.0))
        power = (down.of("ceil") - 1.0).where(ratio.test("LE", -1.0), 0.0)
        power = up.of("ceil").where(ratio.test("GT", 1.0), power)
        bits = (power.converted(word) + (info.maxexp - 1)) * (1 << info.nmant)
        return Real(r, r.emit("bitcast-convert", bits.i, shape=column.i.shape))
