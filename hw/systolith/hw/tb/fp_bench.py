"""The arithmetic packages at native speed: their results, and operands at which arithmetic goes wrong.

Bits are u32, those of f16 in the low half.
"""

from __future__ import annotations

import subprocess
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from systolith.hw.tb.data import Words


class What(IntEnum):
    """Operations of `fp_tb`; their numbers there."""

    ALU = 0
    DIVIDE = 1
    REDUCE = 2
    WIDEN = 3
    NARROW = 4
    HALF = 5


# Numbers of the functions of f16_pkg in `fp_tb`.
HALF = (
    *("add", "sub", "mul", "div", "sqrt", "fmod", "min", "max", "eq", "lt", "le"),
    *("floor", "ceil", "rne", "rna", "trunc"),
    *("from_s32", "from_u32", "to_s32", "to_u32"),
)


class Format(NamedTuple):
    """A binary format: the widths of its fields."""

    exponent: int
    fraction: int

    @property
    def sign(self) -> int:
        return 1 << (self.exponent + self.fraction)

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.fraction

    @property
    def one(self) -> int:
        return self.infinity >> (self.fraction + 1) << self.fraction

    @property
    def nan(self) -> int:
        return self.infinity | 1 << (self.fraction - 1)


F32 = Format(8, 23)
F16 = Format(5, 10)


def run(executable: Path, what: What, number: int, a: Words, b: Words, c: Words) -> Words:
    """The RTL's results."""
    command = [str(executable), str(int(what)), str(number)]
    triples = np.stack([a, b, c], axis=1).tobytes()
    return np.frombuffer(subprocess.run(command, input=triples, stdout=subprocess.PIPE, check=True).stdout, np.uint32)


def compare(name: str, got: Words, want: Words, *operands: Words) -> None:
    """Compare bits.

    Raises:
        AssertionError: they differ; the message has the first operands for which they do.
    """
    assert len(got) == len(want), f"{name}: {len(got)} results of {len(want)}"
    bad = np.flatnonzero(got != want)
    if len(bad):
        i = bad[0]
        given = ", ".join(f"{x[i]:#010x}" for x in operands)
        found = f"RTL {got[i]:#010x}, expected {want[i]:#010x}"
        raise AssertionError(f"{name}: {len(bad)} of {len(got)} differ; {given}: {found}")


def corners(form: Format) -> Words:
    """Zeros, ones, integers, limits, and their neighbours, infinities and NaNs, with either sign."""
    ulp = 1 << form.fraction
    steps = [form.one + k * ulp for k in (-form.fraction - 2, -form.fraction - 1, -2, -1, 0, 1, 2)]
    steps += [form.one + (form.fraction + k) * ulp for k in (-1, 0, 1)]  # where the last bit is a half, 1, 2
    steps += [ulp, 2 * ulp, form.infinity, form.infinity - ulp]
    steps += [form.one + k * ulp for k in (31, 32) if form.one + k * ulp < form.infinity]  # ends of s32 and u32
    around = [base + k for base in steps for k in (-1, 0, 1)]
    few = [0, 1, 2, 3, ulp >> 1, form.one | ulp >> 1, form.infinity - ulp // 2, form.nan, form.nan | 1, form.sign - 1]
    positive = np.unique(np.array(around + few, np.uint32))
    assert (positive < form.sign).all()
    return np.concatenate([positive, positive | np.uint32(form.sign)])


def pairs(values: Words) -> tuple[Words, Words]:
    """All pairs."""
    a, b = np.meshgrid(values, values)
    return a.reshape(-1), b.reshape(-1)


def _short(random: np.random.Generator, form: Format, count: int) -> Words:
    """Significands of few bits, and their neighbours, near 1: products, quotients and roots are ties or exact."""
    reach = min(40, (1 << (form.exponent - 1)) - 1)
    exponents = (form.one >> form.fraction) + random.integers(-reach + 1, reach, count)
    cut = random.integers(0, form.fraction + 1, count)
    fractions = random.integers(0, 1 << form.fraction, count) >> cut << cut
    signs = random.integers(0, 2, count) * form.sign
    near = random.choice([0, 0, 0, 1, -1], count)
    images = (exponents << form.fraction | fractions) + near | signs
    return np.asarray(images, np.uint32)


def _integers(random: np.random.Generator, form: Format, count: int) -> Words:
    """Small integers, as integers, and neighbours of powers of two, either sign."""
    bits = random.integers(0, form.exponent + form.fraction + 2, count)
    powers = (1 << bits) + random.integers(-1, 2, count)
    whole = np.where(random.random(count) < 0.5, powers, random.integers(0, 50, count))
    return np.asarray(whole * random.choice([1, -1], count) & 2 * form.sign - 1, np.uint32)


def _mixed(random: np.random.Generator, form: Format, count: int) -> Words:
    most = 2 * form.sign
    whatever = random.integers(0, most, count, np.uint32)
    subnormal = whatever & np.uint32(form.sign | (1 << (form.fraction + 1)) - 1)
    some = random.choice(corners(form), count)
    kinds = [whatever, subnormal, some, _short(random, form, count), _short(random, form, count)]
    kinds.append(_integers(random, form, count))
    return np.choose(random.integers(0, len(kinds), count), kinds)


@lru_cache(maxsize=4)
def operands(form: Format, seed: int, count: int) -> tuple[Words, Words, Words]:
    """All pairs of corner cases, then random ones; of a third of these the exponents are close, or all but a few bits
    are the same.
    """
    random = np.random.default_rng(seed)
    a, b, c = (_mixed(random, form, count) for _ in range(3))
    ulp, mask = np.int64(1 << form.fraction), np.int64(2 * form.sign - 1)
    close = a.astype(np.int64) + random.integers(-3, 4, count) * ulp + random.integers(0, ulp, count)
    cancels = a.astype(np.int64) ^ random.integers(0, 8, count) ^ random.integers(0, 2, count) * form.sign
    which = random.integers(0, 6, count)
    b = np.select([which == 0, which == 1], [close & mask, cancels], b).astype(np.uint32)
    x, y = pairs(corners(form))
    return np.concatenate([x, a]), np.concatenate([y, b]), np.concatenate([x[::-1], c])
