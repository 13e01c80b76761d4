"""JAX's own functions of matrices, lowered for a CPU, as operations of HLO."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.linalg.lapack import ExpandLapack
from systolith.compiler.passes.linalg.triangular_solve import ExpandTriangularSolve
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import Array, check, error
from tests.compiler.passes.differential import transformed
from tests.compiler.passes.test_triangles import Options, positive, triangular
from tests.examples import examples
from tests.runtime.command import systolith

jax: Any = pytest.importorskip("jax")


def potrf_text(batch: tuple[int, ...], n: int, uplo: str) -> str:
    shape, info = f"f32[{','.join(map(str, (*batch, n, n)))}]", f"s32[{','.join(map(str, batch))}]"
    return (
        f"HloModule m\nENTRY e {{\n a = {shape} parameter(0)\n ROOT r = ({shape}, {info}) custom-call(a),"
        ' custom_call_target="lapack_spotrf_ffi", api_version=API_VERSION_TYPED_FFI,'
        f" backend_config={{uplo = {ord(uplo)} : ui8}}\n}}\n"
    )


@examples(5, 30)
@given(st.sampled_from([(), (3,), (2, 2)]), st.integers(0, 7), st.sampled_from("LU"), st.integers(0, 7), st.booleans())
def test_factors_and_the_minor_that_fails(batch: tuple[int, ...], n: int, uplo: str, at: int, zero: bool) -> None:
    """One matrix of the batch is not positive definite, from a minor on; the other triangle stays."""
    text = potrf_text(batch, n, uplo)
    a = np.nan_to_num(positive("f32", batch, n, uplo == "L", at), nan=9)
    if at < n:
        a.reshape(-1, n, n)[0, at, at] = 0 if zero and at == 0 else -3
    for block in (3, 128):
        made = transformed(parse_hlo(text), ExpandLapack(block))
        assert "custom-call" not in {i.opcode for i in made.instructions()}
        for got, want in zip(evaluate(made, a), evaluate(parse_hlo(text), a), strict=True):
            assert error(got, want) <= 1e-5


def lowered(function: Any, arguments: list[Array]) -> str:
    return str(jax.jit(function).lower(*arguments).compiler_ir("hlo").as_hlo_text())


@pytest.mark.parametrize("trans", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_what_jax_lowers_for_a_cpu_on_the_chip(trans: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A factor and systems that JAX's own LAPACK solves too."""
    options: Options = (True, True, False, "NO_TRANSPOSE")
    a, b = triangular("f32", (2,), 5, 3, options, 0)
    spd = np.nan_to_num(positive("f32", (2,), 5, True, 0))
    spd[1, 3, 3] = -2

    def solve(a: Any, b: Any) -> Any:
        return jax.scipy.linalg.solve_triangular(a, b, trans=trans, lower=True)

    for n, (function, arguments) in enumerate(
        ((solve, [np.nan_to_num(a), b]), (jax.lax.linalg.cholesky, [(spd + np.swapaxes(spd, 1, 2)) / 2]))
    ):
        text = lowered(function, arguments)
        assert "lapack_s" in text
        made = transformed(parse_hlo(text), ExpandLapack(), ExpandTriangularSolve())
        (want,), (got,) = run_xla(text, *arguments), evaluate(made, *arguments)
        assert error(got.reshape(want.shape), want) <= 1e-5
        check(text, arguments)
        module, values = tmp_path / f"{n}.hlo", tmp_path / f"{n}.npz"
        module.write_text(text)
        np.savez(values, **{f"arg{k}": x for k, x in enumerate(arguments)})
        ran = systolith(capsys, "run", module, "--args", values, "--chip", "tiny", "--check", "--hostile")
        assert ran.code == 0, ran.err


def getrf_text(batch: tuple[int, ...], rows: int, columns: int) -> str:
    shape, pivots, info = (
        ",".join(map(str, (*batch, *inner))) for inner in ((rows, columns), (min(rows, columns),), ())
    )
    return (
        f"HloModule m\nENTRY e {{\n a = f32[{shape}] parameter(0)\n"
        f" ROOT r = (f32[{shape}], s32[{pivots}], s32[{info}]) custom-call(a),"
        ' custom_call_target="lapack_sgetrf_ffi", api_version=API_VERSION_TYPED_FFI, backend_config={}\n}\n'
    )


@examples(6, 40)
@given(
    st.sampled_from([(), (3,), (2, 2)]),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(0, 9),
    st.sampled_from([2, 4, 128]),
)
def test_factors_with_pivots(batch: tuple[int, ...], rows: int, columns: int, zero: int, block: int) -> None:
    """Also with a column of zeros, whose pivot is 0."""
    text = getrf_text(batch, rows, columns)
    a = np.random.default_rng(rows * columns).standard_normal((*batch, rows, columns)).astype(np.float32)
    a[..., zero : zero + 1] = 0
    made = transformed(parse_hlo(text), ExpandLapack(block))
    for got, want in zip(evaluate(made, a, precision="highest"), evaluate(parse_hlo(text), a), strict=True):
        assert error(got, want) <= 2e-5


def test_systems_that_jax_solves_on_the_chip() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(dims).astype(np.float32) for dims in ((2, 5, 5), (2, 5, 3)))
    for function, arguments in ((jax.numpy.linalg.solve, [a, b]), (jax.numpy.linalg.det, [a])):
        text = lowered(function, arguments)
        (want,), (got,) = run_xla(text, *arguments), evaluate(parse_hlo(text), *arguments)
        assert error(got.reshape(want.shape), want) <= 1e-5
        check(text, arguments)


def test_blocks_with_pivots_on_the_chip() -> None:
    """More rows than columns, and fewer; rows left and right of a block are brought into its order."""
    for rows, columns in ((7, 5), (4, 6)):
        a = np.random.default_rng(0).standard_normal((2, rows, columns)).astype(np.float32)
        check(print_hlo(transformed(parse_hlo(getrf_text((2,), rows, columns)), ExpandLapack(2))), [a])
