"""Rounding that an operation asks for, on the chip: every pair of sizes, and bits around every tie."""

from __future__ import annotations

import numpy as np
import pytest

from systolith.compiler.hlo.element_types import ELEMENT_TYPES
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand.stochastic_convert import DecomposeStochasticConvert
from systolith.isa.chip import load_chip
from tests.compiler.machine import Array, check, compiled, run
from tests.compiler.passes.differential import assert_unchanged

SIZES = {
    "f32": ((8, 7), (5, 10), (4, 3), (1, 0), (8, 23), (11, 52), (2, 22), (6, 1)),
    "bf16": ((8, 7), (5, 2), (8, 0), (1, 3)),
    "f16": ((5, 10), (5, 2), (4, 10), (2, 1), (8, 7), (1, 0)),
    "f8e5m2": ((5, 1), (4, 2), (5, 2)),
    "f8e4m3fn": ((4, 2), (3, 3), (8, 7)),
    "f8e4m3fnuz": ((4, 1),),
}


def floats(t: str) -> Array:
    """Every number of up to 8 bits; of wider types those around powers of two, and random bits."""
    dtype = ELEMENT_TYPES[t]
    if dtype.bits <= 8:
        return np.arange(256, dtype=np.uint8).view(dtype.stored)
    unsigned = np.dtype(f"u{dtype.size}")
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 2**dtype.bits, 600, unsigned)
    steps = np.concatenate([(drawn[:200] >> k) << k for k in range(0, dtype.finfo.nmant + 1, 3)])
    special = np.array([0, 1, 2, 3], unsigned)
    bits = np.concatenate([drawn, steps, steps + unsigned.type(1), steps - unsigned.type(1), special])
    return bits.astype(unsigned).view(dtype.stored)


@pytest.mark.parametrize(("t", "sizes"), [(t, sizes) for t, listed in SIZES.items() for sizes in listed])
def test_reduce_precision(t: str, sizes: tuple[int, int]) -> None:
    x = floats(t)
    attributes = f"exponent_bits={sizes[0]}, mantissa_bits={sizes[1]}"
    text = f"HloModule m\nENTRY e {{ x = {t}[{len(x)}] parameter(0)\n ROOT r = {t}[{len(x)}] " \
        f"reduce-precision(x), {attributes} }}"  # fmt: skip
    with np.errstate(all="ignore"):
        (got,), (want,) = run(compiled(text).program, load_chip("tiny"), [x]), evaluate(parse_hlo(text), x)
    bits, wanted = (np.where(np.isnan(a.astype(np.float32)), 0, a.view(f"u{a.itemsize}")) for a in (got, want))
    np.testing.assert_array_equal(bits, wanted)


@pytest.mark.parametrize("target", ["s4", "s8", "s16", "s32", "s64"])
@pytest.mark.parametrize("source", ["f32", "bf16", "f16", "f8e5m2"])
def test_stochastic_convert(source: str, target: str) -> None:
    dtype = ELEMENT_TYPES[source]
    x = np.array(
        [0, 0.5, 1.5, -0.5, -1.25, 3, 126.75, 127.5, -127.5, -128.5, 300, np.nan, np.inf, -np.inf, 1e-3, 1e-12]
    )
    width = dtype.bits
    random = np.array([0, 1, 2 ** (width - 1) - 1, 2 ** (width - 1), 2**width - 1], np.uint64)
    a = np.repeat(x, len(random)).astype(dtype.stored)
    b = np.tile(random, len(x)).astype(f"u{dtype.size}")
    text = f"HloModule m\nENTRY e {{ x = {source}[{len(a)}] parameter(0)\n u = u{width}[{len(a)}] parameter(1)\n" \
        f" ROOT r = {target}[{len(a)}] stochastic-convert(x, u) }}"  # fmt: skip
    with np.errstate(all="ignore"):
        assert_unchanged(parse_hlo(text), DecomposeStochasticConvert(), arguments=[a, b])
        check(text, [a, b])
