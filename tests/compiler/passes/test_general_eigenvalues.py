"""Hessenberg and Schur forms, eigenvectors of matrices of any kind, QR factors with pivots: JAX's calls of LAPACK."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from systolith import api as sl
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from tests.compiler.machine import Array
from tests.compiler.passes.test_decompositions import adjoint, expanded, is_unitary, lowered, matrix, near, sizes
from tests.examples import examples
from tests.runtime.command import systolith

jax: Any = pytest.importorskip("jax")
jnp = jax.numpy

SPECIAL = ["Jordan", "cycle", "companion", "symmetric", "triangular", "blocks", "skew", "nilpotent", "badly scaled"]
KINDS = st.sampled_from(["any", "low rank", "zero", "huge", "tiny", "NaN", "infinite", *SPECIAL])
DIMS = st.tuples(st.sampled_from([(), (3,), (2, 2), (0,)]), st.integers(1, 7)).map(lambda x: (*x[0], x[1], x[1]))


def square(dims: tuple[int, ...], kind: str, imaginary: bool) -> Array:
    """Matrices of a kind, the first of a batch any; those that QR iterations find hard are among them."""
    x, n = matrix(dims, kind if kind not in SPECIAL else "any", imaginary), dims[-1]
    if kind not in SPECIAL:
        return x
    first = np.arange(n)[:, np.newaxis] == 0
    kinds: dict[str, Callable[[], Array]] = {
        "Jordan": lambda: x[..., :1, :1] * np.eye(n) + np.eye(n, k=1),
        "cycle": lambda: np.broadcast_to(np.roll(np.eye(n), 1, axis=0), dims),
        "companion": lambda: np.where(first, x, np.eye(n, k=-1)),
        "symmetric": lambda: x + adjoint(x),
        "triangular": lambda: np.triu(x),
        "blocks": lambda: x * (np.arange(n) // 2 >= np.arange(n)[:, np.newaxis] // 2),
        "skew": lambda: x - adjoint(x),
        "badly scaled": lambda: x * 10.0 ** (np.arange(n)[:, np.newaxis] - np.arange(n)),
        "nilpotent": lambda: np.broadcast_to(np.eye(n, k=-1), dims),
    }
    made = kinds[kind]()
    return (
        np.where(np.indices(dims)[:-2].sum(0) == 0, x, made).astype(x.dtype) if len(dims) > 2 else made.astype(x.dtype)
    )


@examples(2, 10)
@given(DIMS, KINDS, st.booleans())
def test_hessenberg_forms(dims: tuple[int, ...], kind: str, imaginary: bool) -> None:
    """Packed with its reflectors as LAPACK packs it."""
    x = square(dims, kind, imaginary)
    text = lowered(jax.lax.linalg.hessenberg, x)
    fine = sizes(x)
    if kind == "any" and x.size:
        for got, want in zip(expanded(text, [x], 2), evaluate(parse_hlo(text), x), strict=True):
            np.testing.assert_allclose(got, want, atol=1e-5)
    h, q = expanded(lowered(lambda x: jax.scipy.linalg.hessenberg(x, calc_q=True), x), [x], 2)
    h, q = h[fine], q[fine]
    assert is_unitary(q)
    assert near(q @ h @ adjoint(q), x[fine])
    assert (np.tril(h, -2) == 0).all()


def is_schur(form: Array) -> bool:
    """Triangular, but for blocks of two rows with equal diagonals whose other elements differ in sign."""
    if np.iscomplexobj(form):
        return bool((np.tril(form, -1) == 0).all())
    below, above, d = (np.diagonal(form, k, -2, -1) for k in (-1, 1, 0))
    pairs = below != 0
    alone = not (pairs[..., 1:] & pairs[..., :-1]).any()
    standard = (~pairs | ((np.sign(below) != np.sign(above)) & (d[..., 1:] == d[..., :-1]))).all()
    return bool((np.tril(form, -2) == 0).all() and alone and standard)


@examples(3, 25)
@given(DIMS, KINDS, st.booleans())
@example((6, 6), "cycle", False)
@example((7, 7), "nilpotent", True)
@example((2, 2, 5, 5), "blocks", False)
def test_schur_forms(dims: tuple[int, ...], kind: str, imaginary: bool) -> None:
    """Matrices with a NaN give NaN."""
    x = square(dims, kind, imaginary)
    t, q = expanded(lowered(jax.lax.linalg.schur, x), [x])
    fine = sizes(x)
    assert np.isnan(t[~fine]).all()
    assert np.isnan(q[~fine]).all()
    t, q = t[fine], q[fine]
    assert is_unitary(q, 4e-6)
    assert near(q @ t @ adjoint(q), x[fine], 6e-6)
    assert is_schur(t)


@examples(3, 25)
@given(DIMS, KINDS, st.booleans(), st.sampled_from([(True, True), (True, False), (False, True), (False, False)]))
@example((5, 5), "Jordan", False, (True, True))
@example((3, 6, 6), "any", False, (True, True))
@example((6, 6), "companion", False, (True, True))
def test_eigenvectors(dims: tuple[int, ...], kind: str, imaginary: bool, sides: tuple[bool, bool]) -> None:
    """Values of real matrices come in exact pairs; vectors of real values are real, and all are of length 1."""
    x = square(dims, kind, imaginary)

    def solve(x: Any) -> Any:
        return jax.lax.linalg.eig(x, compute_left_eigenvectors=sides[0], compute_right_eigenvectors=sides[1])

    w, *vectors = expanded(lowered(solve, x), [x])
    fine = sizes(x)
    assert np.isnan(w[~fine]).all()
    w, a = w[fine], x[fine].astype(np.complex128)
    size = np.abs(a).max(axis=(-1, -2), keepdims=True, initial=0)
    if not imaginary:
        assert (np.sort_complex(w) == np.sort_complex(w.conj())).all()
    if kind in ("any", "huge", "tiny", "cycle", "symmetric", "skew", "badly scaled"):  # others change by rounding
        wanted = np.linalg.eigvals(a)
        size = np.abs(wanted).max(-1, keepdims=True, initial=0)[..., np.newaxis] if kind == "badly scaled" else size
        far = np.abs(w[..., :, np.newaxis] - wanted[..., np.newaxis, :])
        assert (far.min(-1) <= 2e-4 * size[..., 0]).all()
        assert (far.min(-2) <= 2e-4 * size[..., 0]).all()
    left, right = ([v[fine] for v in vectors] * 2)[:2] if vectors else (None, None)
    for wanted_side, v in zip(sides, (left, right), strict=True):
        if not wanted_side:
            continue
        assert v is not None
        np.testing.assert_allclose(np.linalg.norm(v, axis=-2), 1, atol=1e-5)
        if not imaginary:
            assert (v.imag[np.broadcast_to(w[..., np.newaxis, :].imag == 0, v.shape)] == 0).all()
    if kind == "badly scaled":
        return
    most = 1e-5 * size * dims[-1] ** 0.5
    if sides[0]:
        assert left is not None
        assert (np.abs(adjoint(left) @ a - w[..., :, np.newaxis] * adjoint(left)) <= most).all()
    if sides[1]:
        assert right is not None
        assert (np.abs(a @ right - right * w[..., np.newaxis, :]) <= most).all()


@examples(2, 12)
@given(
    st.sampled_from([(), (3,), (0,)]), st.integers(1, 6), st.integers(1, 6),
    st.sampled_from(["any", "low rank", "graded", "huge", "tiny", "NaN"]), st.booleans(), st.integers(0, 63),
)  # fmt: skip
def test_qr_with_pivots(
    batch: tuple[int, ...], rows: int, columns: int, kind: str, imaginary: bool, fixed: int
) -> None:
    """As LAPACK's; columns that are given an order come first."""
    a = matrix((*batch, rows, columns), kind, imaginary)
    given = np.broadcast_to([fixed >> k & 1 for k in range(columns)], (*batch, columns)).astype(np.int32)
    text = lowered(jax._src.lax.linalg.geqp3, a, given)
    fine = sizes(a)
    for packed, order, scales in (expanded(text, [a, given]), evaluate(parse_hlo(text), a, given)):
        assert (np.sort(order[fine]) == np.arange(1, columns + 1)).all()
        first = given[fine].sum(-1)
        moved = np.take_along_axis(given[fine], order[fine] - 1, -1)
        assert (moved == (np.arange(columns) < first[..., np.newaxis])).all()
        wide = np.zeros((*packed[fine].shape[:-2], rows, rows), a.dtype)
        count = min(rows, columns)
        wide[..., :count] = packed[fine][..., :count]
        q = np.asarray(jax.lax.linalg.householder_product(wide, scales[fine]))
        assert is_unitary(q, 4e-6)
        r = np.triu(packed[fine])
        columns_of_a = np.take_along_axis(a[fine], (order[fine] - 1)[..., np.newaxis, :], -1)
        assert near(q @ r, columns_of_a, 5e-6)
        if not fixed:
            d = np.abs(np.diagonal(r, 0, -2, -1))
            assert (d[..., 1:] <= d[..., :-1] * 1.0001).all()


@pytest.mark.parametrize("n", [2, 3])
def test_signs_and_phases_of_eigenvectors_are_those_of_the_evaluator(n: int) -> None:
    x = np.random.default_rng(3).standard_normal((n, n)).astype(np.float32)
    text = lowered(jnp.linalg.eig, x)
    for got, want in zip(expanded(text, [x]), evaluate(parse_hlo(text), x), strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5)


@pytest.mark.slow
def test_eigenvectors_by_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Signs and phases are LAPACK's, so that values of the chip and of the evaluator agree."""
    x = np.random.default_rng(3).standard_normal((3, 3)).astype(np.float32)
    module, values = tmp_path / "eig.hlo", tmp_path / "x.npz"
    module.write_text(lowered(jnp.linalg.eig, x))
    np.savez(values, arg0=x)
    ran = systolith(capsys, "run", module, "--args", values, "--chip", "tiny", "--check", "--hostile")
    assert ran.code == 0, ran.err


FUNCTIONS: dict[str, Any] = {
    "hessenberg": jax.scipy.linalg.hessenberg,
    "pivots": lambda x: jax.scipy.linalg.qr(x, pivoting=True),
}
LONGER: dict[str, Any] = {
    "schur": jax.scipy.linalg.schur,
    "eigh_tridiagonal": lambda x: jnp.abs(jax.scipy.linalg.eigh_tridiagonal(x[0, 0].real, x[0, 1, 1:].real)[1]),
    "complex schur": lambda x: jax.scipy.linalg.schur(x, output="complex"),
    "eigvals": lambda x: jnp.sort(jnp.abs(jnp.linalg.eigvals(x))),
    "roots": lambda x: jnp.sort(jnp.abs(jnp.roots(x[0, 0], strip_zeros=False))),
    "sqrtm": lambda x: jax.scipy.linalg.sqrtm(x[0]),
}


def check_function(function: Any, imaginary: bool) -> None:
    """As XLA's CPU backend has it, with LAPACK, but for phases of complex Schur vectors."""
    x = matrix((2, 4, 4), "any", imaginary)
    got, want = (jax.tree.leaves(run(x)) for run in (sl.jit(function, sl.Client("tiny")), function))
    for a, b in ((np.abs(a), np.abs(b)) if np.iscomplexobj(b) else (a, b) for a, b in zip(got, want, strict=True)):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * float(np.abs(b).max()))


@pytest.mark.parametrize("name", [*FUNCTIONS])
def test_forms_on_the_chip(name: str) -> None:
    check_function(FUNCTIONS[name], False)


@pytest.mark.slow
@pytest.mark.parametrize("imaginary", [False, True])
@pytest.mark.parametrize("name", [*FUNCTIONS, *LONGER])
def test_functions_on_the_chip(name: str, imaginary: bool) -> None:
    check_function((FUNCTIONS | LONGER)[name], imaginary)


@pytest.mark.slow
def test_eigenvectors_of_larger_matrices() -> None:
    x = matrix((48, 48), "any", False)
    w, v = sl.jit(jnp.linalg.eig, sl.Client("small"))(x)
    assert near(x @ np.asarray(v), np.asarray(v) * np.asarray(w), 1e-5)
    wanted = np.linalg.eigvals(x.astype(np.float64))
    assert (np.abs(np.asarray(w)[:, np.newaxis] - wanted).min(0) <= 1e-4).all()


def test_what_is_sorted_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The call does not say by what eigenvalues are to be sorted."""
    text = lowered(jax.scipy.linalg.schur, np.eye(3, dtype=np.float32))
    assert "sort = 78" in text
    (module := tmp_path / "schur.hlo").write_text(text.replace("sort = 78", "sort = 83"))
    ran = systolith(capsys, "compile", module, "--chip", "tiny", "-o", tmp_path / "schur.slb")
    assert ran.code == 2
    assert "gees" in ran.err
    with pytest.raises(HloError, match="gees with eigenvalues in an order"):
        evaluate(parse_hlo(module.read_text()), np.eye(3, dtype=np.float32))
