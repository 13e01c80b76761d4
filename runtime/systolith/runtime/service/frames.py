"""Frames between the front and a worker: kind, number of the call, length; then the contents.

To the worker: `CALL` a method, its `MESSAGE`s, then `END`, or `ABORT` where the client gave up.  From it: `MESSAGE`s,
then `DONE` with a status and a text, the last of a call.  What comes for a call that is done is dropped.
"""

from __future__ import annotations

import struct
from enum import IntEnum

OVERTIME, NO_MEMORY = 70, 71
"""Exit statuses of a worker: a run took more than its seconds, messages more than its memory."""

HEADER = struct.Struct("<BII")


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


LONGEST_TEXT = 1000
"""Most bytes of an error's text: gRPC sends no long ones."""


def frame(kind: Kind, call: int, contents: bytes = b"") -> bytes:
    """A frame."""
    return HEADER.pack(kind, call, len(contents)) + contents


def ended(status: Status, text: str = "") -> bytes:
    """The contents of `DONE`."""
    return bytes([status]) + " ".join(text.split()).encode(errors="replace")[:LONGEST_TEXT]


def how_ended(contents: bytes) -> tuple[Status, str]:
    """Decode the contents that `ended` encodes: the status and the text."""
    return Status(contents[0]), contents[1:].decode(errors="ignore")
