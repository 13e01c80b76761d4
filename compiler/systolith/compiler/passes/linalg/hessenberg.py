"""Matrices made upper Hessenberg by reflectors, packed as LAPACK's `gehrd` packs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.counted_loop import State, counted_loop
from systolith.compiler.passes.linalg.householder import ColumnReflector, Householder
from systolith.compiler.passes.linalg.matrices import Matrices
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import S32


@dataclass(frozen=True)
class HessenbergForm:
    """Makes it.

    Attributes:
        m: makes instructions.
        callees: makes computations.
        block: reflectors of a block, where they act together.
    """

    m: Matrices
    callees: Callees
    block: int

    def made(self, x: Instruction) -> tuple[Instruction, Instruction]:
        """Of `[b, n, n]`: the form, with reflectors below the diagonal next to the main one, and their scales,
        `[b, n - 1]`.

        H_k^H ... H_1^H x H_1 ... H_k is upper Hessenberg.
        """
        r, (batch, n, _) = self.m.r, x.dims
        state = [x, r.full(0, array(x.shape.dtype, (batch, 1, n)))]
        packed, scales = counted_loop(r, self.callees, n - 1, state, self._column, Rewriter, "gehrd")
        return packed, r.reshaped(r.sliced(scales, ((0, batch), (0, 1), (0, n - 1))), (batch, n - 1))

    def product(self, packed: Instruction, scales: Instruction) -> Instruction:
        """H_1 H_2 ... H_k, `[b, n, n]`: the first row and column are a unit's."""
        m, (batch, n, _) = self.m, packed.dims
        unit = m.identity(packed.shape)
        inner = Householder(m, self.callees, self.block).product(m.cut(packed, (1, n), (0, n - 1)), scales)
        edge = m.r.full(0, array(packed.shape.dtype, (batch, n - 1, 1)))
        return m.joined([m.cut(unit, (0, 1), (0, n)), m.joined([edge, inner], 2)], 1)

    def _column(self, r: Rewriter, k: Instruction, state: State) -> Sequence[Instruction]:
        """Make the reflector of column k, and let it act on the rows and columns behind, from both sides."""
        m = Matrices(r)
        x, scales = state
        shape = x.shape
        made = ColumnReflector.of(m, self.callees, x, k, r.emit("add", k, r.constant(1, S32)))
        v, scale = made.vector, made.scale
        row = Real(r, m.product(m.adjoint(v.i), x))
        row = row * m.spread(Real(r, m.conjugate(scale.i)), row.i.shape)
        number, current = m.index(shape, 2), m.scalar(k, shape)
        behind = number.test("GT", current)
        left = (Real(r, x) - Real(r, m.product(v.i, row.i))).where(behind, Real(r, x))
        column = Real(r, m.product(left.i, v.i))
        column = column * m.spread(scale, column.i.shape)
        right = left - Real(r, m.product(column.i, m.adjoint(v.i)))
        result = m.spread(made.packed, shape).where(number.test("EQ", current), right)
        return [result.i, made.noted(scales, k)]
