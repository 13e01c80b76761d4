"""On how many examples a property is tried, and on which cases: some in `make test`, all in `make test-all`."""

import os
from collections.abc import Container, Iterable, Mapping, Sequence

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings

THOROUGH = bool(os.environ.get("SYSTOLITH_THOROUGH"))


def examples(some: int, every: int) -> settings:
    """Settings for a property whose examples take long; times vary too much on shared machines for a deadline."""
    return settings(max_examples=every if THOROUGH else some, deadline=None)


def seeds(some: int, every: int) -> range:
    """Numbers of the random cases of a test."""
    return range(every if THOROUGH else some)


def with_slow(cases: Iterable[object], slow: Container[object]) -> list[ParameterSet]:
    """Each case, a tuple if it is of several arguments; those of `slow` are for `make test-all`."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow if case in slow else ())
        for case in cases
    ]


def one_in(number: int, cases: Mapping[str, Sequence[object]]) -> list[ParameterSet]:
    """Each key with each of its values; of so many pairs of a key one is for `make test`, another one for each key, so
    that each key is, and each value that `number` keys in succession have.
    """
    return [
        pytest.param(key, value, marks=pytest.mark.slow if (k - n) % min(number, len(values)) else ())
        for n, (key, values) in enumerate(cases.items())
        for k, value in enumerate(values)
    ]
