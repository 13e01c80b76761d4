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
    if dtype.name == "f8e8m0fnu":
        value = g.micro(
            "select", g.micro("eq.s32", bits, g.const(0)), g.const(1 << 22), g.micro("shl", bits, g.const(23))
        )
        return g.micro("select", g.micro("eq.s32", bits, g.const(255)), g.const(_NAN), value)
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
    elif dtype.bits == 8:
        special = g.micro("eq.s32", magnitude, g.const(top - 1))
        value = g.micro("select", special, g.const(_NAN), value)
    return g.micro("or", value, sign)


def rounded_bits(g: Graph, x: Node, dtype: DType) -> Node:
    """The bits of the float of `dtype`, of 8 bits or less, that is nearest to an f32, ties to even.

    Beyond the largest it is infinity; without one, NaN; with neither, the largest.
    """
    if dtype.name == "f8e8m0fnu":
        return _power_of_two(g, x)
    info, mantissa = dtype.finfo, dtype.finfo.nmant
    dropped, top = 23 - mantissa, 1 << (dtype.bits - 1)
    magnitude = g.micro("and", x, g.const(_SIGN - 1))
    last = g.micro("and", g.micro("shr", magnitude, g.const(dropped)), g.const(1))
    half = g.micro("add.s32", last, g.const((1 << (dropped - 1)) - 1))
    normal = g.micro("and", g.micro("add.s32", magnitude, half), g.const(-1 << dropped))
    # To a sum of this size f32 keeps as many bits as subnormal numbers have.
    large = g.const(_image(2.0 ** (info.minexp + dropped)))
    small = g.micro("sub.f32", g.micro("add.f32", magnitude, large), large)
    tiny = g.micro("lt.s32", magnitude, g.const(_image(2.0**info.minexp)))
    value = g.micro("select", tiny, small, normal)
    bits = g.micro("shr", g.micro("mul.f32", value, g.const(_scale(dtype, -1))), g.const(dropped))
    above = g.micro("gt.s32", value, g.const(_image(float(info.max))))
    bits = g.micro("select", above, g.const(_beyond(dtype)), bits)
    sign = g.micro("shr", g.micro("and", x, g.const(_SIGN)), g.const(32 - dtype.bits))
    nan = g.micro("gt.s32", magnitude, g.const(_INFINITY))
    if one_nan(dtype):
        kept = g.micro("or", above, g.micro("eq.s32", bits, g.const(0)))
        signed = g.micro("select", kept, bits, g.micro("or", bits, sign))
        return g.micro("select", nan, g.const(top), signed)
    if dtype.name == "f4e2m1fn":  # without NaN: XLA gives zero, of the opposite sign
        zero = g.micro("xor", sign, g.const(top))
        return g.micro("select", nan, zero, g.micro("or", bits, sign))
    quiet = g.const((((1 << info.nexp) << 1) - 1) << (mantissa - 1))
    return g.micro("or", g.micro("select", nan, quiet, bits), sign)


def _beyond(dtype: DType) -> int:
    """The bits of what is above the largest number, without its sign."""
    top = 1 << (dtype.bits - 1)
    if one_nan(dtype):
        return top
    return ((1 << dtype.finfo.nexp) - 1) << dtype.finfo.nmant if _has_infinity(dtype) else top - 1


def _power_of_two(g: Graph, x: Node) -> Node:
    """The exponent of f8e8m0fnu: halves are rounded up; NaN for all but finite numbers above 0."""
    subnormal = g.micro("lt.s32", x, g.const(1 << 23))
    half = g.micro("sub.s32", g.const(1 << 22), subnormal)
    exponent = g.micro("shr", g.micro("add.s32", x, half), g.const(23))
    number = g.micro("and", g.micro("gt.s32", x, g.const(0)), g.micro("lt.s32", x, g.const(_INFINITY)))
    return g.micro("select", number, exponent, g.const(255))


def _image(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def _scale(dtype: DType, direction: int) -> int:
    """The image of 2 to the difference of the biases of f32 and `dtype`; `direction` -1: its reciprocal."""
    power = direction * (127 - (1 - dtype.finfo.minexp))
    return _image(2.0**power)


def one_nan(dtype: DType) -> bool:
    """Whether the bits of -0 are the only NaN, so that there is no -0."""
    return dtype.name.endswith("fnuz")


def _has_infinity(dtype: DType) -> bool:
    """Whether the highest exponent is that of infinities and NaN; else only all ones are NaN."""
    return not dtype.name.endswith("fn")
