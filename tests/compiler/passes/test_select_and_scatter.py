"""The gradient of max-pooling as other operations: the bits of the evaluator, and of XLA."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systolith.compiler.hlo.attributes import WindowDim
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand.select_and_scatter import ExpandSelectAndScatter
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.index_cases import Draw, numbers
from tests.compiler.passes.differential import assert_same_bits, assert_unchanged, opcodes
from tests.compiler.window_cases import select_and_scatter_module, select_and_scatter_text, window_arguments
from tests.examples import examples

TYPES = ("f32", "bf16", "s32", "u8", "s8", "pred", "f64", "s64")


def expanded(module: Module, seed: int, most: int = 64) -> Module:
    step = ExpandSelectAndScatter(most)
    made = assert_unchanged(module, step, arguments=window_arguments(module, seed))
    assert "select-and-scatter" not in opcodes(made)
    assert not step.run(made)
    return made


@examples(20, 60)
@given(numbers(), st.integers(0, 1000))
def test_any_window(draw: Draw, seed: int) -> None:
    expanded(select_and_scatter_module(draw, TYPES), seed)


@examples(12, 30)
@given(numbers(), st.integers(0, 1000))
def test_any_window_by_indices(draw: Draw, seed: int) -> None:
    made = expanded(select_and_scatter_module(draw, TYPES), seed, 0)
    assert ("scatter" in opcodes(made)) == ("reduce-window" in opcodes(made)) == (made.entry.result.shape.size > 0)


@pytest.mark.slow
@settings(max_examples=500)
@given(numbers(), st.integers(0, 1000), st.sampled_from([0, 5, 64]))
def test_any_larger_window(draw: Draw, seed: int, most: int) -> None:
    expanded(select_and_scatter_module(draw, TYPES, 9), seed, most)


@examples(2, 12)
@given(numbers(), st.integers(0, 1000), st.sampled_from([0, 64]))
def test_as_xla_computes_it(draw: Draw, seed: int, most: int) -> None:
    """The module and what the pass makes of it, by XLA."""
    module = select_and_scatter_module(draw, ("f32", "s32", "u8"), plain=True)
    arguments = window_arguments(module, seed)
    want = run_xla(print_hlo(module), *arguments)
    ExpandSelectAndScatter(most).run(module)
    for a, b in zip(want, run_xla(print_hlo(module), *arguments), strict=True):
        np.testing.assert_array_equal(a, b)


def test_sources_of_one_element_come_in_the_order_of_windows() -> None:
    """Each of three windows chooses the middle element; 2 b - a depends on their order."""
    text = select_and_scatter_text((5,), [WindowDim(3)], "s32", scatter="less")
    arguments = [np.array([0, 0, 9, 0, 0], np.int32), np.array([1, 10, 100], np.int32)]
    want = [np.array([0, 0, 3 * 100 - (3 * 10 - 3 * 1), 0, 0], np.int32)]
    assert_same_bits(want, evaluate(expanded(parse_hlo(text), 0), *arguments))


def test_a_computation_that_is_not_elementwise_is_mapped() -> None:
    text = select_and_scatter_text((6,), [WindowDim(2, 2)], "f32", "ge", "add").replace(
        "ROOT r = pred[] compare(a, b), direction=GE",
        "p = (f32[], f32[]) tuple(a, b)\n c = f32[] get-tuple-element(p), index=1\n"
        " ROOT r = pred[] compare(a, c), direction=GE",
    )
    assert "map" in opcodes(expanded(parse_hlo(text), 3))


def test_windows_that_do_not_overlap_have_one_combination_for_each_offset() -> None:
    made = expanded(parse_hlo(select_and_scatter_text((8, 8), [WindowDim(2, 2)] * 2)), 1)
    assert opcodes(made).count("add") == 4
    assert "pad" not in opcodes(made)


@pytest.mark.parametrize(("window", "most"), [(WindowDim(9, 9), 64), (WindowDim(2, 70), 64), (WindowDim(70, 1), 70)])
def test_large_windows_and_strides_choose_indices(window: WindowDim, most: int) -> None:
    module = parse_hlo(select_and_scatter_text((80, 9), [window, WindowDim(9)]))
    assert ("scatter" in opcodes(expanded(module, 0, most))) == (window.size * 9 > most or window.stride > most)


def test_without_elements() -> None:
    """Of no windows, or no elements, each element is the initial value."""
    for dims, window in (((2, 3), [WindowDim(3), WindowDim(1)]), ((0, 3), [WindowDim(1, 1, 2), WindowDim(1)])):
        made = expanded(parse_hlo(select_and_scatter_text(dims, window, init="7")), 0)
        assert opcodes(made) == ["broadcast", "constant"]
