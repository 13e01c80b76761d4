"""Modules as XLA's CPU compiler leaves them: layouts on parameters and results, `bitcast` and `copy` between layouts.

XLA is given random chains of data movement with a random layout for the argument and the result.  Its client takes
and gives logical arrays, whatever the layouts; the evaluator and the chip do the same with its optimised text.
"""

import importlib
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo import evaluate, parse_hlo
from systolith.isa.chip import load_chip
from tests.compiler.machine import Array, compiled, run
from tests.examples import examples

pytest.importorskip("jax")

Step = Callable[[Any], Any]


@st.composite
def _step(draw: st.DrawFn, dims: list[int]) -> tuple[Step, list[int]]:
    """A reshape, transpose or reverse of an array of some sizes, and the sizes of its result."""
    kind = draw(st.sampled_from(["reshape", "transpose", "reverse", "negate"]))
    if kind == "reshape":
        sizes: list[int] = []
        while prod(sizes) < prod(dims) and len(sizes) < 3:
            left = prod(dims) // prod(sizes)
            sizes.append(draw(st.sampled_from([n for n in range(1, left + 1) if left % n == 0])))
        sizes.append(prod(dims) // prod(sizes))
        return lambda x: x.reshape(sizes), sizes
    if kind == "transpose":
        order = draw(st.permutations(range(len(dims))))
        return lambda x: x.transpose(order), [dims[d] for d in order]
    if kind == "reverse":
        axis = draw(st.integers(0, len(dims) - 1))
        places = (slice(None),) * axis + (slice(None, None, -1),)
        return lambda x: x[places], dims
    return lambda x: -x, dims


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[int], list[Step], list[int], list[int]]:
    """Sizes of the argument, the operations on it, and the orders in memory of argument and result, major to minor."""
    first = dims = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, 5))):
        step, dims = draw(_step(dims))
        steps.append(step)
    return first, steps, draw(st.permutations(range(len(first)))), draw(st.permutations(range(len(dims))))


@examples(6, 12)
@given(programs())
def test_layouts_and_bitcasts_as_in_xla(program: tuple[list[int], list[Step], list[int], list[int]]) -> None:
    dims, steps, before, after = program
    jax: Any = importlib.import_module("jax")
    layout: Any = importlib.import_module("jax.experimental.layout")
    where = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    given_as, wanted_as = (layout.Format(layout.Layout(tuple(order)), where) for order in (before, after))

    def moved(x: Any) -> Any:
        for step in steps:
            x = step(x)
        return x

    x: Array = np.arange(prod(dims), dtype=np.float32).reshape(dims)
    made = jax.jit(moved, in_shardings=given_as, out_shardings=wanted_as).lower(x).compile()
    text, wanted = made.as_text(), np.asarray(made(jax.device_put(x, given_as)))
    np.testing.assert_array_equal(evaluate(parse_hlo(text), x)[0], wanted, err_msg=text)
    np.testing.assert_array_equal(run(compiled(text).program, load_chip("tiny"), [x])[0], wanted, err_msg=text)
