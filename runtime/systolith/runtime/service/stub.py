"""The client of a service: XLA's client interface, done elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, NoReturn
from weakref import finalize

import grpc

from systolith.compiler.hlo.shape import Shape
from systolith.compiler.xla_builder.computation import XlaComputation
from systolith.compiler.xla_builder.literal import Literal
from systolith.isa.errors import SystolithError
from systolith.isa.files import parse_json
from systolith.runtime.arrays import Array
from systolith.runtime.global_data import GlobalData, OnDevice, Transfers, dense_parts, value_of
from systolith.runtime.service.access import AccessError, bearer, read_authorities
from systolith.runtime.service.address import Address, require_own
from systolith.runtime.service.limits import MESSAGE
from systolith.runtime.service.messages import (
    METHODS,
    SESSION_KEY,
    TOKEN_KEY,
    cut_bytes,
    filled,
    int32,
    message_class,
    messages_of,
    path_of,
)

# Statuses whose text is that of an error in this process.
_OF_THE_CALL = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)


class ServiceError(SystolithError):
    """A service cannot be reached, refuses a client, or has ended its session."""


class _Handle:
    """A value or a program of the service; freed there at a call after it is not needed here."""

    def __init__(self, session: str, number: int, freed: deque[int]) -> None:
        self.session = session
        self.number = number
        # No call is made where objects are collected: that can be in the middle of one.
        self._free = finalize(self, freed.append, number)

    @property
    def deleted(self) -> bool:
        """Whether it was freed."""
        return not self._free.alive

    def delete(self) -> None:
        """Free its memory; deleting twice is allowed."""
        self._free()


class RemoteClient(Transfers[_Handle]):
    """A client of a service's devices, made by `connect`.

    Attributes:
        chip: name of the devices' chip.
        devices: how many there are.
        version: systolith's, of the service.
    """

    def __init__(self, address: Address, channel: grpc.Channel, token: str | None) -> None:
        super().__init__()
        self._address = address
        self._channel = channel
        self._metadata: tuple[tuple[str, str], ...] = ((TOKEN_KEY, bearer(token)),) if token else ()
        self._values: deque[int] = deque()
        self._programs: deque[int] = deque()
        self._lock = Lock()
        self._calls = {method: self._callable(method) for method in METHODS}
        self._stream = self._calls["Attach"](
            iter([message_class("Nothing")()]), metadata=self._metadata, wait_for_ready=False
        )
        try:
            first = next(self._stream)
        except grpc.RpcError as error:
            channel.close()
            self._fail(error)
        self._session = first.name
        self.chip, self.devices, self.version = first.chip, first.devices, first.version
        self._metadata += ((SESSION_KEY, first.name),)

    def __repr__(self) -> str:
        return f"<RemoteClient of {self.devices} x {self.chip} at {self._address}>"

    def __enter__(self) -> RemoteClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the session: what it holds on the service is freed."""
        self._stream.cancel()
        self._channel.close()

    def metrics(self) -> str:
        """Counts of the service, in Prometheus' text format."""
        (reply,) = self._call("Metrics", [message_class("Nothing")()])
        return str(reply.text)

    def last_record(self) -> dict[str, Any] | None:
        replies = self._call("LastRun", [message_class("Nothing")()])
        first = next(replies)
        text = b"".join(reply.data for reply in replies)
        if not first.HasField("cycles"):
            return None
        record: dict[str, Any] = parse_json(text, "the record", ServiceError)
        return record

    def transfer_in_process(self, source: object) -> NoReturn:
        """Refused: the devices are in another process."""
        raise SystolithError(
            f"transfer_in_process: the devices are in another process, at {self._address};"
            " take transfer_to_server and transfer_from_server"
        )

    TransferInProcess = transfer_in_process

    def _callable(self, method: str) -> Any:
        _, reply = (kind.strip().rstrip("*") for kind in METHODS[method].split(","))
        return self._channel.stream_stream(
            path_of(method),
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=message_class(reply).FromString,
        )

    def _call(self, method: str, messages: Iterable[Any]) -> Iterator[Any]:
        """The replies of a call; before it, what is not needed any more is freed."""
        self._free()
        call = None
        try:
            call = self._calls[method](iter(messages), metadata=self._metadata)
            yield from call
        except grpc.RpcError as error:
            self._fail(error)
        except ValueError:  # gRPC, of a closed channel
            raise ServiceError(f"{self._address}: the client was closed") from None
        finally:
            if call is not None:
                call.cancel()  # where Ctrl-C has ended the wait

    def _free(self) -> None:
        if not (self._values or self._programs):
            return
        with self._lock:
            values, programs = _taken(self._values), _taken(self._programs)
        if values or programs:
            list(self._call("Delete", [message_class("Handles")(values=values, programs=programs)]))

    def _fail(self, error: Any) -> NoReturn:
        code, text = error.code(), " ".join(str(error.details()).split())
        if code in _OF_THE_CALL:
            raise SystolithError(text) from None
        if code is grpc.StatusCode.FAILED_PRECONDITION:
            text = self._why_ended() or text
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):  # nobody cancels here
            text = f"no service answers, or it has ended ({text})"
        raise ServiceError(f"{self._address}: {text}") from None

    def _why_ended(self) -> str:
        """The message with which the service ended the session."""
        try:
            next(self._stream, None)
        except grpc.RpcError as error:
            ended: Any = error
            return " ".join(str(ended.details()).split())
        return ""

    def _only(self, method: str, messages: Iterable[Any]) -> Any:
        (reply,) = self._call(method, messages)
        return reply

    def _handles(self, reply: Any) -> tuple[_Handle, ...]:
        return tuple(_Handle(self._session, number, self._values) for number in reply.values)

    def _own(self, data: GlobalData) -> Iterator[int]:
        """The numbers of data of this client."""
        for buffer in data.buffers:
            if not isinstance(buffer, _Handle) or buffer.session != self._session:
                raise SystolithError(f"data of shape {data.shape} is another client's; transfer it to this one")
            if buffer.deleted:
                raise SystolithError(f"data of shape {data.shape} was deleted")
            yield buffer.number

    def _put(self, arrays: Sequence[Array], shape: Shape, device: int) -> tuple[OnDevice, ...]:
        return self._handles(self._only("TransferToServer", messages_of(shape, arrays, device)))

    def _fetch(self, data: GlobalData) -> Literal:
        request = message_class("Handles")(values=list(self._own(data)), shape=data.shape.text())
        return self._value(self._call("TransferFromServer", [request]))

    def _feed(self, arrays: Sequence[Array], shape: Shape, device: int, config: str) -> None:
        self._only("TransferToInfeed", messages_of(shape, arrays, device, config))

    def _drain(self, shape: Shape, device: int, config: str) -> Literal:
        return self._value(self._call("TransferFromOutfeed", messages_of(shape, (), device, config)))

    def _value(self, replies: Iterator[Any]) -> Literal:
        shape = Shape.parse(next(replies).shape)
        data = filled(shape.bytes, (reply.data for reply in replies))
        if data is None:
            raise ServiceError(f"{self._address}: a value of shape {shape} came with more or fewer bytes")
        return Literal.of_shape(value_of(shape, dense_parts(data, shape)), shape)

    def _load(self, computation: XlaComputation) -> _Handle:
        program = message_class("Program")
        text = computation.hlo_text().encode()
        reply = self._only("Compile", (program(text=chunk) for chunk in cut_bytes(text)))
        return _Handle(self._session, reply.programs[0], self._programs)

    def _start(self, loaded: _Handle, arguments: Sequence[GlobalData], device: int) -> tuple[OnDevice, ...]:
        numbers = [number for data in arguments for number in self._own(data)]
        request = message_class("Execute")(program=loaded.number, arguments=numbers, device=int32(device))
        return self._handles(self._only("Execute", [request]))


def _taken(numbers: deque[int]) -> list[int]:
    return [numbers.popleft() for _ in range(len(numbers))]


def connected(where: Address, token: str | None, ca_file: str | Path | None) -> RemoteClient:
    """The client of a service, as `systolith.runtime.connect.connect` describes."""
    options = [
        ("grpc.enable_http_proxy", 0),  # the token is for the service only
        ("grpc.max_receive_message_length", MESSAGE),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if where.path:
        require_own(where.path)
    if ca_file:
        credentials = grpc.ssl_channel_credentials(read_authorities(ca_file))
        return RemoteClient(where, grpc.secure_channel(str(where), credentials, options), token)
    where = where.resolved()
    if not where.private:
        raise AccessError(f"{where}: not loopback, so ca_file is needed: the certificate that the service is known by")
    return RemoteClient(where, grpc.insecure_channel(str(where), options), token)
