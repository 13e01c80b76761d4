"""The comparisons that other tests rely on: what they must not let pass."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.machine import assert_within, error

WANTED = np.array([1, 2, np.inf, np.nan], np.float32)


@pytest.mark.parametrize("place", range(4))
def test_infinities_hide_no_error(place: int) -> None:
    got = WANTED.copy()
    assert error(got, WANTED) == 0
    got[place] = 3
    assert error(got, WANTED) >= 0.5
    with pytest.raises(AssertionError, match="result 0: 1 of 4 elements are wrong"):
        assert_within([got], [(WANTED, np.full(4, np.inf))])


def test_types_and_shapes_are_compared() -> None:
    for other in (WANTED.astype(np.float64), WANTED[:3]):
        with pytest.raises(AssertionError):
            error(other, WANTED)
        with pytest.raises(AssertionError):
            assert_within([other], [(WANTED, np.zeros(4))])


def test_integers_have_no_bound_to_hide_behind() -> None:
    with pytest.raises(AssertionError):
        assert_within([np.array([1, 3])], [(np.array([1, 2]), np.full(2, np.inf))])
