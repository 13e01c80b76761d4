"""The process of one client: its devices, its values and programs, and the calls on them."""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, RLock, Thread
from time import monotonic
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from systolith.compiler.hlo.shape import Shape
from systolith.compiler.xla_builder.literal import Literal
from systolith.isa.chip import Chip
from systolith.isa.dtypes import Kind as DTypeKind
from systolith.isa.errors import SystolithError
from systolith.isa.files import json_text
from systolith.runtime.client import Client
from systolith.runtime.device import Buffer
from systolith.runtime.executable import Executable
from systolith.runtime.global_data import GlobalData, arrays_of, dense_parts, value_of
from systolith.runtime.service.frames import HEADER, NO_MEMORY, OVERTIME, Kind, Status, ended, frame
from systolith.runtime.service.limits import Limits
from systolith.runtime.service.messages import METHODS, cut_bytes, filled, message_class, messages_of

Messages = Iterator[Any]
OUT_OF_MEMORY = "out of memory: the call needs more than the limit of the service"


class NotFoundError(SystolithError):
    """No value or program of this client has that handle."""


class TooMuchError(SystolithError):
    """More than the limits of the service."""


class AbortedError(Exception):
    """The client gave the call up."""


class Session:
    """Devices, buffers and executables of one client on the service.

    Args:
        chip, devices: of the client's own devices.
        limits: of the service.
    """

    def __init__(self, chip: Chip, devices: int, limits: Limits) -> None:
        self.client = Client(chip, devices)
        self.limits = limits
        self.started: dict[int, float] = {}
        self._values: dict[int, Buffer] = {}
        self._programs: dict[int, Executable] = {}
        self._last = 0
        self._lock = RLock()  # calls are done by several threads

    def compile(self, messages: Messages) -> Messages:
        """A program, from chunks of its HLO text."""
        text = bytearray()
        for message in messages:
            text += message.text
            if len(text) > self.limits.program:
                raise TooMuchError(f"the program has more than {self.limits.program} bytes, the limit of the service")
        try:
            module = text.decode()
        except UnicodeDecodeError:
            raise SystolithError("the program is no UTF-8 text") from None
        program = self.client.compile(module)
        with self._lock:
            (number,) = self._numbers(1)
            self._programs[number] = program
        yield message_class("Handles")(programs=[number])

    def transfer_to_server(self, messages: Messages) -> Messages:
        literal, device, _ = self._received(messages)
        data = self.client.transfer_to_server(literal, device)
        yield self._kept([b for b in data.buffers if isinstance(b, Buffer)])

    def transfer_from_server(self, messages: Messages) -> Messages:
        request = self._only(messages)
        shape = Shape.parse(request.shape)
        buffers = [self._value(handle) for handle in request.values]
        if len(buffers) != sum(leaf.is_array for leaf in shape.leaves()):
            raise SystolithError(f"{len(buffers)} handles are no value of shape {shape}")
        yield from _sent(self.client.transfer_from_server(GlobalData(shape, tuple(buffers))))

    def transfer_to_infeed(self, messages: Messages) -> Messages:
        self.client.transfer_to_infeed(*self._received(messages))
        yield message_class("Nothing")()

    def transfer_from_outfeed(self, messages: Messages) -> Messages:
        request = self._only(messages)
        shape = self._limited(Shape.parse(request.shape))
        yield from _sent(self.client.transfer_from_outfeed(shape, request.device, request.config))

    def execute(self, messages: Messages) -> Messages:
        request = self._only(messages)
        program = self._programs.get(request.program)
        if program is None:
            raise NotFoundError(f"this client has no program {request.program}")
        arguments = [self._value(handle) for handle in request.arguments]
        queue = self.client.device(request.device).queue
        with self._lock:  # the order of the queue
            queue.submit(lambda: self.started.__setitem__(request.device, monotonic()))
            try:
                results = program(*arguments, device=request.device)
            finally:
                queue.submit(lambda: self.started.pop(request.device, None))
        yield self._kept(results)

    def last_run(self, messages: Messages) -> Messages:
        """The record of the latest run, after its end."""
        self._only(messages)
        record, kind = self.client.last_record(), message_class("Record")
        if record is None:
            yield kind()
            return
        yield kind(cycles=record["cycles"], launch=record["launch"])
        for chunk in cut_bytes(json_text(record).encode()):
            yield kind(data=chunk)

    def delete(self, messages: Messages) -> Messages:
        """Free values and programs; what is not there is skipped."""
        request = self._only(messages)
        with self._lock:
            for handle in request.values:
                self._values.pop(handle, None)
            for handle in request.programs:
                self._programs.pop(handle, None)
        yield message_class("Nothing")()

    def _only(self, messages: Messages) -> Any:
        taken = next(messages, None)
        if taken is None or next(messages, None) is not None:
            raise SystolithError("expected one message")
        return taken

    def _received(self, messages: Messages) -> tuple[Literal, int, str]:
        """A value, a device and a config, from their messages."""
        first = next(messages, None)
        if first is None:
            raise SystolithError("expected a value, got no message")
        shape = self._limited(Shape.parse(first.shape))
        if shape.is_dynamic:
            raise SystolithError(f"expected a value of static shape, got {shape}")
        data = filled(shape.bytes, (message.data for message in messages))
        if data is None:
            raise SystolithError(f"a value of shape {shape} has {shape.bytes} bytes, got more or fewer")
        for part, leaf in zip(dense_parts(data, shape), (s for s in shape.leaves() if s.is_array), strict=True):
            if leaf.dtype.kind is DTypeKind.PRED and (part.view(np.uint8) > 1).any():
                raise SystolithError(f"a value of shape {leaf} has bytes other than 0 and 1")
        return Literal.of_shape(value_of(shape, dense_parts(data, shape)), shape), first.device, first.config

    def _limited(self, shape: Shape) -> Shape:
        if shape.bytes > self.limits.transfer:
            raise TooMuchError(f"{shape} has {shape.bytes} bytes: the limit of the service is {self.limits.transfer}")
        return shape

    def _numbers(self, count: int) -> range:
        """Handles for new values or programs."""
        if len(self._values) + len(self._programs) + count > self.limits.handles:
            raise TooMuchError(f"this client may have {self.limits.handles} values and programs; delete some")
        first = self._last + 1
        self._last += count
        return range(first, first + count)

    def _value(self, handle: int) -> Buffer:
        buffer = self._values.get(handle)
        if buffer is None:
            raise NotFoundError(f"this client has no value {handle}")
        return buffer

    def _kept(self, buffers: list[Buffer]) -> Any:
        with self._lock:
            numbers = self._numbers(len(buffers))
            self._values.update(zip(numbers, buffers, strict=True))
        return message_class("Handles")(values=numbers)


def _sent(literal: Literal) -> Messages:
    return messages_of(literal.shape, arrays_of(literal.value))


CALLS: dict[str, Callable[[Session, Messages], Messages]] = {
    "Compile": Session.compile,
    "TransferToServer": Session.transfer_to_server,
    "TransferFromServer": Session.transfer_from_server,
    "TransferToInfeed": Session.transfer_to_infeed,
    "TransferFromOutfeed": Session.transfer_from_outfeed,
    "Execute": Session.execute,
    "LastRun": Session.last_run,
    "Delete": Session.delete,
}
# The first that fits.
_STATUSES: tuple[tuple[type[BaseException], Status], ...] = (
    (AbortedError, Status.CANCELLED),
    (NotFoundError, Status.NOT_FOUND),
    (TooMuchError, Status.RESOURCE_EXHAUSTED),
    (SystolithError, Status.INVALID_ARGUMENT),
    (DecodeError, Status.INVALID_ARGUMENT),
    (MemoryError, Status.RESOURCE_EXHAUSTED),
)


class Link:
    """The worker's end of the socket pair: each call is done by a thread of its own."""

    def __init__(self, link: socket.socket, session: Session) -> None:
        self._input = link.makefile("rb")
        self._output = link.makefile("wb")
        self._session = session
        self._calls: dict[int, SimpleQueue[tuple[Kind, bytes]]] = {}
        self._sending = Lock()

    def serve(self) -> None:
        """Take calls until the other end closes."""
        while len(header := self._input.read(HEADER.size)) == HEADER.size:
            number, call, size = HEADER.unpack(header)
            kind, contents = Kind(number), self._input.read(size)
            if kind is Kind.CALL:
                self._begin(call, contents.decode())
            elif queue := self._calls.get(call):
                queue.put((kind, contents))

    def _begin(self, call: int, method: str) -> None:
        self._calls[call] = SimpleQueue()
        try:
            Thread(target=self._answer, args=(call, method), daemon=True).start()
        except RuntimeError:  # there is no memory for its stack
            self._end(call, Status.RESOURCE_EXHAUSTED, OUT_OF_MEMORY)

    def _answer(self, call: int, method: str) -> None:
        """Do a call, and send its replies and how it ended."""
        request = message_class(METHODS[method].split(",")[0].rstrip("*"))
        status, text = Status.OK, ""
        try:
            for reply in CALLS[method](self._session, self._messages(call, request)):
                self._send(frame(Kind.MESSAGE, call, reply.SerializeToString()))
        except Exception as error:
            status = next((status for kind, status in _STATUSES if isinstance(error, kind)), Status.INTERNAL)
            text = OUT_OF_MEMORY if isinstance(error, MemoryError) else str(error) or type(error).__name__
            if status is Status.INTERNAL:
                text = f"fault of systolith: {type(error).__name__}: {text}"
                print(f"systolith serve: {method}: {text[:1000]!r}", file=sys.stderr)
        self._end(call, status, text)

    def _messages(self, call: int, kind: Any) -> Messages:
        """The messages of a call.

        Raises:
            AbortedError: the client gave up.
        """
        queue = self._calls[call]
        while (item := queue.get())[0] is Kind.MESSAGE:
            yield kind.FromString(item[1])
        if item[0] is not Kind.END:
            raise AbortedError("the client gave up")

    def _end(self, call: int, status: Status, text: str) -> None:
        del self._calls[call]
        self._send(frame(Kind.DONE, call, ended(status, text)))

    def _send(self, data: bytes) -> None:
        with self._sending, suppress(OSError):  # the front is gone: `_watch` ends the process
            self._output.write(data)
            self._output.flush()


def _watch(link: socket.socket, session: Session) -> None:
    """End the process once the front is gone, or a run takes too long."""
    poller = select.poll()
    poller.register(link, select.POLLRDHUP)
    while not poller.poll(1000):
        if any(monotonic() - since > session.limits.seconds for since in session.started.copy().values()):
            os._exit(OVERTIME)
    os._exit(0)


def serve_session(link: socket.socket, chip: Chip, devices: int, limits: Limits) -> None:
    """Be the process of a client until the other end of `link` closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the front
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Path("/proc/self/oom_score_adj").write_text("1000")  # where memory runs out, workers go first
    with open("/proc/self/status") as file:
        used = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (used + limits.memory,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    session = Session(chip, devices, limits)
    Thread(target=_watch, args=(link, session), daemon=True).start()
    status = 0
    try:
        Link(link, session).serve()
    except MemoryError:
        status = NO_MEMORY
    except OSError:
        pass  # the front is gone
    os._exit(status)
