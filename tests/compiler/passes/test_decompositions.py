"""QR factors, eigenvalues and singular values: JAX's own functions for CPUs and TPUs, as other operations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from systolith import api as sl
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.linalg.cholesky import ExpandCholesky
from systolith.compiler.passes.linalg.lapack import ExpandLapack
from systolith.compiler.passes.linalg.triangular_solve import ExpandTriangularSolve
from systolith.compiler.passes.simplify.layouts import NormaliseLayouts
from tests.compiler.machine import Array, check, error
from tests.compiler.passes.differential import transformed
from tests.examples import examples

jax: Any = pytest.importorskip("jax")
jnp = jax.numpy

DIMS = st.tuples(st.sampled_from([(), (3,), (2, 2), (0,)]), st.integers(0, 7), st.integers(0, 7)).map(
    lambda x: (*x[0], *x[1:])
)
KINDS = st.sampled_from(["any", "low rank", "graded", "zero", "huge", "tiny", "NaN", "infinite"])
BLOCKS = st.sampled_from([2, 128])


def lowered(function: Any, *arguments: Array, platform: str = "cpu") -> str:
    lowering = jax.jit(function).trace(*arguments).lower(lowering_platforms=(platform,))
    return str(lowering.compiler_ir("hlo").as_hlo_text())


def expanded(text: str, arguments: Sequence[Array], block: int = 128) -> list[Array]:
    """Values of a module without custom calls on matrices, and without operations on them."""
    passes = NormaliseLayouts(), ExpandLapack(block), ExpandCholesky(block), ExpandTriangularSolve(block)
    made = transformed(parse_hlo(text), *passes)
    assert not {"custom-call", "cholesky", "triangular-solve"} & {i.opcode for i in made.instructions()}
    return evaluate(made, *arguments, precision="highest")


def matrix(dims: tuple[int, ...], kind: str, imaginary: bool, seed: int = 0) -> Array:
    """f32 or c64 matrices of a kind; of a batch the first is any matrix."""
    rng = np.random.default_rng((*dims, seed))
    x = rng.standard_normal(dims) + (1j * rng.standard_normal(dims) if imaginary else 0)
    *_, rows, columns = dims
    rank = min(rows, columns) // 2
    first = np.indices(dims).sum(0) == 0
    if kind == "low rank":
        made = x[..., :rank] @ x[..., :rank, :] if rank else 0 * x
    elif kind in ("NaN", "infinite"):
        made = np.where(first, np.nan if kind == "NaN" else np.inf, x)
    else:
        scale = {"zero": 0.0, "huge": 1e37, "tiny": 1e-33}.get(kind, 1.0)
        made = x * (10.0 ** -np.arange(columns) if kind == "graded" else scale)
    if len(dims) > 2 and x.size:
        made[(0,) * (len(dims) - 2)] = x[(0,) * (len(dims) - 2)]
    return np.asarray(made, np.complex64 if imaginary else np.float32)


def adjoint(x: Array) -> Array:
    return np.asarray(np.swapaxes(x, -1, -2).conj())


def is_unitary(x: Array, most: float = 2e-6) -> bool:
    """Whether columns are orthogonal and of length 1."""
    wide = x.astype(np.complex128)
    return bool((np.abs(adjoint(wide) @ wide - np.eye(x.shape[-1])) <= most).all())


def near(got: Array, wanted: Array, most: float = 3e-6) -> bool:
    """Whether two matrices differ by little, measured by the largest elements of each."""
    a, b = got.astype(np.complex128), wanted.astype(np.complex128)
    size = np.abs(b).max(axis=(-1, -2), initial=0, keepdims=True)
    return bool((np.abs(a - b) <= most * size).all())


def sizes(x: Array) -> Array:
    """Of which matrices of a batch all elements are finite."""
    return np.asarray(np.isfinite(x).all(axis=(-1, -2)))


@examples(4, 8)
@given(DIMS, KINDS, st.booleans(), st.sampled_from(["reduced", "complete", "r"]), BLOCKS, st.booleans())
def test_qr(dims: tuple[int, ...], kind: str, imaginary: bool, mode: str, block: int, tpu: bool) -> None:
    """Signs are LAPACK's."""
    a = matrix(dims, kind, imaginary)
    text = lowered(lambda x: jnp.linalg.qr(x, mode=mode), a, platform="tpu" if tpu else "cpu")
    got = expanded(text, [a], block)
    fine = sizes(a)
    if mode == "r":
        q, r = np.linalg.qr(a[fine])[0], got[0]
    else:
        q, r = got
        assert is_unitary(q[fine])
        q = q[fine]
    assert near(q @ r[fine], a[fine], 3e-6)
    assert (np.tril(r[fine], -1) == 0).all()


@examples(2, 8)
@given(DIMS, KINDS, st.booleans(), st.booleans(), st.booleans())
@example((2, 2, 3, 3), "graded", True, False, False)
def test_eigenvalues(dims: tuple[int, ...], kind: str, imaginary: bool, lower: bool, tpu: bool) -> None:
    """One triangle is read; matrices with a NaN give NaN."""
    dims = (*dims[:-1], dims[-2])
    x = matrix(dims, kind, imaginary)
    with np.errstate(invalid="ignore"):
        a = np.asarray((x + adjoint(x)) * 0.5, x.dtype)
    read = np.tri(dims[-1], dtype=bool)
    given = np.where(read if lower else read.T, a, np.nan).astype(a.dtype)
    jacobi = jax.lax.linalg.EighImplementation.JACOBI if tpu else None

    def solve(x: Any) -> Any:
        return jax.lax.linalg.eigh(x, lower=lower, symmetrize_input=False, implementation=jacobi)

    v, w = expanded(lowered(solve, given, platform="tpu" if tpu else "cpu"), [given])
    fine = sizes(a)
    assert np.isnan(v[~fine]).all()
    assert np.isnan(w[~fine]).all()
    assert is_unitary(v[fine])
    a, v, w = a[fine], v[fine], w[fine]
    assert near(a.astype(complex) @ v, v * w[..., np.newaxis, :].astype(complex))
    wanted = np.linalg.eigvalsh(a.astype(np.complex128))
    assert near(w[..., np.newaxis], wanted[..., np.newaxis])
    assert (np.diff(w, axis=-1) >= 0).all()


@examples(4, 8)
@given(DIMS, KINDS, st.booleans(), st.sampled_from([True, False, None]), BLOCKS)
def test_singular_values(dims: tuple[int, ...], kind: str, imaginary: bool, full: bool | None, block: int) -> None:
    a = matrix(dims, kind, imaginary)
    got = expanded(
        lowered(lambda x: jnp.linalg.svd(x, full_matrices=bool(full), compute_uv=full is not None), a), [a], block
    )
    fine = sizes(a)
    s = got[0] if full is None else got[1]
    assert np.isnan(s[~fine]).all()
    wanted = np.linalg.svd(a[fine].astype(np.complex128), compute_uv=False)
    assert near(s[fine][..., np.newaxis], wanted[..., np.newaxis])
    assert (np.diff(s[fine], axis=-1) <= 0).all()
    assert (s[fine] >= 0).all()
    if full is not None:
        u, vt = got[0][fine], got[2][fine]
        count = s.shape[-1]
        assert is_unitary(u)
        assert is_unitary(adjoint(vt))
        made = (u[..., :count].astype(complex) * s[fine][..., np.newaxis, :]) @ vt[..., :count, :]
        assert near(made, a[fine])


@pytest.mark.parametrize("imaginary", [pytest.param(False, marks=pytest.mark.slow), True])
def test_what_a_tpu_calls(imaginary: bool) -> None:
    """Factors with pivots and the order of rows."""
    for dims in ((2, 5, 3), (4, 6), (3, 3), (3, 0)):
        a = matrix(dims, "any", imaginary)
        text = lowered(jax.lax.linalg.lu, a, platform="tpu")
        assert "LuDecomposition" in text
        for got, want in zip(expanded(text, [a], 2), jax.lax.linalg.lu(a), strict=True):
            assert error(np.abs(got), np.abs(np.asarray(want))) <= 2e-6
        for got, want in zip(evaluate(parse_hlo(text), a), jax.lax.linalg.lu(a), strict=True):
            assert error(np.abs(got), np.abs(np.asarray(want))) <= 2e-6


@examples(2, 6)
@given(st.sampled_from([(), (3,)]), st.integers(1, 6), st.integers(1, 3), BLOCKS)
def test_complex_factors_and_systems(batch: tuple[int, ...], n: int, m: int, block: int) -> None:
    a, b = matrix((*batch, n, n), "any", True), matrix((*batch, n, m), "any", True, 1)
    spd = np.asarray(a @ adjoint(a) + n * np.eye(n), np.complex64)
    (factor,) = expanded(lowered(jnp.linalg.cholesky, spd), [spd], block)
    assert near(factor @ adjoint(factor), spd)
    for trans in (0, 1, 2):
        text = lowered(lambda a, b, t=trans: jax.scipy.linalg.solve_triangular(a, b, trans=t, lower=True), factor, b)
        (x,) = expanded(text, [factor, b], block)
        turned = {0: factor, 1: np.swapaxes(factor, -1, -2), 2: adjoint(factor)}[trans]
        assert near(turned @ x, b, 1e-5)


@examples(2, 6)
@given(st.sampled_from([(), (2,), (0,)]), st.integers(1, 6), st.integers(0, 3), st.booleans(), BLOCKS)
def test_products_with_reflectors(batch: tuple[int, ...], n: int, more: int, imaginary: bool, block: int) -> None:
    """From both sides, as they are and adjoint; also of no reflector."""
    a, c = matrix((*batch, n + more, n), "any", imaginary), matrix((*batch, n + more, 2), "any", imaginary)
    packed, scales = (np.array(x) for x in jax._src.lax.linalg.geqrf(a))
    for left, transpose, count in ((True, False, n), (False, False, n), (False, True, n), (True, True, 0)):
        x = c if left else adjoint(c)
        taken = [packed[..., :count], scales[..., :count], x]

        def multiply(*given: Any, left: bool = left, transpose: bool = transpose) -> Any:
            return jax.lax.linalg.ormqr(*given, left=left, transpose=transpose)

        text = lowered(multiply, *taken)
        wanted = np.asarray(jax.jit(multiply)(*taken)) if count else x
        for got in (expanded(text, taken, block)[0], evaluate(parse_hlo(text), *taken, precision="highest")[0]):
            assert near(got, wanted)


@examples(3, 6)
@given(st.sampled_from([(), (2,)]), st.integers(1, 7), st.integers(1, 3), st.booleans())
def test_tridiagonal_systems(batch: tuple[int, ...], n: int, m: int, imaginary: bool) -> None:
    """Rows are exchanged where the element below is larger."""
    lower, diagonal, upper = (np.array(matrix((*batch, n, 1), "any", imaginary, k)[..., 0]) for k in range(3))
    diagonal[..., ::2] *= 0.01
    b = matrix((*batch, n, m), "any", imaginary, 3)
    (x,) = expanded(lowered(jax.lax.linalg.tridiagonal_solve, lower, diagonal, upper, b), [lower, diagonal, upper, b])
    whole = np.zeros((*batch, n, n), np.complex128)
    at = np.arange(n)
    whole[..., at, at] = diagonal
    whole[..., at[1:], at[:-1]], whole[..., at[:-1], at[1:]] = lower[..., 1:], upper[..., :-1]
    size = np.abs(whole).max() * np.abs(x).max()
    assert np.abs(whole @ x - b).max() <= 2e-6 * max(size, float(np.abs(b).max()))


@examples(3, 12)
@given(
    st.sampled_from([(), (2,), (0,)]), st.integers(1, 6), st.integers(1, 3), st.booleans(),
    st.sampled_from(["any", "singular", "zero", "tiny"]),
)  # fmt: skip
@example((2,), 4, 2, False, "singular")
def test_tridiagonal_systems_that_are_perturbed(
    batch: tuple[int, ...], n: int, m: int, imaginary: bool, kind: str
) -> None:
    """Solutions of singular systems are finite, and have the direction of JAX's."""
    size = {"zero": 0, "tiny": 1e-30}.get(kind, 1)
    lower, diagonal, upper = (np.array(matrix((*batch, n, 1), "any", imaginary, k)[..., 0]) * size for k in range(3))
    if kind == "singular":
        lower[..., 1:] = upper[..., :-1] = 0
        diagonal[..., n // 2] = 0
    b = matrix((*batch, n, m), "any", imaginary, 3)
    solve = jax.jit(partial(jax.lax.linalg.tridiagonal_solve, perturb_singular=True))
    arguments = [lower.astype(b.dtype), diagonal.astype(b.dtype), upper.astype(b.dtype), b]
    text = lowered(solve, *arguments)
    want = np.asarray(solve(*arguments))
    for (x,) in (expanded(text, arguments), evaluate(parse_hlo(text), *arguments)):
        assert np.isfinite(x).all()
        if kind == "zero":  # by how much pivots are changed decides
            continue
        largest = [np.abs(v).max(axis=-2, initial=0, keepdims=True) for v in (x, want)]
        a, c = (v / np.where(y > 0, y, 1) for v, y in zip((x, want), largest, strict=True))
        assert error(a, c) <= 1e-4
        if kind == "any":
            assert error(x, want) <= 1e-4


@examples(2, 12)
@given(
    st.sampled_from([(), (2,), (0,)]),
    st.integers(1, 6),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["any", "zero", "tiny"]),
)
def test_tridiagonal_forms(batch: tuple[int, ...], n: int, lower: bool, imaginary: bool, kind: str) -> None:
    """Packed as LAPACK packs them; the other triangle and imaginary parts of the diagonal are not read."""
    x = matrix((*batch, n, n), kind, imaginary)

    def form(x: Any) -> Any:
        return jax.lax.linalg.tridiagonal(x, lower=lower)

    text = lowered(form, x)
    for got in (expanded(text, [x]), evaluate(parse_hlo(text), x)):
        for result, wanted in zip(got, jax.jit(form)(x), strict=True):
            assert error(result, np.asarray(wanted)) <= 1e-5


@pytest.mark.parametrize("imaginary", [pytest.param(False, marks=pytest.mark.slow), True])
def test_double_precision(imaginary: bool) -> None:
    """Sweeps go on until what is left is the rounding of the type."""
    for dims in ((2, 5, 3), (4, 4)):
        x = matrix(dims, "any", imaginary).astype(np.complex128 if imaginary else np.float64)
        with jax.enable_x64(True):
            qr, svd = (lowered(f, x) for f in (jnp.linalg.qr, lambda x: jnp.linalg.svd(x, full_matrices=False)))
            gram = np.asarray(adjoint(x) @ x)
            eigh = lowered(jnp.linalg.eigh, gram)
        q, r = expanded(qr, [x])
        assert q.dtype == x.dtype
        assert is_unitary(q, 1e-14)
        assert near(q @ r, x, 1e-14)
        u, s, vt = expanded(svd, [x])
        assert is_unitary(u, 1e-14)
        assert near((u * s[..., np.newaxis, :]) @ vt, x, 1e-14)
        w, v = expanded(eigh, [gram])
        assert is_unitary(v, 1e-14)
        assert near(gram @ v, v * w[..., np.newaxis, :], 1e-14)


@pytest.mark.slow
def test_double_precision_on_the_chip() -> None:
    x = matrix((3, 3), "any", False).astype(np.float64)
    with jax.enable_x64(True):
        client = sl.Client("tpu_v3")
        q, r = sl.jit(jnp.linalg.qr, client)(x)
        w, v = sl.jit(jnp.linalg.eigh, client)(x + x.T)
    assert near(q @ r, x, 1e-14)
    assert near((x + x.T) @ v, v * w, 1e-13)


@pytest.mark.parametrize(
    ("n", "imaginary"),
    [(2, False), pytest.param(3, False, marks=pytest.mark.slow), pytest.param(3, True, marks=pytest.mark.slow)],
)
def test_on_the_chip(n: int, imaginary: bool) -> None:
    """As the evaluator has what they are expanded to, bit races included."""
    square = matrix((2, n, n), "any", imaginary)
    for function, a in (
        (lambda x: jnp.linalg.qr(x), matrix((2, n + 2, n), "any", imaginary)),
        (lambda x: jnp.linalg.eigh(x)[0], np.asarray(square + adjoint(square))),
        (lambda x: jnp.linalg.svd(x, compute_uv=False), matrix((2, n + 1), "any", imaginary)),
        (lambda x: jax.lax.linalg.tridiagonal_solve(x[0], x[1], x[2], x[3:].T), matrix((4, 3), "any", imaginary)),
        (lambda x: jax.lax.linalg.tridiagonal(x, lower=True), matrix((2, 3, 3), "any", imaginary)),
        (lambda x: jax.lax.linalg.ormqr(x, x[0, :2], x), matrix((4, 2), "any", imaginary)),
    ):
        check(lowered(function, a), [a], most=3e-6)


FUNCTIONS: dict[str, Any] = {
    "cholesky": jnp.linalg.cholesky,
    "cond": jnp.linalg.cond,
    "det": jnp.linalg.det,
    "eigvalsh": jnp.linalg.eigvalsh,
    "inv": jnp.linalg.inv,
    "lstsq": lambda x: jnp.linalg.lstsq(x[0], x[1])[0],
    "matrix_rank": jnp.linalg.matrix_rank,
    "norm": lambda x: [jnp.linalg.norm(x, ord=k, axis=(-2, -1)) for k in (2, -2, "nuc", "fro", 1)],
    "pinv": jnp.linalg.pinv,
    "polar": lambda x: jax.scipy.linalg.polar(x[0]),
    "slogdet": jnp.linalg.slogdet,
    "solve": lambda x: jnp.linalg.solve(x, x * x),
}


@pytest.mark.slow
@pytest.mark.parametrize("imaginary", [False, True])
@pytest.mark.parametrize("name", [*FUNCTIONS])
def test_functions_of_jax(name: str, imaginary: bool) -> None:
    """As XLA's CPU backend has them, with LAPACK."""
    x = matrix((2, 5, 5), "any", imaginary)
    x = np.asarray(x @ adjoint(x) + np.eye(5), x.dtype)
    got, want = (jax.tree.leaves(run(x)) for run in (sl.jit(FUNCTIONS[name], sl.Client("tiny")), FUNCTIONS[name]))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * float(np.abs(b).max()))


@pytest.mark.slow
def test_larger_matrices() -> None:
    """Several blocks of a QR factor, and many rotations."""
    x = matrix((96, 96), "any", False)
    client = sl.Client("small")
    q, r = sl.jit(jnp.linalg.qr, client)(matrix((150, 140), "any", False))
    assert is_unitary(q)
    assert near(q @ r, matrix((150, 140), "any", False))
    w, v = sl.jit(jnp.linalg.eigh, client)(x + x.T)
    assert is_unitary(v)
    assert near((x + x.T).astype(np.float64) @ v, v * w.astype(np.float64))
    u, s, vt = sl.jit(jnp.linalg.svd, client)(x)
    assert is_unitary(u)
    assert is_unitary(vt)
    assert near((u * s.astype(np.float64)) @ vt, x)


def test_vectors_of_a_matrix_without_columns_are_the_units() -> None:
    text = (
        "HloModule m\nENTRY e {\n x = f32[3,0] parameter(0)\n"
        " ROOT r = (f32[3,0], f32[0], f32[3,3], f32[0,0], s32[]) custom-call(x),"
        f' custom_call_target="lapack_sgesdd_ffi", backend_config={{mode = {ord("A")} : ui8}}\n}}\n'
    )
    found = expanded(text, [np.zeros((3, 0), np.float32)])
    np.testing.assert_array_equal(found[2], np.eye(3))
    assert found[4] == 0
