"""`python -m tests.operations.every [FUNCTION]...`: errors of functions of f32 over every number of a range.

Beyond the ranges functions are constant, infinite, or a multiple of their argument to the last place.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.progress import track

from tests.operations.accuracy import PIECE, worst

Array = np.ndarray[Any, Any]

LEAST, SMALL, MOST = 2.0**-149, 2.0**-26, float(np.finfo(np.float32).max)
BELOW_ONE = 1 - 2.0**-24

EVERY: dict[str, tuple[tuple[float, float], ...]] = {
    "acos": ((SMALL, 1), (-SMALL, -1)),
    "asin": ((SMALL, 1),),
    "cbrt": ((LEAST, MOST),),
    "cosh": ((SMALL, 90),),
    "erf": ((SMALL, 4.5),),
    "exponential": ((SMALL, 104), (-SMALL, -104)),
    "exponential-minus-one": ((SMALL, 104), (-SMALL, -104)),
    "log": ((LEAST, MOST),),
    "log-plus-one": ((SMALL, MOST), (-SMALL, -BELOW_ONE)),
    "logistic": ((SMALL, 104), (-SMALL, -104)),
    "sinh": ((SMALL, 90),),
    "tanh": ((SMALL, 10),),
}
"""Ranges of each function, ends included, of one sign each; of odd and even functions one sign is enough."""


def pieces(first: float, last: float, size: int = PIECE) -> Iterator[Array]:
    """Every f32 from one to another of its sign, in arrays of one size; the last number fills up the last of them."""
    low, high = (int(np.float32(x).view(np.uint32)) for x in (first, last))
    for start in range(low, high + 1, size):
        patterns = np.minimum(np.arange(start, start + size, dtype=np.uint64), high)
        yield patterns.astype(np.uint32).view(np.float32)


def row(opcode: str) -> str:
    """A row of the table of docs/operations.md."""
    ranges = EVERY[opcode]
    given = (x for ends in ranges for x in pieces(*ends))
    count = sum(int(np.float32(b).view(np.uint32)) - int(np.float32(a).view(np.uint32)) + 1 for a, b in ranges)
    error, at = max(worst(opcode, x) for x in track(given, opcode, total=count // PIECE + 1))
    shown = ", ".join(f"{np.float32(a)!s} to {np.float32(b)!s}" for a, b in ranges)
    return f"| {opcode} | {shown} | {count / 1e6:,.0f} | {error:.2f} | {np.float32(at)!s} |"


if __name__ == "__main__":
    print("\n".join(map(row, sys.argv[1:] or EVERY)))
