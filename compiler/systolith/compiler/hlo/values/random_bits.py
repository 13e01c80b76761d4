"""`rng-bit-generator`: Threefry 2x32 with 20 rounds and Philox 4x32 with 10, bit for bit as XLA lays them out.

Sources: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011); the layout of counters and results is
that of XLA's `rng_bit_generator_expander`.  The state is u64[2] (key, counter) or, for Philox, u64[3] (key, 128-bit
counter).  `rng_default` is a backend's own choice: here Philox, as on XLA's CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction, Literal
from systolith.compiler.hlo.values.convert import store

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_WORD = (1 << 64) - 1

Block = list[np.ndarray]


def _words(x: np.ndarray) -> Block:
    """The low and the high u32 of u64s."""
    return [(x & _LOW).astype(np.uint32), (x >> _HALF).astype(np.uint32)]


ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
"""Of Threefry 2x32: those of every other four rounds."""
PARITY = 0x1BD11BDA
"""Of Threefry's third key word, with the others."""
ROUNDS = 10
"""Of Philox."""
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
"""The constants that Philox adds to the words of its key in each round."""


def threefry(x0: np.ndarray, x1: np.ndarray, k0: np.ndarray, k1: np.ndarray) -> Block:
    """Threefry 2x32, 20 rounds, on u32 arrays."""
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(PARITY))
    x0, x1 = x0 + k0, x1 + k1
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation)))
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return [x0, x1]


def philox(counter: Block, key: Block) -> Block:
    """Philox 4x32, 10 rounds, on u32 arrays."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        low0, high0 = _words(c0.astype(np.uint64) * np.uint64(MULTIPLIERS[0]))
        low1, high1 = _words(c2.astype(np.uint64) * np.uint64(MULTIPLIERS[1]))
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + np.uint32(WEYL[0]), k1 + np.uint32(WEYL[1])
    return [c0, c1, c2, c3]


def _count(start: np.ndarray, number: int) -> np.ndarray:
    return start + np.arange(number, dtype=np.uint64)


def threefry_halves(dims: Sequence[int]) -> tuple[list[int], int]:
    """Sizes of each of the two results that make an array of 32 bits, and the dimension along which they alternate."""
    half = list(dims) or [1]
    even = [d for d, n in enumerate(half) if n % 2 == 0]
    split = even[0] if even else int(np.argmax(half))
    half[split] = -(-half[split] // 2)
    return half, split


def _threefry_bits(state: np.ndarray, dims: Sequence[int], bits: int) -> tuple[np.ndarray, np.ndarray]:
    key, counter = state[0:1], state[1:2]
    if bits == 64:
        number = prod(dims)
        low, high = threefry(*_words(_count(counter, number)), *_words(key))
        values = low.astype(np.uint64) | (high.astype(np.uint64) << _HALF)
        return values.reshape(dims), np.array([state[0], state[1] + np.uint64(number)], np.uint64)
    half, split = threefry_halves(dims)
    number = prod(half)
    first, second = threefry(*_words(_count(counter, number)), *_words(key))
    pairs = np.stack([first.reshape(half), second.reshape(half)], axis=split + 1)
    full = [2 * n if d == split else n for d, n in enumerate(half)]
    cut = tuple(slice(0, n) for n in dims or (1,))
    return pairs.reshape(full)[cut].reshape(dims), np.array([state[0], state[1] + np.uint64(number)], np.uint64)


def philox_bits(key: np.ndarray, counter: int, dims: Sequence[int], bits: int) -> tuple[np.ndarray, int]:
    """Random u32 (or, of 64 bits, u64) numbers, and how far the counter went.

    Args:
        key: u64[1].
        counter: 128 bits.
        dims: sizes of the result.
        bits: 32 or 64.
    """
    words = prod(dims) * (2 if bits == 64 else 1)
    number = -(-words // 4)
    start = np.array([counter & _WORD, counter >> 64 & _WORD], np.uint64)
    low = _count(start[:1], number)
    high = np.broadcast_to(start[1:], low.shape) + (low < start[0])
    block = philox([*_words(low), *_words(high)], _words(key))
    flat = np.ascontiguousarray(np.stack(block, axis=1).reshape(-1)[:words])
    return (flat.view(np.uint64) if bits == 64 else flat).reshape(dims), number


def _philox(state: np.ndarray, dims: Sequence[int], bits: int) -> tuple[np.ndarray, np.ndarray]:
    """A state of two words is key and counter, whose high word is the key again; of three, the counter has two."""
    key, low = int(state[0]), int(state[1])
    counter = low | (int(state[2]) if len(state) == 3 else key) << 64
    values, number = philox_bits(state[:1], counter, dims, bits)
    after = counter + number
    return values, np.array([key, after & _WORD, after >> 64 & _WORD][: len(state)], np.uint64)


Generator = Callable[[np.ndarray, Sequence[int], int], tuple[np.ndarray, np.ndarray]]

_GENERATORS: dict[tuple[str, int], Generator] = {
    ("rng_three_fry", 2): _threefry_bits,
    **{(name, words): _philox for name in ("rng_philox", "rng_default") for words in (2, 3)},
}


def rng_bit_generator(i: Instruction, state: np.ndarray) -> Literal:
    """New state and random bits of the declared type: of 32 bits, the low ones for narrower types, or of 64."""
    algorithm = i.word("algorithm")
    generator = _GENERATORS.get((algorithm, state.size))
    result = i.shape.elements[-1]
    if generator is None or state.dtype != np.uint64:
        raise HloError(f"rng-bit-generator has no {algorithm!r} with a state of {state.size} {state.dtype}")
    if not (result.dtype.is_integer or result.dtype.is_float):
        raise HloError(f"rng-bit-generator gives integers or the bits of floats, not {result.dtype}")
    bits = 64 if result.dtype.bits == 64 else 32
    with np.errstate(over="ignore"):
        values, advanced = generator(state.reshape(-1), result.dims, bits)
    unsigned = values.astype(f"u{result.dtype.size}")
    if result.dtype.is_integer and result.dtype.bits < 8:
        return advanced, store(unsigned, result.dtype)
    return advanced, (unsigned & np.uint8(15) if result.dtype.bits == 4 else unsigned).view(result.dtype.stored)
