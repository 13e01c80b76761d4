"""Calls of functions of the host in a run: what a program sends for them, and what they give.

The host calls a function when the last byte of its operands is there; the program takes the results in order.
"""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

from systolith.isa.dtypes import ELEMENT_TYPES
from systolith.isa.host_functions import HostFunctionError, Signature, call, size_of
from systolith.isa.instruction import Stream
from systolith.isa.program import BufferDecl, Program, Role

Bytes = npt.NDArray[np.uint8]


def declared(program: Program, stream: Stream, roles: tuple[Role, ...]) -> BufferDecl | None:
    """The array that a host stream moves, or a part of it; None: bytes of which nothing is said."""
    base, buffers = stream.base, program.buffers
    known = isinstance(base, int) and 0 <= base < len(buffers) and buffers[base].role in roles
    return buffers[base] if known else None  # type: ignore[index]


class HostCalls:
    """The calls of a run, one after the other."""

    def __init__(self) -> None:
        self._sent: list[Bytes] = []  # of the call whose operands are on their way
        self._given = np.empty(0, np.uint8)  # results that the program has not taken

    def put(self, data: Bytes, decl: BufferDecl) -> None:
        """Take a part of the operands of a call; with the last one, call the function.

        Raises:
            HostFunctionError: as `isa.host_functions.call`.
        """
        signature = Signature.from_bytes(decl.data)
        self._sent.append(data)
        if sum(part.size for part in self._sent) < signature.sent_bytes:
            return
        given = call(signature, _operands(signature, np.concatenate(self._sent)))
        self._sent = []
        self._given = np.concatenate([self._given, *(x.reshape(-1).view(np.uint8) for x in given)])

    def take(self, size: int, decl: BufferDecl) -> Bytes:
        """The next bytes of the results.

        Raises:
            HostFunctionError: no call has given them.
        """
        if size > self._given.size:
            raise HostFunctionError(f"{decl.name!r} takes {size} bytes of a call, which has {self._given.size}")
        taken, self._given = self._given[:size], self._given[size:]
        return taken


def _operands(signature: Signature, data: Bytes) -> list[npt.NDArray[np.generic]]:
    """The arrays that were sent, which may be written to."""
    found, at = [], 0
    for dtype, dims in signature.operands:
        size = size_of((dtype, dims))
        stored = ELEMENT_TYPES[dtype].stored
        found.append(np.frombuffer(data[at : at + size].tobytes(), stored, prod(dims)).reshape(dims).copy())
        at += size
    return found
