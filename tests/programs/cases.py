"""The programs, arguments for them, and numpy's results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = list[Array]
Arguments = Callable[[np.random.Generator], Arrays]
Expected = Callable[[Arrays], Arrays]
F32 = np.float32

HERE = Path(__file__).resolve().parent
CHIPS = ("tiny", "small")


@dataclass(frozen=True)
class Case:
    """A program.

    Attributes:
        path: its assembly.
        arguments: makes its parameters.
        expected: its results, from the parameters.
        tolerance: of differences, relative to the greatest result; 0: the same bits.
        host: arguments come through infeed queue 0, results go to outfeed queue 1.
    """

    path: Path
    arguments: Arguments
    expected: Expected
    tolerance: float = 0.0
    host: bool = False


def _threefry_arguments(rng: np.random.Generator) -> Arrays:
    words = rng.integers(0, 2**32, (4, 64), np.uint32)
    # Random123's known answers: key, counter.
    words[:, 0] = 0
    words[:, 1] = 0xFFFFFFFF
    words[:, 2] = 0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3
    return list(words)


def _threefry(arguments: Arrays) -> Arrays:
    key0, key1, x, y = arguments
    keys = (key0, key1, key0 ^ key1 ^ np.uint32(0x1BD11BDA))
    x, y = x + keys[0], y + keys[1]
    for group in range(5):
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x = x + y
            y = (y << np.uint32(r) | y >> np.uint32(32 - r)) ^ x
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + np.uint32(group + 1)
    for i, answer in enumerate(((0x6B200159, 0x99BA4EFE), (0x1CB996FC, 0xBB002BE7), (0xC4923A9C, 0x483DF7A0))):
        assert (int(x[i]), int(y[i])) == answer
    return [x, y]


def _philox_arguments(rng: np.random.Generator) -> Arrays:
    words = rng.integers(0, 2**32, (6, 64), np.uint32)
    # Random123's known answers: key, counter.
    words[:, 0] = 0
    words[:, 1] = 0xFFFFFFFF
    words[:, 2] = 0xA4093822, 0x299F31D0, 0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344
    return [words[:2].copy(), words[2:].copy()]


def _philox(arguments: Arrays) -> Arrays:
    (k0, k1), (x0, x1, x2, x3) = (a.astype(np.uint64) for a in arguments)
    low, word = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        p0, p1 = x0 * np.uint64(0xD2511F53), x2 * np.uint64(0xCD9E8D57)
        x0, x1, x2, x3 = p1 >> word ^ x1 ^ k0, p1 & low, p0 >> word ^ x3 ^ k1, p0 & low
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    bits = np.stack([x0, x1, x2, x3]).astype(np.uint32)
    assert bits[:, :3].T.tolist() == [
        [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
        [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ]
    return [bits]


def _sort_arguments(rng: np.random.Generator) -> Arrays:
    keys = rng.integers(-20, 20, 100).astype(F32)  # many equal ones: a sort that is not stable is found
    keys[[3, 50, 80]] = 0.0, -0.0, 0.0
    keys[[10, 11, 60]] = np.inf, -np.inf, 1e-40
    keys[[20, 90]] = np.array([0x7FC00000, 0xFFC00001], np.uint32).view(F32)
    return [keys]


def _sort(arguments: Arrays) -> Arrays:
    bits = arguments[0].view(np.int32)
    order = np.argsort(bits ^ ((bits >> 31) & 0x7FFFFFFF), kind="stable").astype(np.int32)
    return [arguments[0][order], order]


def _gather_arguments(rng: np.random.Generator) -> Arrays:
    indices = rng.integers(0, 20, 12).astype(np.int32)
    indices[[2, 5, 9]] = -7, 20, 2**31 - 1
    indices[3] = indices[4]
    return [rng.standard_normal((20, 8), F32), indices]


def _gather(arguments: Arrays) -> Arrays:
    rows = arguments[0][np.clip(arguments[1], 0, 19)]
    return [rows, rows * F32(0.5)]


def _scatter_arguments(rng: np.random.Generator) -> Arrays:
    indices = rng.integers(0, 6, 12).astype(np.int32)  # few rows: many duplicates
    indices[[1, 7, 8]] = 29, -1, -(2**31)  # row 29 would be an update that comes later
    unique = rng.permutation(24)[:12].astype(np.int32)
    unique[[0, 6]] = -3, 23
    values = rng.standard_normal((12, 8), F32)
    values[::2] *= F32(1e4)  # the order of additions shows
    return [rng.standard_normal((20, 8), F32), indices, values, unique]


def _scatter(arguments: Arrays) -> Arrays:
    table, indices, values, unique = arguments
    added, replaced = table.copy(), table.copy()
    for i, row in zip(indices, values, strict=True):
        if 0 <= i < 20:
            added[i] += row
    for i, row in zip(unique, values, strict=True):
        if 0 <= i < 20:
            replaced[i] = row
    return [added, replaced]


def _collatz(arguments: Arrays) -> Arrays:
    steps = np.zeros(16, np.int32)
    for i, x in enumerate(arguments[0].tolist()):
        while x > 1:
            x = 3 * x + 1 if x % 2 else x // 2
            steps[i] += 1
    return [steps]


def _cholesky_arguments(rng: np.random.Generator) -> Arrays:
    b = rng.standard_normal((16, 16))
    matrix = (b @ b.T + 16 * np.eye(16)).astype(F32)
    matrix[np.triu_indices(16, 1)] = np.nan  # nothing depends on elements above the diagonal
    return [matrix]


def _cholesky(arguments: Arrays) -> Arrays:
    lower = np.tril(np.nan_to_num(arguments[0])).astype(np.float64)
    return [np.linalg.cholesky(lower + np.tril(lower, -1).T).astype(F32)]


def _trisolve_arguments(rng: np.random.Generator) -> Arrays:
    lower = np.tril(rng.standard_normal((16, 16), F32)) + 8 * np.eye(16, dtype=F32)
    lower[np.triu_indices(16, 1)] = np.nan  # the same
    return [lower, rng.standard_normal((16, 8), F32)]


def _trisolve(arguments: Arrays) -> Arrays:
    lower, right = (a.astype(np.float64) for a in arguments)
    return [np.linalg.solve(np.tril(np.nan_to_num(lower)), right).astype(F32)]


def _bits_arguments(rng: np.random.Generator) -> Arrays:
    x = np.ldexp(rng.standard_normal(64), rng.integers(-20, 20, 64)).astype(F32)
    x[:8] = np.inf, -np.inf, np.nan, -0.0, 65519.9, 65520.0, 1e-40, -(2.0**-14)
    x[8:12] = 1 + 2.0**-11, 1 + 3 * 2.0**-11, 2.0**-14 * (1 - 2.0**-12), 2.0**-14 * (1 - 2.0**-11)
    return [x]


def _bits(arguments: Arrays) -> Arrays:
    x = arguments[0]
    mantissa, exponent = np.frexp(x.astype(np.float64))
    rounded = np.ldexp(np.rint(mantissa * 2**11), exponent - 11)
    rounded = np.where(np.abs(rounded) >= 2.0**16, np.copysign(np.inf, x), rounded)
    rounded = np.where(np.abs(rounded) < 2.0**-14, np.copysign(0.0, x), rounded)
    reduced = np.where(np.isnan(x), x, rounded.astype(F32))
    return [reduced, x.view(np.uint16).astype(np.uint32).reshape(64, 2)]


def _complex_arguments(rng: np.random.Generator) -> Arrays:
    return list(rng.standard_normal((2, 64), F32))


def _fft(arguments: Arrays) -> Arrays:
    spectrum = np.fft.fft(arguments[0] + 1j * arguments[1].astype(np.float64))
    return [spectrum.real.astype(F32), spectrum.imag.astype(F32)]


def _small_integers(rng: np.random.Generator, *shape: int) -> Array:
    """Whose products and sums are exact in f32, in any order."""
    return rng.integers(-8, 9, shape).astype(F32)


def _convolve(image: Array, weights: Array, stride: int, padding: int) -> Array:
    """[y, x, c] with [ky, kx, c, f] to [y, x, f]."""
    image = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(image, weights.shape[:2], (0, 1))[::stride, ::stride]
    return np.asarray(np.einsum("yxcij,ijcf->yxf", windows, weights), F32)


def _stem_arguments(rng: np.random.Generator) -> Arrays:
    image, weights = _small_integers(rng, 16, 16, 3), np.abs(_small_integers(rng, 7, 7, 3, 8)) + 1
    image[6, 6] = np.inf  # makes NaN of a zero weight, if a tap that does not exist reads it
    return [image.astype(ml_dtypes.bfloat16), weights.astype(ml_dtypes.bfloat16)]


def _stem(arguments: Arrays) -> Arrays:
    image, weights = (a.astype(F32) for a in arguments)
    return [_convolve(image, weights, 2, 3)]


def _dilated(arguments: Arrays) -> Arrays:
    image, weights = np.zeros((11, 11, 8), F32), np.zeros((5, 5, 8, 8), F32)
    image[::2, ::2], weights[::2, ::2] = arguments
    return [_convolve(image, weights, 1, 2)]


def _ragged_arguments(rng: np.random.Generator) -> Arrays:
    return [_small_integers(rng, 24, 8), _small_integers(rng, 3, 8, 8), np.array([7, 0, 11], np.int32)]


def _ragged(arguments: Arrays) -> Arrays:
    left, right, sizes = arguments
    group = np.repeat(np.arange(3), sizes)
    product = np.zeros((24, 8), F32)
    product[: len(group)] = np.einsum("mk,mkn->mn", left[: len(group)], right[group])
    return [product]


def _int8_arguments(rng: np.random.Generator) -> Arrays:
    return [rng.integers(-128, 128, (24, 16), np.int8), rng.integers(0, 256, (8, 16), np.uint8)]


def _int8(arguments: Arrays) -> Arrays:
    product = arguments[0].astype(np.int32) @ arguments[1].astype(np.int32).T
    return [product, product.T.copy()]


def _pool_arguments(rng: np.random.Generator) -> Arrays:
    operand = rng.integers(-3, 1, (9, 9, 8)).astype(F32)  # many equal ones: the first counts
    operand[4:7, 2:6] = -np.inf
    return [operand, _small_integers(rng, 5, 5, 8)]


def _pool(arguments: Arrays) -> Arrays:
    operand, source = arguments
    padded = np.pad(operand, ((1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (0, 1))[::2, ::2]
    exists = np.pad(np.ones((9, 9, 8), bool), ((1, 1), (1, 1), (0, 0)))
    exists = np.lib.stride_tricks.sliding_window_view(exists, (3, 3), (0, 1))[::2, ::2]
    pooled = windows.max((3, 4))
    first = ((windows == pooled[..., None, None]) & exists).reshape(5, 5, 8, 9).argmax(-1)
    y, x, c = np.indices(first.shape)
    gradient = np.zeros_like(operand)
    np.add.at(gradient, (2 * y - 1 + first // 3, 2 * x - 1 + first % 3, c), source)
    return [pooled, gradient]


def _case(name: str, arguments: Arguments, expected: Expected, tolerance: float = 0.0, host: bool = False) -> Case:
    return Case(HERE / f"{name}.s", arguments, expected, tolerance, host)


CASES: dict[str, Case] = {
    c.path.stem: c
    for c in (
        _case("threefry", _threefry_arguments, _threefry),
        _case("philox", _philox_arguments, _philox),
        _case("sort", _sort_arguments, _sort),
        _case("gather", _gather_arguments, _gather),
        _case("scatter", _scatter_arguments, _scatter),
        _case("collatz", lambda rng: [rng.integers(-3, 400, 16).astype(np.int32)], _collatz),
        _case("cholesky", _cholesky_arguments, _cholesky, 1e-6),
        _case("trisolve", _trisolve_arguments, _trisolve, 1e-6),
        _case("fft", _complex_arguments, _fft, 1e-6),
        _case("conv_stem", _stem_arguments, _stem),
        _case("conv_dilated", lambda rng: [_small_integers(rng, 6, 6, 8), _small_integers(rng, 3, 3, 8, 8)], _dilated),
        _case("ragged_dot", _ragged_arguments, _ragged),
        _case("bits", _bits_arguments, _bits),
        _case(
            "host_queues",
            lambda rng: [_small_integers(rng, 3, 16)],
            lambda a: [np.cumsum(a[0], axis=0, dtype=F32)],
            0.0,
            True,
        ),
        _case("int8_gemm", _int8_arguments, _int8),
        _case("select_and_scatter", _pool_arguments, _pool),
    )
}
