"""LAPACK's routines, as JAX calls them for CPUs, as operations of HLO: `potrf`, `getrf` and `trsm`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.hlo.values.lapack import options_of, trsm_options
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.cholesky import factored
from systolith.compiler.passes.lu import Lu
from systolith.compiler.passes.matrices import BLOCK, Matrices
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import S32


@dataclass(frozen=True)
class ExpandLapack:
    """Expand custom calls of LAPACK's `potrf`, `getrf` (Cholesky and LU factors) and `trsm` of real matrices.

    Attributes:
        block: columns of a block of a factor.
    """

    block: int = BLOCK

    def run(self, module: Module) -> bool:
        callees = Callees(module)

        def rule(r: Rewriter, i: Instruction) -> Instruction | None:
            routine = _ROUTINES.get(str(i.attributes.get("custom_call_target"))) if i.opcode == "custom-call" else None
            return (
                None if routine is None or any(o.shape.is_dynamic for o in i.operands) else routine(self, r, i, callees)
            )

        changed = rewrite(module, rule)
        callees.place()
        return changed

    def _potrf(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
        """A factor in one triangle, the other as it was; and the order of the first minor that fails, or 0.

        Then only what lies in the minors before is a factor.
        """
        m, lower = Matrices(r), options_of(i)["uplo"] == "L"
        shape, orders = i.shape.elements
        taken = m.taken(i.operands[0])
        if not taken.shape.size:
            return r.emit("tuple", m.given(taken, shape), r.full(0, orders), shape=i.shape)
        half, other = (taken, m.transposed(taken)) if lower else (m.transposed(taken), taken)
        factor = factored(m, half, other, callees, self.block)
        row, column = (m.index(factor.shape, d) for d in (1, 2))
        first, order = _first(m, Real(r, factor).test("LE", 0.0), callees, factor.dims[2])
        good = Real(r, r.emit("broadcast", first, shape=row.i.shape, dimensions=(0,)))
        written = r.emit("and", row.test("GE", column), row.test("LT", good))
        result = Real(r, factor).where(written, Real(r, half)).i
        info = r.reshaped(order, orders.dims)
        return r.emit("tuple", m.given(result if lower else m.transposed(result), shape), info, shape=i.shape)

    def _getrf(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
        """Factors with partial pivoting, the rows exchanged, from 1, and the first zero pivot, or 0."""
        m = Matrices(r)
        shape, places, orders = i.shape.elements
        taken = m.taken(i.operands[0])
        if not taken.shape.size:
            return r.emit("tuple", m.given(taken, shape), r.full(0, places), r.full(0, orders), shape=i.shape)
        factors, pivots = Lu(m, callees, self.block).factored(taken)
        info = _first(m, Real(r, factors).test("EQ", 0.0), callees, pivots.dims[1])
        exchanged = r.reshaped((Real(r, pivots) + 1).i, places.dims)
        return r.emit("tuple", m.given(factors, shape), exchanged, r.reshaped(info[1], orders.dims), shape=i.shape)

    def _trsm(self, r: Rewriter, i: Instruction, _: Callees) -> Instruction:
        left, lower, transpose, unit = trsm_options(options_of(i))
        return r.emit(
            "triangular-solve",
            *i.operands,
            shape=i.shape,
            left_side=left,
            lower=lower,
            unit_diagonal=unit,
            transpose_a=transpose,
        )


def _first(m: Matrices, test: Instruction, callees: Callees, n: int) -> tuple[Instruction, Instruction]:
    """The first row that holds at the diagonal, else `n`, as `[b]`; and as LAPACK says it: from 1, else 0."""
    r = m.r
    row = m.index(test.shape, 1)
    here = r.emit("and", row.test("EQ", m.index(test.shape, 2)), test)
    batch, least = array(S32, test.dims[:1]), callees.reducer("minimum", S32)
    found = r.emit("reduce", row.where(here, n).i, r.constant(n, S32), shape=batch, dimensions=(1, 2), to_apply=least)
    order = Real(r, found)
    return found, Real(r, r.full(0, batch)).where(order.test("EQ", n), order + 1).i


_ROUTINES: dict[str, Callable[[ExpandLapack, Rewriter, Instruction, Callees], Instruction]] = {
    f"lapack_{letter}{name}_ffi": routine
    for name, routine in (
        ("getrf", ExpandLapack._getrf),
        ("potrf", ExpandLapack._potrf),
        ("trsm", ExpandLapack._trsm),
    )
    for letter in "sd"
}
