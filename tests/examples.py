"""On how many examples a property is tried: some in `make test`, all in `make test-all`."""

import os

from hypothesis import settings

THOROUGH = bool(os.environ.get("SYSTOLITH_THOROUGH"))


def examples(some: int, every: int) -> settings:
    """Settings for a property whose examples take long; times vary too much on shared machines for a deadline."""
    return settings(max_examples=every if THOROUGH else some, deadline=None)


def seeds(some: int, every: int) -> range:
    """Numbers of the random cases of a test."""
    return range(every if THOROUGH else some)
