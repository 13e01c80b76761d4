"""Functions of the host that programs call: custom calls by target.

A program sends the operands of a call to the host and takes the results from it, over the host's link.  It holds the
target, not the function, so a binary runs wherever the target is registered, here or by the entry point
`systolith.host_functions` of an installed package.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from systolith.isa.checked import checked
from systolith.isa.dtypes import ELEMENT_TYPES
from systolith.isa.errors import SystolithError

GROUP = "systolith.host_functions"
"""The group of entry points: target to function."""

PYTHON = "systolith.python."
"""Begins the targets of Python functions that JAX found while it traced a program: only that process has them."""

HostFunction = Callable[..., Any]
"""From the arrays of the operands to that of the result: one array, a sequence of them, or None for none."""

Array = npt.NDArray[Any]
ArrayType = tuple[str, tuple[int, ...]]
"""XLA's element type name, and dimensions."""

_FUNCTIONS: dict[str, HostFunction] = {}


class HostFunctionError(SystolithError):
    """A function of the host is not registered, failed, or gave what it should not."""


@dataclass(frozen=True)
class Signature:
    """What a call sends, and takes.

    Attributes:
        target: by which the function is registered.
        operands: arrays that it is called with; of those without elements nothing is sent.
        results: arrays that it gives.
    """

    target: str
    operands: tuple[ArrayType, ...]
    results: tuple[ArrayType, ...]

    @property
    def sent_bytes(self) -> int:
        """That are sent; a call without operands sends a word."""
        return sum(size_of(operand) for operand in self.operands) or 4

    def to_bytes(self) -> bytes:
        """As an entry of the buffer table holds it."""
        return json.dumps([self.target, self.operands, self.results], separators=(",", ":")).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Signature:
        """The reverse of `to_bytes`.

        Raises:
            HostFunctionError: it is none.
        """
        try:
            target, operands, results = json.loads(data)
            types = [tuple((str(d), tuple(map(int, dims))) for d, dims in of) for of in (operands, results)]
            known = all(d in ELEMENT_TYPES and min(dims, default=0) >= 0 for of in types for d, dims in of)
        except (ValueError, TypeError):
            known = False
        if not known:
            raise HostFunctionError("data: must be the target, operands and results of a call of the host, as JSON")
        return Signature(str(target), types[0], types[1])


def size_of(array: ArrayType) -> int:
    """Bytes of an array."""
    size = ELEMENT_TYPES[array[0]].size
    for n in array[1]:
        size *= n
    return size


@checked
def register(target: str, function: HostFunction) -> None:
    """Let custom calls of `target` call a function of the host, instead of one that was registered before.

    Args:
        target: as `custom_call_target` has it.
        function: takes the operands as numpy arrays, tuples array by array; gives an array, a sequence of them for a
            tuple, or anything for the empty tuple.

    Raises:
        HostFunctionError: the target is empty, or it is no function.
    """
    if not target or not callable(function):
        raise HostFunctionError(f"custom-call target {target!r}: takes a name and a function, got {function!r}")
    _FUNCTIONS[target] = function


def unregister(target: str) -> None:
    """Forget a function."""
    _FUNCTIONS.pop(target, None)


def is_known(target: str) -> bool:
    """Whether a function of the host is registered for a target."""
    return target in _FUNCTIONS or target in _installed()


def registered() -> list[str]:
    """The targets whose functions were registered in this process."""
    return sorted(_FUNCTIONS.keys() - _installed())


def why_elsewhere() -> str:
    """Why no target that begins with `PYTHON` runs here, and what can be done."""
    return (
        "is a callback of JAX, a Python function of the process that traced the program; run it there, or call a"
        " function that is registered by name where the program runs (sl.register_custom_call_target)"
    )


@cache
def _installed() -> dict[str, Any]:
    from importlib.metadata import entry_points  # late: few programs call the host, and it takes long to import

    return {point.name: point for point in entry_points(group=GROUP)}


def _find(target: str) -> HostFunction:
    if target in _FUNCTIONS:
        return _FUNCTIONS[target]
    if target.startswith(PYTHON):
        raise HostFunctionError(f"custom-call target {target!r}: {why_elsewhere()}")
    if target not in _installed():
        known = ", ".join(sorted({*_FUNCTIONS, *_installed()})) or "none"
        raise HostFunctionError(
            f"custom-call target {target!r}: no function of the host is registered for it in this process"
            f" (sl.register_custom_call_target, or the entry point {GROUP}); registered: {known}"
        )
    try:
        found: HostFunction = _installed()[target].load()
    except (Exception, SystemExit) as problem:
        raise HostFunctionError(f"entry point {GROUP} {target!r}: cannot be imported: {_line(problem)}") from problem
    register(target, found)
    return found


def call(signature: Signature, operands: Sequence[Array]) -> list[Array]:
    """Call a function of the host.

    Returns:
        Its results, dense.

    Raises:
        HostFunctionError: it is not registered, raised an exception, or gave other arrays than its results.
    """
    return called(_find(signature.target), signature, operands)


def called(function: HostFunction, signature: Signature, operands: Sequence[Array]) -> list[Array]:
    """Call a function as `signature` says; as `call`."""
    what = f"custom call of {signature.target!r}"
    try:
        given = function(*operands)
        if not signature.results:
            return []
        several = isinstance(given, tuple | list)
        arrays = [np.asarray(x) for x in (given if several else [given])]
    except Exception as problem:
        raise HostFunctionError(f"{what}: {_line(problem)}") from problem
    if len(arrays) != len(signature.results):
        raise HostFunctionError(f"{what}: gave {len(arrays)} arrays, the call has {len(signature.results)} results")
    return [_checked(f"{what}: result {n}", x, signature.results[n]) for n, x in enumerate(arrays)]


def _checked(what: str, array: Array, wanted: ArrayType) -> Array:
    dtype, dims = wanted
    if array.shape != dims or array.dtype != ELEMENT_TYPES[dtype].stored:
        text = f"{dtype}[{','.join(map(str, dims))}]"
        raise HostFunctionError(f"{what}: gave {array.dtype}{list(array.shape)}, the call has {text}")
    return np.array(array, order="C")


def _line(problem: BaseException) -> str:
    return " ".join(f"{type(problem).__name__}: {problem}".split())
