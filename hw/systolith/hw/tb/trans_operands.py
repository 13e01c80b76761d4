"""Operands for the transcendental micro-operations: any bits, those that matter to each function, and corner cases."""

from __future__ import annotations

import numpy as np

from systolith.hw.tb.data import EDGES, Words

SIGN = np.uint32(0x80000000)

# Where sequences change their ways: limits of arguments, branches, table intervals, results that over- or underflow.
_SEAMS = (
    *(0.41421357, 0.5, 0.625, 0.70710677, 0.70703125, 0.78539816, 0.9, 1.41421357, 1.5707964, 2.0, 3.0, 3.1415927),
    *(0.34657359, 10.0, 16.98, 20.8, 87.3365, 88.7228, 89.0, 103.972, 104.0, 140.0, 149.0, 160.0),
    *(2.0**-149, 2.0**-126, 2.0**-26, 2.0**-25, 2.0**-24, 2.0**-23, 2.0**23, 2.0**24, 2.0**31, 2.0**33),
    16367173 * 2.0**72,  # no f32 is nearer to a multiple of pi/2
)
# Arguments, by function, where results are neither limits nor the argument itself.
_SPANS: dict[str, tuple[tuple[float, float], ...]] = {
    "exp": ((-105, 90), (-1, 1)),
    "expm1": ((-30, 90), (-1, 1)),
    "log": ((0, 4), (0.99, 1.01)),
    "log1p": ((-1, 3), (-0.01, 0.01)),
    "tanh": ((-11, 11), (-0.7, 0.7)),
    "logistic": ((-105, 20), (-3, 3)),
    "rsqrt": ((0, 4), (0, 1e-30)),
    "cbrt": ((-4, 4), (-1e-30, 1e-30)),
    "sin": ((-7, 7), (-1e6, 1e6)),
    "cos": ((-7, 7), (-1e6, 1e6)),
    "tan": ((-7, 7), (-1e6, 1e6)),
    "erf": ((-4.1, 4.1), (-1, 1)),
    "pow": ((-4, 4), (0.99, 1.01)),
    "atan2": ((-2, 2), (-1e-40, 1e-40)),
}


def corners() -> tuple[Words, Words]:
    """All pairs of special values, and of seams with their neighbours."""
    seams = np.array(_SEAMS, np.float32).view(np.uint32)
    near = (seams[:, None] + np.arange(-3, 4, dtype=np.int32).astype(np.uint32)).reshape(-1)
    positive = np.unique(np.concatenate([EDGES, near])) & ~SIGN
    some = np.concatenate([positive, positive | SIGN])
    a, b = np.meshgrid(some, some)
    return a.reshape(-1), b.reshape(-1)


def _spans(name: str, random: np.random.Generator, count: int) -> Words:
    spans = np.array(_SPANS[name])[random.integers(0, 2, count)]
    values: Words = random.uniform(spans[:, 0], spans[:, 1]).astype(np.float32).view(np.uint32)
    return values


def _exponents(x: Words, random: np.random.Generator) -> Words:
    """Exponents y for which most x^y are neither 0 nor infinite, and some that are integers or halves."""
    with np.errstate(all="ignore"):
        size = np.log2(np.abs(x.view(np.float32).astype(np.float64)))
        y = np.nan_to_num(random.uniform(-155, 135, x.size) / size, posinf=1e38, neginf=-1e38)
    y = np.choose(random.integers(0, 3, x.size), [y, np.rint(y), np.rint(y * 2) / 2]).astype(np.float32)
    images: Words = y.view(np.uint32)
    return images


def _near_quarters(random: np.random.Generator, count: int) -> Words:
    """Multiples of pi/4, as near as f32 comes, and their neighbours."""
    multiples = np.floor(np.exp2(random.uniform(0, 40, count))) * (np.pi / 4)
    near: Words = multiples.astype(np.float32).view(np.uint32) + random.integers(0, 3, count, np.uint32) - np.uint32(1)
    return near


def operands(name: str, seed: int, count: int) -> tuple[Words, Words]:
    """Random pairs: a third of any bits, a third in the spans that matter, a third of pairs that belong together."""
    random = np.random.default_rng([seed, *name.encode()])
    a, b = random.integers(0, 2**32, (2, count), np.uint32)
    third = count // 3
    a[:third], b[:third] = _spans(name, random, third), _spans(name, random, third)
    last = slice(third, 2 * third)
    if name == "pow":
        b[last] = _exponents(a[last], random)
        b[: third // 2] = _exponents(a[: third // 2], random)
    elif name == "atan2":
        b[last] = a[last] + random.integers(-(1 << 25), 1 << 25, third).astype(np.uint32)
    elif name in ("sin", "cos", "tan"):
        a[last] = _near_quarters(random, third)
    return a, b
