"""Products of transposed operands, and transposed products: read and stored as they lie in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.chip import load_chip
from systolith.isa.dtypes import BF16, F32, DType
from systolith.sim.simulate import simulate
from tests.compiler.machine import check, compiled
from tests.examples import examples

Sizes = tuple[int, int, int, int]
Orders = tuple[Sequence[int], Sequence[int], Sequence[int]]

PLAIN = (0, 1, 2)


def _transpose(name: str, of: str, dtype: str, dims: Sequence[int], order: Sequence[int]) -> str:
    sizes, numbers = ",".join(str(dims[d]) for d in order), ",".join(map(str, order))
    return f"{name} = {dtype}[{sizes}] transpose({of}), dimensions={{{numbers}}}"


def product(sizes: Sizes, orders: Orders = (PLAIN, PLAIN, PLAIN), dtype: str = "f32", epilogue: str = "copy") -> str:
    """[b, m, k] by [b, k, n]; `orders`: how the operands lie in memory, and how the result is to lie."""
    b, m, k, n = sizes
    left, right = ([dims[d] for d in order] for dims, order in zip(((b, m, k), (b, k, n)), orders, strict=False))
    return f"""HloModule t
ENTRY e {{
  x = {dtype}[{",".join(map(str, left))}] parameter(0)
  w = {dtype}[{",".join(map(str, right))}] parameter(1)
  {_transpose("xt", "x", dtype, left, [orders[0].index(d) for d in PLAIN])}
  {_transpose("wt", "w", dtype, right, [orders[1].index(d) for d in PLAIN])}
  d = {dtype}[{b},{m},{n}] dot(xt, wt), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
  e = {dtype}[{b},{m},{n}] {epilogue}(d)
  ROOT {_transpose("r", "e", dtype, (b, m, n), orders[2])}
}}
"""


def cycles(text: str) -> int:
    """On `tpu_v3`."""
    chip = load_chip("tpu_v3")
    found = simulate(compiled(text, chip).program, chip, mode="time").cycles
    assert found is not None
    return found


orders = st.permutations(PLAIN)
size = st.sampled_from([1, 2, 5, 9, 17])


@given(
    st.tuples(st.sampled_from([1, 3]), size, size, size),
    st.tuples(orders, orders, orders),
    st.sampled_from([F32, BF16]),
    st.sampled_from(["copy", "negate"]),
    st.integers(0, 2**32 - 1),
)
@examples(7, 30)
def test_any_order_in_memory(sizes: Sizes, order: Orders, dtype: DType, epilogue: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    b, m, k, n = sizes
    args = [
        rng.standard_normal([dims[d] for d in o]).astype(dtype.stored)
        for dims, o in (((b, m, k), order[0]), ((b, k, n), order[1]))
    ]
    check(product(sizes, order, dtype.name, epilogue), args, most=1e-2 if dtype is BF16 else 1e-5)


@pytest.mark.parametrize("sizes", [(1, 512, 768, 768), (1, 300, 200, 500), (12, 128, 64, 128)])
@pytest.mark.parametrize(
    "order",
    [(PLAIN, (0, 2, 1), PLAIN), ((0, 2, 1), PLAIN, PLAIN), ((1, 0, 2), (2, 0, 1), PLAIN)],
    ids=["rhs", "lhs", "batch inside"],
)
def test_an_operands_order_in_memory_costs_nothing(sizes: Sizes, order: Orders) -> None:
    """Bytes move in long runs whichever dimension is innermost; only how a weight tile enters may differ."""
    assert cycles(product(sizes, order)) <= 1.06 * cycles(product(sizes))


@pytest.mark.parametrize("sizes", [(1, 512, 768, 768), (1, 300, 200, 500), (12, 128, 64, 128)])
@pytest.mark.parametrize("epilogue", ["copy", "negate"])
def test_a_transposed_result_is_made_with_the_operands_swapped(sizes: Sizes, epilogue: str) -> None:
    b, m, k, n = sizes
    transposed = product(sizes, (PLAIN, PLAIN, (0, 2, 1)), epilogue=epilogue)
    swapped = product((b, n, k, m), ((0, 2, 1), (0, 2, 1), PLAIN), epilogue=epilogue)
    assert cycles(transposed) <= 1.06 * cycles(swapped)


COMPUTED = {
    "converted": ("bf16", "t = f32[{n},{k}] transpose(w), dimensions={{1,0}}\n  s = bf16[{n},{k}] convert(t)"),
    "with another": ("f32", "t = f32[{n},{k}] transpose(w), dimensions={{1,0}}\n  s = f32[{n},{k}] multiply(t, v)"),
}


@pytest.mark.parametrize("form", list(COMPUTED))
def test_a_computed_operand_may_be_transposed(form: str) -> None:
    """It is made in tiles that lie as the product reads them, by the cross-lane unit where it must be."""
    dtype, lines = COMPUTED[form]

    def text(m: int, k: int, n: int, turned: bool) -> str:
        made = lines if turned else lines.replace("transpose(w), dimensions={{1,0}}", "copy(w)")
        w = f"{k},{n}" if turned else f"{n},{k}"
        return f"""HloModule t
ENTRY e {{
  x = {dtype}[{m},{k}] parameter(0)
  w = f32[{w}] parameter(1)
  v = f32[{n},{k}] parameter(2)
  {made.format(n=n, k=k)}
  ROOT d = {dtype}[{m},{n}] dot(x, s), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
}}
"""

    assert cycles(text(512, 768, 768, True)) <= 1.25 * cycles(text(512, 768, 768, False))
    rng = np.random.default_rng(0)
    stored = (F32 if dtype == "f32" else BF16).stored
    args = [rng.standard_normal(s).astype(t) for s, t in (((9, 20), stored), ((20, 30), "f4"), ((30, 20), "f4"))]
    check(text(9, 20, 30, True), args, most=1e-2 if dtype == "bf16" else 1e-5)
