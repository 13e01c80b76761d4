"""LAPACK's routines as JAX calls them on CPU (`lapack_sgetrf_ffi`, ...), on batches of matrices.

A target is `lapack_`, one of s, d, c, z, and a routine; here one function per routine serves all four types and
computes in the type itself, since signs of vectors, which no definition fixes, then agree more often.  Options are
letters in `backend_config` (`mode = 86 : ui8` is V).  Arguments, results and the layout of packed factors are those of
LAPACK (www.netlib.org/lapack); results that a routine leaves undefined (an overwritten input, vectors not asked for)
are the input or zeros.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod
from typing import Literal, cast

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.ir import Literal as Value
from systolith.compiler.hlo.values.convert import store, to_working
from systolith.compiler.hlo.values.linalg import solve_triangle

_FLAG = re.compile(r"(\w+)\s*=\s*(true|false)")
_OPTION = re.compile(r"(\w+)\s*=\s*(\d+)")

Routine = Callable[..., tuple[np.ndarray, ...]]


def options_of(i: Instruction) -> dict[str, str]:
    """Letters by their names."""
    return {key: chr(int(value)) for key, value in _OPTION.findall(str(i.attributes.get("backend_config", "")))}


def _adjoint(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2).conj()


def _own(name: str, x: np.ndarray) -> Callable[..., Sequence[np.ndarray]]:
    """LAPACK's own routine for the type of a matrix."""
    from scipy.linalg import get_lapack_funcs  # type: ignore[import-untyped]  # scipy ships no types

    (routine,) = get_lapack_funcs([name], [x])
    return cast("Callable[..., Sequence[np.ndarray]]", routine)


def _done(x: np.ndarray, inner: int = 2) -> np.ndarray:
    """`info` of 0 for each matrix, of -1 where it has an element that is not finite."""
    return np.where(np.isfinite(x).all(axis=tuple(range(-inner, 0))), 0, -1)


def _each(function: Callable[[np.ndarray], Sequence[np.ndarray]], x: np.ndarray) -> list[np.ndarray]:
    """A function of one matrix on every matrix of a batch."""
    results = [function(m) for m in x.reshape(prod(x.shape[:-2]), *x.shape[-2:])]
    if not results:
        results = [function(np.eye(*x.shape[-2:], dtype=x.dtype))][:0]
    return [np.stack(parts).reshape((*x.shape[:-2], *parts[0].shape)) for parts in zip(*results, strict=True)]


def _safely(function: Callable[..., Sequence[np.ndarray]], x: np.ndarray) -> list[np.ndarray]:
    """A function of numpy.linalg; NaN for matrices that have an element that is not finite."""
    bad = _done(x) != 0
    return _marked(bad, function(np.where(bad[..., np.newaxis, np.newaxis], np.eye(*x.shape[-2:]), x)))


def _marked(bad: np.ndarray, results: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Results of a batch, with NaN for bad matrices."""
    return [np.where(bad.reshape(*bad.shape, *[1] * (r.ndim - bad.ndim)), np.nan, r) for r in results]


def potrf(options: dict[str, str], a: np.ndarray) -> tuple[np.ndarray, ...]:
    """Cholesky factor in one triangle, the other as it was; `info` is the order of the first minor that fails."""
    lower = options["uplo"] == "L"

    def factor(m: np.ndarray) -> Sequence[np.ndarray]:
        half = np.tril(m) if lower else _adjoint(np.triu(m))
        full = half + _adjoint(np.tril(half, -1))
        order = len(m)
        while True:
            try:
                part = np.linalg.cholesky(full[:order, :order])
                break
            except np.linalg.LinAlgError:
                order -= 1
        result = half.copy()
        result[:order, :order] = part
        written = np.tril(result) if lower else _adjoint(np.tril(result))
        other = np.triu(m, 1) if lower else np.tril(m, -1)
        return written + other, np.asarray(0 if order == len(m) else order + 1)

    factors, info = _each(factor, a)
    return factors, info


def getrf(options: dict[str, str], a: np.ndarray) -> tuple[np.ndarray, ...]:
    """LU factors with partial pivoting, pivots (from 1), and the first zero pivot."""
    del options

    def factor(m: np.ndarray) -> Sequence[np.ndarray]:
        lu, info = m.copy(), 0
        pivots = np.zeros(min(m.shape), np.int32)
        for k in range(len(pivots)):
            column = np.abs(lu[k:, k].real) + np.abs(lu[k:, k].imag)
            at = k + int(np.argmax(np.where(np.isnan(column), -1, column)))
            pivots[k] = at + 1
            if lu[at, k] == 0:
                info = info or k + 1
                continue
            lu[[k, at]] = lu[[at, k]]
            lu[k + 1 :, k] /= lu[k, k]
            lu[k + 1 :, k + 1 :] -= np.outer(lu[k + 1 :, k], lu[k, k + 1 :])
        return lu, pivots, np.asarray(info)

    return tuple(_each(factor, a))


def geqrf(options: dict[str, str], a: np.ndarray) -> tuple[np.ndarray, ...]:
    """R above, reflectors below the diagonal, and their scales."""
    del options
    packed, scales = np.linalg.qr(a, mode="raw")
    return np.swapaxes(packed, -1, -2), scales


def geqp3(options: dict[str, str], a: np.ndarray, given: np.ndarray) -> tuple[np.ndarray, ...]:
    """As geqrf, columns exchanged, and their order, from 1; those that are given another one than 0 come first."""
    del options

    def factor(m: np.ndarray, order: np.ndarray) -> Sequence[np.ndarray]:
        fixed, places = 0, np.arange(1, m.shape[1] + 1)
        for k in np.flatnonzero(order).tolist():
            places[[fixed, k]] = places[[k, fixed]]
            fixed += 1
        x, scales = m[:, places - 1], np.zeros(min(m.shape), m.dtype)
        done = min(fixed, len(scales))
        if done:
            front, scales[:done] = geqrf({}, x[:, :fixed])
            (q,) = orgqr({}, np.pad(front[:, :done], [(0, 0), (0, len(m) - done)]), scales[:done])
            x = np.concatenate([front, _adjoint(q) @ x[:, fixed:]], axis=1)
        if done < len(scales) and fixed < m.shape[1]:
            packed, exchanged, rest, *_ = _own("geqp3", m)(x[done:, fixed:])
            x[:done, fixed:] = x[:done, fixed:][:, exchanged - 1]
            x[done:, fixed:], scales[done:] = packed, rest
            places[fixed:] = places[fixed:][exchanged - 1]
        return x, places, scales

    flat = a.reshape(prod(a.shape[:-2]), *a.shape[-2:])
    results = [factor(*pair) for pair in zip(flat, given.reshape(len(flat), a.shape[-1]), strict=True)]
    if not results:
        return a, given, np.zeros((*a.shape[:-2], min(a.shape[-2:])), a.dtype)
    return tuple(np.stack(parts).reshape((*a.shape[:-2], *parts[0].shape)) for parts in zip(*results, strict=True))


def gehrd(options: dict[str, str], a: np.ndarray) -> tuple[np.ndarray, ...]:
    """A Hessenberg form, reflectors below it, and their scales."""
    low, high = (ord(options[name]) - 1 for name in ("low", "high"))

    def reduced(m: np.ndarray) -> Sequence[np.ndarray]:
        packed, scales, info = _own("gehrd", m)(m, low, high)
        return packed, scales, np.asarray(info)

    if not a.size:
        return a, np.zeros((*a.shape[:-2], max(a.shape[-1] - 1, 0)), a.dtype), np.zeros(a.shape[:-2])
    return tuple(_each(reduced, a))


def orgqr(options: dict[str, str], a: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, ...]:
    """The first columns of the product of reflectors 1 - scale v v^H."""
    del options
    rows, columns = a.shape[-2:]
    q = np.zeros_like(a)
    q[..., range(columns), range(columns)] = 1
    for k in reversed(range(scales.shape[-1])):
        v = np.where(np.arange(rows) < k, 0, a[..., k])
        v[..., k] = 1
        projected = np.matmul(v.conj()[..., np.newaxis, :], q)
        q = q - scales[..., k, np.newaxis, np.newaxis] * v[..., np.newaxis] * projected
    return (q,)


def gesdd(options: dict[str, str], a: np.ndarray) -> tuple[np.ndarray, ...]:
    """Singular values and, by mode (A all, S the first, N none), vectors."""
    mode = options["mode"]
    if mode == "N":
        (values,) = _safely(lambda m: (np.linalg.svd(m, compute_uv=False),), a)
        return a, values, np.zeros((1, 1)), np.zeros((1, 1)), _done(a)
    u, values, vt = _safely(lambda m: np.linalg.svd(m, full_matrices=mode == "A"), a)
    return a, values, u, vt, _done(a)


def syevd(options: dict[str, str], a: np.ndarray) -> tuple[np.ndarray, ...]:
    """Eigenvectors and eigenvalues, in ascending order, of a symmetric or Hermitian matrix."""
    triangle: Literal["L", "U"] = "L" if options["uplo"] == "L" else "U"
    values, vectors = _safely(lambda m: np.linalg.eigh(m, UPLO=triangle), a)
    return vectors if options["mode"] == "V" else a, values, _done(a)


def sytrd(options: dict[str, str], a: np.ndarray) -> tuple[np.ndarray, ...]:
    """Of one triangle of symmetric or Hermitian matrices: a tridiagonal matrix and reflectors in it, both diagonals,
    the reflectors' scales.
    """
    lower = options["uplo"] == "L"

    def reduced(m: np.ndarray) -> Sequence[np.ndarray]:
        n = len(m)
        given = m if lower else m[::-1, ::-1]
        x = np.tril(given, -1) + _adjoint(np.tril(given, -1)) + np.diag(np.diagonal(given).real)
        packed, scales = given.copy(), np.zeros(n - 1, m.dtype)
        for k in range(n - 1):
            top, rest = x[k + 1, k], x[k + 2 :, k]
            largest = np.abs(x[k + 1 :, k]).max() or 1  # squares of small numbers would be 0
            end = -np.copysign(largest * np.linalg.norm(x[k + 1 :, k] / largest), top.real)
            v = np.zeros(n, m.dtype)
            v[k + 1] = 1
            if rest.any() or top.imag:
                scales[k] = (end - top) / end
                v[k + 2 :] = rest / (top - end)
                h = np.eye(n) - scales[k] * np.outer(v, v.conj())
                x = _adjoint(h) @ x @ h
            packed[k + 2 :, k] = v[k + 2 :]
            packed[k + 1, k] = x[k + 1, k].real
        packed[range(n), range(n)] = x.diagonal().real
        diagonals = packed.diagonal().real, packed.diagonal(-1).real
        if lower:
            return packed, *diagonals, scales
        return packed[::-1, ::-1], *(d[::-1] for d in (*diagonals, scales))

    return *_each(reduced, a), np.zeros(a.shape[:-2])


def geev(options: dict[str, str], a: np.ndarray) -> tuple[np.ndarray, ...]:
    """Eigenvalues (of real matrices both parts) and left and right eigenvectors of length 1."""
    wanted = [options[key] == "V" for key in ("compute_left", "compute_right")]

    def found(m: np.ndarray) -> Sequence[np.ndarray]:
        *values, left, right, info = _own("geev", m)(m, *wanted)
        sides = [
            _unpacked(v, values) if asked else np.zeros_like(m, dtype=np.result_type(m, np.complex64))
            for v, asked in zip((left, right), wanted, strict=True)
        ]
        return *values, *sides, np.asarray(info)

    return _finite(found, a)


def _unpacked(vectors: np.ndarray, values: Sequence[np.ndarray]) -> np.ndarray:
    """Vectors of a real matrix, of whose pairs LAPACK gives both parts; complex ones as they are."""
    if len(values) == 1:
        return vectors
    first = values[1] > 0
    other = np.roll(first, 1)
    following = np.roll(vectors, -1, axis=1)
    whole = np.where(first, vectors + 1j * following, np.roll(vectors, 1, axis=1) - 1j * vectors)
    return np.where(first | other, whole, vectors)


def _finite(function: Callable[[np.ndarray], Sequence[np.ndarray]], a: np.ndarray) -> tuple[np.ndarray, ...]:
    """A function of one matrix, whose last result is `info`, on every one; NaN for those that are not finite."""
    done = _done(a)
    bad = done != 0
    *results, info = _each(function, np.where(bad[..., np.newaxis, np.newaxis], np.zeros_like(a), a))
    return *_marked(bad, results), np.where(bad, done, info)


def gees(options: dict[str, str], a: np.ndarray) -> tuple[np.ndarray, ...]:
    """A Schur form, its vectors, eigenvalues (of real matrices both parts), and 0 as the number of sorted ones."""
    if options["sort"] != "N":
        raise HloError("gees with eigenvalues in an order (sort) is not supported")

    def found(m: np.ndarray) -> Sequence[np.ndarray]:
        form, _, *values, vectors, _, info = _own("gees", m)(lambda *_: 0, m)
        return form, vectors, *values, np.asarray(info)

    *results, info = _finite(found, a)
    return *results, np.zeros(info.shape), info


def ormqr_options(i: Instruction) -> tuple[bool, bool]:
    """Whether Q stands on the left, and whether it is its adjoint."""
    given = dict(_FLAG.findall(str(i.attributes.get("backend_config", ""))))
    return given["left"] == "true", given["transpose"] == "true"


def _multiply_by_q(i: Instruction, operands: list[Value]) -> Value:
    """Q c, c Q, or these with the adjoint of Q, the product of all reflectors."""
    a, scales, c = (to_working(np.asarray(x), o.shape.dtype) for x, o in zip(operands, i.operands, strict=True))
    rows, count = a.shape[-2:]
    wide = np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, rows - count)])
    left, transpose = ormqr_options(i)
    with np.errstate(all="ignore"):
        (q,) = orgqr({}, wide, scales)
        q = _adjoint(q) if transpose else q
        return store(np.matmul(q, c) if left else np.matmul(c, q), i.shape.dtype)


def eigh_lower(i: Instruction) -> bool:
    """Whether XLA's `Eigh` reads the lower triangle.

    Its other options are whether eigenvalues are in order (here they always are), and a number of sweeps and a
    tolerance for Jacobi's method.
    """
    return str(i.attributes.get("backend_config", "")).strip('"').startswith("1")


def _xla_eigh(i: Instruction, operands: list[Value]) -> Value:
    """Eigenvectors and eigenvalues, in ascending order."""
    (x,), (vectors, values) = operands, i.shape.elements
    wide = to_working(np.asarray(x), i.operands[0].shape.dtype)
    found = syevd({"uplo": "L" if eigh_lower(i) else "U", "mode": "V"}, wide)
    return store(found[0], vectors.dtype), store(found[1], values.dtype)


def _xla_lu(i: Instruction, operands: list[Value]) -> Value:
    """Factors, pivots from 0, and the order of rows that they make."""
    (x,), (factors, pivots, order) = operands, i.shape.elements
    lu, exchanged, _ = getrf({}, to_working(np.asarray(x), i.operands[0].shape.dtype))
    rows = np.broadcast_to(np.arange(order.dims[-1], dtype=np.int32), order.dims).copy().reshape(-1, order.dims[-1])
    for line, places in zip(rows, exchanged.reshape(len(rows), -1) - 1, strict=True):
        for k, at in enumerate(places):
            line[[k, at]] = line[[at, k]]
    return store(lu, factors.dtype), store(exchanged - 1, pivots.dtype), rows.reshape(order.dims)


def trsm(options: dict[str, str], a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
    """The solution of op(a) x = b, or of x op(a) = b."""
    return (solve_triangle(a, b, *trsm_options(options)),)


def trsm_options(options: dict[str, str]) -> tuple[bool, bool, str, bool]:
    """`left_side`, `lower`, `transpose_a` and `unit_diagonal` of HLO's operation."""
    transpose = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}[options["trans_x"]]
    return options["side"] == "L", options["uplo"] == "L", transpose, options["diag"] == "U"


def gtsv(
    options: dict[str, str], lower: np.ndarray, diagonal: np.ndarray, upper: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, ...]:
    """A tridiagonal system by elimination with partial pivoting; the diagonals become those of U.

    The lower diagonal's last element and the upper one's are not used; pivoting's fill-in goes to the lower one.
    """
    del options
    return _gtsv(lower, diagonal, upper, b, False)


def perturbed(
    options: dict[str, str], lower: np.ndarray, diagonal: np.ndarray, upper: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, ...]:
    """A system that may be singular: a pivot whose quotients would be infinite is changed a little."""
    del options
    return (_gtsv(lower, diagonal, upper, b, True)[3],)


def _gtsv(
    lower: np.ndarray, diagonal: np.ndarray, upper: np.ndarray, b: np.ndarray, perturb: bool
) -> tuple[np.ndarray, ...]:
    n = diagonal.shape[-1]
    dl, d, du, x = (np.moveaxis(v.copy(), axis, 0) for v, axis in ((lower, -1), (diagonal, -1), (upper, -1), (b, -2)))
    # JAX gives lower diagonals whose first element is not used.
    dl = np.roll(dl, -1, axis=0) if len(dl) == n else dl
    du2 = np.zeros_like(dl)
    for k in range(n - 1):
        swap = np.abs(dl[k]) > np.abs(d[k])
        top = np.where(swap, dl[k], d[k])
        smaller = np.where(swap, d[k], dl[k])
        factor = np.where(smaller != 0, smaller / top, 0)  # both may be 0
        below, beside = np.where(swap, du[k], d[k + 1]), np.where(swap, d[k + 1], du[k])
        du2[k] = np.where(swap, du[k + 1], 0)
        du[k + 1] = np.where(swap, -factor * du[k + 1], du[k + 1])
        d[k], du[k], d[k + 1] = top, beside, below - factor * beside
        first, second = np.where(swap[..., None], x[k + 1], x[k]), np.where(swap[..., None], x[k], x[k + 1])
        x[k], x[k + 1] = first, second - factor[..., None] * first
    # An upper diagonal may have one more element, which is not used.
    used = [np.abs(v[: n - away]).max(axis=0, initial=0) for away, v in enumerate((d, du, du2))]
    info = np.finfo(d.dtype)
    change = np.maximum(np.maximum.reduce(used) * info.eps, info.smallest_normal)
    for k in reversed(range(n)):
        rest = x[k]
        for diagonal_of_u, at in ((du, k + 1), (du2, k + 2)):
            rest = rest - diagonal_of_u[k][..., None] * x[at] if at < n else rest
        x[k] = rest / (_away(d[k], rest, change) if perturb else d[k])[..., None]
    solved = np.moveaxis(x, 0, -2)
    dl, d, du = (np.moveaxis(v, 0, -1) for v in (du2, d, du))
    return dl, d, du, solved, np.where(np.isfinite(solved).all(axis=(-1, -2)), 0, 1)


def _away(pivot: np.ndarray, sides: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Pivots farther from 0 where a quotient by one would be infinite."""
    size, most = np.abs(pivot), np.abs(sides).max(axis=-1, initial=0)
    least = most * np.finfo(pivot.dtype).smallest_normal
    infinite = (size == 0) | (least > size)
    change = np.maximum(change, least)
    return np.where(infinite, pivot + np.where(pivot.real >= 0, change, -change), pivot).astype(pivot.dtype)


_ROUTINES: dict[str, Routine] = {
    "potrf": potrf,
    "getrf": getrf,
    "gees": gees,
    "gehrd": gehrd,
    "geqp3": geqp3,
    "geqrf": geqrf,
    "orgqr": orgqr,
    "ungqr": orgqr,
    "gesdd": gesdd,
    "gesvd": gesdd,
    "syevd": syevd,
    "heevd": syevd,
    "sytrd": sytrd,
    "hetrd": sytrd,
    "geev": geev,
    "trsm": trsm,
    "gtsv": gtsv,
}


def _target(routine: Routine) -> Callable[[Instruction, list[Value]], Value]:
    def run(i: Instruction, operands: list[Value]) -> Value:
        leaves = list(i.shape.leaves())
        with np.errstate(all="ignore"):
            wide = [to_working(np.asarray(x), o.shape.dtype) for x, o in zip(operands, i.operands, strict=True)]
            values = routine(options_of(i), *wide)
            results = tuple(
                store(np.broadcast_to(value, leaf.dims), leaf.dtype) for value, leaf in zip(values, leaves, strict=True)
            )
        return results if i.shape.is_tuple else results[0]

    return run


LAPACK: dict[str, Callable[[Instruction, list[Value]], Value]] = {
    f"lapack_{letter}{name}_ffi": _target(routine) for name, routine in _ROUTINES.items() for letter in "sdcz"
} | {
    **{f"lapack_{name}_ffi": _multiply_by_q for name in ("sormqr", "dormqr", "cunmqr", "zunmqr")},
    "Eigh": _xla_eigh,
    "LuDecomposition": _xla_lu,
    "ProductOfElementaryHouseholderReflectors": _target(orgqr),
    "Qr": _target(geqrf),
    "tridiagonal_solve_perturbed_ffi": _target(perturbed),
}
"""Target to function: LAPACK's, and those that JAX calls on other platforms."""
