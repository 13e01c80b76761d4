"""`rng` as arithmetic on the bits of Philox: the numbers that `hlo/values/rng.py` gives.

The key tells instructions apart.  One in a loop would have to go on where it stopped, so only those of the entry
computation, which run once, are expanded.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from zlib import crc32

from systolith.compiler.hlo.attributes import SliceDim
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.passes.random_bits import U64, philox
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import DTYPES, F32, U32

FRACTION = 23
"""Bits of a uniform number."""


@dataclass(frozen=True)
class ExpandRng:
    """Expand each `rng` of the entry computation into arithmetic on random bits."""

    def run(self, module: Module) -> bool:
        def rule(r: Rewriter, i: Instruction) -> Instruction | None:
            return _expanded(r, i) if i.opcode == "rng" and r.computation is module.entry else None

        return rewrite(module, rule)


def _expanded(r: Rewriter, i: Instruction) -> Instruction | None:
    dtype, uniform = i.shape.dtype, i.word("distribution") == "rng_uniform"
    if i.shape.is_dynamic:
        return None
    if not i.shape.size:
        return r.full(0, i.shape)
    if dtype.is_integer:
        return _integers(r, i) if uniform else None
    if not dtype.is_float or dtype.bits > F32.bits:
        return None
    wide = array(F32, i.dims)
    low, high = (_spread(r, o, wide) for o in i.operands)
    if not uniform:
        return (low + high * _normal(r, i)).converted(dtype).i
    number = (_unit(r, i, wide) * (high - low) + low).converted(dtype)
    rounded = number.converted(F32)
    above = r.emit("and", rounded.test("GE", high), low.test("LT", high))
    return low.converted(dtype).where(above, number).i


def _drawn(r: Rewriter, i: Instruction, shape: Shape) -> Real:
    """Random bits of this instruction: u32 or u64."""
    state = [Real(r, r.constant(word, U64)) for word in (crc32(i.name.encode()), 0, 0)]
    return philox(state, shape)[0]


def _unit(r: Rewriter, i: Instruction, shape: Shape) -> Real:
    """Multiples of 2^-23 from 0 up to 1."""
    bits = _drawn(r, i, array(U32, shape.dims)).of("shift-right-logical", U32.bits - FRACTION)
    return bits.converted(F32) * 2.0**-FRACTION


def _normal(r: Rewriter, i: Instruction) -> Real:
    """Box and Muller: pairs of uniform numbers to pairs of normal ones."""
    half = -(-i.shape.size // 2)
    pairs, line = _unit(r, i, array(F32, (2, half))), array(F32, (half,))
    first, second = (
        Real(r, r.emit("reshape", r.emit("slice", pairs.i, slice=(SliceDim(k, k + 1), SliceDim(0, half))), shape=line))
        for k in range(2)
    )
    radius = (first.of("maximum", 1e-7).of("log") * -2.0).of("sqrt")
    angle = second * (2 * pi)
    both = r.emit("concatenate", (angle.of("sine") * radius).i, (angle.of("cosine") * radius).i, dimensions=(0,))
    cut = r.emit("slice", both, slice=(SliceDim(0, i.shape.size),))
    return Real(r, r.emit("reshape", cut, shape=array(F32, i.dims)))


def _integers(r: Rewriter, i: Instruction) -> Instruction:
    """The first one and 64 bits modulo the span, wrapping; the first one if they are equal."""
    shape, signed = array(U64, i.dims), DTYPES["s64"]
    low, high = (Real(r, o).converted(signed).converted(U64) for o in i.operands)
    span = high - low
    empty = span.test("EQ", 0)
    rest = _drawn(r, i, shape).of("remainder", _spread(r, (span + 1).where(empty, span).i, shape))
    return (rest + _spread(r, low.i, shape)).converted(signed).converted(i.shape.dtype).i


def _spread(r: Rewriter, scalar: Instruction, shape: Shape) -> Real:
    return Real(r, r.spread(Real(r, scalar).converted(shape.dtype).i, shape))
