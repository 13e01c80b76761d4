"""`rng-bit-generator` as arithmetic on integers: Threefry 2x32 and Philox 4x32, bit for bit as XLA lays them out.

Counters are u64, which later become pairs of words; all else is u32.  `hlo/values/random_bits.py` has the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.element_types import ELEMENT_TYPES
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.hlo.values.random_bits import MULTIPLIERS, PARITY, ROTATIONS, ROUNDS, WEYL, threefry_halves
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter, rewrite
from systolith.isa.dtypes import DTYPES, U32

HALF = 32
U64 = DTYPES["u64"]

Words = Sequence[Real]


@dataclass(frozen=True)
class ExpandRandomBits:
    """Expand `rng-bit-generator`, with a state of 64-bit words, into arithmetic on integers."""

    def run(self, module: Module) -> bool:
        return rewrite(module, lambda r, i: _expanded(r, i) if i.opcode == "rng-bit-generator" else None)


def _expanded(r: Rewriter, i: Instruction) -> Instruction | None:
    state, bits = i.operands[0], i.shape.elements[-1]
    algorithm = _ALGORITHMS.get((i.word("algorithm"), state.shape.size))
    dtype = bits.dtype
    if algorithm is None or state.shape.dtype is not U64 or bits.is_dynamic or not (dtype.is_integer or dtype.is_float):
        return None
    words = [_word(r, state, k) for k in range(state.shape.size)]
    made, after = algorithm(words, array(U64 if dtype.bits == U64.bits else U32, bits.dims))
    made = made.converted(ELEMENT_TYPES[f"u{dtype.bits}"])
    result = made.i if made.i.shape.dtype == dtype else r.emit("bitcast-convert", made.i, shape=array(dtype, bits.dims))
    rows = [w.reshaped((1,)).i for w in after]
    return r.emit("tuple", r.emit("concatenate", *rows, shape=state.shape, dimensions=(0,)), result, shape=i.shape)


def _threefry(state: Words, shape: Shape) -> tuple[Real, Words]:
    """State: key, counter.  A count gives two words: a u64, or two u32 that stand beside each other in a dimension."""
    key, counter = state
    if shape.dtype is U64:
        low, high = _threefry_block(_halves(_counted(counter, shape.size)), _halves(key))
        return _joined(low, high).reshaped(shape.dims), [key, counter + shape.size]
    dims, split = threefry_halves(shape.dims)
    number = array(U32, dims).size
    pair = [x.reshaped(dims) for x in _threefry_block(_halves(_counted(counter, number)), _halves(key))]
    dims[split] *= 2
    full = _stacked(pair, split + 1).reshaped(dims)
    part = Real(full.r, full.r.sliced(full.i, [(0, n) for n in shape.dims or (1,)]))
    return part.reshaped(shape.dims), [key, counter + number]


def _threefry_block(counter: Words, key: Words) -> Words:
    """20 rounds."""
    x0, x1 = counter
    k0, k1 = (_spread(k, x0.i.shape) for k in key)
    keys = (k0, k1, k0.of("xor", k1).of("xor", PARITY))
    x0, x1 = x0 + k0, x1 + k1
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x0 = x0 + x1
            turned = x1.of("shift-left", rotation).of("or", x1.of("shift-right-logical", U32.bits - rotation))
            x1 = x0.of("xor", turned)
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + (group + 1)
    return x0, x1


def philox(state: Words, shape: Shape) -> tuple[Real, Words]:
    """State: key, and a counter of one word, whose high one is the key again, or of two.  A count gives four u32."""
    key, start = state[:2]
    wide = shape.dtype is U64
    number = -(-shape.size // (2 if wide else 4))
    low = _counted(start, number)
    carry = low.test("LT", _spread(start, low.i.shape))
    first = _spread(state[-1] if len(state) > 2 else key, low.i.shape)
    block = _philox_block([*_halves(low), *_halves((first + 1).where(carry, first))], _halves(key))
    parts = [_joined(*block[:2]), _joined(*block[2:])] if wide else block
    line = _stacked(parts, 1).reshaped((number * len(parts),))
    cut = Real(low.r, low.r.sliced(line.i, [(0, shape.size)]))
    after = start + number
    over = [(s + 1).where(after.test("LT", start), s) for s in state[2:]]
    return cut.reshaped(shape.dims), [key, after, *over]


def _philox_block(counter: Words, key: Words) -> Words:
    c0, c1, c2, c3 = counter
    k0, k1 = (_spread(k, c0.i.shape) for k in key)
    for _ in range(ROUNDS):
        (low0, high0), (low1, high1) = ((c * m, c.of("mulhi", m)) for c, m in zip((c0, c2), MULTIPLIERS, strict=True))
        c0, c1, c2, c3 = high1.of("xor", c1).of("xor", k0), low1, high0.of("xor", c3).of("xor", k1), low0
        k0, k1 = k0 + WEYL[0], k1 + WEYL[1]
    return c0, c1, c2, c3


_ALGORITHMS: dict[tuple[str, int], Callable[[Words, Shape], tuple[Real, Words]]] = {
    ("rng_three_fry", 2): _threefry,
    **{(name, words): philox for name in ("rng_philox", "rng_default") for words in (2, 3)},
}
"""By name and number of words of the state; the default is Philox, as on XLA's CPU."""


def _word(r: Rewriter, state: Instruction, k: int) -> Real:
    """A scalar: a word of the state."""
    cut = Real(r, r.sliced(state, [(k, k + 1)]))
    return cut.reshaped(())


def _counted(start: Real, number: int) -> Real:
    shape = array(U64, (number,))
    return _spread(start, shape) + Real(start.r, start.r.emit("iota", shape=shape, iota_dimension=0))


def _halves(x: Real) -> Words:
    """The low and the high words of u64s."""
    return x.converted(U32), x.of("shift-right-logical", HALF).converted(U32)


def _joined(low: Real, high: Real) -> Real:
    return high.converted(U64).of("shift-left", HALF).of("or", low.converted(U64))


def _stacked(parts: Words, d: int) -> Real:
    """Arrays beside each other in a new dimension."""
    r, dims = parts[0].r, parts[0].i.dims
    beside = [p.reshaped((*dims[:d], 1, *dims[d:])) for p in parts]
    return Real(r, r.emit("concatenate", *(p.i for p in beside), dimensions=(d,)))


def _spread(x: Real, shape: Shape) -> Real:
    return Real(x.r, x.r.spread(x.i, array(x.i.shape.dtype, shape.dims)))
