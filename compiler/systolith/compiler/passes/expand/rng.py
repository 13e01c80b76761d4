"""Numbers from states that go on from one to the next: `rng` and `rng-get-and-update-state`, as arithmetic.

`rng` gives the numbers that `hlo/values/rng.py` gives: bits of Philox, whose key tells instructions apart, and whose
counter is how many words the instruction took before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import pi
from typing import cast
from zlib import crc32

import numpy as np

from systolith.compiler.hlo.attributes import Alias, SliceDim
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.hlo.values.rng import FIRST_STATE, words_of
from systolith.compiler.passes.expand.entry_states import note_states
from systolith.compiler.passes.expand.random_bits import U64, philox
from systolith.compiler.passes.expand.threaded_states import thread_states
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import DTYPES, F32, U32, DType, Kind

WORD = 1 << 64


@dataclass(frozen=True)
class ExpandRng:
    """Expand `rng` into arithmetic on random bits, and `rng-get-and-update-state` into that on its counter.

    Attributes:
        across_runs: whether counters go on from run to run, as parameters and results that the host does not see.
    """

    across_runs: bool = False

    def run(self, module: Module) -> bool:
        first = {i: _first(i) for i in module.instructions() if _has_state(i)}
        kept = [i for i in first if self.across_runs and i.opcode != "rng"]
        given = sum(len(p.shape.arrays) for p in module.entry.parameters)
        numbers = thread_states(module, first, U64, lambda r, i, s: _STEPS[i.opcode](r, i, Real(r, s)), kept)
        if numbers:
            _share(module, numbers)
            note_states(module, {given + k: FIRST_STATE for k in range(len(numbers))})
        return numbers is not None


def _share(module: Module, numbers: Mapping[Instruction, int]) -> None:
    """Let the states that the entry gives have the memory of those that it takes, beside the result of before."""
    known = cast("tuple[Alias, ...]", module.attributes.get("input_output_alias", ()))
    states = [Alias((1 + k,), number, kind="must-alias") for k, number in enumerate(numbers.values())]
    module.attributes["input_output_alias"] = (*(replace(a, output=(0, *a.output)) for a in known), *states)
    module.attributes.pop("entry_computation_layout", None)


def _has_state(i: Instruction) -> bool:
    """Whether it is one of these, of a type and sizes that there is arithmetic for."""
    if i.opcode != "rng":
        return i.opcode in _STEPS
    dtype, uniform = i.shape.dtype, i.word("distribution") == "rng_uniform"
    whole = dtype.is_integer or dtype.kind is Kind.PRED
    return not i.shape.is_dynamic and (uniform if whole else dtype.is_float)


def _first(i: Instruction) -> np.ndarray:
    return np.array(0 if i.opcode == "rng" else [FIRST_STATE, 0], np.uint64)


def _counter(r: Rewriter, i: Instruction, state: Real) -> tuple[Instruction, Instruction]:
    """A counter of 128 bits, low word first."""
    delta = i.integer("delta", 0) % WORD**2
    low, high = (Real(r, r.sliced(state.i, [(k, k + 1)])) for k in range(2))
    after = low + delta % WORD
    carried = high + delta // WORD
    carried = (carried + 1).where(after.test("LT", low), carried)
    return r.emit("copy", state.i), r.emit("concatenate", after.i, carried.i, dimensions=(0,))


def _numbers(r: Rewriter, i: Instruction, state: Real) -> tuple[Instruction, Instruction]:
    after = state + words_of(i)
    if not i.shape.size:
        return r.full(0, i.shape), after.i
    if not i.shape.dtype.is_float:
        return _integers(r, i, state), after.i
    return _floats(r, i, state), after.i


def _floats(r: Rewriter, i: Instruction, state: Real) -> Instruction:
    dtype = i.shape.dtype
    wide = array(_computed(dtype), i.dims)
    low, high = (_spread(r, o, wide) for o in i.operands)
    if i.word("distribution") != "rng_uniform":
        return (low + high * _normal(r, i, state)).converted(dtype).i
    number = (_unit(i, state, wide) * (high - low) + low).converted(dtype)
    rounded = number.converted(wide.dtype)
    above = r.emit("and", rounded.test("GE", high), low.test("LT", high))
    return low.converted(dtype).where(above, number).i


def _drawn(i: Instruction, state: Real, shape: Shape) -> Real:
    """Random bits of an instruction: u32 or u64."""
    r = state.r
    key = Real(r, r.constant(crc32(i.name.encode()), U64))
    return philox([key, state, Real(r, r.constant(0, U64))], shape)[0]


def _unit(i: Instruction, state: Real, shape: Shape) -> Real:
    """Multiples of 2^-23, of f64 of 2^-52, from 0 up to 1."""
    words, fraction = (U32, 23) if shape.dtype is F32 else (U64, 52)
    bits = _drawn(i, state, array(words, shape.dims)).of("shift-right-logical", words.bits - fraction)
    return bits.converted(shape.dtype) * 2.0**-fraction


def _computed(dtype: DType) -> DType:
    """The type that floats are computed in."""
    return F32 if dtype.bits <= F32.bits else dtype


def _normal(r: Rewriter, i: Instruction, state: Real) -> Real:
    """Box and Muller: pairs of uniform numbers to pairs of normal ones."""
    half = -(-i.shape.size // 2)
    dtype = _computed(i.shape.dtype)
    pairs, line = _unit(i, state, array(dtype, (2, half))), array(dtype, (half,))
    first, second = (
        Real(r, r.emit("reshape", r.emit("slice", pairs.i, slice=(SliceDim(k, k + 1), SliceDim(0, half))), shape=line))
        for k in range(2)
    )
    radius = (first.of("maximum", 1e-7).of("log") * -2.0).of("sqrt")
    angle = second * (2 * pi)
    both = r.emit("concatenate", (angle.of("sine") * radius).i, (angle.of("cosine") * radius).i, dimensions=(0,))
    cut = r.emit("slice", both, slice=(SliceDim(0, i.shape.size),))
    return Real(r, r.emit("reshape", cut, shape=array(dtype, i.dims)))


def _integers(r: Rewriter, i: Instruction, state: Real) -> Instruction:
    """The first one and 64 bits modulo the span, wrapping; the first one if they are equal."""
    shape, signed = array(U64, i.dims), DTYPES["s64"]
    low, high = (Real(r, o).converted(signed).converted(U64) for o in i.operands)
    span = high - low
    empty = span.test("EQ", 0)
    rest = _drawn(i, state, shape).of("remainder", _spread(r, (span + 1).where(empty, span).i, shape))
    return (rest + _spread(r, low.i, shape)).converted(signed).converted(i.shape.dtype).i


def _spread(r: Rewriter, scalar: Instruction, shape: Shape) -> Real:
    return Real(r, r.spread(Real(r, scalar).converted(shape.dtype).i, shape))


_STEPS = {"rng": _numbers, "rng-get-and-update-state": _counter}
