"""f64 as pairs of u32: every operation on the evaluator, bit for bit (of a NaN, that it is one)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.words.wide_types import SplitWideTypes
from systolith.isa.dtypes import DTYPES
from tests.compiler.passes.differential import transformed

Array = npt.NDArray[Any]

SPECIAL = np.array(
    [0, 1, 2, 1.5, 0.5, np.inf, np.nan, 2.0**-1074, 2.0**-1022, 3 * 2.0**-1074, np.finfo(float).max, 1 / 3, 2.0**52,
     2.0**53 - 1, 2.5, 2.0**31, 2.0**32 - 1, 2.0**63, 2.0**64, 255.5, 3.4028235677973366e38, 3.4028235e38, 2.0**-149,
     2.0**-150, 1.0000000596046448, 1 - 2.0**-53, 2.0**-126, 2.0**-1021, 6.5e4, 1e308]
)  # fmt: skip


def numbers(seed: int, count: int = 4000) -> Array:
    """Of every exponent; near 1; whole and halves; of few bits, so that sums and products are exact or ties."""
    rng = np.random.default_rng(seed)

    def bits() -> Array:
        return rng.integers(0, 2**64 - 1, count, np.uint64, endpoint=True)

    any_bits = bits().view(np.float64)
    sign = rng.choice([-1.0, 1.0], count)
    near = sign * (1 + rng.random(count)) * 2.0 ** rng.integers(-60, 60, count)
    few = (bits() & ~np.uint64(0) << rng.integers(20, 54, count).astype(np.uint64)).view(np.float64)
    dense = (bits() | (np.uint64(1) << rng.integers(1, 53, count).astype(np.uint64)) - np.uint64(1)).view(np.float64)
    whole = sign * rng.integers(0, 1 << 20, count) / 2
    small = (bits() >> rng.integers(11, 64, count).astype(np.uint64)).view(np.float64) * sign
    return np.concatenate([SPECIAL, -SPECIAL, any_bits, near, few, dense, whole, small])


def pairs(seed: int) -> tuple[Array, Array]:
    """Each special number with each; of all others, some near one another."""
    rng = np.random.default_rng(seed)
    special = np.concatenate([SPECIAL, -SPECIAL])
    x, y = numbers(seed), rng.permutation(numbers(seed + 1))
    with np.errstate(all="ignore"):
        close = np.where(rng.random(len(x)) < 0.3, x * (1 + rng.integers(-4, 5, len(x)) * 2.0**-52), y)
    flipped = np.where(rng.random(len(x)) < 0.5, -close, close)
    a, b = np.meshgrid(special, special)
    return np.concatenate([a.ravel(), x]), np.concatenate([b.ravel(), flipped])


def assert_same(got: Array, want: Array, *given: Array) -> None:
    assert got.dtype == want.dtype
    if got.dtype.kind == "f" or got.dtype.kind == "V":
        lost = np.isnan(want)
        np.testing.assert_array_equal(np.isnan(got), lost)
        got, want, given = got[~lost], want[~lost], tuple(g[~lost] for g in given)
    wrong = np.flatnonzero(got.view(f"u{got.itemsize}") != want.view(f"u{want.itemsize}"))
    if len(wrong):
        shown = [tuple(float(v[k]) for v in (*given, got, want)) for k in wrong[:5]]
        raise AssertionError(f"{len(wrong)} of {len(got)} differ: {shown}")


def split(text: str, *given: Array) -> list[Array]:
    """What a module computes on pairs."""
    made = transformed(parse_hlo(text), SplitWideTypes())
    edge = ("parameter", "bitcast", "tuple")
    others = [i for i in made.instructions() if i.opcode not in edge]
    assert not any(leaf.dtype.bits == 64 for i in others for leaf in i.shape.leaves() if leaf.is_array)
    with np.errstate(all="ignore"):
        return evaluate(made, *given)


def module(call: str, to: str, *types: str, count: int) -> str:
    given = "".join(f" {n} = {t}[{count}] parameter({k})\n" for k, (n, t) in enumerate(zip("xyz", types, strict=False)))
    return f"HloModule m\nENTRY e {{\n{given} ROOT r = {to}[{count}] {call}\n}}\n"


def same_as_evaluated(call: str, to: str, *given: Array) -> None:
    types = [next(t.name for t in DTYPES.values() if t.stored == x.dtype) for x in given]
    text = module(call, to, *types, count=len(given[0]))
    with np.errstate(all="ignore"):
        (want,) = evaluate(parse_hlo(text), *given)
    assert_same(split(text, *given)[0], want, *given)


@pytest.mark.parametrize("call", "negate abs sign copy sqrt floor ceil round-nearest-even round-nearest-afz".split())
def test_unary(call: str) -> None:
    same_as_evaluated(f"{call}(x)", "f64", numbers(0))


def test_finite() -> None:
    same_as_evaluated("is-finite(x)", "pred", numbers(0))


@pytest.mark.parametrize(
    ("exponent", "mantissa"), [(8, 23), (5, 10), (11, 52), (11, 20), (8, 52), (2, 0), (11, 51), (10, 21), (1, 3)]
)
def test_reduced_precision(exponent: int, mantissa: int) -> None:
    near = np.random.default_rng(0).standard_normal(4000) * 2.0 ** np.arange(-150, 150).repeat(14)[:4000]
    call = f"reduce-precision(x), exponent_bits={exponent}, mantissa_bits={mantissa}"
    same_as_evaluated(call, "f64", np.concatenate([numbers(0), near]))


@pytest.mark.parametrize("call", "maximum minimum add subtract multiply divide remainder".split())
def test_binary(call: str) -> None:
    same_as_evaluated(f"{call}(x, y)", "f64", *pairs(0))


def test_clamped() -> None:
    x, y = pairs(0)
    same_as_evaluated("clamp(x, y, z)", "f64", x, y, np.random.default_rng(0).permutation(y))


@pytest.mark.parametrize("order", ["FLOAT", "TOTALORDER"])
@pytest.mark.parametrize("direction", "EQ NE LT LE GT GE".split())
def test_compared(direction: str, order: str) -> None:
    same_as_evaluated(f"compare(x, y), direction={direction}, type={order}", "pred", *pairs(0))


TYPES = """pred s4 s8 s16 s32 s64 u4 u8 u16 u32 u64 f8e4m3fn f8e5m2 f8e4m3fnuz f8e5m2fnuz bf16 f16 f32 f64""".split()


@pytest.mark.parametrize("to", TYPES)
def test_to_other_types(to: str) -> None:
    rng = np.random.default_rng(1)
    near = rng.standard_normal(4000) * 2.0 ** rng.integers(-160, 140, 4000)
    ties = rng.standard_normal(4000).astype(np.float32) * (1 + 2.0**-24)
    same_as_evaluated("convert(x)", to, np.concatenate([numbers(0), near, ties, ties * 2.0**-130]))


@pytest.mark.parametrize("of", TYPES)
def test_of_other_types(of: str) -> None:
    rng = np.random.default_rng(2)
    t = DTYPES[of]
    bits = rng.integers(0, 2**64 - 1, 4000, np.uint64, endpoint=True) >> rng.integers(0, 64, 4000).astype(np.uint64)
    bits = np.concatenate([bits, np.arange(70000).astype(np.uint64), ~bits])
    given = (bits & np.uint64(1)).astype(np.bool_) if of == "pred" else bits.astype(f"u{t.size}").view(t.stored)
    same_as_evaluated("convert(x)", "f64", given)
