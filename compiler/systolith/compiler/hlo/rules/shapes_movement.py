"""Shape rules of operations that move elements from computed places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from systolith.compiler.hlo.attributes import PadDim
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.rules.shape_rules import (
    SCALAR_S32,
    Infer,
    agree,
    arrays,
    flags_of,
    higher_precision,
    listed,
    one_dimension,
    require,
    require_array,
    require_scalar,
    sized,
    sizes_agree,
    types_agree,
    unique_within,
)
from systolith.compiler.hlo.shape import UNBOUNDED, Shape, ShapeKind, buffer_of
from systolith.isa.dtypes import DType, Kind


def _broadcast(i: Instruction) -> Shape:
    (shape,) = arrays(i)
    dims = i.ints("dimensions", ())
    if len(dims) != shape.rank:
        raise HloError(f"dimensions has an entry for each of {shape}'s, got {len(dims)}")
    if dims:
        unique_within(dims, i.shape.rank, "dimensions")
    for source, target in enumerate(dims):
        if not sizes_agree(shape.dims[source], i.shape.dims[target]):
            raise HloError(f"dimension {source} of {shape} has the size of dimension {target} of {i.shape}")
    return sized(shape.dtype, i.shape.dims, i.shape.dynamic)


def _reshape(i: Instruction) -> Shape:
    return _same_count(i, arrays(i)[0])


def _same_count(i: Instruction, shape: Shape) -> Shape:
    result = require_array(i.shape, "the result")
    if shape.size != result.size and UNBOUNDED not in shape.dims + result.dims:
        raise HloError(f"{shape} has {shape.size} elements, {result} has {result.size}")
    return sized(shape.dtype, i.shape.dims, i.shape.dynamic)


def _bitcast(i: Instruction) -> Shape:
    """The bytes stay; how many there are is not said by dynamic sizes, nor by layouts with tiles, which pad."""
    shape, result = i.operands[0].shape, i.shape
    arrays_ = shape.is_array and result.is_array
    if not arrays_ or shape.dynamic or result.dynamic or _has_tiles(shape) or _has_tiles(result):
        return result
    packed = shape.size * _width(shape.dtype) == result.size * _width(result.dtype)
    if not packed and shape.bytes != result.bytes:
        raise HloError(f"{shape} takes {shape.bytes} bytes, {result} {result.bytes}")
    return result


def _has_tiles(shape: Shape) -> bool:
    return shape.layout is not None and bool(shape.layout.suffix)


def _width(dtype: DType) -> int:
    """Bits of an element in memory, where those of less than a byte are packed; pred takes a byte."""
    return 8 if dtype.kind is Kind.PRED else dtype.bits


def _bitcast_convert(i: Instruction) -> Shape:
    """Equal widths keep the shape; else the minor dimension is the ratio, on the narrow side."""
    (shape,) = arrays(i)
    dtype = require_array(i.shape, "the result").dtype
    require((shape.dtype.kind is Kind.COMPLEX) == (dtype.kind is Kind.COMPLEX),
            f"complex numbers and others are not converted to each other, got {shape.dtype} to {dtype}")  # fmt: skip
    wide, narrow = shape.dtype.bits, dtype.bits
    if wide == narrow:
        return sized(dtype, shape.dims, shape.dynamic)
    ratio, rest = divmod(max(wide, narrow), min(wide, narrow))
    require(rest == 0, f"one width is a multiple of the other, got {shape.dtype} and {dtype}")
    if wide > narrow:
        return sized(dtype, (*shape.dims, ratio), (*flags_of(shape), False))
    require(shape.rank > 0 and shape.dims[-1] == ratio, f"the last dimension of {shape} is {ratio} to become {dtype}")
    return sized(dtype, shape.dims[:-1], flags_of(shape)[:-1])


def _transpose(i: Instruction) -> Shape:
    (shape,) = arrays(i)
    order = i.ints("dimensions")
    unique_within(order, shape.rank, "dimensions")
    require(len(order) == shape.rank, f"dimensions is a permutation of 0 to {shape.rank - 1}")
    return sized(shape.dtype, [shape.dims[d] for d in order], [shape.dynamic[d] for d in order if shape.dynamic])


def _slice(i: Instruction) -> Shape:
    (shape,) = arrays(i)
    slices = i.slices
    require(len(slices) == shape.rank, f"slice has {shape.rank} dimensions, got {len(slices)}")
    for dim, (s, size) in enumerate(zip(slices, shape.dims, strict=True)):
        if not (0 <= s.start <= s.limit and (s.limit <= size or size == UNBOUNDED) and s.stride > 0):
            raise HloError(f"slice [{s.start}:{s.limit}:{s.stride}] lies in dimension {dim}, of {size} elements")
    sizes = [-(-(s.limit - s.start) // s.stride) for s in slices]
    kept = zip(sizes, shape.dims, flags_of(shape), strict=True)
    return sized(shape.dtype, sizes, [flag and size != 1 and full != UNBOUNDED for size, full, flag in kept])


def _concatenate(i: Instruction) -> Shape:
    shapes = arrays(i)
    first = shapes[0]
    dim = one_dimension(i, first.rank)
    fits = all(s.rank == first.rank and types_agree(s.dtype, first.dtype) for s in shapes)
    dims: list[int] = []
    dynamic: list[bool] = []
    for d in range(first.rank if fits else 0):
        known = [(s.dims[d], flags_of(s)[d]) for s in shapes if s.dims[d] != UNBOUNDED]
        sizes = [n for n, _ in known]
        fits &= d == dim or len(set(sizes)) <= 1
        whole = len(known) == len(shapes) if d == dim else bool(known)
        dims.append((sum(sizes) if d == dim else sizes[0]) if whole else UNBOUNDED)
        dynamic.append(any(flag for _, flag in known))
    if not fits:
        raise HloError(f"operands agree but for dimension {dim}, got {listed(shapes)}")
    # The element type is as in XLA, of the first array and the last.
    return sized(higher_precision(first.dtype, shapes[-1].dtype), dims, dynamic)


def _pad(i: Instruction) -> Shape:
    shape, value = arrays(i)
    padding = cast("tuple[PadDim, ...]", i.attributes.get("padding", ()))
    scalar = not value.dims and types_agree(value.dtype, shape.dtype)
    require(scalar, f"the padding value is a {shape.dtype}[], got {value}")
    require(len(padding) == shape.rank, f"padding has {shape.rank} dimensions, got {len(padding)}")
    require(all(p.interior >= 0 for p in padding), "padding between elements is at least 0")
    sizes = [
        n if n == UNBOUNDED else p.low + p.high + n + max(n - 1, 0) * p.interior
        for p, n in zip(padding, shape.dims, strict=True)
    ]
    require(all(n >= 0 or m == UNBOUNDED for n, m in zip(sizes, shape.dims, strict=True)),
            f"padding leaves sizes of at least 0, got {sizes}")  # fmt: skip
    return sized(higher_precision(shape.dtype, value.dtype), sizes, shape.dynamic)


def _iota(i: Instruction) -> Shape:
    shape = require_array(i.shape, "the result")
    require(shape.dtype.kind is not Kind.PRED, f"takes numbers, got {shape.dtype}")
    require(shape.rank > 0, "the result has at least one dimension, got a scalar")
    unique_within([i.integer("iota_dimension")], shape.rank, "iota_dimension")
    return shape


def _reverse(i: Instruction) -> Shape:
    (shape,) = arrays(i)
    unique_within(i.ints("dimensions"), shape.rank, "dimensions")
    return shape


def _dynamic_slice(i: Instruction) -> Shape:
    shape, sizes = require_array(i.operands[0].shape, "the operand"), i.ints("dynamic_slice_sizes")
    _check_starts(i.operands[1:], shape)
    fits = len(sizes) == shape.rank and all(
        a >= 0 and (a <= b or b == UNBOUNDED) for a, b in zip(sizes, shape.dims, strict=True)
    )
    if not fits:
        raise HloError(f"dynamic_slice_sizes {sizes} fit in {shape}")
    whole = [flag and n == size > 1 for n, size, flag in zip(sizes, shape.dims, flags_of(shape), strict=True)]
    return sized(shape.dtype, sizes, whole)


def _dynamic_update_slice(i: Instruction) -> Shape:
    if i.operands[0].shape.kind is ShapeKind.BUFFER:
        return buffer_of(_updated(i, i.operands[0].shape.elements[0]))
    return _updated(i, require_array(i.operands[0].shape, "the operand"))


def _updated(i: Instruction, shape: Shape) -> Shape:
    """The shape of an array after a part of it was replaced."""
    update = require_array(i.operands[1].shape, "the update")
    _check_starts(i.operands[2:], shape)
    fits = update.rank == shape.rank and all(
        a <= b or b == UNBOUNDED for a, b in zip(update.dims, shape.dims, strict=True)
    )
    if not fits or not types_agree(update.dtype, shape.dtype):
        raise HloError(f"update {update} fits in {shape}")
    if not update.dynamic:
        return shape
    both = zip(shape.dims, update.dims, flags_of(shape), flags_of(update), strict=True)
    return sized(shape.dtype, shape.dims, [old or (new and a == b) for a, b, old, new in both])


def _check_starts(starts: Sequence[Instruction], shape: Shape) -> None:
    """One integer scalar per dimension, all of one type; or, in an older form, one vector of them."""
    shapes = [s.shape for s in starts]
    old_form = len(starts) == 1 and shapes[0].dims == (shape.rank,)
    good = all(s.is_array and s.dtype.is_integer for s in shapes) and (
        old_form or (len(shapes) == shape.rank and all(not s.dims and agree(s, shapes[0]) for s in shapes))
    )
    if not good:
        raise HloError(f"there is one integer scalar per dimension of {shape}, all of one type, got ({listed(shapes)})")


def _get_dimension_size(i: Instruction) -> Shape:
    _dimension_with_size(i)
    return SCALAR_S32


def _dimension_with_size(i: Instruction) -> tuple[Shape, int]:
    shape = require_array(i.operands[0].shape, "the operand")
    dim = one_dimension(i, shape.rank)
    require(shape.dims[dim] < 1 << 31, f"dimension {dim} has fewer than 2**31 elements, got {shape}")
    return shape, dim


def _set_dimension_size(i: Instruction) -> Shape:
    shape, dim = _dimension_with_size(i)
    size = require_scalar(i.operands[1].shape, "the size")
    require(size.dtype.name == "s32", f"the size is s32[], got {size}")
    flags = [flag or d == dim for d, flag in enumerate(flags_of(shape))]
    return sized(shape.dtype, shape.dims, flags)


def _dynamic_reshape(i: Instruction) -> Shape:
    shape, *sizes = arrays(i)
    result = _same_count(i, shape)
    require(len(sizes) == result.rank, f"there is a size for each of the {result.rank} dimensions, got {len(sizes)}")
    require(all(s.dtype.name == "s32" and not s.dims for s in sizes), f"sizes are s32[], got {listed(sizes)}")
    return result


MOVEMENT_RULES: dict[str, Infer] = {
    "broadcast": _broadcast,
    "reshape": _reshape,
    "bitcast": _bitcast,
    "bitcast-convert": _bitcast_convert,
    "transpose": _transpose,
    "slice": _slice,
    "concatenate": _concatenate,
    "pad": _pad,
    "iota": _iota,
    "reverse": _reverse,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "get-dimension-size": _get_dimension_size,
    "set-dimension-size": _set_dimension_size,
    "dynamic-reshape": _dynamic_reshape,
}
"""Opcode to rule."""
