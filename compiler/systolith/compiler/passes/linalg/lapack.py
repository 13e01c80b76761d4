"""Routines on matrices as operations of HLO: LAPACK's, as JAX calls them for CPUs, and the calls of XLA for others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.hlo.values.lapack import eigh_lower, options_of, ormqr_options, trsm_options
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.linalg.cholesky import factored
from systolith.compiler.passes.linalg.eig import Eig
from systolith.compiler.passes.linalg.eigh import Eigh
from systolith.compiler.passes.linalg.hessenberg import HessenbergForm
from systolith.compiler.passes.linalg.householder import Householder
from systolith.compiler.passes.linalg.lu import Lu
from systolith.compiler.passes.linalg.matrices import BLOCK, Matrices
from systolith.compiler.passes.linalg.pivoted_qr import PivotedQr
from systolith.compiler.passes.linalg.schur import Schur
from systolith.compiler.passes.linalg.svd import Svd
from systolith.compiler.passes.linalg.tridiagonal import Tridiagonal
from systolith.compiler.passes.linalg.tridiagonal_form import TridiagonalForm
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import S32


@dataclass(frozen=True)
class ExpandLapack:
    """Expand custom calls of routines on matrices, as JAX makes them for CPUs and TPUs.

    They give factors (Cholesky, LU, QR), solutions of triangular systems, eigenvalues, Hessenberg and Schur forms, and
    singular values.

    Attributes:
        block: columns of a block of a factor.
    """

    block: int = BLOCK

    def run(self, module: Module) -> bool:
        callees = Callees(module)

        def rule(r: Rewriter, i: Instruction) -> Instruction | None:
            routine = ROUTINES.get(str(i.attributes.get("custom_call_target"))) if i.opcode == "custom-call" else None
            if routine is None or any(o.shape.is_dynamic for o in i.operands):
                return None
            some = any(x.size for x in i.shape.leaves() if not x.dtype.is_integer)
            return routine(self, r, i, callees) if some else _of_nothing(r, i)

        changed = rewrite(module, rule)
        callees.place()
        return changed

    def _potrf(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
        """A factor in one triangle, the other as it was; and the order of the first minor that fails, or 0.

        Then only what lies in the minors before is a factor.
        """
        m, lower = Matrices(r), options_of(i)["uplo"] == "L"
        taken = m.taken(i.operands[0])
        half, other = (taken, m.adjoint(taken)) if lower else (m.adjoint(taken), taken)
        factor = factored(m, half, other, callees, self.block)
        row, column = (m.index(factor.shape, d) for d in (1, 2))
        first, order = _first(m, Real(r, m.real(factor)).test("LE", 0.0), callees, factor.dims[2])
        good = m.along(first, row.i.shape, 0)
        written = r.emit("and", row.test("GE", column), row.test("LT", good))
        result = Real(r, factor).where(written, Real(r, half)).i
        return _given(m, i, result if lower else m.adjoint(result), order)

    def _getrf(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
        """Factors with partial pivoting, the rows exchanged, from 1, and the first zero pivot, or 0."""
        m = Matrices(r)
        factors, pivots = Lu(m, callees, self.block).factored(m.taken(i.operands[0]))
        info = _first(m, Real(r, factors).test("EQ", 0.0), callees, pivots.dims[1])
        return _given(m, i, factors, (Real(r, pivots) + 1).i, info[1])

    def _geqp3(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
        """As `geqrf`, columns exchanged, and the order, from 1; those that are given another one than 0 come first."""
        m = Matrices(r)
        x = m.taken(i.operands[0])
        fixed = r.converted(_lines(m, i.operands[1], x.dims[0]), S32)
        packed, scales, order = PivotedQr(m, callees).factored(x, fixed)
        return _given(m, i, packed, (Real(r, order) + 1).i, scales)

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

    def _geqrf(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
        """R and the vectors of reflectors, packed, and the reflectors' scales."""
        m = Matrices(r)
        packed, scales = Householder(m, callees, self.block).factored(m.taken(i.operands[0]))
        return _given(m, i, packed, scales)

    def _orgqr(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
        """The first columns of the product of reflectors."""
        m = Matrices(r)
        packed = m.taken(i.operands[0])
        scales = _lines(m, i.operands[1], packed.dims[0])
        return _given(m, i, Householder(m, callees, self.block).product(packed, scales))

    def _ormqr(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
        """That product, or its adjoint, times a matrix, or that times it."""
        m, (left, transpose) = Matrices(r), ormqr_options(i)
        packed, x = (m.taken(i.operands[k]) for k in (0, 2))
        scales = _lines(m, i.operands[1], packed.dims[0])
        reflectors = Householder(m, callees, self.block)
        if left:
            return _given(m, i, reflectors.applied(packed, scales, x, transpose))
        return _given(m, i, m.adjoint(reflectors.applied(packed, scales, m.adjoint(x), not transpose)))

    def _gtsv(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
        """A tridiagonal system; the diagonals as they were, and 1 where the solution is not finite, or 0."""
        m = Matrices(r)
        b = m.taken(i.operands[3])
        lower, diagonal, upper = (_lines(m, x, b.dims[0]) for x in i.operands[:3])
        x = Tridiagonal(m, callees).solved(lower, diagonal, upper, b)
        fine = m.reduced(callees, "and", m.finite(x), (1, 2))
        info = Real(r, r.full(0, array(S32, fine.dims))).where(fine, 1).i
        return _given(m, i, *i.operands[:3], x, info)

    def _perturbed(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
        """JAX's own call: a tridiagonal system that may be singular."""
        m = Matrices(r)
        b = m.taken(i.operands[3])
        lower, diagonal, upper = (_lines(m, x, b.dims[0]) for x in i.operands[:3])
        return _given(m, i, Tridiagonal(m, callees).solved(lower, diagonal, upper, b, perturbed=True))

    def _gesdd(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
        """Singular values and, but in mode N, vectors; -1 for a matrix with an element that is not finite, or 0."""
        m, mode = Matrices(r), options_of(i)["mode"]
        if not i.operands[0].shape.size:
            return _vectors_of_nothing(r, i)
        found = Svd(m, callees, self.block).solved(m.taken(i.operands[0]), mode == "A")
        vectors = [found.left, found.right] if mode != "N" else [r.full(0, x) for x in i.shape.elements[2:4]]
        return _given(m, i, i.operands[0], found.values, *vectors, _failed(r, found.fine))

    def _syevd(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
        """Eigenvectors and eigenvalues; -1 for a matrix with an element that is not finite, or 0."""
        m, options = Matrices(r), options_of(i)
        found = Eigh(m, callees).solved(m.taken(i.operands[0]), options["uplo"] == "L")
        vectors = found.vectors if options["mode"] == "V" else i.operands[0]
        return _given(m, i, vectors, found.values, _failed(r, found.fine))

    def _sytrd(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
        """One triangle packed, the diagonals, and the reflectors' scales."""
        m = Matrices(r)
        made = TridiagonalForm(m, callees).made(m.taken(i.operands[0]), options_of(i)["uplo"] == "L")
        return _given(m, i, *made, r.full(0, i.shape.elements[-1]))

    def _gehrd(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
        """A Hessenberg form, packed, the reflectors' scales, and 0; beside `low` to `high` there is nothing to do."""
        m = Matrices(r)
        packed, scales = HessenbergForm(m, callees, self.block).made(m.taken(i.operands[0]))
        return _given(m, i, packed, scales, r.full(0, i.shape.elements[-1]))

    def _gees(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction | None:
        """A Schur form and its vectors, eigenvalues, 0 as the number of sorted ones, and `info`.

        Sorted ones are not supported: the call does not say by what.
        """
        m = Matrices(r)
        if options_of(i)["sort"] != "N":
            return None
        found = Schur.of(m, callees, self.block, m.taken(i.operands[0]))
        form, *values = (found.scaled(m, x) for x in (found.form, *Eig(m, callees, found).values()))
        none = r.full(0, i.shape.elements[-2])
        return _given(m, i, form, found.given.checked(m, found.vectors), *values, none, found.info(m))

    def _geev(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
        """Eigenvalues, of real matrices both parts, left and right eigenvectors, where asked for, and `info`."""
        m = Matrices(r)
        found = Schur.of(m, callees, self.block, m.taken(i.operands[0]), balanced=True)
        eig = Eig(m, callees, found)
        values = [found.scaled(m, x) for x in eig.values()]
        sides = [options_of(i)[f"compute_{side}"] == "V" for side in ("left", "right")]
        vectors = [r.full(0, i.shape.elements[-2])] * 2
        if any(sides):
            vectors = [
                found.given.checked(m, v) if wanted else none
                for v, wanted, none in zip(eig.vectors(), sides, vectors, strict=True)
            ]
        return _given(m, i, *values, *vectors, found.info(m))

    def _eigh(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
        """XLA's own call; values are in order even if they need not be."""
        m = Matrices(r)
        found = Eigh(m, callees).solved(m.taken(i.operands[0]), eigh_lower(i))
        return _given(m, i, found.vectors, found.values)

    def _lu(self, r: Rewriter, i: Instruction, callees: Callees) -> Instruction:
        """XLA's own call: factors, the rows exchanged, from 0, and the order of rows that they make."""
        m = Matrices(r)
        lu = Lu(m, callees, self.block)
        factors, pivots = lu.factored(m.taken(i.operands[0]))
        return _given(m, i, factors, pivots, lu.order(pivots, factors.dims[1]))


def _lines(m: Matrices, x: Instruction, batch: int) -> Instruction:
    """Vectors, `[b, n]`."""
    return m.r.reshaped(m.widened(x), (batch, x.dims[-1]))


def _given(m: Matrices, i: Instruction, *results: Instruction) -> Instruction:
    """Results with the shapes and types that an instruction's have."""
    if not i.shape.is_tuple:
        return m.given(results[0], i.shape)
    parts = [m.given(x, shape) for x, shape in zip(results, i.shape.elements, strict=True)]
    return m.r.emit("tuple", *parts, shape=i.shape)


def _of_nothing(r: Rewriter, i: Instruction) -> Instruction:
    """Results of matrices without elements, or of no matrices: nothing, and an `info` of 0 or rows as they are."""
    orders = i.attributes.get("custom_call_target") == "LuDecomposition"
    parts = [
        r.emit("iota", shape=shape, iota_dimension=shape.rank - 1) if orders and shape.size else r.full(0, shape)
        for shape in i.shape.leaves()
    ]
    return r.emit("tuple", *parts, shape=i.shape) if i.shape.is_tuple else parts[0]


def _vectors_of_nothing(r: Rewriter, i: Instruction) -> Instruction:
    """No singular values; vectors are the units."""
    given, values, *vectors, info = i.shape.elements
    m = Matrices(r)
    units = [m.given(m.identity(array(x.dtype, (prod(x.dims[:-2]), *x.dims[-2:]))), x) for x in vectors]
    return r.emit("tuple", *(r.full(0, x) for x in (given, values)), *units, r.full(0, info), shape=i.shape)


def _failed(r: Rewriter, fine: Instruction) -> Instruction:
    return Real(r, r.full(0, array(S32, fine.dims))).where(fine, -1).i


def _first(m: Matrices, test: Instruction, callees: Callees, n: int) -> tuple[Instruction, Instruction]:
    """The first row that holds at the diagonal, else `n`, as `[b]`; and as LAPACK says it: from 1, else 0."""
    r = m.r
    row = m.index(test.shape, 1)
    here = r.emit("and", row.test("EQ", m.index(test.shape, 2)), test)
    found = m.reduced(callees, "minimum", row.where(here, n).i, (1, 2), n)
    order = Real(r, found)
    return found, Real(r, r.full(0, found.shape)).where(order.test("EQ", n), order + 1).i


_Routine = Callable[[ExpandLapack, Rewriter, Instruction, Callees], Instruction | None]

_LAPACK: dict[str, _Routine] = {
    "gees": ExpandLapack._gees,
    "geev": ExpandLapack._geev,
    "gehrd": ExpandLapack._gehrd,
    "geqp3": ExpandLapack._geqp3,
    "geqrf": ExpandLapack._geqrf,
    "gesdd": ExpandLapack._gesdd,
    "gesvd": ExpandLapack._gesdd,
    "getrf": ExpandLapack._getrf,
    "gtsv": ExpandLapack._gtsv,
    "heevd": ExpandLapack._syevd,
    "hetrd": ExpandLapack._sytrd,
    "orgqr": ExpandLapack._orgqr,
    "ormqr": ExpandLapack._ormqr,
    "potrf": ExpandLapack._potrf,
    "syevd": ExpandLapack._syevd,
    "sytrd": ExpandLapack._sytrd,
    "trsm": ExpandLapack._trsm,
    "ungqr": ExpandLapack._orgqr,
    "unmqr": ExpandLapack._ormqr,
}

ROUTINES: dict[str, _Routine] = {
    **{f"lapack_{letter}{name}_ffi": routine for name, routine in _LAPACK.items() for letter in "sdcz"},
    "Eigh": ExpandLapack._eigh,
    "LuDecomposition": ExpandLapack._lu,
    "ProductOfElementaryHouseholderReflectors": ExpandLapack._orgqr,
    "Qr": ExpandLapack._geqrf,
    "tridiagonal_solve_perturbed_ffi": ExpandLapack._perturbed,
}
"""How to expand a custom call, by its target."""
