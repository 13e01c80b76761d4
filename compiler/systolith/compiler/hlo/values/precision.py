"""Rounding that an instruction asks for: `reduce-precision` and `stochastic-convert`.

Both work as XLA's `reduce_precision` emitter and its `stochastic_convert_decomposer` do.
"""

from __future__ import annotations

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.values.convert import store
from systolith.isa.dtypes import DType, Kind


def _carrier(dtype: DType) -> np.dtype[np.generic]:
    """The IEEE type whose bits are rounded: f64, f32 (also for types with its exponents), f16 for the narrow ones."""
    if dtype.bits >= 32:
        return dtype.stored
    return np.dtype(np.float32 if dtype.name in ("bf16", "f8e8m0fnu") else np.float16)


def reduce_precision(i: Instruction, x: np.ndarray) -> np.ndarray:
    """Round to a float with fewer exponent and mantissa bits.

    To nearest, ties to even; values above the largest become infinity, those below the least normal number zero,
    with its sign.  NaN stays NaN.  The rounding is that of the bits as an integer, so that with no mantissa bits a tie
    goes to the even exponent.  An exponent as wide as the type's changes nothing, subnormal numbers included.
    """
    exponent, mantissa = i.integer("exponent_bits"), i.integer("mantissa_bits")
    source = x.astype(_carrier(i.shape.dtype), copy=False)
    unsigned = np.dtype(f"u{source.itemsize}")
    has_mantissa = int(np.finfo(source.dtype).nmant)
    has_exponent = 8 * source.itemsize - 1 - has_mantissa
    bits = np.ascontiguousarray(source).reshape(source.shape).view(unsigned)
    if mantissa < has_mantissa:
        last = unsigned.type(1 << (has_mantissa - mantissa))
        odd = (bits & last) >> unsigned.type(has_mantissa - mantissa)
        bits = (bits + odd + (last >> unsigned.type(1)) - unsigned.type(1)) & ~(last - unsigned.type(1))
    if exponent < has_exponent:
        bias, narrow_bias = (1 << (has_exponent - 1)) - 1, (1 << (exponent - 1)) - 1
        field = (bits >> unsigned.type(has_mantissa)) & unsigned.type((1 << has_exponent) - 1)
        sign = bits & unsigned.type(1 << (8 * source.itemsize - 1))
        infinity = unsigned.type(((1 << has_exponent) - 1) << has_mantissa)
        bits = np.where(field > bias + narrow_bias, sign | infinity, bits)
        bits = np.where(field <= bias - narrow_bias, sign, bits)
    rounded = np.where(np.isnan(source), source, np.asarray(bits, unsigned).view(source.dtype))
    return store(rounded, i.shape.dtype)


def stochastic_convert(i: Instruction, x: np.ndarray, random: np.ndarray) -> np.ndarray:
    """Floats to signed integers: away from zero where the fraction is above random / 2^bits; saturating, NaN to 0."""
    source, target = i.operands[0].shape.dtype, i.shape.dtype
    if not source.is_float or target.kind is not Kind.SIGNED:
        raise HloError(f"stochastic-convert takes floats to signed integers, not {source} to {target}")
    wide = x.astype(np.float64)
    high = 2 ** (target.bits - 1) - 1
    magnitude = np.where(np.isnan(wide), 0.0, np.minimum(np.abs(wide), 2.0**target.bits))
    whole = np.floor(magnitude)
    threshold = np.ldexp(magnitude - whole, i.operands[1].shape.dtype.bits)
    rounded = np.copysign(whole + (random.astype(np.float64) < threshold), wide)
    above, below = rounded >= float(high), rounded <= float(-high - 1)
    inside = np.where(above | below | np.isnan(rounded), 0.0, rounded).astype(np.int64)
    return store(np.where(above, high, np.where(below, -high - 1, inside)), target)
