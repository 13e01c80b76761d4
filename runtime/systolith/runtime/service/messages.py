"""Methods and messages of the service.

A value goes as a message with its shape (HLO text) and any number of messages with its bytes: the arrays in it, depth
first, each dense and row-major, types of less than a byte one element a byte.  A handle names one array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np

from systolith.compiler.hlo.proto.declared import Declared
from systolith.compiler.hlo.shape import Shape
from systolith.runtime.arrays import Array
from systolith.runtime.service.limits import CHUNK

SERVICE = "systolith.service.Xla"

# Method to its request and its reply; `*`: a stream of them.
METHODS: dict[str, str] = {
    "Attach": "Nothing, Session*",
    "Metrics": "Nothing, Text",
    "Compile": "Program*, Handles",
    "TransferToServer": "Value*, Handles",
    "TransferFromServer": "Handles, Value*",
    "TransferToInfeed": "Value*, Nothing",
    "TransferFromOutfeed": "Value, Value*",
    "Execute": "Execute, Handles",
    "LastRun": "Nothing, Record*",
    "Delete": "Handles, Nothing",
}
WITHOUT_SESSION = ("Attach", "Metrics")

MESSAGES: dict[str, str] = {
    "Nothing": "",
    "Text": "1 text string",
    "Session": "1 name string, 2 chip string, 3 devices int32, 4 version string",
    "Program": "1 text bytes",
    "Value": "1 shape string, 2 device int32, 3 data bytes, 4 config string",
    "Handles": "1 values uint64*, 2 programs uint64*, 3 shape string",
    "Execute": "1 program uint64, 2 arguments uint64*, 3 device int32",
    "Record": "1 cycles uint64?, 2 launch uint64?, 3 data bytes",
}

ABOUT: dict[str, str] = {
    "Nothing": "Says nothing.",
    "Text": "A text.",
    "Session": "A client's session: its name, and the devices that it has.",
    "Program": "A part of a program's HLO text (UTF-8); the parts make it one after the other.",
    "Value": "A value: first its shape (HLO text), device and config of infeeds or outfeeds, then, in any number of"
    " messages, its bytes.",
    "Handles": "Arrays and programs of the client, by number; the shape of the value that the arrays make.",
    "Execute": "Starts a run of a program on arrays of a device; the results are there at once, as handles.",
    "Record": "First the cycles of a run and of its launch, absent without a run; then parts of its record (JSON).",
    "Attach": "Opens a session, which lasts as long as the stream. Needs no session.",
    "Metrics": "Counts of the service, in Prometheus' text format. Needs no session.",
    "Compile": "Compiles a program.",
    "TransferToServer": "Copies a value into a device's memory.",
    "TransferFromServer": "Copies a value from a device's memory, after the run that computes it.",
    "TransferToInfeed": "Appends a value to a device's infeed.",
    "TransferFromOutfeed": "Takes the next value of a shape from a device's outfeed.",
    "LastRun": "The latest run of the client, after its end.",
    "Delete": "Frees arrays and programs.",
}
"""A line on each message and method."""

SESSION_KEY, TOKEN_KEY = "systolith-session", "authorization"

# The health protocol of gRPC: its reply is a message whose field 1 is 1 (serving) or 2.
HEALTH = "/grpc.health.v1.Health/Check"
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"


@cache
def _declared() -> Declared:
    return Declared(SERVICE.rpartition(".")[0], MESSAGES)


@cache
def message_class(name: str) -> Any:
    """The class of a message."""
    return _declared().message_class(name)


def path_of(method: str) -> str:
    """A method's name in gRPC."""
    return f"/{SERVICE}/{method}"


def cut_bytes(data: bytes | Array) -> Iterator[bytes]:
    """Bytes, or those of a contiguous array, in chunks."""
    view = data if isinstance(data, bytes) else np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
    for start in range(0, len(view), CHUNK):
        yield bytes(view[start : start + CHUNK])


def int32(device: int) -> int:
    """A device's number as messages can have it: there is none beyond."""
    return max(-(1 << 31), min(int(device), (1 << 31) - 1))


def messages_of(shape: Shape, arrays: Iterable[Array], device: int = 0, config: str = "") -> Iterator[Any]:
    """The messages of a value, for a device, and for its infeed or outfeed of a config."""
    value = message_class("Value")
    yield value(shape=shape.text(), device=int32(device), config=config)
    for array in arrays:
        for chunk in cut_bytes(array):
            yield value(data=chunk)


def filled(size: int, chunks: Iterable[bytes]) -> Array | None:
    """An array of all bytes of chunks; None unless they are as many as `size`."""
    data = np.empty(size, np.uint8)
    end = 0
    for chunk in chunks:
        if end + len(chunk) > size:
            return None
        data[end : end + len(chunk)] = np.frombuffer(chunk, np.uint8)
        end += len(chunk)
    return data if end == size else None
