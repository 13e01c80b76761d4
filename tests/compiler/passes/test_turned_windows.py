"""Windows over the last dimension, transposed: the evaluator's values before and after, XLA's on the chip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from systolith.compiler.hlo.attributes import WindowDim
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand.select_and_scatter import ExpandSelectAndScatter
from systolith.compiler.passes.expand.turned_windows import TurnStridedWindows
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.chip import load_chip
from tests.compiler.index_cases import Draw, numbers
from tests.compiler.machine import Array, compiled, run
from tests.compiler.passes.differential import assert_unchanged, opcodes, transformed
from tests.compiler.window_cases import reduce_window_module, select_and_scatter_text, window_arguments
from tests.examples import examples

TYPES = ("f32", "bf16", "s32", "u8", "s8", "pred", "f64", "s64")


def assert_same_values(module: Module, seed: int) -> Module:
    """Turned, the module gives the same values; which zero, or NaN, of several is left open."""
    made = transformed(module, TurnStridedWindows(0))
    arguments = window_arguments(module, seed)
    with np.errstate(all="ignore"):
        results = [evaluate(m, *arguments) for m in (module, made)]
        for want, got in zip(*results, strict=True):
            assert want.dtype == got.dtype
            exact = want.dtype.kind in "biu"
            np.testing.assert_array_equal(*(x if exact else x.astype(np.float64) for x in (want, got)))
    return made


@examples(20, 60)
@given(numbers(), st.integers(0, 1000))
def test_any_window_that_is_reduced(draw: Draw, seed: int) -> None:
    assert_same_values(reduce_window_module(draw, TYPES), seed)


@pytest.mark.slow
@settings(max_examples=2000)
@given(numbers(), st.integers(0, 1000))
def test_any_larger_window_that_is_reduced(draw: Draw, seed: int) -> None:
    assert_same_values(reduce_window_module(draw, TYPES, 9), seed)


POOL = (
    "HloModule m\nc {\n a = TYPE[] parameter(0)\n b = TYPE[] parameter(1)\n ROOT r = TYPE[] OPCODE(a, b)\n}\n"
    "ENTRY e {\n x = TYPE[2,3,9,8] parameter(0)\n i = TYPE[] constant(INIT)\n"
    " ROOT r = TYPE[2,3,5,4] reduce-window(x, i), window={size=1x1x3xSIZE stride=1x1x2xSTRIDE pad=0_0x0_0x1_1xPAD},"
    " to_apply=c\n}\n"
)


@pytest.mark.parametrize(
    ("t", "opcode", "init", "window", "count"),
    [
        ("f32", "maximum", "-inf", ("3", "2", "1_0"), 2),
        ("bf16", "add", "0", ("2", "2", "0_0"), 2),
        ("s32", "minimum", "1", ("2", "2", "0_0"), 2),
        ("f32", "add", "1", ("2", "2", "0_0"), 1),  # its initial value would come in twice
        ("f32", "maximum", "0", ("5", "1", "0_0"), 1),
        ("f32", "maximum", "0", ("1", "2", "0_0"), 1),
        ("s64", "maximum", "0", ("2", "2", "0_0"), 1),
    ],
)
def test_strided_windows_of_one_operation_turn(
    t: str, opcode: str, init: str, window: tuple[str, str, str], count: int
) -> None:
    text = POOL.replace("TYPE", t).replace("OPCODE", opcode).replace("INIT", init)
    for name, value in zip(("SIZE", "STRIDE", "PAD"), window, strict=True):
        text = text.replace(name, value)
    made = assert_same_values(parse_hlo(text), 3)
    assert opcodes(made).count("reduce-window") == count
    assert not TurnStridedWindows(0).run(made)


def test_small_pools_stay() -> None:
    text = POOL.replace("TYPE", "f32").replace("OPCODE", "maximum").replace("INIT", "0")
    assert not TurnStridedWindows().run(
        parse_hlo(text.replace("SIZE", "2").replace("STRIDE", "2").replace("PAD", "0_0"))
    )


GRADIENTS = {
    "channels first": ((2, 40, 6, 7), [WindowDim(1), WindowDim(1), WindowDim(3, 2, 1, 1), WindowDim(3, 2, 1, 1)], 3),
    "channels between": ((5, 70, 8), [WindowDim(2, 2), WindowDim(1), WindowDim(2, 2)], 3),
    "channels last": ((6, 7, 80), [WindowDim(2, 2), WindowDim(2, 2), WindowDim(1)], 0),
    "few channels": ((8, 6, 7), [WindowDim(1), WindowDim(2, 2), WindowDim(2, 2)], 0),
    "all move": ((70, 7), [WindowDim(2, 2), WindowDim(2, 2)], 0),
}


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("scatter", ["add", "less"])
@pytest.mark.parametrize("part", [False, True])
def test_gradients_of_pools_keep_every_bit(name: str, scatter: str, part: bool) -> None:
    dims, window, transposes = GRADIENTS[name]
    text = select_and_scatter_text(dims, window, scatter=scatter)
    if part:
        shapes = [f"f32[{','.join(map(str, (*dims[:-1], n)))}]" for n in (dims[-1], dims[-1] - 2)]
        cut = ",".join(f"[{2 * (d == len(dims) - 1)}:{n}]" for d, n in enumerate(dims))
        whole = text.replace(f" ROOT r = {shapes[0]}", f" r = {shapes[0]}").removesuffix("}\n")
        text = f"{whole} ROOT p = {shapes[1]} slice(r), slice={{{cut}}}\n}}\n"
    module = parse_hlo(text)
    made = assert_unchanged(module, ExpandSelectAndScatter(least=0), arguments=window_arguments(module, 5))
    assert opcodes(made).count("transpose") == transposes


def _largest(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 1), (1, 1)))


def _mean(x: Any) -> Any:
    return lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4


@pytest.mark.parametrize("function", [_largest, _mean, lambda x: jax.grad(lambda y: (_largest(y) * 2).sum())(x)])
def test_pools_of_channels_first_on_the_chip(function: Callable[[Any], Any]) -> None:
    x: Array = np.random.default_rng(0).integers(-9, 9, (8, 16, 17, 18)).astype(np.float32)
    text = jax.jit(function).lower(x).compiler_ir("hlo").as_hlo_text()  # type: ignore[union-attr]
    assert any(i.opcode == "transpose" for i in canonicalise(parse_hlo(text)).instructions())
    (got,) = run(compiled(text, "small").program, load_chip("small"), [x])
    np.testing.assert_array_equal(got, np.asarray(jax.jit(function)(x)).reshape(got.shape))
