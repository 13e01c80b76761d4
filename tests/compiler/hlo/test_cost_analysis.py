"""Costs against XLA's own cost analysis, key by key, to the last bit."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.attributes import WindowDim
from systolith.compiler.hlo.cost.analysis import HloCostAnalysis, valid_positions
from systolith.compiler.hlo.cost.rows import by_opcode, rows, total
from systolith.compiler.hlo.text.parser import parse_hlo
from tests.compiler.driver.random_modules import random_module
from tests.compiler.hlo.cost_modules import MODULES
from tests.corpus.load import INDEX, Case
from tests.examples import examples, with_slow


def xla_costs(text: str) -> dict[str, float]:
    """XLA's dictionary without zeros."""
    hlo: Any = importlib.import_module("jaxlib._hlo")
    jaxlib: Any = importlib.import_module("jaxlib._jax")
    client = importlib.import_module("jax").devices("cpu")[0].client
    costs = jaxlib.hlo_module_cost_analysis(client, hlo.hlo_module_from_text(text))
    return {key: value for key, value in costs.items() if value != 0}


def assert_as_xla(text: str) -> None:
    assert HloCostAnalysis(parse_hlo(text)).total == xla_costs(text)


@pytest.mark.parametrize("name", MODULES)
def test_one_operation(name: str) -> None:
    assert_as_xla(MODULES[name])


@pytest.mark.parametrize("name", with_slow(sorted(INDEX), {"resnet50_infer_224"}))
def test_corpus(name: str, corpus: Callable[[str], Case]) -> None:
    case = corpus(name)
    assert_as_xla(case.text)
    if case.path.with_suffix(".opt.hlo").exists():
        assert_as_xla(case.optimized_text)


@pytest.mark.parametrize("seed", range(25))
def test_random_modules(seed: int) -> None:
    assert_as_xla(random_module(seed)[0])


@examples(100, 300)
@given(
    st.builds(WindowDim, *(st.integers(*r) for r in ((1, 7), (1, 5), (-3, 6), (-3, 6), (1, 5), (1, 4)))),
    st.integers(0, 9),
)
def test_positions_that_are_not_padding(window: WindowDim, base: int) -> None:
    output, dilation = window.positions(base), window.base_dilation
    places = [
        p * window.stride - window.low + k * window.window_dilation for p in range(output) for k in range(window.size)
    ]
    want = sum(place % dilation == 0 and 0 <= place // dilation < base for place in places)
    assert valid_positions(window, base, window.size, output) == want


def test_positions_of_long_windows_are_not_listed() -> None:
    n = 10**6
    assert valid_positions(WindowDim(n, n - 1, 0, 0, n, 1), n, n, n) == n


LOOP = MODULES["while"]


def test_trip_counts_on_request() -> None:
    module = parse_hlo(LOOP)
    once, often = HloCostAnalysis(module), HloCostAnalysis(module, trip_counts=True)
    assert often.total["flops"] == 10 * once.total["flops"]
    assert total(rows(module, often)).flops == often.total["flops"]
    assert {row.runs for row in rows(module, often)} == {10}


def test_rows_sum_to_the_total() -> None:
    text = MODULES["fusion of a tuple"]
    module = parse_hlo(text)
    analysis = HloCostAnalysis(module)
    found = rows(module, analysis)
    assert sum(row.flops for row in found) == analysis.total["flops"]
    assert [row.opcode for row in by_opcode(found)] == ["fusion"]


def test_products_inside_fusions() -> None:
    text = (
        "HloModule m\n\nf {\n  a = f32[4,8] parameter(0)\n  b = f32[8,2] parameter(1)\n"
        "  d = f32[4,2] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "  ROOT n = f32[4,2] negate(d)\n}\n\n"
        "ENTRY e {\n  a = f32[4,8] parameter(0)\n  b = f32[8,2] parameter(1)\n"
        "  ROOT r = f32[4,2] fusion(a, b), kind=kOutput, calls=f\n}\n"
    )
    module = parse_hlo(text)
    (row,) = rows(module, HloCostAnalysis(module))
    assert (row.products, row.flops, row.bytes) == (128, 136, 4 * (32 + 16 + 8))
    assert row.intensity == 136 / 224
