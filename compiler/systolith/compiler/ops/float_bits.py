"""Floats of 8 and 16 bits and their bits, as micro-operations on the f32 image that a register holds.

A multiplication by a power of two brings the exponent to the other format's bias, exactly: what is subnormal in the
narrow format is then subnormal in f32.  Infinities and NaN, whose exponent is none, are taken apart from that.
"""

from __future__ import annotations

import numpy as np

from systolith.compiler.ops.expression import Graph, Node
from systolith.isa.dtypes import BF16, DType

_SIGN, _INFINITY, _NAN = 0x80000000, 0x7F800000, 0x7FC00000


def float_bits(g: Graph, x: Node, dtype: DType) -> Node:
    """The bits of a float of `dtype`, of less than 32 bits, as an unsigned number; `x` is its f32 image."""
    if dtype is BF16:
        return g.micro("shr", x, g.const(16))
    top, dropped = 1 << (dtype.bits - 1), g.const(23 - dtype.finfo.nmant)
    magnitude = g.micro("and", x, g.const(_SIGN - 1))
    special = g.micro("ge.s32", magnitude, g.const(_INFINITY))
    bits = g.micro("shr", g.micro("mul.f32", magnitude, g.const(_scale(dtype, -1))), dropped)
    sign = g.micro("shr", g.micro("and", x, g.const(_SIGN)), g.const(32 - dtype.bits))
    if one_nan(dtype):
        return g.micro("select", special, g.const(top), g.micro("or", bits, sign))
    if _has_infinity(dtype):
        without = g.micro("and", g.micro("shr", magnitude, dropped), g.const(top - 1))
    else:
        without = g.const(top - 1)
    return g.micro("or", g.micro("select", special, without, bits), sign)


def float_of_bits(g: Graph, bits: Node, dtype: DType) -> Node:
    """The f32 image of the float of `dtype`, of less than 32 bits, whose bits are an unsigned number."""
    if dtype is BF16:
        return g.micro("shl", bits, g.const(16))
    top = 1 << (dtype.bits - 1)
    magnitude = g.micro("and", bits, g.const(top - 1))
    aligned = g.micro("shl", magnitude, g.const(23 - dtype.finfo.nmant))
    value = g.micro("mul.f32", aligned, g.const(_scale(dtype, 1)))
    sign = g.micro("shl", g.micro("and", bits, g.const(top)), g.const(32 - dtype.bits))
    if one_nan(dtype):
        return g.micro("select", g.micro("eq.s32", bits, g.const(top)), g.const(_NAN), g.micro("or", value, sign))
    if _has_infinity(dtype):
        special = g.micro("ge.s32", aligned, g.const(((1 << dtype.finfo.nexp) - 1) << 23))
        value = g.micro("select", special, g.micro("or", aligned, g.const(_INFINITY)), value)
    else:
        special = g.micro("eq.s32", magnitude, g.const(top - 1))
        value = g.micro("select", special, g.const(_NAN), value)
    return g.micro("or", value, sign)


def _scale(dtype: DType, direction: int) -> int:
    """The image of 2 to the difference of the biases of f32 and `dtype`; `direction` -1: its reciprocal."""
    power = direction * (127 - (1 - dtype.finfo.minexp))
    return int(np.float32(2.0**power).view(np.uint32))


def one_nan(dtype: DType) -> bool:
    """Whether the bits of -0 are the only NaN, so that there is no -0."""
    return dtype.name.endswith("fnuz")


def _has_infinity(dtype: DType) -> bool:
    """Whether the highest exponent is that of infinities and NaN; else only all ones are NaN."""
    return not dtype.name.endswith("fn")
