"""`rng-bit-generator`: Threefry 2x32 with 20 rounds and Philox 4x32 with 10, bit for bit as XLA lays them out.

Sources: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011); the layout of counters and results is
that of XLA's `rng_bit_generator_expander`.  The state is u64[2] (key, counter) or, for Philox, u64[3] (key, 128-bit
counter).  `rng_default` is a backend's own choice: here Threefry for a state of two words, Philox for one of three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from systolith.compiler.hlo.convert import store
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction, Literal

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)

Block = list[np.ndarray]


def _words(x: np.ndarray) -> Block:
    """The low and the high u32 of u64s."""
    return [(x & _LOW).astype(np.uint32), (x >> _HALF).astype(np.uint32)]


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(x0: np.ndarray, x1: np.ndarray, k0: np.ndarray, k1: np.ndarray) -> Block:
    """Threefry 2x32, 20 rounds, on u32 arrays."""
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    x0, x1 = x0 + k0, x1 + k1
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation)))
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return [x0, x1]


def philox(counter: Block, key: Block) -> Block:
    """Philox 4x32, 10 rounds, on u32 arrays."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        low0, high0 = _words(c0.astype(np.uint64) * np.uint64(0xD2511F53))
        low1, high1 = _words(c2.astype(np.uint64) * np.uint64(0xCD9E8D57))
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + np.uint32(0x9E3779B9), k1 + np.uint32(0xBB67AE85)
    return [c0, c1, c2, c3]


def _count(start: np.ndarray, number: int) -> np.ndarray:
    return start + np.arange(number, dtype=np.uint64)


def _threefry_bits(state: np.ndarray, dims: Sequence[int], bits: int) -> tuple[np.ndarray, np.ndarray]:
    key, counter = state[0:1], state[1:2]
    if bits == 64:
        number = prod(dims)
        low, high = threefry(*_words(_count(counter, number)), *_words(key))
        values = low.astype(np.uint64) | (high.astype(np.uint64) << _HALF)
        return values.reshape(dims), _advanced(state, number)
    half = list(dims) or [1]
    even = [d for d, n in enumerate(half) if n % 2 == 0]
    split = even[0] if even else int(np.argmax(half))  # the two results alternate along this dimension
    half[split] = -(-half[split] // 2)
    number = prod(half)
    first, second = threefry(*_words(_count(counter, number)), *_words(key))
    pairs = np.stack([first.reshape(half), second.reshape(half)], axis=split + 1)
    full = [2 * n if d == split else n for d, n in enumerate(half)]
    cut = tuple(slice(0, n) for n in dims or (1,))
    return pairs.reshape(full)[cut].reshape(dims), _advanced(state, number)


def _philox_bits(state: np.ndarray, dims: Sequence[int], bits: int) -> tuple[np.ndarray, np.ndarray]:
    words = prod(dims) * (2 if bits == 64 else 1)
    number = -(-words // 4)
    low = _count(state[1:2], number)
    high = np.broadcast_to(state[2:3], low.shape) + (low < state[1])
    block = philox([*_words(low), *_words(high)], _words(state[0:1]))
    flat = np.stack(block, axis=1).reshape(-1)[:words]
    return (flat.view(np.uint64) if bits == 64 else flat).reshape(dims), _advanced(state, number)


def _advanced(state: np.ndarray, number: int) -> np.ndarray:
    """The state with its counter (all words but the first, low word first) `number` further."""
    width = 64 * (len(state) - 1)
    counter = sum(int(word) << (64 * n) for n, word in enumerate(state[1:])) + number
    words = [(counter % (1 << width)) >> (64 * n) & (2**64 - 1) for n in range(len(state) - 1)]
    return np.array([int(state[0]), *words], np.uint64)


Generator = Callable[[np.ndarray, Sequence[int], int], tuple[np.ndarray, np.ndarray]]

_GENERATORS: dict[tuple[str, int], Generator] = {
    ("rng_three_fry", 2): _threefry_bits,
    ("rng_philox", 3): _philox_bits,
    ("rng_default", 2): _threefry_bits,
    ("rng_default", 3): _philox_bits,
}


def rng_bit_generator(i: Instruction, state: np.ndarray) -> Literal:
    """New state and random bits of the declared integer type."""
    algorithm = i.word("algorithm")
    generator = _GENERATORS.get((algorithm, state.size))
    result = i.shape.elements[-1]
    if generator is None or state.dtype != np.uint64:
        raise HloError(f"rng-bit-generator has no {algorithm!r} with a state of {state.size} {state.dtype}")
    if not result.dtype.is_integer:
        raise HloError(f"rng-bit-generator gives integers, not {result.dtype}")
    with np.errstate(over="ignore"):
        bits, advanced = generator(state.reshape(-1), result.dims, result.dtype.bits)
    same_width = bits.dtype.itemsize == result.dtype.size and result.dtype.bits >= 8
    return advanced, bits.view(result.dtype.stored) if same_width else store(bits, result.dtype)
