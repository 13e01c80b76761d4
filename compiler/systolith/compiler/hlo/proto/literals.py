"""Values of a serialized module: `LiteralProto`.

Source: `xla/literal.cc`.  Elements stand in the order of the literal's own layout: numbers of 32 and 64 bits and
booleans as repeated fields, all others as little-endian bytes, of which a type of less than a byte takes one per
element.  The number of elements that are there is compared with the shape before an array is made.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Literal
from systolith.compiler.hlo.proto.shapes import shape_of
from systolith.compiler.hlo.shape import Shape
from systolith.isa.dtypes import DType, Kind


def literal_of(proto: Any, shape: Shape) -> Literal:
    """The value in a `LiteralProto`, which must be of `shape`.

    Raises:
        HloError: it is of another shape, or has more or fewer elements than that.
    """
    stated = shape_of(proto.shape)
    if not stated.same(shape):
        raise HloError(f"a literal of shape {stated} is the value of a constant of shape {shape}")
    return _value(proto, stated)


def _value(proto: Any, shape: Shape) -> Literal:
    if shape.is_tuple:
        if len(proto.tuple_literals) != len(shape.elements):
            raise HloError(f"a literal of shape {shape} has {len(proto.tuple_literals)} elements")
        return tuple(_value(p, s) for p, s in zip(proto.tuple_literals, shape.elements, strict=True))
    if not shape.is_array:
        return ()
    flat = _elements(proto, shape.dtype)
    if flat.size != shape.size or min(shape.dims, default=0) < 0:
        raise HloError(f"a literal of shape {shape} has {flat.size} elements")
    order = shape.minor_to_major[::-1]  # from major to minor: the order in which the elements stand
    value = flat.reshape([shape.dims[d] for d in order]).transpose(np.argsort(order))
    return np.ascontiguousarray(value).reshape(shape.dims)


def _elements(proto: Any, dtype: DType) -> np.ndarray:
    """The elements in the order they stand in."""
    field = getattr(proto, f"{dtype.name}s")
    if not isinstance(field, bytes):
        if dtype.kind is not Kind.COMPLEX:
            return np.array(field, dtype=dtype.stored)
        if len(field) % 2:
            raise HloError(f"a literal of type {dtype.name} has {len(field)} numbers, not pairs of them")
        return np.array(field, dtype=np.float32 if dtype.bits == 64 else np.float64).view(dtype.stored)
    if len(field) % dtype.size:
        raise HloError(f"a literal of type {dtype.name} has {len(field)} bytes, no multiple of {dtype.size}")
    if dtype.bits < 8:
        return _narrow(np.frombuffer(field, dtype=np.uint8), dtype)
    return np.frombuffer(field, dtype=dtype.stored)


def _narrow(data: np.ndarray, dtype: DType) -> np.ndarray:
    """Values of less than a byte: the low bits of each byte."""
    bits = data & ((1 << dtype.bits) - 1)
    if dtype.kind is Kind.FLOAT:
        return bits.view(dtype.stored)
    sign = 1 << (dtype.bits - 1) if dtype.kind is Kind.SIGNED else 0
    return ((bits.astype(np.int8) ^ sign) - sign).astype(dtype.stored)
