"""`dot` and `convolution`, with operands rounded as the requested precision says.

An f32 (or f16) operand is split into bf16 parts, as the matrix unit takes them:

    default   one part:  the operand rounded to bf16
    high      two parts: the products hi*hi + hi*lo + lo*hi
    highest   three parts, which hold all 24 bits: evaluated as the unsplit product

bf16 and fp8 operands are exact in one part, and f64 is never split.  Sums are in f64, rounded once to the result's
type, so that this result is nearer to the exact one than any order of f32 additions.  Integer sums wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from systolith.compiler.hlo.attributes import PadDim, WindowDim
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.values.convert import round_bf16, store
from systolith.compiler.hlo.values.movement import padded
from systolith.isa.dtypes import DType, Kind

PRECISIONS = ("default", "high", "highest")

Product = Callable[[np.ndarray, np.ndarray], np.ndarray]
_SPLIT = frozenset({"f32", "f16", "c64"})


# A precision that is at least as good as a dot's `algorithm=`.
ALGORITHMS: dict[str, str] = {
    **dict.fromkeys(("dot_any_f8_any_f8_f32", "dot_any_f8_any_f8_f32_fast_accum"), "default"),
    **dict.fromkeys(("dot_bf16_bf16_bf16", "dot_bf16_bf16_f32"), "default"),
    **dict.fromkeys(("dot_bf16_bf16_f32_x3", "dot_tf32_tf32_f32", "dot_f16_f16_f16", "dot_f16_f16_f32"), "high"),
    **dict.fromkeys(("dot_bf16_bf16_f32_x6", "dot_bf16_bf16_f32_x9", "dot_tf32_tf32_f32_x3"), "highest"),
    **dict.fromkeys(("dot_f32_f32_f32", "dot_f64_f64_f64"), "highest"),
}


def requested_precision(i: Instruction, override: str | None = None) -> str:
    """The precision a dot or convolution runs at: its algorithm's, else the override, else the higher of its operands'.

    Raises:
        HloError: the algorithm or precision is unknown.
    """
    asked = (override,) if override is not None else i.words("operand_precision", ("default",))
    algorithm = i.word("algorithm", "dot_unset")
    if algorithm != "dot_unset":
        if algorithm not in ALGORITHMS:
            raise HloError(f"unknown algorithm {algorithm!r}; known: {', '.join(ALGORITHMS)}")
        asked = (ALGORITHMS[algorithm],)
    unknown = [p for p in asked if p not in PRECISIONS]
    if unknown:
        raise HloError(f"unknown precision {unknown[0]!r}; known: {', '.join(PRECISIONS)}")
    return max(asked, key=PRECISIONS.index)


def _carrier(lhs: DType, rhs: DType, result: DType) -> np.dtype[np.generic]:
    """The type in which products are summed; f64 where it is exact for narrow integers too."""
    kinds = {lhs.kind, rhs.kind, result.kind}
    if Kind.COMPLEX in kinds:
        return np.dtype(np.complex128)
    if Kind.FLOAT in kinds or (lhs.bits <= 16 and rhs.bits <= 16):
        return np.dtype(np.float64)
    return np.dtype(np.uint64)


def _bf16(x: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "c":
        return np.asarray(round_bf16(np.real(x)) + 1j * round_bf16(np.imag(x)))
    return round_bf16(x.astype(np.float32))


def _low_part(x: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The second bf16 part; 0 where the first is no finite number."""
    return np.where(np.isfinite(high), _bf16(x - np.where(np.isfinite(high), high, 0)), 0).astype(high.dtype)


def contract(i: Instruction, lhs: np.ndarray, rhs: np.ndarray, precision: str | None, product: Product) -> np.ndarray:
    """A bilinear operation on operands split as the precision says, rounded to the result's type.

    Args:
        i: the instruction, for element types and precision.
        lhs, rhs: operands.
        precision: overrides the instruction's.
        product: the operation on operands in the type that sums are taken in.
    """
    left, right = (o.shape.dtype for o in i.operands[:2])
    carrier = _carrier(left, right, i.shape.dtype)
    level = requested_precision(i, precision)

    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return product(a.astype(carrier, copy=False), b.astype(carrier, copy=False))

    with np.errstate(all="ignore"):
        if level == "highest" or not {left.name, right.name} & _SPLIT:
            return _narrowed(run(lhs, rhs), i.shape.dtype)
        high = [_bf16(x) if t.name in _SPLIT else x for x, t in ((lhs, left), (rhs, right))]
        total = run(high[0], high[1])
        if level == "high":
            parts = ((lhs, high[0], left), (rhs, high[1], right))
            low = [_low_part(x, h) if t.name in _SPLIT else None for x, h, t in parts]
            finite = [np.where(np.isfinite(h.astype(carrier)), h, 0) for h in high]
            if low[1] is not None:
                total = total + run(finite[0], low[1])
            if low[0] is not None:
                total = total + run(low[0], finite[1])
        return _narrowed(total, i.shape.dtype)


def _narrowed(total: np.ndarray, dtype: DType) -> np.ndarray:
    if total.dtype.kind == "c" and dtype.kind is not Kind.COMPLEX:
        total = total.real
    if dtype.kind in (Kind.SIGNED, Kind.UNSIGNED) and total.dtype.kind == "f":
        total = total.astype(np.int64)
    if dtype.kind is Kind.PRED:
        return np.asarray(total != 0)
    if dtype.is_float and dtype.bits < 32:
        total = total.astype(np.float32)
    return store(total, dtype)


def dot(i: Instruction, precision: str | None, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """`dot`: batch dimensions, then the free ones of the left, then of the right."""
    sides = []
    for side, x in (("lhs", lhs), ("rhs", rhs)):
        batch, contracted = i.ints(f"{side}_batch_dims", ()), i.ints(f"{side}_contracting_dims", ())
        free = tuple(d for d in range(x.ndim) if d not in (*batch, *contracted))
        sides.append((batch, contracted, free))
    (lb, lc, lf), (rb, rc, rf) = sides
    left = lhs.transpose(*lb, *lf, *lc).reshape(_grouped(lhs, lb, lf, lc))
    right = rhs.transpose(*rb, *rc, *rf).reshape(_grouped(rhs, rb, rc, rf))
    result = contract(i, left, right, precision, np.matmul)
    sizes = [*(lhs.shape[d] for d in (*lb, *lf)), *(rhs.shape[d] for d in rf)]
    return result.reshape(sizes)


def _grouped(x: np.ndarray, *groups: Sequence[int]) -> list[int]:
    return [prod(x.shape[d] for d in group) for group in groups]


def convolution(i: Instruction, precision: str | None, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """`convolution`: any dimension numbers, window, and groups of features or batches."""
    n = i.conv_dims
    x = lhs.transpose(n.input_batch, *n.input_spatial, n.input_feature)
    w = rhs.transpose(*n.kernel_spatial, n.kernel_input, n.kernel_output)
    reversed_dims = tuple(at for at, d in enumerate(i.window.dims) if d.reversal)
    w = np.flip(w, reversed_dims) if reversed_dims else w
    groups, batch_groups = i.integer("feature_group_count", 1), i.integer("batch_group_count", 1)
    if batch_groups > 1:  # each block of the batch meets its own block of output features
        x = np.concatenate(np.split(x, batch_groups, axis=0), axis=-1)
        groups = batch_groups
    dims = i.window.dims

    def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return _convolve(_spread(a, dims), b, dims, groups)

    result = contract(i, x, w, precision, product)
    place = [0] * result.ndim
    for source, target in enumerate((n.output_batch, *n.output_spatial, n.output_feature)):
        place[target] = source
    return result.transpose(place)


def _spread(x: np.ndarray, dims: Sequence[WindowDim]) -> np.ndarray:
    """Base dilation and padding with zeros of N, spatial..., C; where the edges are negative, cropped."""
    edges = [PadDim(d.low, d.high, d.base_dilation - 1) for d in dims]
    return padded(x, np.zeros((), x.dtype), [PadDim(0, 0), *edges, PadDim(0, 0)])


def _convolve(x: np.ndarray, w: np.ndarray, dims: Sequence[WindowDim], groups: int) -> np.ndarray:
    """Sum over the window of matrix products of N, spatial..., C with spatial..., C / groups, O."""
    positions = [(n - d.reach) // d.stride + 1 if n >= d.reach else 0 for n, d in zip(x.shape[1:-1], dims, strict=True)]
    sizes = [d.size for d in dims]
    batch, features, outputs = x.shape[0], w.shape[-2], w.shape[-1] // groups
    kernel = np.moveaxis(w.reshape(*sizes, features, groups, outputs), -2, len(sizes))  # spatial, G, C, O
    if prod(sizes) > prod(positions):
        result = _by_position(x, kernel, dims, positions, groups)
    else:
        result = np.zeros((groups, batch * prod(positions), outputs), x.dtype)
        for tap in np.ndindex(*sizes):
            result += np.matmul(_grouped_rows(x[_tap(tap, dims, positions)], groups, features), kernel[tap])
    result = np.moveaxis(result, 0, 1)  # rows, G, O
    return result.reshape(batch, *positions, groups * outputs)


def _tap(tap: Sequence[int], dims: Sequence[WindowDim], positions: Sequence[int]) -> tuple[slice, ...]:
    """The elements that one element of the window meets, over all positions."""
    starts = [t * d.window_dilation for t, d in zip(tap, dims, strict=True)]
    spans = zip(starts, dims, positions, strict=True)
    return (slice(None), *(slice(s, s + (p - 1) * d.stride + 1 if p else s, d.stride) for s, d, p in spans))


def _grouped_rows(x: np.ndarray, groups: int, features: int) -> np.ndarray:
    """N, spatial..., G * C as G, rows, C."""
    return np.moveaxis(x.reshape(prod(x.shape[:-1]), groups, features), 1, 0)


def _by_position(
    x: np.ndarray, kernel: np.ndarray, dims: Sequence[WindowDim], positions: Sequence[int], groups: int
) -> np.ndarray:
    """The same sum, a position of the window at a time: for windows larger than the result."""
    batch, features, outputs = x.shape[0], kernel.shape[-2], kernel.shape[-1]
    taps = prod(kernel.shape[: len(dims)])
    by_group = np.moveaxis(kernel.reshape(taps, groups, features, outputs), 0, 1)
    weights = by_group.reshape(groups, taps * features, outputs)
    result = np.zeros((groups, batch, *positions, outputs), x.dtype)
    for at in np.ndindex(*positions):
        spans = [slice(p * d.stride, p * d.stride + d.reach, d.window_dilation) for p, d in zip(at, dims, strict=True)]
        block = x[(slice(None), *spans)].reshape(batch, taps, groups, features)
        rows = np.moveaxis(block, 2, 0).reshape(groups, batch, taps * features)
        result[(slice(None), slice(None), *at)] = np.matmul(rows, weights)
    return result.reshape(groups, batch * prod(positions), outputs)
