"""`rng`: uniform and normal numbers from Philox bits, as XLA's `rng_expander` makes them.

XLA draws its seed anew in every run, so that only the distributions are defined; here a run gives the same numbers
every time.  The key tells instructions and devices apart, the counter how many words an instruction took before.
"""

from __future__ import annotations

from math import prod
from zlib import crc32

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.values.convert import carrier, converted, store, to_working
from systolith.compiler.hlo.values.devices import Device
from systolith.compiler.hlo.values.random_bits import philox_bits
from systolith.isa.dtypes import Kind, dtype

FIRST_STATE = 0x7012395
"""That of XLA's CPU backend, of every `rng-get-and-update-state`."""


def words_of(i: Instruction) -> int:
    """By how much an `rng` advances the counter: the 32-bit words it takes."""
    return prod(i.dims) * (2 if i.shape.dtype.bits == 64 else 1)


def rng(i: Instruction, low: np.ndarray, high: np.ndarray, device: Device) -> np.ndarray:
    """Numbers of `rng_uniform`: from low up to high, not included; of `rng_normal`: of mean low and deviation high.

    Args:
        i: the instruction.
        low, high: scalars of the result's type.
        device: where it runs; keeps the instruction's counter.

    Raises:
        HloError: there is no such distribution of the type.
    """
    distribution, target = i.word("distribution"), i.shape.dtype
    key = (device.number << 32) ^ crc32(i.name.encode())
    counter = device.states.get(i, 0)
    device.states[i] = counter + words_of(i)
    with np.errstate(all="ignore"):
        if distribution == "rng_uniform" and (target.is_integer or target.kind is Kind.PRED):
            return _uniform_integers(i, low, high, key, counter)
        if not target.is_float or distribution not in ("rng_uniform", "rng_normal"):
            raise HloError(f"there is no {distribution} of {target}")
        a, b = (to_working(x, target) for x in (low, high))
        if distribution == "rng_uniform":
            return _below(_unit(key, counter, i.dims, a.dtype) * (b - a) + a, a, b, i)
        return store(a + b * _normal(key, counter, i.dims, a.dtype), target)


def _below(x: np.ndarray, low: np.ndarray, high: np.ndarray, i: Instruction) -> np.ndarray:
    """Rounded to the type; values that rounding brings up to `high` become `low`."""
    rounded = store(np.asarray(x), i.shape.dtype)
    return np.where((to_working(rounded, i.shape.dtype) >= high) & (low < high), store(low, i.shape.dtype), rounded)


def _unit(key: int, counter: int, dims: tuple[int, ...], carried: np.dtype[np.generic]) -> np.ndarray:
    """Multiples of 2^-23 (f64: 2^-52) from 0 up to 1."""
    bits, fraction = (64, 52) if carried == np.float64 else (32, 23)
    drawn, _ = philox_bits(np.array([key], np.uint64), counter, dims, bits)
    return np.asarray(np.ldexp((drawn >> drawn.dtype.type(bits - fraction)).astype(carried), -fraction), carried)


def _normal(key: int, counter: int, dims: tuple[int, ...], carried: np.dtype[np.generic]) -> np.ndarray:
    """Box and Muller: pairs of uniform numbers to pairs of normal ones."""
    half = -(-prod(dims) // 2)
    pairs = _unit(key, counter, (2, half), carried)
    radius = np.sqrt(-2 * np.log(np.maximum(pairs[0], carried.type(1e-7))))
    angle = 2 * np.pi * pairs[1]
    both = np.concatenate([np.sin(angle) * radius, np.cos(angle) * radius])
    return np.asarray(both[: prod(dims)].reshape(dims), carried)


def _uniform_integers(i: Instruction, low: np.ndarray, high: np.ndarray, key: int, counter: int) -> np.ndarray:
    """`low` + bits modulo (high - low), in unsigned arithmetic of 64 bits."""
    whole = dtype("s64")
    a, b = (converted(np.asarray(x), i.shape.dtype, whole).view(np.uint64) for x in (low, high))
    drawn, _ = philox_bits(np.array([key], np.uint64), counter, i.dims, 64)
    span = b - a
    offset = np.where(span == 0, np.uint64(0), drawn % np.where(span == 0, np.uint64(1), span))
    value = (a + offset).astype(np.uint64).view(np.int64)
    return store(value.astype(carrier(i.shape.dtype)), i.shape.dtype)


def rng_state(i: Instruction, device: Device) -> np.ndarray:
    """`rng-get-and-update-state`: its counter of 128 bits as u64s, low one first; `delta` further the next time."""
    state = device.states.get(i, FIRST_STATE)
    device.states[i] = (state + i.integer("delta", 0)) % 2**128
    return np.array([state % 2**64, state >> 64], np.uint64)
