"""Fourier transforms as products with matrices of roots of unity, on the matrix units.

A transform of a length up to `DIRECT` is one product.  A longer one whose length has a factor up to that is two, one
over the places a stride apart and one within, with a product by roots of unity between (Cooley and Tukey); the second
may be longer itself.  A length with large prime factors only is a convolution with a chirp, of a power of two
(Bluestein).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from systolith.compiler.hlo.attributes import PadDim
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import DTYPES, F32, DType, Kind

COMPLEX = {F32: DTYPES["c64"], DTYPES["f64"]: DTYPES["c128"]}
"""Numbers of parts of a type."""

REAL = {number: part for part, number in COMPLEX.items()}

DIRECT = {F32: 128, DTYPES["f64"]: 32}
"""The longest transform that is one product, by the type of the parts: the rows of a matrix unit; where the vector unit
computes the product, as many as take no longer than two stages and the roots between."""

CHIRPED = {F32: 128, DTYPES["f64"]: 512}
"""A transform of a length up to this whose factors are longer than `DIRECT` is one product, too; a longer one is a
convolution with a chirp, of up to four times the length."""


@dataclass(frozen=True)
class ExpandFfts:
    """Expand `fft`, all four types, over up to three dimensions."""

    def run(self, module: Module) -> bool:
        return rewrite(module, lambda r, i: _expanded(r, i) if i.opcode == "fft" else None)


def _expanded(r: Rewriter, i: Instruction) -> Instruction | None:
    (x,) = i.operands
    lengths = i.ints("fft_length")
    if x.shape.is_dynamic or not i.shape.size:
        return None
    first = len(x.dims) - len(lengths)
    kind = i.word("fft_type")
    inverse = kind.startswith("I")
    axes = range(first, len(x.dims))
    if kind == "IRFFT":
        for axis in axes[:-1]:
            x = _along(r, x, axis, lambda r, x: _transform(r, x, True))
        return _part(r, "real", _transform(r, _mirrored(r, x, lengths[-1]), True))
    if kind == "RFFT":
        x = _start(r, _transform(r, x, False), i.dims[-1])
        axes = axes[:-1]
    for axis in reversed(axes):
        x = _along(r, x, axis, lambda r, x: _transform(r, x, inverse))
    return x


def _along(
    r: Rewriter, x: Instruction, axis: int, function: Callable[[Rewriter, Instruction], Instruction]
) -> Instruction:
    """A function of the last dimension along another one."""
    last = len(x.dims) - 1
    order = (*(d for d in range(len(x.dims)) if d != axis), axis)
    if axis == last:
        return function(r, x)
    made = function(r, r.transposed(x, order))
    return r.transposed(made, tuple(order.index(d) for d in range(len(order))))


def _transform(r: Rewriter, x: Instruction, inverse: bool) -> Instruction:
    """The transform of the last dimension; an inverse one with its factor 1 / n."""
    n, part = x.dims[-1], _real(x)
    one = max((f for f in range(2, DIRECT[part] + 1) if n % f == 0), default=0)
    if n <= DIRECT[part] or (not one and n <= CHIRPED[part]):
        return _multiplied(r, x, len(x.dims) - 1, _roots(n, n, n, inverse) / (n if inverse else 1))
    return _in_two(r, x, one, inverse) if one else _chirped(r, x, inverse)


def _roots(n: int, rows: int, columns: int, inverse: bool) -> npt.NDArray[np.complex128]:
    """exp(-2 pi i j k / n), of an inverse transform exp(2 pi i j k / n)."""
    places = np.outer(np.arange(rows, dtype=np.int64), np.arange(columns, dtype=np.int64)) % n
    roots: npt.NDArray[np.complex128] = np.exp((2j if inverse else -2j) * np.pi * places / n)
    return roots


def _in_two(r: Rewriter, x: Instruction, one: int, inverse: bool) -> Instruction:
    """x[j other + l] = sum over j, times roots at l k, then over l, at k + one m."""
    *batch, n = x.dims
    other = n // one
    apart = r.reshaped(x, (*batch, one, other))
    matrix = _roots(one, one, one, inverse) / (one if inverse else 1)
    turned = _multiplied(r, apart, len(batch), matrix)  # (..., other, one)
    scaled = _times(r, turned, _roots(n, other, one, inverse))
    rank = len(batch)
    swapped = (*range(rank), rank + 1, rank)
    done = _transform(r, r.transposed(scaled, swapped), inverse)
    return r.reshaped(r.transposed(done, swapped), (*batch, n))


def _chirped(r: Rewriter, x: Instruction, inverse: bool) -> Instruction:
    """With c[j] = exp(-pi i j^2 / n): c[k] times the sum of x[j] c[j] / c[k - j], by transforms of a power of two."""
    *batch, n = x.dims
    size = 1 << (2 * n - 2).bit_length()
    squares = np.arange(n, dtype=np.int64) ** 2 % (2 * n)
    chirp = np.exp((1j if inverse else -1j) * np.pi * squares / n)
    kernel = np.zeros(size, np.complex128)
    kernel[:n] = chirp.conj()
    kernel[size - n + 1 :] = chirp[1:].conj()[::-1]
    given = x if x.shape.dtype.kind is Kind.COMPLEX else _complex(r, x, r.full(0, x.shape))
    number = COMPLEX[_real(x)]
    pads = (*(PadDim(0, 0) for _ in batch), PadDim(0, size - n))
    zero = r.constant(0, number)
    padded = r.emit("pad", _times(r, given, chirp), zero, shape=array(number, (*batch, size)), padding=pads)
    spectrum = _times(r, _transform(r, padded, False), np.fft.fft(kernel))
    back = _start(r, _transform(r, spectrum, True), n)
    return _times(r, back, chirp / (n if inverse else 1))


def _multiplied(r: Rewriter, x: Instruction, axis: int, matrix: npt.NDArray[np.complex128]) -> Instruction:
    """The sum over one dimension of `x` times the rows of a matrix; its columns become the last dimension."""
    batch = tuple(n for d, n in enumerate(x.dims) if d != axis)
    part = _real(x)
    exact = {"algorithm": "dot_f32_f32_f32"} if part is F32 else {}

    def product(a: Instruction, b: npt.NDArray[np.float64]) -> Instruction:
        return r.emit(
            "dot",
            a,
            r.constant(b.astype(part.stored), part),
            shape=array(part, (*batch, b.shape[1])),
            lhs_contracting_dims=(axis,),
            rhs_contracting_dims=(0,),
            **exact,
        )

    if part is not F32:
        return _in_one(r, x, axis, matrix, product)
    if x.shape.dtype.kind is not Kind.COMPLEX:
        return _complex(r, product(x, matrix.real), product(x, matrix.imag))
    a, b = (_part(r, name, x) for name in ("real", "imag"))
    real = r.emit("subtract", product(a, matrix.real), product(b, matrix.imag))
    return _complex(r, real, r.emit("add", product(a, matrix.imag), product(b, matrix.real)))


def _in_one(
    r: Rewriter,
    x: Instruction,
    axis: int,
    matrix: npt.NDArray[np.complex128],
    product: Callable[[Instruction, npt.NDArray[np.float64]], Instruction],
) -> Instruction:
    """One product of real numbers: the parts of `x` lie one after the other in the dimension that is summed over, those
    of the result in the last one.

    On the vector unit each product is a loop of its own, which takes time to compile.
    """
    n = matrix.shape[1]
    rows = np.concatenate([matrix.real, matrix.imag], 1)
    if x.shape.dtype.kind is Kind.COMPLEX:
        rows = np.concatenate([rows, np.concatenate([-matrix.imag, matrix.real], 1)])
        dims = (*x.dims[:axis], 2 * x.dims[axis], *x.dims[axis + 1 :])
        a, b = (_part(r, name, x) for name in ("real", "imag"))
        x = r.emit("concatenate", a, b, shape=array(a.shape.dtype, dims), dimensions=(axis,))
    both = product(x, rows)
    inner = [(0, m) for m in both.dims[:-1]]
    return _complex(r, r.sliced(both, [*inner, (0, n)]), r.sliced(both, [*inner, (n, 2 * n)]))


def _times(r: Rewriter, x: Instruction, factors: npt.NDArray[np.complex128]) -> Instruction:
    """`x` times an array along its last dimensions."""
    first = len(x.dims) - factors.ndim
    number = x.shape.dtype
    constant = r.literal(factors.astype(number.stored), array(number, factors.shape))
    dimensions = tuple(range(first, len(x.dims)))
    return r.emit("multiply", x, r.emit("broadcast", constant, shape=array(number, x.dims), dimensions=dimensions))


def _mirrored(r: Rewriter, x: Instruction, n: int) -> Instruction:
    """All n coefficients of a real sequence, of the first half: the others are conjugates, in reverse."""
    last = len(x.dims) - 1
    half = n // 2 + 1
    inner = [*((0, m) for m in x.dims[:-1]), (1, 1 + n - half)]
    if n == half:
        return x
    others = r.emit("reverse", r.sliced(x, inner), dimensions=(last,))
    conjugate = _complex(r, _part(r, "real", others), r.emit("negate", _part(r, "imag", others)))
    return r.emit("concatenate", x, conjugate, shape=array(x.shape.dtype, (*x.dims[:-1], n)), dimensions=(last,))


def _start(r: Rewriter, x: Instruction, n: int) -> Instruction:
    """The first elements of the last dimension."""
    return r.sliced(x, [*((0, m) for m in x.dims[:-1]), (0, n)])


def _complex(r: Rewriter, real: Instruction, imag: Instruction) -> Instruction:
    return r.emit("complex", real, imag, shape=array(COMPLEX[real.shape.dtype], real.dims))


def _part(r: Rewriter, name: str, x: Instruction) -> Instruction:
    return r.emit(name, x, shape=array(_real(x), x.dims))


def _real(x: Instruction) -> DType:
    """The type of an array's parts, or of its elements, if they are real."""
    return REAL.get(x.shape.dtype, x.shape.dtype)
