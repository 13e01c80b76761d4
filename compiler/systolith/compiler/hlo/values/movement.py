"""Operations that move elements and compute nothing: reshape, transpose, slice, pad, gather-free indexing, iota."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from systolith.compiler.hlo.attributes import PadDim
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.values.bitcasts import bitcast, bitcast_convert
from systolith.compiler.hlo.values.convert import converted
from systolith.compiler.hlo.values.dynamic import DYNAMIC, filled, reshaped_sizes
from systolith.isa.dtypes import dtype


def _broadcast(i: Instruction, x: np.ndarray) -> np.ndarray:
    """Dimension d of the operand becomes dimension dimensions[d] of the result; the others repeat."""
    dims = i.ints("dimensions", ())
    order = sorted(range(len(dims)), key=lambda d: dims[d])
    sizes = [1] * i.shape.rank
    for source in order:
        sizes[dims[source]] = x.shape[source]
    result = [n if d in dims else bound for d, (n, bound) in enumerate(zip(sizes, i.dims, strict=True))]
    return np.broadcast_to(x.transpose(order).reshape(sizes), result)


def _reshape(i: Instruction, x: np.ndarray) -> np.ndarray:
    if i.shape.is_dynamic or x.shape != i.operands[0].dims:
        return x.reshape(reshaped_sizes(i.operands[0].shape, i.shape, x.shape))
    return x.reshape(i.dims)


def _transpose(i: Instruction, x: np.ndarray) -> np.ndarray:
    return x.transpose(i.ints("dimensions"))


def _slice(i: Instruction, x: np.ndarray) -> np.ndarray:
    block = [s.limit - s.start for s in i.slices]
    x = filled(x, i.operands[0].dims, block)
    return x[tuple(slice(s.start, s.limit, s.stride) for s in i.slices)]


def _reverse(i: Instruction, x: np.ndarray) -> np.ndarray:
    return np.flip(x, i.ints("dimensions")) if i.ints("dimensions") else x


def _concatenate(i: Instruction, *operands: np.ndarray) -> np.ndarray:
    return np.concatenate(operands, axis=i.ints("dimensions")[0])


def padded(x: np.ndarray, value: np.ndarray, padding: Sequence[PadDim]) -> np.ndarray:
    """`pad`: interior elements first, then the edges; a negative edge crops."""
    if all(p == PadDim(0, 0) for p in padding):
        return x
    spread = [n + max(n - 1, 0) * p.interior for n, p in zip(x.shape, padding, strict=True)]
    sizes = [max(0, n + p.low + p.high) for n, p in zip(spread, padding, strict=True)]
    result = np.full(sizes, value, dtype=x.dtype)
    source: list[slice] = []
    target: list[slice] = []
    for n, p, size in zip(x.shape, padding, sizes, strict=True):
        step = p.interior + 1
        first = max(0, -(p.low // step)) if p.low < 0 else 0
        last = min(n, (size - 1 - p.low) // step + 1) if size > 0 else 0
        last = max(last, first)
        source.append(slice(first, last))
        start = p.low + first * step
        target.append(slice(start, start + (last - first - 1) * step + 1 if last > first else start, step))
    if all(s.stop > s.start for s in source):
        result[tuple(target)] = x[tuple(source)]
    return result


def _pad(i: Instruction, x: np.ndarray, value: np.ndarray) -> np.ndarray:
    return padded(x, value, cast("tuple[PadDim, ...]", i.attributes.get("padding", ())))


def _iota(i: Instruction) -> np.ndarray:
    if not i.shape.size:
        return np.empty(i.dims, i.shape.dtype.stored)
    dim = i.integer("iota_dimension")
    line = converted(np.arange(i.dims[dim]), dtype("s64"), i.shape.dtype)
    sizes = [1] * i.shape.rank
    sizes[dim] = len(line)
    return np.broadcast_to(line.reshape(sizes), i.dims)


def clamped_starts(starts: Sequence[np.ndarray], sizes: Sequence[int], within: Sequence[int]) -> list[int]:
    """Start indices moved so that a block of `sizes` lies in an array of sizes `within`."""
    flat = [int(n) for s in starts for n in np.asarray(s).reshape(-1)]
    return [min(max(n, 0), limit - size) for n, size, limit in zip(flat, sizes, within, strict=True)]


def _dynamic_slice(i: Instruction, x: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    x = filled(x, i.operands[0].dims, i.ints("dynamic_slice_sizes"))
    sizes = [min(size, n) for size, n in zip(i.ints("dynamic_slice_sizes"), x.shape, strict=True)]
    at = clamped_starts(starts, sizes, x.shape)
    return x[tuple(slice(a, a + n) for a, n in zip(at, sizes, strict=True))]


def _dynamic_update_slice(i: Instruction, x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    at = clamped_starts(starts, update.shape, x.shape)
    result = np.array(x)
    result[tuple(slice(a, a + n) for a, n in zip(at, update.shape, strict=True))] = update
    return result


MOVEMENT: dict[str, Callable[..., np.ndarray]] = {
    "broadcast": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "bitcast": bitcast,
    "bitcast-convert": bitcast_convert,
    "slice": _slice,
    "reverse": _reverse,
    "concatenate": _concatenate,
    "pad": _pad,
    "iota": _iota,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    **DYNAMIC,
}
"""Opcode to a function of the instruction and its operands' values."""
