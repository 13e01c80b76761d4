"""Fourier transforms as products: all types, lengths and dimensions, against numpy in f64, and on the chip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.expand.ffts import CHIRPED, DIRECT, ExpandFfts
from systolith.isa.chip import load_chip
from systolith.isa.dtypes import DTYPES, F32
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import compiled, run
from tests.compiler.passes.differential import transformed
from tests.examples import examples, with_slow

Array = npt.NDArray[Any]

TYPES: dict[str, Callable[..., Array]] = {
    "FFT": np.fft.fftn,
    "IFFT": np.fft.ifftn,
    "RFFT": np.fft.rfftn,
    "IRFFT": np.fft.irfftn,
}


def module(kind: str, batch: tuple[int, ...], lengths: tuple[int, ...], wide: bool = False) -> str:
    half = (*lengths[:-1], lengths[-1] // 2 + 1)
    given, made = (half if kind == t else lengths for t in ("IRFFT", "RFFT"))
    real, number = ("f64", "c128") if wide else ("f32", "c64")
    t, u = (real if kind == name else number for name in ("RFFT", "IRFFT"))

    def text(dims: tuple[int, ...]) -> str:
        return ",".join(map(str, (*batch, *dims)))

    call = f"fft(x), fft_type={kind}, fft_length={{{','.join(map(str, lengths))}}}"
    return f"HloModule m\nENTRY e {{\n x = {t}[{text(given)}] parameter(0)\n ROOT r = {u}[{text(made)}] {call}\n}}\n"


def argument(text: str, seed: int) -> Array:
    rng, (p,) = np.random.default_rng(seed), parse_hlo(text).entry.parameters
    x = rng.standard_normal(p.dims) + (1j * rng.standard_normal(p.dims) if p.shape.dtype.name[0] == "c" else 0)
    return x.astype(p.shape.dtype.stored)


def assert_close(got: Array, kind: str, x: Array, lengths: tuple[int, ...]) -> None:
    axes = range(x.ndim - len(lengths), x.ndim)
    wanted = TYPES[kind](x.astype(np.complex128 if x.dtype.kind == "c" else np.float64), s=lengths, axes=axes)
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max() <= 25 * np.finfo(x.dtype).eps * np.abs(wanted).max()


@examples(20, 40)
@given(
    st.sampled_from(sorted(TYPES)),
    st.lists(st.integers(1, 3), max_size=2).map(tuple),
    st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple),
    st.integers(0, 100),
    st.booleans(),
)
def test_any_dimensions(kind: str, batch: tuple[int, ...], lengths: tuple[int, ...], seed: int, wide: bool) -> None:
    text = module(kind, batch, lengths, wide)
    x = argument(text, seed)
    made = transformed(parse_hlo(text), ExpandFfts())
    assert not any(i.opcode == "fft" for i in made.instructions())
    assert_close(evaluate(made, x)[0], kind, x, lengths)


@pytest.mark.parametrize("kind", with_slow(TYPES, {"FFT"}))
@pytest.mark.parametrize(
    "n", [DIRECT[F32] + 3, *(pytest.param(n, marks=pytest.mark.slow) for n in (262, DIRECT[F32], 256, 2310))]
)
def test_long_ones(kind: str, n: int) -> None:
    """A product, a prime, halves, twice a prime, several factors."""
    text = module(kind, (2,), (n,))
    x = argument(text, n)
    assert_close(evaluate(transformed(parse_hlo(text), ExpandFfts()), x)[0], kind, x, (n,))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    "lengths", [(3, 10), *(pytest.param(n, marks=pytest.mark.slow) for n in ((6,), (131,), (160,), (2, 3, 4)))]
)
def test_on_the_chip(kind: str, lengths: tuple[int, ...]) -> None:
    """The precision of the program's products is none of a transform."""
    text = module(kind, (2,), lengths)
    x = argument(text, 1)
    (got,) = run(compiled(text, "small", "default").program, load_chip("small"), [x])
    assert_close(got, kind, x, lengths)
    (wanted,) = run_xla(text, x)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("n", [6, *(pytest.param(n, marks=pytest.mark.slow) for n in (11, 37, 48))])
def test_of_doubles_on_the_chip(kind: str, n: int) -> None:
    text = module(kind, (2,), (n,), wide=True)
    x = argument(text, 1)
    (got,) = run(compiled(text, "small").program, load_chip("small"), [x])
    assert_close(got, kind, x, (n,))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("n", [DIRECT[DTYPES["f64"]], 37, 48, CHIRPED[DTYPES["f64"]] + 9])
def test_stages_of_doubles(kind: str, n: int) -> None:
    """One product, one of a prime length, two, a chirp.  Each product takes time to compile, hence one a stage."""
    text = module(kind, (2,), (n,), wide=True)
    x = argument(text, 1)
    made = transformed(parse_hlo(text), ExpandFfts())
    assert_close(evaluate(made, x)[0], kind, x, (n,))
    if n < CHIRPED[DTYPES["f64"]]:
        assert sum(i.opcode == "dot" for i in made.instructions()) == (2 if n == 48 else 1)
