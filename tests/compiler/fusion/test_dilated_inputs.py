"""Convolutions of dilated inputs by phases: numpy's values with zeros inserted, and when they are taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from systolith.compiler.groups import dilated_inputs
from systolith.compiler.groups.dilated_inputs import SplitDilatedInputs
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.isa.chip import load_chip
from tests.compiler.machine import compiled, run
from tests.compiler.passes.differential import opcodes, transformed

Array = np.ndarray[Any, np.dtype[Any]]

Dim = tuple[int, int, int, int, int, bool]
"""Of one spatial dimension: input, kernel, dilation, padding before and after, whether the kernel is reversed."""

CHIP = load_chip("tpu_v3")


def results(d: Dim) -> int:
    size, kernel, dilation, low, high, _ = d
    return (size - 1) * dilation + 1 + low + high - kernel + 1


def convolution(batch: int, channels: int, features: int, dims: tuple[Dim, ...]) -> str:
    """Of an input `b0..f`, by a kernel `0..io`."""
    spatial = "".join(map(str, range(len(dims))))
    shapes = [",".join(map(str, s)) for s in shapes_of(batch, channels, features, dims)]
    fields = {
        "size": "x".join(str(d[1]) for d in dims),
        "pad": "x".join(f"{d[3]}_{d[4]}" for d in dims),
        "lhs_dilate": "x".join(str(d[2]) for d in dims),
        "rhs_reversal": "x".join(str(int(d[5])) for d in dims),
    }
    window = " ".join(f"{name}={value}" for name, value in fields.items())
    out = ",".join(map(str, (batch, *map(results, dims), features)))
    return f"""HloModule m
ENTRY e {{
 x = f32[{shapes[0]}] parameter(0)
 w = f32[{shapes[1]}] parameter(1)
 y = f32[{out}] convolution(x, w), window={{{window}}}, dim_labels=b{spatial}f_{spatial}io->b{spatial}f
 ROOT z = f32[{out}] negate(y)
}}
"""


def shapes_of(batch: int, channels: int, features: int, dims: tuple[Dim, ...]) -> list[tuple[int, ...]]:
    return [(batch, *(d[0] for d in dims), channels), (*(d[1] for d in dims), channels, features)]


def expected(x: Array, w: Array, dims: tuple[Dim, ...]) -> Array:
    """In f64: zeros are inserted, then each tap is added."""
    places = [d[2] * np.arange(d[0]) for d in dims]
    wide = np.zeros((len(x), *((d[0] - 1) * d[2] + 1 for d in dims), x.shape[-1]))
    wide[np.ix_(np.arange(len(x)), *places, np.arange(x.shape[-1]))] = x
    padding = [(max(d[3], 0), max(d[4], 0)) for d in dims]
    wide = np.pad(wide, [(0, 0), *padding, (0, 0)])
    crops = [slice(max(-d[3], 0), wide.shape[n + 1] - max(-d[4], 0)) for n, d in enumerate(dims)]
    wide = wide[(slice(None), *crops)]
    flipped = np.flip(w.astype(np.float64), tuple(n for n, d in enumerate(dims) if d[5]))
    out = np.zeros((len(x), *map(results, dims), w.shape[-1]))
    for tap in np.ndindex(*(d[1] for d in dims)):
        seen = tuple(slice(t, t + results(d)) for t, d in zip(tap, dims, strict=True))
        out += wide[(slice(None), *seen)] @ flipped[tap]
    return -out


def arguments(batch: int, channels: int, features: int, dims: tuple[Dim, ...]) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes_of(batch, channels, features, dims)]


DIMS = st.tuples(
    st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.integers(-1, 3), st.integers(-1, 3), st.booleans()
)


@given(st.lists(DIMS, min_size=1, max_size=2))
def test_values(chosen: list[Dim]) -> None:
    dims = tuple(chosen)
    assume(all(results(d) > 0 for d in dims))
    sizes = (2, 3, 2, dims)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dilated_inputs, "_pays", lambda *_: True)
        made = transformed(parse_hlo(convolution(*sizes)), SplitDilatedInputs(CHIP))
    x, w = arguments(*sizes)
    np.testing.assert_allclose(evaluate(made, x, w, precision="highest")[0], expected(x, w, dims), rtol=1e-4, atol=1e-5)


GRADIENT = (1, 8, 8, ((5, 3, 2, 1, 2, False), (5, 3, 2, 1, 2, True)))
ONE_TAP = (1, 8, 8, ((5, 1, 2, 0, 1, False), (5, 1, 2, 0, 1, False)))


@pytest.mark.parametrize(("sizes", "products"), [(GRADIENT, 4), (ONE_TAP, 1)])
def test_values_on_the_chip(sizes: tuple[int, int, int, tuple[Dim, ...]], products: int) -> None:
    tiny = load_chip("tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dilated_inputs, "_pays", lambda *_: True)
        made = compiled(convolution(*sizes), tiny, "highest")
    assert sum("convolution" in g.opcodes for g in made.program.groups) == products
    x, w = arguments(*sizes)
    got = run(made.program, tiny, [x, w])[0]
    np.testing.assert_allclose(got, expected(x, w, sizes[3]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "channels", "features", "kernel", "products"),
    [
        (7, 512, 512, 3, 4),
        (14, 2048, 1024, 1, 1),
        (28, 128, 128, 3, 4),  # the phases have no room, but are stored and loaded sooner than holes multiplied
        (14, 8, 8, 3, 1),  # few channels: transfers take longest
    ],
)
def test_where_they_pay(size: int, channels: int, features: int, kernel: int, products: int) -> None:
    """Gradients of ResNet's strided convolutions, batch 8."""
    low, high = kernel // 2, kernel // 2 + 1
    dim = (size, kernel, 2, low, high, False)
    made = transformed(parse_hlo(convolution(8, channels, features, (dim, dim))), SplitDilatedInputs(CHIP))
    assert opcodes(made).count("convolution") == products
    split = [i.window.dims[0].base_dilation for i in made.entry.instructions if i.opcode == "convolution"]
    assert set(split) == ({1} if size in (7, 28) or kernel == 1 else {2})
