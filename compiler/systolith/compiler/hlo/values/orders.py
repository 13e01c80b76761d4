"""In which order a reduction may combine its elements.

XLA leaves it open and asks for computations that are associative and commutative.  One that is shown not to be, by
trying values, is applied to one element after the other, in row-major order, from the initial value on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np

from systolith.compiler.hlo.ir import Computation
from systolith.compiler.hlo.values.convert import carrier
from systolith.isa.dtypes import U32, DType, Kind

SAMPLES = 64

SLACK = 16.0
"""Units in the last place by which floats may differ: three operations that round."""

NEAR_ONE = 0x3FF00000
"""The high word of 1 as f64: computations on u32 may be sums of such, on the words of their bits."""

_KNOWN: WeakKeyDictionary[Computation, bool] = WeakKeyDictionary()


class Calls(Protocol):
    """The interface of operations that call computations to the evaluator."""

    def map(self, computation: Computation, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run a computation on scalars for every element of arrays that broadcast; results, tuples flattened."""
        ...


def any_order(computation: Computation, calls: Calls) -> bool:
    """Whether no values were found that show a reduction's computation not to be associative and commutative."""
    if computation not in _KNOWN:
        _KNOWN[computation] = _looks_free(computation, calls)
    return _KNOWN[computation]


def _looks_free(computation: Computation, calls: Calls) -> bool:
    types = [p.shape.dtype for p in computation.parameters]
    half = len(types) // 2
    if types[:half] != types[half:]:
        return False

    def combined(x: Sequence[np.ndarray], y: Sequence[np.ndarray]) -> list[np.ndarray]:
        return calls.map(computation, [*x, *y])

    rng = np.random.default_rng(0)
    a, b, c = ([_sample(rng, t) for t in types[:half]] for _ in range(3))
    with np.errstate(all="ignore"):
        pairs = [
            (combined(a, b), combined(b, a)),
            (combined(combined(a, b), c), combined(a, combined(b, c))),
        ]
    return all(_alike(x, y, t) for left, right in pairs for x, y, t in zip(left, right, types, strict=False))


def changes_nothing(computation: Computation, values: Sequence[np.ndarray], calls: Calls) -> bool:
    """Whether no elements were found that a computation changes when it combines them with initial values."""
    rng = np.random.default_rng(1)
    given = []
    for value, p in zip(values, computation.parameters, strict=False):
        t = p.shape.dtype
        extremes = np.array([-np.inf, np.inf] if t.is_float else [], np.float64)
        with np.errstate(all="ignore"):
            given.append(
                np.concatenate([_sample(rng, t), extremes.astype(t.stored), value.reshape(1)]).astype(t.stored)
            )
    few = min(x.size for x in given)
    given = [x[-few:] for x in given]
    with np.errstate(all="ignore"):
        found = calls.map(computation, [*given, *values])
    return all(
        np.array_equal(np.asarray(x).astype(y.dtype), y, equal_nan=y.dtype.kind in "fc")
        for x, y in zip(found, given, strict=True)
    )


def _sample(rng: np.random.Generator, t: DType) -> np.ndarray:
    """Small whole numbers, of which every type holds the sums and products of three; of integers, any besides."""
    low, high = (0, 2) if t.kind is Kind.PRED else (0, 4) if t.kind is Kind.UNSIGNED else (-2, 3)
    small = rng.integers(low, high, SAMPLES)
    if t.is_integer:
        small[::2] = rng.integers(-(1 << 63), (1 << 63) - 1, SAMPLES)[::2]
    if t is U32:
        small[1::4] = NEAR_ONE | rng.integers(0, 1 << 20, SAMPLES)[1::4]
    return small.astype(carrier(t)) if t.is_integer and t.bits >= 8 else small.clip(low, high).astype(t.stored)


def _alike(x: np.ndarray, y: np.ndarray, t: DType) -> bool:
    if not t.is_float:
        return np.array_equal(x, y)
    a, b = x.astype(np.float64), y.astype(np.float64)
    return np.allclose(
        a, b, rtol=SLACK * float(t.finfo.eps), atol=SLACK * float(t.finfo.smallest_normal), equal_nan=True
    )
