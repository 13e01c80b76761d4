"""Frames between the front and a worker: one byte of kind, four of length, the contents.

To the worker: `CALL` a method, its `MESSAGE`s, then `END`, or `ABORT` where the client gave up.  From it: `MESSAGE`s,
then `DONE` with a status and a text.  The worker reads up to `END` or `ABORT` before the next
call, whatever it answered.
"""

from __future__ import annotations

import struct
from enum import IntEnum

OVERTIME = 70
"""Exit status of a worker in which a run took more than its seconds."""

HEADER = struct.Struct("<BI")


class Kind(IntEnum):
    """Kinds of frames."""

    CALL = 1
    MESSAGE = 2
    END = 3
    ABORT = 4
    DONE = 5


class Status(IntEnum):
    """How a call ended, by gRPC's numbers."""

    OK = 0
    CANCELLED = 1
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    INTERNAL = 13


def frame(kind: Kind, contents: bytes = b"") -> bytes:
    """A frame."""
    return HEADER.pack(kind, len(contents)) + contents
