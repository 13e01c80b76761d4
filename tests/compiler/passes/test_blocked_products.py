"""Dots of f64 in a loop over parts of their sums, against XLA."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand import blocked_products
from systolith.compiler.passes.pipeline import canonicalise
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import check

PLAIN = ("4,7", "7,3", "4,3", "lhs_contracting_dims={1}, rhs_contracting_dims={0}")
BATCHED = (
    "2,5,3,4",
    "4,2,3,6",
    "2,5,6",
    "lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={2,3}, rhs_contracting_dims={2,0}",
)
ROWS = ("9", "9", "", "lhs_contracting_dims={0}, rhs_contracting_dims={0}")


def module(x: str, y: str, o: str, attributes: str) -> str:
    given = f" x = f64[{x}] parameter(0)\n y = f64[{y}] parameter(1)\n"
    return f"HloModule m\nENTRY e {{\n{given} ROOT r = f64[{o}] dot(x, y), {attributes}\n}}\n"


def arguments(*dims: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal([int(n) for n in d.split(",")]) for d in dims]


@pytest.mark.parametrize(
    ("case", "most", "enough", "loops"),
    [(PLAIN, 1000, 1000, 0), (PLAIN, 40, 1000, 1), (PLAIN, 1000, 12, 1), (BATCHED, 130, 1000, 1), (ROWS, 4, 1000, 1)],
)
def test_against_xla(
    case: tuple[str, str, str, str], most: int, enough: int, loops: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocked_products, "MOST", most)
    monkeypatch.setattr(blocked_products, "ENOUGH", enough)
    text, given = module(*case), arguments(*case[:2])
    made = canonicalise(parse_hlo(text))
    assert sum(i.opcode == "while" for i in made.instructions()) == loops
    np.testing.assert_allclose(evaluate(made, *given)[0], run_xla(text, *given)[0], rtol=1e-14, atol=1e-15)


def test_products_in_a_row_take_no_more_memory_than_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked_products, "ENOUGH", 12)
    made = canonicalise(parse_hlo(module(*PLAIN)))
    assert max(s.size for i in made.instructions() for s in i.shape.leaves() if s.is_array) <= 2 * 28
    check(module(*PLAIN), arguments(*PLAIN[:2]), "tiny", most=1e-15)
