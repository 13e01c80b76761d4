"""`bitcast` and `bitcast-convert`: the same bits as another shape, layout or element type."""

from __future__ import annotations

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.linear_layout import check_layout, from_memory, row_major, to_memory
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.hlo.values.convert import carrier, store
from systolith.compiler.hlo.values.dynamic import reshaped_sizes
from systolith.isa.dtypes import DType, Kind


def _to_bits(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Each element as an unsigned number."""
    flat = np.ascontiguousarray(x)
    if dtype.kind is Kind.PRED or dtype.is_integer:
        flat = flat.astype(carrier(dtype), copy=False)
    unsigned = flat.view(f"u{flat.dtype.itemsize}")
    return np.asarray(unsigned & ((1 << dtype.bits) - 1)) if dtype.bits < 8 else unsigned


def _from_bits(bits: np.ndarray, dtype: DType) -> np.ndarray:
    """The opposite of `_to_bits`."""
    if dtype.is_integer and dtype.bits < 8:
        return store(bits, dtype)
    if dtype.kind is Kind.PRED:
        return np.asarray(bits != 0)
    return np.asarray(np.ascontiguousarray(bits).view(dtype.stored))


def bit_width(dtype: DType) -> int:
    """Bits an element has when its bits are looked at: those of its type, 8 for pred."""
    return 8 if dtype.kind is Kind.PRED else dtype.bits


def bitcast_convert(i: Instruction, x: np.ndarray) -> np.ndarray:
    """The bits of each element as another type; a minor dimension holds the parts of a wider one, low bits first."""
    return _recast(x, i.operands[0].shape.dtype, i.shape.dtype)


def _recast(x: np.ndarray, source: DType, target: DType) -> np.ndarray:
    if source == target:
        return x
    if Kind.COMPLEX in (source.kind, target.kind):
        raise HloError(f"bitcast-convert takes no complex type, got {source} to {target}")
    wide, narrow = bit_width(source), bit_width(target)
    bits = _to_bits(x, source).reshape(x.shape)
    if wide == narrow:
        return _from_bits(bits, target).reshape(x.shape)
    if wide > narrow:
        parts = np.arange(wide // narrow, dtype=bits.dtype) * bits.dtype.type(narrow)
        split = (bits[..., np.newaxis] >> parts) & bits.dtype.type((1 << narrow) - 1)
        result = _from_bits(split.astype(f"u{target.size}"), target)
        return result.reshape(*x.shape, len(parts))
    unsigned = np.dtype(f"u{target.size}")
    places = np.arange(x.shape[-1], dtype=unsigned) * unsigned.type(wide)
    joined = np.bitwise_or.reduce(bits.astype(unsigned) << places, axis=-1, dtype=unsigned)
    return _from_bits(np.asarray(joined), target).reshape(x.shape[:-1])


def bitcast(i: Instruction, x: np.ndarray) -> np.ndarray:
    """The same bytes in memory, seen with another shape, layout or element type.

    Raises:
        HloError: the two do not take the same memory.
    """
    source, target = i.operands[0].shape, i.shape
    if source.is_dynamic or target.is_dynamic:
        return _dynamic_bitcast(source, target, x)
    return from_memory(_seen_as(to_memory(x, source), source.dtype, target.dtype), target)


def _seen_as(memory: np.ndarray, source: DType, target: DType) -> np.ndarray:
    """One-dimensional memory as elements of another type; those of less than a byte are packed."""
    if source == target:
        return memory
    if min(bit_width(source), bit_width(target)) >= 8:
        raw = memory.view(np.uint8)
        return raw != 0 if target.kind is Kind.PRED else raw.view(target.stored)
    ratio = max(1, bit_width(target) // bit_width(source))
    return _recast(memory.reshape(-1, ratio) if ratio > 1 else memory, source, target).reshape(-1)


def _dynamic_bitcast(source: Shape, target: Shape, x: np.ndarray) -> np.ndarray:
    """Only a reshape in row-major order: where the others' bytes lie depends on the bounds."""
    for shape in (source, target):
        if shape.dtype != source.dtype or check_layout(shape).minor_to_major != row_major(shape.rank).minor_to_major:
            raise HloError(f"a bitcast of dynamic sizes keeps type and row-major order, got {source} to {target}")
    return x.reshape(reshaped_sizes(source, target, x.shape))
