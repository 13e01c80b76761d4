"""`cholesky` by blocks of columns: a product with the blocks before, then a loop over the block's columns.

The loop has the rows of the block on the diagonal, and beside them, where more rows than these are below, those of the
identity, of which it makes the inverse of the block's factor: what is below is a product with that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.counted_loop import State, counted_loop
from systolith.compiler.passes.linalg.matrices import BLOCK, Matrices
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import PRED


@dataclass(frozen=True)
class ExpandCholesky:
    """Expand `cholesky` into products and loops over columns.

    Attributes:
        block: columns of a block.
    """

    block: int = BLOCK

    def run(self, module: Module) -> bool:
        callees = Callees(module)
        changed = rewrite(module, lambda r, i: self._expanded(r, i, callees) if i.opcode == "cholesky" else None)
        callees.place()
        return changed

    def _expanded(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction | None:
        if i.operands[0].shape.is_dynamic:
            return None
        m, lower = Matrices(r), i.flag("lower")
        taken = m.taken(i.operands[0])
        if not taken.shape.size:
            return m.given(taken, i.shape)
        half, other = (taken, m.adjoint(taken)) if lower else (m.adjoint(taken), taken)
        factor = _checked(m, factored(m, half, other, callees, self.block), callees)
        return m.given(factor if lower else m.adjoint(factor), i.shape)


def factored(m: Matrices, half: Instruction, other: Instruction, callees: Callees, block: int) -> Instruction:
    """The lower triangles of the factors, with zeros above.

    Of a block's columns those of the blocks before are subtracted at once, by a product.  The first pivot that is not
    positive stands in its place; what depends on it is of no use.

    Args:
        m: makes instructions.
        half: `[b, n, n]`, of which the lower triangles are read.
        other: its adjoint matrices.
        callees: makes computations.
        block: columns of a block.
    """
    n = half.dims[2]
    done: Instruction | None = None  # the columns so far, from the current block's first row on
    blocks = []
    for first in range(0, n, block):
        last = min(first + block, n)
        size = last - first
        top = m.cut(half, (first, last), (first, last))
        top = Real(m.r, top).where(m.triangle(top.shape, "GE"), Real(m.r, m.cut(other, (first, last), (first, last)))).i
        panel = m.joined([top, m.cut(half, (last, n), (first, last))], 1)
        if done is not None:
            panel = m.without(panel, done, m.adjoint(m.cut(done, (0, size), (0, first))))
        panel = _factored_panel(m, panel, callees)
        blocks.append(_lowered(m, panel, first))
        if last < n:
            below = m.cut(panel, (size, n - first), (0, size))
            done = below if done is None else m.joined([m.cut(done, (size, n - first), (0, first)), below], 2)
    return m.joined(blocks, 2)


def _factored_panel(m: Matrices, panel: Instruction, callees: Callees) -> Instruction:
    """The factor of the block on the diagonal, and below it the rows of the panel times the inverse of its adjoint."""
    rows, size = panel.dims[1:]
    top, below = m.cut(panel, (0, size), (0, size)), m.cut(panel, (size, rows), (0, size))
    inverts = rows > 2 * size
    beside = m.identity(top.shape) if inverts else below
    (made,) = counted_loop(m.r, callees, size, [m.joined([top, beside], 1)], _column, Rewriter, "cholesky")
    made = _scaled(m, made, callees)
    factor = Real(m.r, m.cut(made, (0, size), (0, size))).where(m.triangle(top.shape, "GE"), 0.0).i
    beside = m.cut(made, (size, made.dims[1]), (0, size))
    return m.joined([factor, m.product(below, beside) if inverts else beside], 1)


def _scaled(m: Matrices, made: Instruction, callees: Callees) -> Instruction:
    """Columns over the roots of their elements on the diagonal; where one is not positive, it stays there."""
    shape = made.shape
    on_diagonal = m.triangle(shape, "EQ")
    real = Real(m.r, m.real(made))
    pivots = Real(m.r, m.reduced(callees, "add", real.where(on_diagonal, 0.0).i, (1,)))
    roots = pivots.where(pivots.test("LE", 0.0), pivots.of("sqrt")).converted(shape.dtype)
    tall = m.along(roots.i, shape, 2)
    return tall.where(on_diagonal, Real(m.r, made) / tall).i


def _lowered(m: Matrices, panel: Instruction, rows: int) -> Instruction:
    """Below as many rows of zeros."""
    zeros = array(panel.shape.dtype, (panel.dims[0], rows, panel.dims[2]))
    return m.joined([m.r.full(0, zeros), panel], 1) if rows else panel


def _column(r: Rewriter, j: Instruction, state: State) -> Sequence[Instruction]:
    """Take from the columns behind column j its products by its own elements over the one on the diagonal.

    Elements above the diagonal are the conjugates of those below in columns behind j, and of no use in the others.
    """
    m = Matrices(r)
    (panel,) = state
    shape = panel.shape
    pivot = Real(r, m.real(m.at(panel, j, j).i)).converted(shape.dtype)
    column, row = m.at(panel, None, j), m.at(panel, j, None)
    product = m.spread(column, shape) * m.spread(row / m.spread(pivot, row.i.shape), shape)
    behind = m.index(shape, 2).test("GT", m.scalar(j, shape))
    return [(Real(r, panel) - product).where(behind, Real(r, panel)).i]


def _checked(m: Matrices, factor: Instruction, callees: Callees) -> Instruction:
    """NaN for every matrix whose diagonal is not positive, or not a number, somewhere."""
    r, shape = m.r, factor.shape
    positive = Real(r, m.real(factor)).test("GT", 0.0)
    fine = r.emit("or", positive, m.triangle(shape, "NE"))
    each = m.reduced(callees, "and", fine, (1, 2))
    keep = r.emit("broadcast", each, shape=array(PRED, shape.dims), dimensions=(0,))
    return Real(r, factor).where(keep, float("nan")).i
