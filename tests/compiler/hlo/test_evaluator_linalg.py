"""Decompositions: complex ones and failures against XLA, and LAPACK's calls by the equations that define them."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo import HloError, evaluate, parse_hlo, verify
from systolith.isa.dtypes import DTYPES
from tests.compiler.hlo.compare import Array, assert_matches_xla
from tests.examples import one_in

jax: Any = pytest.importorskip("jax")

TYPES = {"s": "f32", "d": "f64", "c": "c64", "z": "c128"}
BOUND = {"f32": 2e-5, "f64": 1e-13, "c64": 2e-5, "c128": 1e-13}


def matrices(name: str, *dims: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(dims) + (1j * rng.standard_normal(dims) if name[0] == "c" else 0)
    return x.astype(DTYPES[name].stored)


def adjoint(x: Array) -> Array:
    return np.swapaxes(x, -1, -2).conj()


def shape(x: Array, names: dict[str, str]) -> str:
    return f"{names[x.dtype.name]}[{','.join(map(str, x.shape))}]"


NAMES = {t.stored.name: n for n, t in DTYPES.items()}


def call(target: str, result: str, options: str, *arrays: Array) -> list[Array]:
    parameters = "\n".join(f"  p{n} = {shape(x, NAMES)} parameter({n})" for n, x in enumerate(arrays))
    operands = ", ".join(f"p{n}" for n in range(len(arrays)))
    text = f"""HloModule m
ENTRY e {{
{parameters}
  ROOT r = {result} custom-call({operands}), custom_call_target="lapack_{target}_ffi",
    api_version=API_VERSION_TYPED_FFI, backend_config={{{options}}}
}}"""
    return evaluate(parse_hlo(text), *arrays)


def close(actual: Array, expected: Array, name: str, scale: float = 10) -> None:
    np.testing.assert_allclose(actual, expected, atol=BOUND[name] * scale)


def option(**letters: str) -> str:
    return ", ".join(f"{key} = {ord(value)} : ui8" for key, value in letters.items())


@pytest.mark.parametrize("name", ["c64", "c128", "f64"])
@pytest.mark.parametrize("lower", ["true", "false"])
def test_cholesky_that_fails_is_nan(name: str, lower: str) -> None:
    a = matrices(name, 3, 4, 4)
    a = (a @ adjoint(a) + 4 * np.eye(4)).astype(a.dtype)
    a[1, 2, 2] = -5
    text = (
        f"HloModule m\nENTRY e {{ a = {name}[3,4,4] parameter(0) ROOT c = {name}[3,4,4] cholesky(a), lower={lower} }}"
    )
    assert_matches_xla(text, a)


@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize("left", ["true", "false"])
def test_triangular_solve_of_complex_numbers(left: str, transpose: str) -> None:
    a, b = matrices("c64", 2, 5, 5) + 4 * np.eye(5, dtype=np.complex64), matrices("c64", 2, 5, 5, seed=1)
    for lower in ("true", "false"):
        for unit in ("true", "false"):
            text = f"""HloModule m
ENTRY e {{ a = c64[2,5,5] parameter(0) b = c64[2,5,5] parameter(1) ROOT x = c64[2,5,5] triangular-solve(a, b),
  left_side={left}, lower={lower}, unit_diagonal={unit}, transpose_a={transpose} }}"""
            assert_matches_xla(text, a, b, tolerance=1e-4)


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_potrf(letter: str, uplo: str) -> None:
    """The other triangle stays as it was; `info` counts the minors that are fine, and one."""
    name = TYPES[letter]
    a = matrices(name, 2, 4, 4)
    a = (a @ adjoint(a) + 4 * np.eye(4)).astype(a.dtype)
    a[1, 2, 2] = -5
    factor, info = call(f"{letter}potrf", f"({name}[2,4,4], s32[2])", option(uplo=uplo), a)
    assert info.tolist() == [0, 3]
    half = np.tril(factor[0]) if uplo == "L" else adjoint(np.triu(factor[0]))
    close(half @ adjoint(half), a[0], name)
    rest = np.triu_indices(4, 1) if uplo == "L" else np.tril_indices(4, -1)
    np.testing.assert_array_equal(factor[0][rest], a[0][rest])


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("dims", [(5, 5), (3, 5), (5, 3)])
def test_getrf(letter: str, dims: tuple[int, int]) -> None:
    name, (rows, columns) = TYPES[letter], dims
    a, least = matrices(name, *dims), min(dims)
    lu, pivots, info = call(f"{letter}getrf", f"({name}[{rows},{columns}], s32[{least}], s32[])", "", a)
    assert int(info) == 0
    expected = a.copy()
    for k, pivot in enumerate(pivots):
        expected[[k, pivot - 1]] = expected[[pivot - 1, k]]
    lower = np.tril(lu, -1)[:, :least] + np.eye(rows, least, dtype=lu.dtype)
    close(lower @ np.triu(lu)[:least], expected, name)
    assert np.abs(lower).max() <= 1.5  # |re| + |im| is at most 1
    _, _, singular = call(f"{letter}getrf", f"({name}[2,2], s32[2], s32[])", "", np.ones((2, 2), a.dtype))
    assert int(singular) == 2


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("dims", [(5, 3), (3, 3), (3, 5)])
def test_geqrf_and_orgqr(letter: str, dims: tuple[int, int]) -> None:
    name, (rows, columns) = TYPES[letter], dims
    a, least = matrices(name, 2, *dims), min(dims)
    packed, scales = call(f"{letter}geqrf", f"({name}[2,{rows},{columns}], {name}[2,{least}])", "", a)
    product = f"{letter}{'orgqr' if letter in 'sd' else 'ungqr'}"
    (q,) = call(product, f"{name}[2,{rows},{least}]", "", np.ascontiguousarray(packed[..., :least]), scales)
    close(adjoint(q) @ q, np.broadcast_to(np.eye(least), (2, least, least)), name)
    close(q @ np.triu(packed)[:, :least], a, name)


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("mode", ["A", "S", "N"])
def test_gesdd(letter: str, mode: str) -> None:
    name, real = TYPES[letter], {"s": "f32", "c": "f32"}.get(letter, "f64")
    a = matrices(name, 4, 3)
    inner = {"A": (4, 3), "S": (3, 3), "N": (1, 1)}[mode]
    result = (
        f"({name}[4,3], {real}[3], {name}[{4 if mode != 'N' else 1},{inner[0]}], {name}[{inner[1]},{inner[1]}], s32[])"
    )
    _, values, u, vt, info = call(f"{letter}gesdd", result, option(mode=mode), a)
    assert int(info) == 0
    close(np.sum(values**2), np.sum(np.abs(a) ** 2), name, 100)
    if mode != "N":
        close((u[:, :3] * values) @ vt, a, name)
        close(adjoint(u) @ u, np.eye(inner[0]), name)


@pytest.mark.parametrize("letter", TYPES)
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_syevd_reads_one_triangle(letter: str, uplo: str) -> None:
    name, real = TYPES[letter], {"s": "f32", "c": "f32"}.get(letter, "f64")
    a = matrices(name, 2, 4, 4)
    a[..., range(4), range(4)] = a[..., range(4), range(4)].real
    half = np.tril(a, -1) if uplo == "L" else adjoint(np.triu(a, 1))
    full = half + adjoint(half) + np.eye(4) * a
    target = f"{letter}{'syevd' if letter in 'sd' else 'heevd'}"
    vectors, values, info = call(target, f"({name}[2,4,4], {real}[2,4], s32[2])", option(mode="V", uplo=uplo), a)
    assert info.tolist() == [0, 0]
    close(full @ vectors, vectors * values[:, np.newaxis], name)
    assert (np.diff(values) >= 0).all()


@pytest.mark.parametrize("letter", TYPES)
def test_geev(letter: str) -> None:
    name, is_real = TYPES[letter], letter in "sd"
    wide = {"f32": "c64", "f64": "c128"}.get(name, name)
    a = matrices(name, 5, 5)
    parts = f"{name}[5], {name}[5]" if is_real else f"{name}[5]"
    wanted = option(compute_left="V", compute_right="V")
    *values, left, right, info = call(f"{letter}geev", f"({parts}, {wide}[5,5], {wide}[5,5], s32[])", wanted, a)
    w: Any = values[0] + 1j * values[1] if is_real else values[0]
    assert int(info) == 0
    close(a @ right, right * w, name)
    close(adjoint(left) @ a, w[:, np.newaxis] * adjoint(left), name)
    for vectors in (left, right):
        close(np.linalg.norm(vectors, axis=0), np.ones(5), name)
    bad = np.full_like(a, np.nan)
    *_, failed = call(f"{letter}geev", f"({parts}, {wide}[5,5], {wide}[5,5], s32[])", wanted, bad)
    assert int(failed) != 0


@pytest.mark.parametrize(
    ("name", "dims"), one_in(2, dict.fromkeys(("f32", "c64"), ((0, 3, 3), (1, 1), (4, 4), (2, 5, 5))))
)
def test_forms_are_those_of_jax(dims: tuple[int, ...], name: str) -> None:
    """Order, signs and phases included."""
    lax: Any = jax.lax.linalg
    pivoted = partial(jax.scipy.linalg.qr, pivoting=True)
    x = matrices(name, *dims)
    for function in (lax.eig, lax.schur, lax.hessenberg, pivoted):
        text = jax.jit(function).lower(x).compiler_ir("hlo").as_hlo_text()
        for got, want in zip(evaluate(parse_hlo(text), x), jax.tree.leaves(function(x)), strict=True):
            close(got, np.asarray(want), name, 1)


@pytest.mark.parametrize("side", ["L", "R"])
@pytest.mark.parametrize("trans_x", ["N", "T", "C"])
def test_trsm(side: str, trans_x: str) -> None:
    a, b = matrices("c128", 3, 3), matrices("c128", 3, 3, seed=1)
    options = option(diag="U", side=side, trans_x=trans_x, uplo="L")
    (x,) = call("ztrsm", "c128[3,3]", options, a, b)
    triangle = np.tril(a, -1) + np.eye(3)
    op = {"N": triangle, "T": triangle.T, "C": adjoint(triangle)}[trans_x]
    close(op @ x if side == "L" else x @ op, b, "c128")


def test_gtsv_pivots() -> None:
    dl, d, du = np.array([0, 5, 1, 4.0]), np.array([1e-9, 1, 7, 2.0]), np.array([3, 2, 1, 0.0])
    b = matrices("f64", 4, 2)
    full = np.diag(d) + np.diag(dl[1:], -1) + np.diag(du[:-1], 1)
    result = "(f64[4], f64[4], f64[4], f64[4,2], s32[])"
    *_, x, info = call("dgtsv", result, "", dl, d, du, b)
    assert int(info) == 0
    np.testing.assert_allclose(full @ x, b, atol=1e-12)


def test_other_routines_are_refused_by_name() -> None:
    with pytest.raises(HloError, match="no custom-call target 'lapack_strsyl_ffi' is registered"):
        call("strsyl", "f32[2,2]", "", np.eye(2, dtype=np.float32))


@given(
    st.sampled_from(["FFT", "IFFT", "RFFT", "IRFFT"]), st.lists(st.integers(0, 2), min_size=1, max_size=4), st.data()
)
def test_transforms_of_no_elements(kind: str, dims: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, min(3, len(dims))))
    dims[data.draw(st.integers(0, len(dims) - 1))] = 0
    lengths = dims[-count:]
    if kind == "IRFFT":
        lengths[-1] = max(0, 2 * (dims[-1] - 1))
    result = [*dims[:-1], lengths[-1] // 2 + (lengths[-1] > 0) if kind == "RFFT" else lengths[-1]]
    source, target = ("f32" if kind == "RFFT" else "c64"), ("f32" if kind == "IRFFT" else "c64")
    text = f"""HloModule m
ENTRY e {{
  x = {source}{dims} parameter(0)
  ROOT y = {target}{result} fft(x), fft_type={kind}, fft_length={{{",".join(map(str, lengths))}}}
}}"""
    verify(module := parse_hlo(text))
    (found,) = evaluate(module, np.zeros(dims, DTYPES[source].stored))
    assert (list(found.shape), found.dtype) == (result, DTYPES[target].stored)
    assert not found.any()
