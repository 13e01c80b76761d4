"""`bitcast` and `bitcast-convert`: the same bits as another shape, layout or element type."""

from __future__ import annotations

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.values.convert import carrier, store
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
    source, target = i.operands[0].shape.dtype, i.shape.dtype
    wide, narrow = bit_width(source), bit_width(target)
    if Kind.COMPLEX in (source.kind, target.kind):
        if source != target:
            raise HloError(f"bitcast-convert takes no complex type, got {source} to {target}")
        return x
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
    """The same bytes in memory, seen with another shape, layout or element type."""
    source = i.operands[0].shape
    order = tuple(reversed(source.minor_to_major))
    flat = np.ascontiguousarray(x.transpose(order)).reshape(-1)
    memory = flat if flat.dtype == i.shape.dtype.stored else flat.view(i.shape.dtype.stored)
    target = tuple(reversed(i.shape.minor_to_major))
    return memory.reshape([i.dims[d] for d in target]).transpose(np.argsort(target).astype(int))
