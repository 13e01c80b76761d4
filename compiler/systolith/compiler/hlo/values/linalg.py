"""`fft`, `cholesky`, `triangular-solve` and the batch-norm operations, by their definitions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from systolith.compiler.hlo.ir import Instruction, Literal
from systolith.compiler.hlo.values.convert import store, to_working

_FFT: dict[str, Callable[..., np.ndarray]] = {
    "FFT": np.fft.fftn,
    "IFFT": np.fft.ifftn,
    "RFFT": np.fft.rfftn,
    "IRFFT": np.fft.irfftn,
}


def fft(i: Instruction, x: np.ndarray) -> np.ndarray:
    """Over the last dimensions, in complex128."""
    lengths = i.ints("fft_length")
    if x.size == 0:
        return np.zeros((*x.shape[: x.ndim - len(lengths)], *i.dims[x.ndim - len(lengths) :]), i.shape.dtype.stored)
    axes = tuple(range(x.ndim - len(lengths), x.ndim))
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    return _FFT[i.word("fft_type")](wide, s=lengths, axes=axes).astype(i.shape.dtype.stored)


def cholesky(i: Instruction, x: np.ndarray) -> np.ndarray:
    """The triangle that `lower` names is read, and the factor is written there; zeros elsewhere; NaN if it fails."""
    dtype = i.shape.dtype
    wide = to_working(x, dtype, wide=True)
    lower = i.flag("lower")
    half = np.tril(wide) if lower else np.swapaxes(np.triu(wide), -1, -2).conj()
    full = half + np.swapaxes(np.tril(half, -1), -1, -2).conj()
    factors = np.zeros_like(full)
    for index in np.ndindex(*full.shape[:-2]):
        try:
            factors[index] = np.linalg.cholesky(full[index])
        except np.linalg.LinAlgError:
            factors[index] = np.nan
    factors[np.isnan(factors).any((-2, -1))] = np.nan  # of a NaN numpy makes NaN only what depends on it
    return store(factors if lower else np.swapaxes(factors, -1, -2).conj(), dtype)


def triangular_solve(i: Instruction, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """op(a) x = b, or x op(a) = b; only the triangle that `lower` names is read; a zero diagonal gives inf or NaN."""
    dtype = i.shape.dtype
    matrix, right = to_working(a, dtype, wide=True), to_working(b, dtype, wide=True)
    transpose = i.word("transpose_a", "NO_TRANSPOSE")
    with np.errstate(all="ignore"):
        solved = solve_triangle(matrix, right, i.flag("left_side"), i.flag("lower"), transpose, i.flag("unit_diagonal"))
        return store(solved, dtype)


def solve_triangle(
    a: np.ndarray, b: np.ndarray, left_side: bool, lower: bool, transpose: str, unit_diagonal: bool
) -> np.ndarray:
    """The solution of op(a) x = b (left side) or x op(a) = b by substitution, on batches.

    Args:
        a: ... x n x n, of which only one triangle is read.
        b: ... x n x m, or ... x m x n for the right side.
        left_side: a stands left of x.
        lower: which triangle.
        transpose: `NO_TRANSPOSE`, `TRANSPOSE` or `ADJOINT`.
        unit_diagonal: the diagonal is taken as ones.
    """
    if transpose == "ADJOINT":
        a = a.conj()
    if (transpose in ("TRANSPOSE", "ADJOINT")) == left_side:  # a row of op(a), or a column for the right side
        a, lower = np.swapaxes(a, -1, -2), not lower
    x = np.array(b if left_side else np.swapaxes(b, -1, -2))
    n = a.shape[-1]
    for step in range(n):
        k = step if lower else n - 1 - step
        known = slice(0, k) if lower else slice(k + 1, n)
        x[..., k, :] -= np.matmul(a[..., k, np.newaxis, known], x[..., known, :])[..., 0, :]
        if not unit_diagonal:
            x[..., k, :] /= a[..., k, k, np.newaxis]
    return x if left_side else np.swapaxes(x, -1, -2)


def _epsilon(i: Instruction) -> float:
    return float(np.float32(str(i.attributes.get("epsilon", "0"))))  # XLA keeps it as f32, whatever the arrays


def _per_feature(i: Instruction, x: np.ndarray, rank: int) -> np.ndarray:
    sizes = [1] * rank
    sizes[i.integer("feature_index")] = -1
    return x.astype(np.float64).reshape(sizes)


def _other_axes(i: Instruction, rank: int) -> tuple[int, ...]:
    return tuple(d for d in range(rank) if d != i.integer("feature_index"))


def batch_norm_inference(
    i: Instruction, x: np.ndarray, scale: np.ndarray, offset: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> np.ndarray:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset."""
    s, o, m, v = (_per_feature(i, p, x.ndim) for p in (scale, offset, mean, variance))
    return store((x.astype(np.float64) - m) / np.sqrt(v + _epsilon(i)) * s + o, i.shape.dtype)


def batch_norm_training(i: Instruction, x: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> Literal:
    """Normalised output, mean and (biased) variance of the batch."""
    wide, axes = x.astype(np.float64), _other_axes(i, x.ndim)
    mean, variance = wide.mean(axis=axes), wide.var(axis=axes)
    s, o, m, v = (_per_feature(i, p, x.ndim) for p in (scale, offset, mean, variance))
    dtypes = [e.dtype for e in i.shape.elements]
    values = ((wide - m) / np.sqrt(v + _epsilon(i)) * s + o, mean, variance)
    return tuple(store(value, dtype) for value, dtype in zip(values, dtypes, strict=True))


def batch_norm_grad(
    i: Instruction, x: np.ndarray, scale: np.ndarray, mean: np.ndarray, variance: np.ndarray, grad: np.ndarray
) -> Literal:
    """Gradients of input, scale and offset."""
    wide, upstream, axes = x.astype(np.float64), grad.astype(np.float64), _other_axes(i, x.ndim)
    s, m, v = (_per_feature(i, p, x.ndim) for p in (scale, mean, variance))
    inverse = 1 / np.sqrt(v + _epsilon(i))
    centred = wide - m
    count = x.size / max(x.shape[i.integer("feature_index")], 1)
    offset_grad = upstream.sum(axis=axes, keepdims=True)
    scale_sum = (upstream * centred).sum(axis=axes, keepdims=True)
    input_grad = s * inverse / count * (count * upstream - offset_grad - centred * inverse**2 * scale_sum)
    values = (input_grad, (scale_sum * inverse).reshape(-1), offset_grad.reshape(-1))
    dtypes = [e.dtype for e in i.shape.elements]
    return tuple(store(value, dtype) for value, dtype in zip(values, dtypes, strict=True))


LINALG: dict[str, Callable[..., Literal]] = {
    "fft": fft,
    "cholesky": cholesky,
    "triangular-solve": triangular_solve,
    "batch-norm-inference": batch_norm_inference,
    "batch-norm-training": batch_norm_training,
    "batch-norm-grad": batch_norm_grad,
}
"""Opcode to a function of the instruction and its operands' values."""
