"""Products of vectors on the vector unit: where that takes fewer cycles, with XLA's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from systolith.compiler.groups import vector_products
from systolith.compiler.groups.vector_products import SumVectorProducts
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.chip import load_chip
from systolith.sim.simulate import simulate
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.loops.scans import hlo
from tests.compiler.machine import CHIPS, Array, checked_run, compiled, error
from tests.compiler.passes.differential import opcodes, transformed
from tests.examples import examples, with_slow

V3 = load_chip("tpu_v3")


def recurrent(xs: jax.Array, w: jax.Array) -> Any:
    return lax.scan(lambda h, x: (lambda y: (y, y))(jnp.tanh(h @ w + x)), jnp.zeros(w.shape[0]), xs)[1]


def rows_first(xs: jax.Array, w: jax.Array, v: jax.Array) -> Any:
    """Each row of a matrix by what is carried: of two loops, one of which needs the matrix as it is, too."""

    def step(h: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = jnp.tanh(w @ h + v @ x)
        return y, y * (h @ w)

    h, first = lax.scan(step, jnp.zeros(w.shape[0]), xs)
    return first, lax.scan(step, h, xs)


def bilinear(x: jax.Array, w: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.einsum("bi,oij,bj->bo", x, w, y)


def regression(xs: jax.Array, ys: jax.Array, w: jax.Array) -> Any:
    """Gradient descent, a row at a time."""
    return lax.scan(lambda w, row: (w - 0.1 * (w @ row[0] - row[1]) * row[0], w @ row[0]), w, (xs, ys))


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], float]] = {
    "recurrent": (recurrent, [(30, 200), (200, 200)], 0.6),
    "recurrent, rows": (lambda xs, w: recurrent(xs, w.T), [(30, 200), (200, 200)], 0.6),
    "bilinear": (bilinear, [(128, 64), (32, 64, 64), (128, 64)], 0.3),
    "regression": (regression, [(60, 64), (60,), (64,)], 0.5),
    "rows first": (rows_first, [(12, 24), (96, 96), (96, 24)], 0.6),
    "dot": (lambda x, y: (x @ y) * x, [(4096,), (4096,)], 0.8),
}


def arguments(shapes: list[tuple[int, ...]], dtype: Any = np.float32) -> list[Array]:
    rng = np.random.default_rng(0)
    return [(rng.standard_normal(s) / max(s[-1], 1) ** 0.5).astype(dtype) for s in shapes]


@pytest.mark.parametrize("name", with_slow(CASES, {"recurrent, rows"}))
def test_cycles_and_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, shapes, most = CASES[name]
    args = arguments(shapes)
    text = hlo(f, args)
    got, report = checked_run(compiled(text, V3, "highest"), V3, args)
    for a, wanted in zip(got, run_xla(text, *args), strict=True):
        assert error(a, wanted) < 1e-5
    assert report.executions

    def cycles() -> int:
        return simulate(compiled(text, V3).program, V3, mode="time").cycles or 0

    sums = cycles()
    monkeypatch.setattr(SumVectorProducts, "run", lambda self, module: False)
    assert sums < most * cycles()


def test_products_that_stay() -> None:
    """HBM is what they wait for; the matrix units are faster; there is an algorithm; integers; no vector."""
    cases: list[tuple[Callable[..., Any], list[tuple[int, ...]], Any]] = [
        (lambda h, w: h @ w, [(4096,), (4096, 1024)], np.float32),
        (lambda h, w: jnp.tanh(h @ jnp.tanh(w)), [(512,), (512, 512)], np.float32),
        (lambda x, y: jnp.dot(x, y, precision="BF16_BF16_F32"), [(64,), (64, 64)], np.float32),
        (lambda x, y: x @ y, [(64,), (64, 64)], np.int8),
        (lambda x, y: x @ y, [(3, 64), (64, 64)], np.float32),
    ]
    for f, shapes, dtype in cases:
        module = canonicalise(parse_hlo(hlo(f, arguments(shapes, dtype))))
        assert "dot" in opcodes(transformed(module, SumVectorProducts(V3, None)))


DIM = st.integers(1, 9)


@examples(7, 300)
@given(st.data())
def test_any_product(draw: st.DataObject) -> None:
    """Any order of dimensions, several of a kind or none, in each type."""
    batch, terms, free = (draw.draw(st.integers(0, 2)) for _ in range(3))
    names = {"b": "pq"[:batch], "k": "rs"[: max(terms, 1)], "n": "tu"[:free]}
    sizes = {d: draw.draw(DIM) for d in "pqrstu"}
    matrix = "".join(draw.draw(st.permutations(names["b"] + names["k"] + names["n"])))
    vector = "".join(draw.draw(st.permutations(names["b"] + names["k"])))
    result = "".join(draw.draw(st.permutations(names["b"] + names["n"])))
    sides = [vector, matrix] if draw.draw(st.booleans()) else [matrix, vector]
    dtype = draw.draw(st.sampled_from((np.float32, jnp.bfloat16, np.float16)))
    args = arguments([tuple(sizes[d] for d in s) for s in sides], dtype)
    text = hlo(lambda x, y: jnp.einsum(f"{sides[0]},{sides[1]}->{result}", x, y), args)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vector_products, "FASTER", 1e9)
        made = compiled(text, CHIPS[32], "highest")
    for a, wanted in zip(checked_run(made, CHIPS[32], args)[0], run_xla(text, *args), strict=True):
        assert error(a, wanted) < {2: 2.0**-7, 4: 1e-5}[a.dtype.itemsize]
