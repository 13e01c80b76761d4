"""Recursion of any depth: functions that recurse on user-sized structures keep their calls in a list, not the stack."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")

Steps = Generator[Any, Any, T]
"""A computation of a T that yields others of its kind where it needs their results: `value = yield other(...)`."""


def trampoline(first: Steps[T]) -> T:
    """The result of steps, and of all that they yield, depth first; an error passes through who waits for it."""
    waiting: list[Steps[Any]] = [first]
    value: Any = None
    error: Exception | None = None
    while waiting:
        try:
            inner = waiting[-1].send(value) if error is None else waiting[-1].throw(error)
        except StopIteration as done:
            waiting.pop()
            value, error = done.value, None
        except Exception as problem:
            waiting.pop()
            error = problem
        else:
            waiting.append(inner)
            value = error = None
    if error is not None:
        raise error
    result: T = value
    return result
