"""`fft`, `cholesky`, `triangular-solve` and the batch-norm operations, by their definitions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from systolith.compiler.hlo.convert import store, to_working
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction, Literal

_FFT: dict[str, Callable[..., np.ndarray]] = {
    "FFT": np.fft.fftn,
    "IFFT": np.fft.ifftn,
    "RFFT": np.fft.rfftn,
    "IRFFT": np.fft.irfftn,
}


def fft(i: Instruction, x: np.ndarray) -> np.ndarray:
    """Over the last dimensions, in complex128."""
    lengths = i.ints("fft_length")
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
    return store(factors if lower else np.swapaxes(factors, -1, -2).conj(), dtype)


def triangular_solve(i: Instruction, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """op(a) x = b, or x op(a) = b; only the triangle that `lower` names is read."""
    dtype = i.shape.dtype
    matrix, right = to_working(a, dtype, wide=True), to_working(b, dtype, wide=True)
    triangle = np.tril(matrix) if i.flag("lower") else np.triu(matrix)
    if i.flag("unit_diagonal"):
        eye = np.eye(matrix.shape[-1], dtype=bool)
        triangle = np.where(eye, np.ones((), matrix.dtype), triangle)
    transpose = i.word("transpose_a", "NO_TRANSPOSE")
    if transpose != "NO_TRANSPOSE":
        triangle = np.swapaxes(triangle, -1, -2)
    if transpose == "ADJOINT":
        triangle = triangle.conj()
    try:
        if i.flag("left_side"):
            return store(np.linalg.solve(triangle, right), dtype)
        solved = np.linalg.solve(np.swapaxes(triangle, -1, -2), np.swapaxes(right, -1, -2))
    except np.linalg.LinAlgError:
        raise HloError("the triangular matrix is singular") from None
    return store(np.swapaxes(solved, -1, -2), dtype)


def _epsilon(i: Instruction) -> float:
    return float(str(i.attributes.get("epsilon", "0")))


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
