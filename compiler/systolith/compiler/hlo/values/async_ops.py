"""Asynchronous operations: the call of a computation in two steps, and those whose opcode has the steps in its name.

An operation runs at its start: nothing can be seen in between, since values do not change.  A start gives the tuple of
its operands, the result, and contexts of zero; an update passes it on; a done takes the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from systolith.compiler.hlo.ir import Instruction, Literal


def started(i: Instruction, operands: Literal, result: Literal) -> Literal:
    """The tuple that a start gives: operands, results, and contexts of zero."""
    contexts = (np.zeros(s.dims, s.dtype.stored) for s in i.shape.elements[2:])
    return operands, result, *contexts


def _copy_start(i: Instruction, values: list[Literal]) -> Literal:
    """Destination, source and context."""
    return started(i, values[0], values[0])


def _element(number: int) -> Callable[[Instruction, list[Literal]], Literal]:
    return lambda i, values: cast("tuple[Literal, ...]", values[0])[number]


def _operand(i: Instruction, values: list[Literal]) -> Literal:
    return values[0]


ASYNC: dict[str, Callable[[Instruction, list[Literal]], Literal]] = {
    "async-update": _operand,
    "async-done": _element(1),
    "all-gather-done": _element(1),
    "all-reduce-done": _operand,
    "collective-permute-done": _element(1),
    "copy-start": _copy_start,
    "copy-done": _element(0),
}
"""Opcode to function; the starts of collectives are in `collectives.py`, those of calls in `evaluator.py`."""
