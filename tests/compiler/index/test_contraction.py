"""Dots and convolutions as contractions: their maps, summed over all axes, give the reference evaluator's result."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.index.affine import Box
from systolith.compiler.index.contraction import Contraction, convolution_contraction, dot_contraction
from tests.compiler.gemm.test_convolution import Case, convolutions
from tests.compiler.index.points import element, points
from tests.examples import examples


def summed(c: Contraction, lhs: np.ndarray, rhs: np.ndarray, dims: tuple[int, ...]) -> tuple[np.ndarray, int]:
    """The result of a contraction, a term at a time, and how many terms have both elements."""
    out, terms = np.zeros(dims, np.int64), 0
    for p in points(Box.whole(c.sizes)):
        left, right, to = element(c.lhs, p), element(c.rhs, p), element(c.out, p)
        assert right is not None
        assert to is not None
        if left is not None:
            out[to] += int(lhs[left]) * int(rhs[right])
            terms += 1
    return out, terms


def check(c: Contraction, lhs: np.ndarray, rhs: np.ndarray, want: np.ndarray) -> None:
    got, terms = summed(c, lhs, rhs, want.shape)
    np.testing.assert_array_equal(got, want)
    assert c.lhs.inside(Box.whole(c.sizes)) == terms
    assert c.lhs.total == (terms == np.prod(c.sizes)) or any(e.quotients for e in c.lhs.dims)


@given(convolutions(), st.integers(0, 99))
@examples(5, 60)
def test_convolution(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lhs, rhs = (rng.integers(-4, 5, dims).astype(np.float32) for dims in (case.lhs, case.rhs))
    module = parse_hlo(case.text)
    (want,) = evaluate(module, lhs, rhs)
    c = convolution_contraction(module.entry.result, case.lhs, case.rhs)
    check(c, lhs, rhs, want)


DOT = """HloModule t
ENTRY e {
  a = f32[3,2,4,5] parameter(0)
  b = f32[5,2,3,6] parameter(1)
  ROOT c = f32[2,4,6] dot(a, b), lhs_batch_dims={1}, rhs_batch_dims={1}, lhs_contracting_dims={3,0}, \
rhs_contracting_dims={0,2}
}
"""


@given(st.permutations(range(2)), st.integers(0, 99))
@examples(3, 20)
def test_dot_in_any_order_and_with_its_operands_swapped(order: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    module = parse_hlo(DOT)
    lhs, rhs = (rng.integers(-4, 5, o.dims).astype(np.float32) for o in module.entry.result.operands)
    (want,) = evaluate(module, lhs, rhs)
    c = dot_contraction(module.entry.result, lhs.shape, rhs.shape)
    assert (c.names, c.sizes) == (("b0", "m2", "n3", "k0", "k1"), (2, 4, 6, 5, 3))
    check(c, lhs, rhs, want)
    c = c.summed_in_order([c.k[n] for n in order])
    assert c.names[3:] == tuple(f"k{n}" for n in order)
    check(c, lhs, rhs, want)
    turned = c.swapped()
    assert (turned.names[1:3], turned.swapped()) == (("n3", "m2"), c)
    check(turned, rhs, lhs, want)
