"""Cholesky factors and triangular systems as other operations: the evaluator's values, XLA's, and on the chip."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.linalg.cholesky import ExpandCholesky
from systolith.compiler.passes.linalg.triangular_solve import ExpandTriangularSolve
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import Array, check, error
from tests.compiler.passes.differential import transformed
from tests.examples import examples
from tests.runtime.command import systolith

TYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}
BOUND = {"f32": 1e-5, "f64": 1e-12, "bf16": 2**-7}
BATCHES = st.sampled_from([(), (3,), (2, 2)])
OPTIONS = st.tuples(*[st.booleans()] * 3, st.sampled_from(["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"]))
Options = tuple[bool, bool, bool, str]


def _shape(t: str, dims: tuple[int, ...]) -> str:
    return f"{t}[{','.join(map(str, dims))}]"


def cholesky_text(t: str, dims: tuple[int, ...], lower: bool) -> str:
    shape = _shape(t, dims)
    return (
        f"HloModule m\nENTRY e {{\n a = {shape} parameter(0)\n"
        f" ROOT c = {shape} cholesky(a), lower={str(lower).lower()}\n}}\n"
    )


def solve_text(t: str, a: tuple[int, ...], b: tuple[int, ...], options: Options) -> str:
    left, lower, unit, transpose = (str(o).lower() if isinstance(o, bool) else o for o in options)
    return (
        f"HloModule m\nENTRY e {{\n a = {_shape(t, a)} parameter(0)\n b = {_shape(t, b)} parameter(1)\n"
        f" ROOT x = {_shape(t, b)} triangular-solve(a, b), left_side={left}, lower={lower}, unit_diagonal={unit},"
        f" transpose_a={transpose}\n}}\n"
    )


def positive(t: str, batch: tuple[int, ...], n: int, lower: bool, seed: int) -> Array:
    """Positive definite matrices, with NaN in the triangle that is not read."""
    x = np.random.default_rng(seed).standard_normal((*batch, n, n))
    full = x @ np.swapaxes(x, -1, -2) / max(n, 1) + np.eye(n)
    rows, columns = np.indices((n, n))
    return np.asarray(np.where(rows >= columns if lower else rows <= columns, full, np.nan).astype(TYPES[t]))


def triangular(t: str, batch: tuple[int, ...], n: int, m: int, options: Options, seed: int) -> list[Array]:
    """A well-conditioned triangle, with NaN elsewhere (with a unit diagonal also there), and a right side."""
    left, lower, unit, _ = options
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((*batch, n, n)) / max(n, 1) ** 0.5 / 2 + 2 * np.eye(n)
    rows, columns = np.indices((n, n))
    a[..., (columns > rows) if lower else (rows > columns)] = np.nan
    if unit:
        a[..., rows == columns] = np.nan
    b = rng.standard_normal((*batch, n, m) if left else (*batch, m, n))
    return [np.asarray(x.astype(TYPES[t])) for x in (a, b)]


def same_values(text: str, block: int, t: str, arguments: list[Array]) -> None:
    module = parse_hlo(text)
    made = transformed(module, ExpandCholesky(block), ExpandTriangularSolve(block))
    assert not {"cholesky", "triangular-solve"} & {i.opcode for i in made.instructions()}
    (want,), (got,) = (evaluate(m, *arguments, precision="highest") for m in (module, made))
    assert error(got, want) <= BOUND[t]


@examples(6, 40)
@given(st.sampled_from([*TYPES]), BATCHES, st.integers(0, 9), st.booleans(), st.sampled_from([1, 2, 4, 128]))
def test_factors(t: str, batch: tuple[int, ...], n: int, lower: bool, block: int) -> None:
    same_values(cholesky_text(t, (*batch, n, n), lower), block, t, [positive(t, batch, n, lower, n)])


@examples(15, 40)
@given(
    st.sampled_from([*TYPES]), BATCHES, st.integers(0, 9), st.integers(0, 5), OPTIONS, st.sampled_from([1, 2, 4, 128])
)
def test_solutions(t: str, batch: tuple[int, ...], n: int, m: int, options: Options, block: int) -> None:
    a, b = triangular(t, batch, n, m, options, n)
    same_values(solve_text(t, a.shape, b.shape, options), block, t, [a, b])


@pytest.mark.parametrize("block", [3, 128])
@pytest.mark.parametrize("lower", [False, True])
def test_matrices_that_are_not_positive_definite_are_nan(lower: bool, block: int) -> None:
    """As XLA has it: the whole matrix, for a negative pivot, one of 0, and NaN; an infinite one has a root."""
    a = np.nan_to_num(positive("f32", (6,), 7, lower, 0))
    a[1, 4, 4], a[2, 0, 0], a[3, 3, 3], a[4] = -3, np.nan, np.nan, 0
    a[5, 6, 6] = np.inf
    text = cholesky_text("f32", a.shape, lower)
    made = transformed(parse_hlo(text), ExpandCholesky(block))
    (got,), (ours,), (xla,) = evaluate(made, a), evaluate(parse_hlo(text), a), run_xla(text, a)
    assert np.isnan(got).all((1, 2)).tolist() == [False, True, True, True, True, False]
    np.testing.assert_allclose(got, ours, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[:5], xla[:5], rtol=1e-4, atol=1e-5)


def test_zeros_on_the_diagonal_give_what_substitution_gives() -> None:
    a, b = np.eye(4, dtype=np.float32), np.ones((4, 2), np.float32)
    a[1, 1], a[3, 1], b[1, 1] = 0, 1, 0
    text = solve_text("f32", a.shape, b.shape, (True, True, False, "NO_TRANSPOSE"))
    made = transformed(parse_hlo(text), ExpandTriangularSolve())
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(evaluate(made, a, b)[0], evaluate(parse_hlo(text), a, b)[0])


@pytest.mark.parametrize("block", [4, 128])
def test_as_xla_computes_them(block: int) -> None:
    options: Options = (False, True, False, "TRANSPOSE")
    a, b = triangular("f32", (2,), 7, 3, options, 0)
    spd = positive("f32", (2,), 7, False, 1)
    for text, arguments in (
        (solve_text("f32", a.shape, b.shape, options), [np.nan_to_num(a), b]),
        (cholesky_text("f32", spd.shape, False), [np.nan_to_num(spd)]),
    ):
        made = transformed(parse_hlo(text), ExpandCholesky(block), ExpandTriangularSolve(block))
        assert error(run_xla(print_hlo(made), *arguments)[0], run_xla(text, *arguments)[0]) <= 1e-5


@examples(2, 6)
@given(st.sampled_from(["f32", "bf16"]), st.sampled_from([(), (2,)]), st.integers(1, 9), st.booleans())
def test_factors_of_the_chip(t: str, batch: tuple[int, ...], n: int, lower: bool) -> None:
    check(cholesky_text(t, (*batch, n, n), lower), [positive(t, batch, n, lower, n)], most=BOUND[t])


@examples(3, 8)
@given(st.sampled_from(["f32", "bf16"]), st.sampled_from([(), (2,)]), st.integers(1, 9), st.integers(1, 5), OPTIONS)
def test_solutions_of_the_chip(t: str, batch: tuple[int, ...], n: int, m: int, options: Options) -> None:
    a, b = triangular(t, batch, n, m, options, n)
    check(solve_text(t, a.shape, b.shape, options), [a, b], most=BOUND[t])


@pytest.mark.parametrize("lower", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_blocks_of_the_chip(lower: bool) -> None:
    """Products with the blocks before, and with inverses."""
    n, options = 13, (True, lower, False, "NO_TRANSPOSE")
    a, b = triangular("f32", (2,), n, 6, options, 0)
    texts = cholesky_text("f32", (2, n, n), lower), solve_text("f32", a.shape, b.shape, options)
    for text, arguments in zip(texts, ([positive("f32", (2,), n, lower, 0)], [a, b]), strict=True):
        check(print_hlo(transformed(parse_hlo(text), ExpandCholesky(5), ExpandTriangularSolve(5))), arguments)


@pytest.mark.slow
@pytest.mark.parametrize("lower", [False, True])
def test_larger_matrices_by_blocks(lower: bool) -> None:
    """A block of the matrix units, and a part of one, with another chip's tiles."""
    n, options = 150, (True, lower, False, "TRANSPOSE")
    check(cholesky_text("f32", (n, n), lower), [positive("f32", (), n, lower, 0)], "small")
    a, b = triangular("f32", (), n, 20, options, 0)
    check(solve_text("f32", a.shape, b.shape, options), [a, b], "small")


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module, arguments = tmp_path / "solve.hlo", tmp_path / "arguments.npz"
    options: Options = (False, True, False, "NO_TRANSPOSE")
    a, b = triangular("f32", (2,), 5, 3, options, 0)
    module.write_text(solve_text("f32", a.shape, b.shape, options))
    np.savez(arguments, arg0=a, arg1=b)
    ran = systolith(capsys, "run", module, "--args", arguments, "--chip", "tiny", "--check", "--hostile")
    assert ran.code == 0, ran.err
