"""`triangular-solve`: a loop over rows; of large matrices, products with the inverses of the blocks on the diagonal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.attributes import PadDim
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.counted_loop import State, counted_loop
from systolith.compiler.passes.linalg.matrices import BLOCK, Matrices
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import S32


@dataclass(frozen=True)
class ExpandTriangularSolve:
    """Expand `triangular-solve` of matrices into products and a loop over rows.

    Attributes:
        block: rows up to which there is only the loop, and those of a block of larger matrices.
    """

    block: int = BLOCK

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        rule = self._expanded
        changed = rewrite(module, lambda r, i: rule(r, i, callees) if i.opcode == "triangular-solve" else None)
        callees.place()
        return changed

    def _expanded(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction | None:
        """op(a) x = b; with a on the right, of the transposed matrices."""
        if any(o.shape.is_dynamic for o in i.operands):
            return None
        m, left = Matrices(r), i.flag("left_side")
        a, b = map(m.taken, i.operands)
        if not b.shape.size:
            return m.given(b, i.shape)
        lower = i.flag("lower")
        transpose = i.word("transpose_a", "NO_TRANSPOSE")
        if transpose == "ADJOINT":
            a = m.conjugate(a)
        if (transpose == "NO_TRANSPOSE") != left:
            a, lower = m.transposed(a), not lower
        a = Real(r, a).where(m.triangle(a.shape, "GE" if lower else "LE"), 0.0).i
        solve = _Triangle(m, callees, lower, i.flag("unit_diagonal"), self.block)
        x = solve.solved(a, b if left else m.transposed(b))
        return m.given(x if left else m.transposed(x), i.shape)


@dataclass(frozen=True)
class _Triangle:
    """Solves a x = b.

    Attributes:
        m: makes instructions.
        callees: makes computations.
        lower: which triangle of `a` is not zero.
        unit: its diagonal is taken as ones.
        block: rows of a block.
    """

    m: Matrices
    callees: Callees
    lower: bool
    unit: bool
    block: int

    def solved(self, a: Instruction, b: Instruction) -> Instruction:
        """By substitution, of rows or of blocks of rows."""
        m, n = self.m, a.dims[2]
        if n <= self.block:
            return self._substituted(a, b)
        cuts = [(first, min(first + self.block, n)) for first in range(0, n, self.block)]
        inverses = self._inverses(a, cuts)
        found: Instruction | None = None  # rows so far
        for (first, last), inverse in [*zip(cuts, inverses, strict=True)][:: 1 if self.lower else -1]:
            rest = m.cut(b, (first, last), (0, b.dims[2]))
            if found is not None:
                known = (0, first) if self.lower else (last, n)
                rest = m.without(rest, m.cut(a, (first, last), known), found)
            block = m.product(inverse, rest)
            rows = [block] if found is None else [found, block][:: 1 if self.lower else -1]
            found = m.joined(rows, 1)
        assert found is not None
        return found

    def _inverses(self, a: Instruction, cuts: Sequence[tuple[int, int]]) -> list[Instruction]:
        """Of the blocks on the diagonal, all in one loop; the last one is enlarged by ones on its diagonal."""
        m, batch = self.m, a.dims[0]
        blocks = [m.cut(a, cut, cut) for cut in cuts]
        blocks[-1] = self._enlarged(blocks[-1])
        stacked = m.joined(blocks, 0)
        every = self._substituted(stacked, m.identity(stacked.shape))
        sizes = [(0, last - first) for first, last in cuts]
        return [m.r.sliced(every, ((k * batch, (k + 1) * batch), rows, rows)) for k, rows in enumerate(sizes)]

    def _enlarged(self, a: Instruction) -> Instruction:
        m, r, more = self.m, self.m.r, self.block - a.dims[2]
        if not more:
            return a
        zero, edge = r.constant(0, a.shape.dtype), PadDim(0, more, 0)
        padded = Real(r, r.emit("pad", a, zero, padding=(PadDim(0, 0, 0), edge, edge)))
        inside = m.index(padded.i.shape, 1).test("LT", a.dims[2])
        return padded.where(r.emit("or", inside, m.triangle(padded.i.shape, "NE")), 1.0).i

    def _substituted(self, a: Instruction, b: Instruction) -> Instruction:
        x, _ = counted_loop(self.m.r, self.callees, a.dims[2], [b, a], self._row, Rewriter, "triangular_solve")
        return x

    def _row(self, r: Rewriter, step: Instruction, state: State) -> State:
        """Divide a row of what remains of b by the diagonal element, and take its products from the rows after it."""
        m = Matrices(r)
        x, a = state
        j = step if self.lower else r.emit("subtract", r.constant(a.dims[2] - 1, S32), step)
        row = m.at(x, j, None)
        if not self.unit:
            row = row / m.spread(m.at(a, j, j), row.i.shape)
        found = m.spread(row, x.shape)
        number, current = m.index(x.shape, 1), m.scalar(j, x.shape)
        rest = Real(r, x) - m.spread(m.at(a, None, j), x.shape) * found
        after = rest.where(number.test("GT" if self.lower else "LT", current), Real(r, x))
        return [found.where(number.test("EQ", current), after).i, a]
